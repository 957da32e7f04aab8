"""Dump gives the messages asked for, and only sound ones."""

from __future__ import annotations

import pytest

from aerobee.hot.log.properties import encode_properties
from aerobee.model.compression import CompressionType, compress
from aerobee.model.message import Message
from aerobee.store.offline.dump import Dump, DumpFilter
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.offlinekit import open_store, seen, written
from aerobee.testing.storekit import ROOT, draft, small_config


def dumped(disk: RecordingDisk, **wanted: object) -> list[Message]:
    return list(Dump(seen(disk), DumpFilter(**wanted)))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def disk() -> RecordingDisk:
    return written(45)


def test_all_messages_in_the_order_of_the_log(disk: RecordingDisk) -> None:
    messages = dumped(disk)
    assert [message.body for message in messages] == [b"message %d" % number for number in range(45)]
    assert messages[3].topic == "topic1"
    assert (messages[3].queue_offset, messages[3].message_id, messages[3].tags) == (1, "U3", "Tag3")


def test_filters(disk: RecordingDisk) -> None:
    messages = dumped(disk)
    times = [message.store_timestamp for message in messages]
    assert len(dumped(disk, topic="topic1")) == 22
    assert dumped(disk, topic="topic1", queue_id=1) == []
    assert [m.body for m in dumped(disk, key="k7")] == [b"message 7"]
    assert [m.body for m in dumped(disk, key="U7")] == [b"message 7"]
    assert [m.body for m in dumped(disk, key=messages[7].offset_id)] == [b"message 7"]
    assert len(dumped(disk, key="x3")) == 6
    assert dumped(disk, begin_ms=times[10], end_ms=times[13]) == messages[10:13]
    assert dumped(disk, limit=2) == messages[:2]
    assert dumped(disk, limit=0) == []


def test_segments_long_before_the_time_asked_for_are_passed_over() -> None:
    disk = RecordingDisk()
    from aerobee.testing.clock import VirtualClock

    clock = VirtualClock()
    store = open_store(disk, clock=clock)
    for number in range(40):
        clock.advance(1800)
        store.append([draft(b"%d" % number * 200)])
    store.close()
    everything = dumped(disk)
    dump = Dump(seen(disk), DumpFilter(begin_ms=everything[-5].store_timestamp))
    assert list(dump) == everything[-5:]
    assert dump.report.start > 4096


def test_damage_is_passed_over_and_told() -> None:
    disk = written(45)
    disk.rot(f"{ROOT}/commitlog/00000000000000000000", 700)
    dump = Dump(seen(disk), DumpFilter())
    assert len(list(dump)) == 44
    assert dump.report.findings.exit_code == 1
    (problem,) = dump.report.findings.problems
    assert problem.physical_offset is not None
    assert problem.physical_offset <= 700 < (problem.physical_end or 0)


def test_bodies_are_decompressed_on_request() -> None:
    disk = RecordingDisk()
    store = open_store(disk, small_config())
    folded = compress(b"long " * 100, CompressionType.ZSTD)
    message = draft(folded, sys_flag=CompressionType.ZSTD.flag)
    message.properties = encode_properties({"mine": "1", "KEYS": "k"})
    store.append([message])
    store.append([draft(b"not zstd", sys_flag=CompressionType.ZSTD.flag)])
    store.close()
    as_stored = dumped(disk)
    assert as_stored[0].body == folded
    dump = Dump(seen(disk), DumpFilter(), decompress=True)
    assert [m.body for m in dump] == [b"long " * 100, b"not zstd"]
    assert dump.report.undecompressed == 1
    assert as_stored[0].properties == {"mine": "1"}
