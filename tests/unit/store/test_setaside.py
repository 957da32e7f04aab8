"""Records set aside: listed once, bounded, told without a flood, and never a reason to stop."""

from __future__ import annotations

import pytest

from aerobee.store.setaside import FILE_NAME, SetAsideReport, SetAsides, decode_report, encode_report
from aerobee.store.statefile import seal
from aerobee.testing.clock import VirtualClock
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.storekit import draft

PATH = f"/store/config/{FILE_NAME}"


def opened(disk: RecordingDisk, clock: VirtualClock | None = None) -> SetAsides:
    asides = SetAsides(disk, "/store", clock or VirtualClock())
    asides.load()
    return asides


def add(asides: SetAsides, place: int, reader: str = "timers", topic: bytes = b"T") -> None:
    record = draft(topic=topic)
    record.physical_offset = place
    asides.add(reader, "no place", record)


def write(disk: RecordingDisk, content: bytes) -> None:
    disk.make_dirs("/store/config")
    file = disk.open(PATH, create=True)
    file.write(0, content)
    file.close()


def test_what_was_set_aside_is_known_after_a_restart_and_counted_once() -> None:
    disk = RecordingDisk(seed=1)
    asides = opened(disk)
    for place in (5, 6, 5):
        add(asides, place)
    add(asides, 5, "transactions")
    asides.add_place("timers", "gone", b"T", 0, 7)
    asides.close()
    again = opened(disk)
    add(again, 6)
    again.add_place("timers", "gone", b"T", 0, 7)
    assert again.report() == asides.report()
    assert (again.total, again.report().counts) == (4, {"timers": 3, "transactions": 1})


def test_it_is_saved_while_the_broker_runs() -> None:
    disk = RecordingDisk(seed=1)
    asides = opened(disk)
    add(asides, 5)
    asides.tick(1)
    assert opened(disk).total == 1
    add(asides, 6)
    asides.tick(2)  # too soon
    assert opened(disk).total == 1
    asides.tick(2000)
    assert opened(disk).total == 2


def test_a_flood_fills_neither_list_nor_log(caplog: pytest.LogCaptureFixture) -> None:
    clock, disk = VirtualClock(), RecordingDisk(seed=1)
    asides = opened(disk, clock)
    for place in range(100_000):
        add(asides, place)
    assert len(asides.report().records) == 500
    assert asides.report().records[-1].physical_offset == 99_999
    assert asides.total == 100_000
    assert len(caplog.records) == 20
    clock.advance(11)
    asides.tick(20_000)
    assert "99980" in caplog.records[-1].getMessage().replace("count=", "")
    assert len(caplog.records) == 21
    assert len(encode_report(asides.report())) < 200_000


def test_texts_of_records_are_bounded_and_printable() -> None:
    asides = opened(RecordingDisk(seed=1))
    add(asides, 1, topic=b"\x1b[2J\xff\n" + b"x" * 30_000)
    asides.add_place("timers", "\ud800" * 5000, b"T", 0, 0)
    for one in asides.report().records:
        assert one.topic.isprintable() and one.reason.isprintable()
        assert len(one.topic) <= 300 and len(one.reason) <= 300
    assert decode_report(encode_report(asides.report())) == asides.report()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"[" * 100_000, b'{"counts": 1, "records": []}', b"\xff" * 40])
def test_a_file_that_cannot_be_read_begins_a_new_list(content: bytes) -> None:
    disk = RecordingDisk(seed=1)
    write(disk, content)
    asides = opened(disk)
    assert asides.total == 0
    add(asides, 1)
    asides.close()
    assert opened(disk).total == 1


def test_entries_without_sense_are_left_out() -> None:
    entries = (
        '[1, {"reader": 3}, {"reader":"r","reason":"x","topic":"t","queueId":0,"queueOffset":1,"physicalOffset":2}]'
    )
    disk = RecordingDisk(seed=1)
    write(disk, seal(f'{{"counts": {{"a": -1, "b": 2, "c": "x", "d": true}}, "records": {entries}}}'.encode()))
    assert opened(disk).report() == SetAsideReport((), {"b": 2})


def test_a_disk_that_takes_nothing_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    disk = RecordingDisk(seed=1)
    disk.make_dirs("/store/config/setAside.json.tmp")  # in the way of every save
    asides = opened(disk)
    add(asides, 1)
    asides.tick(1)
    asides.close()
    assert asides.total == 1
    assert any("was not saved" in record.getMessage() for record in caplog.records)
