"""Segments go when they are expired or the disk is full; writes stop and resume."""

import pytest

from aerobee.broker.admin.retention import RetentionDriver
from aerobee.errors import DiskFullError
from aerobee.runtime.seams import Disk
from aerobee.store.messagestore import MessageStore
from aerobee.store.readonly import manifest_name
from aerobee.testing.clock import VirtualClock
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.storekit import draft, make_store, read_queue, small_config

HOUR_S = 3600.0


class Bench:
    """A store of small segments, its driver, a clock and a disk whose fill one sets."""

    def __init__(self, **settings: object) -> None:
        self.now_s = 0.0
        self.hour = 12
        self.clock = VirtualClock(lambda: self.now_s)
        self.disk: Disk = RecordingDisk(seed=1)
        self.used = 0.1
        self.disk.used_ratio = lambda path: self.used  # type: ignore[method-assign]
        self.store: MessageStore = make_store(self.disk, small_config(**settings), clock=self.clock)  # type: ignore[arg-type]
        self.store.open()
        self.driver = RetentionDriver(self.store, self.clock, lambda now_ms: self.hour, "b%1")

    def fill(self, segments: int) -> None:
        """Write until the log has so many more segments."""
        wanted = len(self.store.log.segments.starts) + segments
        while len(self.store.log.segments.starts) < wanted:
            self.store.append([draft(b"x" * 1000)])
        self.settle()

    def settle(self) -> None:
        self.store.flush_sinks()
        self.store.tick()

    def pass_time(self, seconds: float) -> None:
        """Ticks of half a second."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(end_s, self.now_s + 0.5)
            self.driver.tick(self.now_s)

    @property
    def segments(self) -> int:
        return len(self.store.log.segments.starts)


def test_expired_segments_go_in_their_hour_and_never_the_last() -> None:
    bench = Bench(file_reserved_time_hours=1)
    bench.fill(4)
    bench.now_s += 2 * HOUR_S
    bench.pass_time(60)
    assert bench.segments == 4  # not its hour
    bench.hour = 4
    bench.pass_time(60)
    assert bench.segments == 1
    queue = read_queue(bench.store)
    assert queue
    assert bench.store.min_offset(b"topic", 0) == queue[0].queue_offset


def test_by_hand_the_hour_does_not_matter() -> None:
    bench = Bench(file_reserved_time_hours=1)
    bench.fill(3)
    bench.now_s += 2 * HOUR_S
    bench.driver.delete_by_hand()
    bench.pass_time(60)
    assert bench.segments == 1


def test_a_segment_is_as_old_as_the_beginning_of_the_next() -> None:
    bench = Bench(file_reserved_time_hours=1)
    bench.hour = 4
    bench.fill(2)  # the first is full, and the second begun, now
    bench.now_s += 0.9 * HOUR_S
    bench.fill(1)
    bench.pass_time(60)
    assert bench.segments == 3
    bench.now_s += 0.2 * HOUR_S
    bench.pass_time(60)
    assert bench.segments == 2


def test_a_full_disk_refuses_writes_and_takes_them_again() -> None:
    bench = Bench(clean_file_forcibly_enable=False)
    bench.fill(1)
    bench.used = 0.95
    bench.pass_time(20)
    with pytest.raises(DiskFullError, match="95% of the disk is in use"):
        bench.store.append([draft()])
    assert read_queue(bench.store)  # readers go on
    bench.used = 0.88
    bench.pass_time(5)
    with pytest.raises(DiskFullError):
        bench.store.append([draft()])
    bench.used = 0.5
    bench.pass_time(5)
    bench.store.append([draft()])


def test_a_nearly_full_disk_takes_segments_before_their_time() -> None:
    bench = Bench(file_reserved_time_hours=72)
    bench.fill(5)
    bench.used = 0.87
    bench.pass_time(1)
    assert 1 < bench.segments < 5
    bench.used = 0.5
    left = bench.segments
    bench.pass_time(60)
    assert bench.segments == left


def test_settings_changed_at_run_time_count() -> None:
    bench = Bench(file_reserved_time_hours=72)
    bench.hour = 4
    bench.fill(3)
    bench.now_s += 2 * HOUR_S
    bench.pass_time(60)
    assert bench.segments == 3
    bench.driver.reconfigure(small_config(file_reserved_time_hours=1))
    bench.pass_time(60)
    assert bench.segments == 1


def archive_segment(bench: Bench, start: int, end: int) -> None:
    bench.disk.make_dirs("/archive/_manifest/b%251")
    bench.disk.open(f"/archive/_manifest/b%251/{manifest_name(start, end)}", create=True).close()


def test_with_an_archive_only_what_it_holds_goes() -> None:
    bench = Bench(file_reserved_time_hours=1, archive_path="/archive")
    bench.hour = 4
    bench.fill(4)
    starts = list(bench.store.log.segments.starts)
    bench.now_s += 2 * HOUR_S
    bench.pass_time(60)
    assert bench.segments == 4  # there is no archive yet
    archive_segment(bench, starts[1], starts[2])
    bench.pass_time(60)
    assert bench.segments == 4  # it does not hold the oldest
    archive_segment(bench, starts[0], starts[1])
    bench.pass_time(60)
    assert list(bench.store.log.segments.starts) == starts[2:]


def test_with_an_archive_a_full_disk_refuses_and_deletes_nothing() -> None:
    bench = Bench(archive_path="/archive")
    bench.fill(3)
    bench.used = 0.95
    bench.pass_time(60)
    assert bench.segments == 3
    with pytest.raises(DiskFullError):
        bench.store.append([draft(b"x")])
    starts = list(bench.store.log.segments.starts)
    archive_segment(bench, starts[0], starts[1])
    bench.pass_time(60)
    assert bench.segments == 2  # that one is safe elsewhere
