"""Every disk call of a scripted run fails once, with EIO and with ENOSPC; and disks that are full for a while."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable

import pytest

from aerobee.errors import DiskFullError, StoreError, StoreFencedError
from aerobee.store.messagestore import MessageStore
from aerobee.testing.clock import VirtualClock
from aerobee.testing.crash import CrashMode
from aerobee.testing.crashcheck import read_all
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.faults import DiskCall, Fault
from aerobee.testing.recordcases import draft_of
from aerobee.testing.storeshapes import Shape

SYNCS = ("sync", "sync_dir")


def shape_of(sync_flush: bool) -> Shape:
    return Shape(
        sync_flush=sync_flush,
        segment_size=4096,
        units_per_file=5,
        with_index=True,
        late_syncs=False,
        queue_count=1,
        topic_count=1,
    )


def body_of(record: bytes) -> bytes:
    return record[88 : 88 + int.from_bytes(record[84:88], "big")]


def bodies(store: MessageStore) -> list[bytes]:
    return [body_of(record) for record in read_all(store, b"orders", 0)]


class Run:
    """The script, and what it was told. A StoreError is its callers' to expect, and nothing else is."""

    def __init__(
        self,
        disk: RecordingDisk,
        sync_flush: bool,
        fault: Fault | None = None,
        is_sync: bool = False,
        truncates: bool = True,
    ) -> None:
        self.disk = disk
        self.truncates = truncates
        self.shape = shape_of(sync_flush)
        self.clock = VirtualClock()
        self.fault = fault
        self.is_sync = is_sync
        self.sent: list[bytes] = []
        self.acknowledged: list[bytes] = []
        self.late: list[bytes] = []  # acknowledged though a sync had failed
        self.gone: set[bytes] = set()  # deleted or truncated on purpose, or in doubt
        self.errors: list[StoreError] = []
        self.store = self.shape.store(disk, self.clock)

    @property
    def has_failed(self) -> bool:
        return self.fault is not None and self.fault.hits > 0

    def attempt(self, step: Callable[[], object]) -> None:
        try:
            step()
        except StoreError as error:
            self.errors.append(error)

    def run(self) -> None:
        self.attempt(self.store.open)
        if not self.store.is_open:
            return
        for number in range(14):
            self.attempt(lambda number=number: self.send(number))  # type: ignore[misc]
            if number % 4 == 3:
                self.clock.advance(1.5)
                self.attempt(self.store.tick)
            if number == 8:
                self.attempt(self.delete)
            if number == 11 and self.truncates:
                self.attempt(self.truncate)
        self.attempt(self.store.close)

    def send(self, number: int) -> None:
        body = b"message %02d " % number + bytes(range(1, 201)) * (number % 5)
        self.sent.append(body)
        draft = draft_of(body, properties={"KEYS": f"key{number}", "UNIQ_KEY": f"U{number}"})
        end = self.store.append([draft])

        def told(error: StoreError | None) -> None:
            if error is None:
                self.acknowledged.append(body)
                if self.has_failed and self.is_sync:
                    self.late.append(body)

        self.store.on_safe(end, told)

    def delete(self) -> None:
        """Delete the first segment. What it holds is in doubt until that has returned."""
        kept = set(bodies(self.store))
        size = self.shape.segment_size
        doomed = {body_of(record) for record in self._records() if self._place(record) < size}
        self.gone |= doomed & kept
        self.store.delete_oldest_segment()

    def truncate(self) -> None:
        records = self._records()
        if records:
            self.gone.add(body_of(records[-1]))
            self.store.truncate(self._place(records[-1]))

    def _records(self) -> list[bytes]:
        return read_all(self.store, b"orders", 0)

    @staticmethod
    def _place(record: bytes) -> int:
        return int.from_bytes(record[28:36], "big")


def calls_of(sync_flush: bool) -> list[DiskCall]:
    disk = RecordingDisk()
    run = Run(disk, sync_flush)
    run.run()
    assert not run.errors
    assert len(run.acknowledged) == 14
    return disk.trace


CALLS = {sync_flush: calls_of(sync_flush) for sync_flush in (True, False)}


def check_failure(sync_flush: bool, nth: int, number: int, partial: int) -> Run:
    call = CALLS[sync_flush][nth - 1]
    disk = RecordingDisk()
    fault = disk.fail(nth, errno=number, partial_bytes=partial)
    run = Run(disk, sync_flush, fault, call.kind in SYNCS)
    run.run()
    assert fault.hits == 1, call
    assert run.late == [], f"acknowledged after {call} had failed"
    disk.heal()
    required = set(run.acknowledged) - run.gone
    # The page cache holds what a failed sync has lost: then only the platter counts.
    images = [] if run.is_sync else [disk.kill()]
    if sync_flush:
        images += [disk.crash(CrashMode.NONE), disk.crash(CrashMode.RANDOM, nth)]
    for image in images:
        after = run.shape.store(image, run.clock)
        report = after.open()
        found = bodies(after)
        assert report.damages == [], call
        assert required <= set(found), f"{call}: acknowledged and lost"
        assert set(found) <= set(run.sent)
        assert len(found) == len(set(found)), f"{call}: a message came twice"
        sent = draft_of(b"goes on", properties={"UNIQ_KEY": "U99"})
        after.append([sent])
        assert bodies(after)[-1] == b"goes on"
        after.close()
    return run


