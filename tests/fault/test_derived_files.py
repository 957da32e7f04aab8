"""Deleting what is derived, one file, two, or all: built again equal to the log. And clocks, and names."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.record import encode_records
from aerobee.store.messagestore import MessageStore
from aerobee.testing.bitflips import STATE, Subject, View
from aerobee.testing.clock import VirtualClock
from aerobee.testing.crash import CrashMode
from aerobee.testing.crashcheck import read_all
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.recordcases import draft_of
from aerobee.testing.storeshapes import ROOT, Shape

HOUR_MS = 3_600_000
STOPPED, KILLED = Subject(1), Subject(4)
TABLES = [f"{ROOT}/config/queueTable.0", f"{ROOT}/config/queueTable.1"]


def derived_of(subject: Subject) -> list[str]:
    kept = [f"{ROOT}/lock", f"{ROOT}/abort"] + [f"{ROOT}/config/{name}" for name in STATE]
    return [path for path in subject.disk.contents() if "/commitlog/" not in path and not path.startswith(tuple(kept))]


def rebuilt(subject: Subject, gone: list[str]) -> View:
    disk = subject.disk.kill()
    for path in gone:
        disk.unlink(path)
    store = subject.shape.store(disk, subject.clock)
    report = store.open()
    assert report.damages == []
    view = subject.view_of(store, disk)
    store.close()
    again = subject.shape.store(disk, subject.clock)
    again.open()
    assert subject.view_of(again, disk) == view, gone
    return view


def test_the_subjects_differ() -> None:
    assert (STOPPED.is_killed, KILLED.is_killed) == (False, True)
    for subject in (STOPPED, KILLED):
        assert subject.log_start > 0
        assert len(derived_of(subject)) > 15
        assert any(low == high > 0 for low, high in subject.view.numbers.values()), "no queue has expired whole"


@pytest.mark.parametrize("subject", [STOPPED, KILLED], ids=["stopped", "killed"])
def test_any_one_file(subject: Subject) -> None:
    for path in derived_of(subject):
        assert rebuilt(subject, [path]) == subject.view, path


@pytest.mark.parametrize("subject", [STOPPED, KILLED], ids=["stopped", "killed"])
def test_any_two_files(subject: Subject) -> None:
    for number, (first, second) in enumerate(combinations(derived_of(subject), 2)):
        if number % 7 and TABLES != [first, second]:
            continue
        assert rebuilt(subject, [first, second]) == subject.view, (first, second)


@pytest.mark.parametrize("subject", [STOPPED, KILLED], ids=["stopped", "killed"])
def test_all_of_them(subject: Subject) -> None:
    """Numbers of queues that have expired are state and not derived: the two tables keep them, and any one does."""
    for table in TABLES:
        gone = [path for path in derived_of(subject) if path != table]
        assert rebuilt(subject, gone) == subject.view
    found = rebuilt(subject, derived_of(subject))
    assert found.keys == subject.view.keys
    for queue, records in subject.view.queues.items():
        assert found.queues.get(queue, []) == records
        if records:
            assert found.numbers[queue] == subject.view.numbers[queue]


@pytest.mark.parametrize("subject", [STOPPED, KILLED], ids=["stopped", "killed"])
def test_files_of_an_earlier_day(subject: Subject) -> None:
    """Each derived file rolled back to what a shorter life of the same store had left."""
    disk = subject.disk.kill()
    store = subject.shape.store(disk, subject.clock)
    store.open()
    for number in range(12):
        store.append([draft_of(b"later %d" % number, properties={"KEYS": f"later{number}"})])
    store.close()
    fresh = subject.shape.store(disk.kill(), subject.clock)
    fresh.open()
    expected = read_all(fresh, b"orders", 0)
    for path in derived_of(subject):
        if path not in disk.contents():
            continue
        mixed = disk.kill()
        size, data = subject.disk.contents()[path]
        mixed.unlink(path)
        mixed.put(path, data.ljust(size, b"\0"))
        after = subject.shape.store(mixed, subject.clock)
        after.open()
        assert read_all(after, b"orders", 0) == expected, path
        assert after.max_offset(b"orders", 0) == fresh.max_offset(b"orders", 0)


def shape_of() -> Shape:
    return Shape(
        sync_flush=True,
        segment_size=4096,
        units_per_file=5,
        with_index=True,
        late_syncs=False,
        queue_count=1,
        topic_count=1,
    )


def store_times(store: MessageStore) -> list[int]:
    return [int.from_bytes(record[56:64], "big") for record in read_all(store, b"orders", 0)]


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
@pytest.mark.parametrize("mode", [None, CrashMode.NONE, CrashMode.ALL])
def test_store_time_never_goes_back(step_ms: int, mode: CrashMode | None) -> None:
    """The clock jumps between lives and within them; recovery does not look at it."""
    clock, disk = VirtualClock(), RecordingDisk()
    sent = 0
    for life in range(6):
        store = shape_of().store(disk, clock)
        store.open()
        for number in range(6):
            store.append([draft_of(b"%d %d" % (life, number), properties={"KEYS": "k"})])
            sent += 1
            clock.advance(0.4)
            if number == 3:
                clock.jump(step_ms)
                store.tick()
        times = store_times(store)
        assert times == sorted(times)
        assert len(times) == sent
        if life % 2:
            store.close()
        disk = disk.kill() if mode is None else disk.crash(mode)
        clock.jump(step_ms if life % 2 else -step_ms // 2)


def test_looking_for_a_time_works_though_the_clock_jumped() -> None:
    clock, disk = VirtualClock(), RecordingDisk()
    store = shape_of().store(disk, clock)
    store.open()
    for number in range(20):
        store.append([draft_of(b"%d" % number)])
        clock.advance(1)
        if number == 10:
            clock.jump(-HOUR_MS)
    times = store_times(store)
    for number, time in enumerate(times):
        assert store.run(store.offset_by_time(b"orders", 0, time)) == times.index(time), number


@settings(max_examples=300, deadline=None)
@given(
    st.binary(min_size=1, max_size=300)
    | st.sampled_from([b"../../x", b"..", b".", b"/etc/passwd", b"a/b", b"a\0b", b"a\\b", b"C:", b"~", b"con"])
    | st.text(st.sampled_from("./\\ab%|~"), min_size=1, max_size=12).map(str.encode)
)
def test_no_name_reaches_a_path(topic: bytes) -> None:
    """Refused when sent; and from a log of somebody else's it is passed over, with its neighbours served."""
    clock, disk = VirtualClock(), RecordingDisk()
    store = shape_of().store(disk, clock)
    store.open()
    try:
        store.append([draft_of(b"x", topic)])
    except InvalidArgumentError:
        pass
    at = store.log_end
    alien = [draft_of(b"before"), draft_of(b"x", topic), draft_of(b"after")]
    alien[0].queue_offset, alien[2].queue_offset = 0, 1
    if topic != b"orders":
        store.append_raw(at, encode_records(alien, at, 1_700_000_000_000, True))
        assert len(read_all(store, b"orders", 0)) == 2
    store.close()
    again = shape_of().store(disk, clock)
    again.open()
    for call in disk.trace:
        parts = call.path.split("/")
        assert parts[:2] == ["", "store"], call
        assert not {"..", "."} & set(parts)
        assert "\0" not in call.path
        assert len(parts) <= 6
