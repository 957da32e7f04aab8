"""What of a master's bytes enters a slave's log."""

from __future__ import annotations

import pytest

from aerobee.errors import LogDisagreementError
from aerobee.replication.classic.incoming import IncomingRecords
from aerobee.store.messagestore import MessageStore
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.hakit import log_bytes
from aerobee.testing.storekit import draft, make_store, small_config

SEGMENT = 4096


def written(count: int = 30) -> MessageStore:
    store = make_store(RecordingDisk(seed=1), small_config(sync=False))
    store.open()
    for number in range(count):
        store.append([draft(b"%d" % number * 40)])
    return store


@pytest.mark.parametrize("size", [1, 7, 100, 1000, 100_000])
def test_whole_records_come_out_however_transfers_cut_them(size: int) -> None:
    log = log_bytes(written())
    assert len(log) > SEGMENT, "the log has an unused end of a segment"
    incoming = IncomingRecords(0, SEGMENT)
    out = b""
    for at in range(0, len(log), size):
        out += incoming.feed(at, log[at : at + size])
        assert len(out) == incoming.position
    assert out == log


def test_another_offset_than_the_next_is_refused() -> None:
    log = log_bytes(written())
    incoming = IncomingRecords(0, SEGMENT)
    incoming.feed(0, log[:100])
    for offset in (0, 99, 101, 4096):
        with pytest.raises(LogDisagreementError, match=f"offset {offset} next"):
            incoming.feed(offset, log[100:200])
    assert incoming.feed(100, b"") == b""


def test_every_flipped_byte_that_a_checksum_covers_is_refused() -> None:
    log = log_bytes(written(3))
    accepted = 0
    for at in range(len(log)):
        broken = bytearray(log)
        broken[at] ^= 1
        try:
            # A broken size may ask for bytes that never come: then nothing is stored either.
            accepted += len(IncomingRecords(0, SEGMENT).feed(0, bytes(broken))) > at
        except LogDisagreementError:
            pass
    assert accepted == 0


def test_segments_of_another_length_are_refused() -> None:
    log = log_bytes(written())
    with pytest.raises(LogDisagreementError, match="mappedFileSizeCommitLog"):
        IncomingRecords(0, 2 * SEGMENT).feed(0, log)
    with pytest.raises(LogDisagreementError, match="mappedFileSizeCommitLog"):
        IncomingRecords(0, SEGMENT // 2).feed(0, log)