@pytest.mark.parametrize("sync_flush", [True, False], ids=["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize(
    ("number", "partial"),
    [(errno.EIO, 0), (errno.ENOSPC, 0), (errno.ENOSPC, 60)],
    ids=["EIO", "ENOSPC", "half written"],
)
def test_any_one_call_may_fail(sync_flush: bool, number: int, partial: int, capsys: pytest.CaptureFixture[str]) -> None:
    count = 0
    for nth, call in enumerate(CALLS[sync_flush], 1):
        if partial and call.kind != "write":
            continue
        run = check_failure(sync_flush, nth, number, partial)
        count += 1
        if call.kind in SYNCS and run.store.fenced is None:
            assert not run.store.is_open, f"{call} failed and the store went on"
    with capsys.disabled():
        print(f"\n{count} failing calls, 0 acknowledged lost, 0 acknowledged after a failed sync")


def test_a_failed_sync_is_final() -> None:
    """Nothing is acknowledged, nothing more is written, until a start has looked at what the disk really holds."""
    disk = RecordingDisk()
    run = Run(disk, True)
    run.store.open()
    run.send(0)
    disk.fail(1, "sync", path="commitlog")
    run.send(1)
    assert run.acknowledged == [run.sent[0]]
    assert isinstance(run.store.fenced, StoreFencedError)
    for _ in range(3):
        with pytest.raises(StoreFencedError):
            run.store.append([draft_of(b"no")])
        run.clock.advance(2)
        run.store.tick()
    assert bodies(run.store) == [run.sent[0]]  # readers go on
    run.store.close()
    assert disk.exists("/store/abort")
    again = run.shape.store(disk.crash(CrashMode.ALL), run.clock)
    again.open()
    assert bodies(again) == [run.sent[0]]


@pytest.mark.parametrize(
    ("sync_flush", "number", "times"),
    [(True, errno.EMFILE, 1), (True, errno.ENOMEM, 5), (False, errno.ENFILE, 5)],
    ids=["EMFILE, SYNC_FLUSH", "ENOMEM for a while, SYNC_FLUSH", "ENFILE for a while, ASYNC_FLUSH"],
)
def test_a_shortage_of_descriptors_fences_nothing_and_passes(sync_flush: bool, number: int, times: int) -> None:
    """Whatever open is refused, and with it the syncs of directories, which are opened for that: what was acknowledged
    is there, no restart is needed, and once the shortage is over everything works."""
    for kind in ("open", "sync_dir"):
        for nth in itertools.count(1):
            disk = RecordingDisk()
            fault = disk.fail(nth, kind, errno=number, times=times)
            run = Run(disk, sync_flush, fault, truncates=False)
            run.attempt(run.store.open)
            if not run.store.is_open:
                disk.heal()
                run.store = run.shape.store(disk, run.clock)
                run.store.open()  # a start is refused in words, and the next one works
            for count in range(14):
                run.attempt(lambda count=count, run=run: run.send(count))  # type: ignore[misc]
                run.clock.advance(1.5)
                run.attempt(run.store.tick)
                if count == 8:
                    run.attempt(run.delete)
                assert run.store.fenced is None, (kind, nth, run.errors)
            if not fault.hits:
                assert nth > 12
                break  # there is no such call any more
            disk.heal()
            run.send(14)
            assert run.acknowledged[-1] == run.sent[-1]
            for _ in range(3):
                run.clock.advance(1.5)
                run.store.tick()
            found = bodies(run.store)
            assert set(run.acknowledged) - run.gone <= set(found) <= set(run.sent), (kind, nth)
            assert len(found) == len(set(found))
            for image in [disk.kill()] + ([disk.crash(CrashMode.NONE)] if sync_flush else []):
                after = run.shape.store(image, run.clock)
                assert after.open().damages == []
                assert set(run.acknowledged) - run.gone <= set(bodies(after)), (kind, nth)
            run.store.close()
            assert not disk.exists("/store/abort"), (kind, nth)
            report = run.shape.store(disk, run.clock).open()
            assert (report.cut_to, report.problems) == (0, []), (kind, nth)  # nothing was left to recover


@pytest.mark.parametrize("free_bytes", range(3000, 60_000, 4100))
def test_a_full_disk_refuses_and_goes_on_when_space_returns(free_bytes: int) -> None:
    disk = RecordingDisk(free_bytes=free_bytes)
    run = Run(disk, True)
    try:
        run.store.open()
    except DiskFullError:
        return  # too full even for the marks: refused in words
    number = refused = 0
    while refused < 3:
        try:
            run.send(number)
        except DiskFullError:
            refused += 1
        number += 1
        run.clock.advance(1.5)
        run.store.tick()
        assert bodies(run.store) == run.acknowledged  # readers go on, full or not
        assert run.store.fenced is None
    disk.free_bytes = 1 << 20
    before = len(run.acknowledged)
    run.send(number)
    run.clock.advance(1.5)
    run.store.tick()
    assert len(run.acknowledged) == before + 1
    run.store.close()
    assert not disk.exists("/store/abort")
    for image in (disk.kill(), disk.crash(CrashMode.NONE)):
        after = run.shape.store(image, run.clock)
        after.open()
        assert bodies(after) == run.acknowledged


def test_deleting_segments_makes_room_again() -> None:
    disk = RecordingDisk(free_bytes=40_000)
    run = Run(disk, True)
    run.store.open()
    with pytest.raises(DiskFullError):
        for number in range(1000):
            run.send(number)
    assert run.store.delete_oldest_segment()
    while disk.free_bytes is not None and disk.free_bytes < 8192:
        assert run.store.delete_oldest_segment()
    sent = len(run.acknowledged)
    run.send(2000)
    assert len(run.acknowledged) == sent + 1
    assert bodies(run.store)[-1] == run.sent[-1]
