"""When a replica keeps its incarnation over a start, and when it draws a new one."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from aerobee.errors import StoreError
from aerobee.replication.identity import Identity, Prepared, decode_identity, encode_identity, prepare
from aerobee.replication.ownlog import OwnLog
from aerobee.replication.values import Epoch
from aerobee.store.messagestore import MessageStore
from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.storekit import ROOT, draft, make_store, small_config

_seeds = count()


def begin(
    disk: RecordingDisk, boot_id: str, *, sync: bool = False, start: str = "", directory: int = 0
) -> tuple[Prepared, OwnLog, MessageStore]:
    config = small_config(sync=sync)
    prepared = prepare(
        disk, ROOT, config, SeededEntropy(next(_seeds)), cluster="c", group="g", boot_id=boot_id,
        start_id=start, number_of=lambda path: directory,
    )  # fmt: skip
    store = make_store(disk, config)
    store.open(prepared.confirm_limit)
    return prepared, OwnLog(store, prepared, disk, SeededEntropy(7)), store


def grown(disk: RecordingDisk, *, sync: bool = False) -> str:
    """Run a replica that writes three records. Return its incarnation. It is not stopped."""
    _, log, store = begin(disk, "boot-1", sync=sync)
    log.joined(3)
    log.begin_epoch(1)
    for _ in range(3):
        store.append([draft()])
    log.confirm(log.end)
    return log.identity.incarnation


def test_the_file_holds_everything() -> None:
    known = Identity(
        cluster="c", group="g/h", id=3, incarnation="ab" * 16, epoch=9, epochs=(Epoch(number=4, start=0),),
        boot_id="b", sync_flush=True, clean_end=77, suspect=True, starts=("s1", "s2"), directory=1 << 63,
    )  # fmt: skip
    assert decode_identity(encode_identity(known)) == known


@pytest.mark.parametrize(
    "content",
    [b"{}", b"[]", b"nonsense", encode_identity(Identity(cluster="c", group="g")).replace(b'"v":1', b'"v":2')],
)
def test_a_file_without_sense_is_no_identity(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_identity(content)


def test_kill_keeps_the_incarnation() -> None:
    disk = RecordingDisk()
    before = grown(disk)
    assert begin(disk.kill(), "boot-1")[1].identity.incarnation == before


def test_a_power_cut_without_sync_flush_draws_a_new_one() -> None:
    disk = RecordingDisk()
    before = grown(disk)
    prepared, log, _ = begin(disk.crash(CrashMode.ALL, 1), "boot-2")
    assert log.identity.incarnation != before
    assert "started anew" in prepared.renewed
    assert log.identity.id == 3


def test_a_power_cut_with_sync_flush_keeps_it() -> None:
    disk = RecordingDisk()
    before = grown(disk, sync=True)
    assert begin(disk.crash(CrashMode.NONE, 1), "boot-2", sync=True)[1].identity.incarnation == before


def test_an_orderly_stop_keeps_it_over_a_new_start_of_the_machine() -> None:
    disk = RecordingDisk()
    before = grown(disk)
    _, log, store = begin(disk.kill(), "boot-1")
    store.sync_now()
    log.close()
    store.close()
    again = begin(store.disk.crash(CrashMode.NONE, 1), "boot-2")  # type: ignore[attr-defined]
    assert again[1].identity.incarnation == before
    assert again[1].identity.clean_end == -1


def test_a_log_that_lost_its_tail_draws_a_new_one() -> None:
    disk = RecordingDisk()
    before = grown(disk, sync=True)
    killed = disk.kill()
    killed.unlink(f"{ROOT}/commitlog/{0:020d}")
    prepared, log, _ = begin(killed, "boot-1", sync=True)
    assert log.identity.incarnation != before
    assert log.renewed or prepared.renewed


def test_an_empty_directory_is_nobody() -> None:
    prepared, log, _ = begin(RecordingDisk(), "boot-1")
    assert (log.identity.id, log.identity.epoch, prepared.confirm_limit) == (0, 0, 0)
    assert len(log.identity.incarnation) == 32


def test_the_directory_of_a_single_broker_is_taken_with_all_it_shows() -> None:
    disk = RecordingDisk()
    store = make_store(disk)
    store.open()
    end = store.append([draft()])
    store.close()
    prepared, log, again = begin(disk, "boot-1")
    assert prepared.confirm_limit is None
    assert (log.confirmed, again.dispatched_offset) == (end, end)
    assert log.epochs.entries == (Epoch(number=0, start=0),)


def test_the_directory_of_another_group_is_refused() -> None:
    disk = RecordingDisk()
    grown(disk)
    with pytest.raises(StoreError, match="belongs to group g"):
        prepare(disk.kill(), ROOT, small_config(), SeededEntropy(1), cluster="c", group="other", boot_id="b")


def test_what_was_not_confirmed_is_not_shown_after_a_start() -> None:
    disk = RecordingDisk()
    _, log, store = begin(disk, "boot-1")
    log.begin_epoch(1)
    store.set_confirm_limit(log.confirmed)
    first = store.append([draft()])
    store.append([draft()])
    log.confirm(first)
    store.sync_now()
    store.close()
    prepared, again, opened = begin(disk.kill(), "boot-1")
    assert prepared.confirm_limit == first
    assert (again.confirmed, opened.dispatched_offset) == (first, first)
    assert opened.log_end > first


def test_epochs_behind_the_end_of_the_log_are_forgotten() -> None:
    disk = RecordingDisk()
    grown(disk)
    prepared, log, store = begin(disk.kill(), "boot-1")
    ahead = replace(prepared.identity, epochs=(*log.epochs.entries, Epoch(number=5, start=store.log_end + 1)))
    found = OwnLog(store, replace(prepared, identity=ahead), disk, SeededEntropy(1))
    assert found.epochs.entries == log.epochs.entries


def test_starts_are_noted_until_one_has_joined() -> None:
    disk = RecordingDisk()
    for number in range(1, 100):
        assert begin(disk, "boot-1", start=f"s{number}")[1].identity.starts[-1] == f"s{number}"
        disk = disk.kill()
    _, log, _ = begin(disk, "boot-1", start="s100")
    assert (log.identity.starts[0], log.identity.starts[-2:], len(log.identity.starts)) == ("s1", ("s99", "s100"), 66)
    log.joined(3)
    assert begin(disk.kill(), "boot-1", start="s101")[1].identity.starts == ("s100", "s101")


def test_a_copy_that_may_lack_something_is_a_new_replica() -> None:
    disk = RecordingDisk()
    _, log, store = begin(disk, "boot-1", start="s1", directory=7)
    log.joined(3)
    log.begin_epoch(1)
    store.append([draft()])
    before = log.identity
    again, _, _ = begin(disk.kill(), "boot-1", start="s2", directory=7)
    assert (again.identity.id, again.identity.incarnation) == (3, before.incarnation), "it was killed"
    copied, own, _ = begin(disk.kill(), "boot-1", start="s2", directory=8)
    assert "is a copy" in copied.renewed and own.end == log.end
    assert (own.identity.id, own.identity.starts, own.identity.epoch) == (0, ("s2",), 1)
    assert own.identity.incarnation != before.incarnation


def test_a_copy_of_a_directory_that_was_left_in_order_is_the_replica() -> None:
    """The group knows whether another one has been started since."""
    disk = RecordingDisk()
    _, log, store = begin(disk, "boot-1", start="s1", directory=7)
    log.joined(3)
    store.append([draft()])
    store.sync_now()
    log.close()
    moved, _, _ = begin(disk.kill(), "boot-2", start="s2", directory=8)
    assert (moved.renewed, moved.identity.id, moved.identity.starts) == ("", 3, ("s1", "s2"))
    assert moved.identity.incarnation == log.identity.incarnation
