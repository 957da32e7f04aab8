"""A record cut at every byte, and with each of its sectors lost: exactly the records before it survive."""

from __future__ import annotations

import pytest

from aerobee.hot.log.record import VERIFY_RECORD, Draft, encode_blank, encode_records
from aerobee.store.recovery import LogEnd, find_end
from aerobee.testing.crash import CrashMode
from aerobee.testing.crashcheck import read_all
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.recordcases import BytesLog, draft_of, record_cases
from aerobee.testing.storekit import make_store, small_config

CASES = record_cases()
SECTOR = 512
FIRST = "/store/commitlog/00000000000000000000"
BEFORE = 3


def before_of(with_crc: bool) -> bytes:
    drafts = [draft_of(b"before %d" % number, properties={"UNIQ_KEY": f"{number}"}) for number in range(BEFORE)]
    return encode_records(drafts, 0, 1, with_crc)


def end_of(data: bytes, durable: int) -> LogEnd:
    """Return where recovery would end the log, in a segment that goes on with zeros."""
    return find_end(BytesLog(data), 0, len(data), durable, VERIFY_RECORD)


def boundaries(drafts: list[Draft], start: int) -> list[int]:
    found = [start]
    for draft in drafts:
        found.append(found[-1] + draft.size)
    return found


@pytest.mark.parametrize("with_crc", [True, False], ids=["sealed", "unsealed"])
@pytest.mark.parametrize("kind", CASES)
def test_cut_at_every_byte(kind: str, with_crc: bool) -> None:
    before = before_of(with_crc)
    drafts = record_cases()[kind]
    data = encode_records(drafts, len(before), 1, with_crc)
    ends = boundaries(drafts, len(before))
    rest = bytes(len(data) + 1024)
    # Of the large one a second pass over every byte of the same body would tell nothing new.
    step = 5 if kind == "large" and not with_crc else 1
    for size in range(0, len(data), step):
        whole = max(end for end in ends if end <= len(before) + size)
        # The last byte of a record may be zero by itself; then nothing is missing.
        if not any(data[size : ends[ends.index(whole) + 1] - len(before)]):
            continue
        found = end_of(before + data[:size] + rest[size:], len(before))
        assert (found.end, found.damages) == (whole, []), size
    assert end_of(before + data + rest, len(before)).end == ends[-1]


@pytest.mark.parametrize("kind", CASES)
def test_every_sector_lost(kind: str) -> None:
    """Of a record that was not synced a disk may lose any sector; it is never taken for whole."""
    before = before_of(True)
    drafts = record_cases()[kind]
    data = encode_records(drafts, len(before), 1, True)
    ends = boundaries(drafts, len(before))
    whole = before + data + bytes(1024)
    for sector in range(len(before) // SECTOR, len(before + data) // SECTOR + 1):
        low, high = max(sector * SECTOR, len(before)), min((sector + 1) * SECTOR, len(before + data))
        if not any(whole[low:high]):
            continue
        holed = whole[:low] + bytes(high - low) + whole[high:]
        found = end_of(holed, len(before))
        assert (found.end, found.damages) == (max(end for end in ends if end <= low), []), sector


@pytest.mark.parametrize("size", range(9))
def test_a_torn_blank_record_ends_the_log_before_it(size: int) -> None:
    before = before_of(True)
    blank = encode_blank(4096 - len(before))
    found = end_of((before + blank[:size]).ljust(4096, b"\0"), len(before))
    assert (found.end, found.damages) == (4096 if size == 8 else len(before), [])


@pytest.mark.parametrize("kind", [kind for kind in CASES if kind != "large"])
def test_a_store_starts_on_every_cut(kind: str) -> None:
    """The whole start: what is cut is wiped, queues hold what the log holds, the next message gets its number."""
    config = small_config(sync=False, segment=8192)
    source = RecordingDisk()
    store = make_store(source, config)
    store.open()
    store.append([draft_of(b"before")])
    store.flush_sinks()
    source.sync_everything()
    begin = store.log_end
    drafts = record_cases()[kind]
    end = store.append(drafts)
    ends = boundaries(drafts, begin)
    data = store.read_log(begin, end - begin)
    for size in range(0, len(data), 3):
        image = source.crash(CrashMode.NONE)
        image.open(FIRST).write(begin, data[:size])
        after = make_store(image, config)
        report = after.open()
        assert report.damages == []
        assert after.log_end == max(at for at in ends if at <= begin + size)
        assert not any(image.open(FIRST).read(after.log_end, 8192))
        assert len(read_all(after, b"orders", 0)) >= 1
        again = draft_of(b"after")
        after.append([again])
        assert again.queue_offset == after.max_offset(b"orders", 0) - 1 == len(read_all(after, b"orders", 0)) - 1
