"""The store as a whole, on a disk in memory."""

from __future__ import annotations

import queue
from collections.abc import Callable

import pytest

from aerobee.errors import (
    DiskFullError,
    InvalidArgumentError,
    StoreClosedError,
    StoreError,
    StoreFencedError,
    StoreLockedError,
)
from aerobee.hot.log.record import Draft, decode_records
from aerobee.runtime.disk import InlineDisk, RealDisk
from aerobee.store.dispatch import Sink
from aerobee.store.messagestore import MessageStore
from aerobee.store.reads import GetMessageStatus
from aerobee.testing.clock import VirtualClock
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.storekit import bodies, draft, make_store, read_queue, small_config


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"message %d" % number for number in range(start, start + count)]


def send(store: MessageStore, body: bytes, topic: bytes = b"topic", queue_id: int = 0) -> int:
    return store.append([draft(body, topic, queue_id)])


@pytest.mark.parametrize("sync", [True, False])
def test_reads_back_what_was_appended_over_segments_and_restarts(sync: bool) -> None:
    disk = RecordingDisk()
    store = make_store(disk, small_config(sync=sync))
    report = store.open()
    assert (report.abnormal, report.log_end) == (False, 0)
    for body in numbered(60):
        send(store, body)
    assert len(store.log.segments.starts) > 1
    assert bodies(store) == numbered(60)
    store.close()
    assert not disk.exists("/store/abort")

    again = make_store(disk, small_config(sync=sync))
    report = again.open()
    assert not report.abnormal
    assert report.problems == []
    assert report.scanned_from == report.log_end  # nothing had to be read
    assert bodies(again) == numbered(60)
    send(again, b"one more")
    assert [r.queue_offset for r in read_queue(again)] == list(range(61))
    again.close()


def test_one_call_lies_in_one_segment() -> None:
    store = make_store(RecordingDisk())
    store.open()
    send(store, bytes(2000))
    end = store.append([draft(bytes(600)) for _ in range(3)])
    assert end > 4096
    assert [r.physical_offset // 4096 for r in read_queue(store)] == [0, 1, 1, 1]
    with pytest.raises(InvalidArgumentError, match="do not fit"):
        store.append([draft(bytes(1500)) for _ in range(4)])
    with pytest.raises(InvalidArgumentError, match="maxMessageSize"):
        store.append([draft(bytes(2049))])
    assert store.log_end == end
    assert store.append([]) == end
    assert send(store, b"x") > end
    assert [r.queue_offset for r in read_queue(store)] == [0, 1, 2, 3, 4]


def test_a_kill_loses_nothing(sync: bool = False) -> None:
    disk = RecordingDisk()
    store = make_store(disk, small_config(sync=sync))
    store.open()
    for body in numbered(50):
        send(store, body)
    after = make_store(disk.kill(), small_config(sync=sync))
    report = after.open()
    assert report.abnormal
    assert report.damages == []
    assert bodies(after) == numbered(50)


def test_store_time_never_goes_back() -> None:
    disk, clock = RecordingDisk(), VirtualClock()
    store = make_store(disk, clock=clock)
    store.open()
    send(store, b"a")
    clock.jump(-3_600_000)
    send(store, b"b")
    store.close()
    later = make_store(disk, clock=clock)
    later.open()
    send(later, b"c")
    times = [r.store_timestamp for r in read_queue(later)]
    assert times == sorted(times)
    assert len(set(times)) == 1


def test_a_full_disk_refuses_and_writing_resumes() -> None:
    disk = RecordingDisk(free_bytes=40_000)
    store = make_store(disk)
    store.open()
    stored = []
    for body in numbered(1000):
        try:
            send(store, body)
        except DiskFullError:
            break
        stored.append(body)
    else:
        pytest.fail("the disk never became full")
    assert bodies(store) == stored
    end = store.log_end
    with pytest.raises(DiskFullError):
        send(store, bytes(100), b"fresh")  # what is smaller may still fit
    assert store.log_end == end
    assert store.get_messages(b"fresh", 0, 0).status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
    disk.free_bytes = 100_000
    send(store, b"again")
    records = read_queue(store)
    assert [r.body for r in records] == [*stored, b"again"]
    assert [r.queue_offset for r in records] == list(range(len(stored) + 1))
    store.close()


@pytest.mark.parametrize("partial", [0, 100, 250, 500])
def test_a_failed_write_is_repaired(partial: int) -> None:
    disk = RecordingDisk()
    store = make_store(disk)
    store.open()
    send(store, b"first")
    disk.fail(1, "write", path="commitlog", partial_bytes=partial)
    with pytest.raises(StoreError):
        store.append([draft(b"lost %d" % n) for n in range(3)])
    send(store, b"s")
    assert [(r.queue_offset, r.body) for r in read_queue(store)] == [(0, b"first"), (1, b"s")]
    assert not any(disk.open("/store/commitlog/00000000000000000000").read(store.log_end, 4096))
    for image in (disk.kill(), disk):
        if image is disk:
            store.close()
        after = make_store(image)
        report = after.open()
        assert report.damages == []
        assert bodies(after) == [b"first", b"s"]
        after.close()


def test_a_failed_write_after_a_roll_is_repaired() -> None:
    disk = RecordingDisk()
    store = make_store(disk)
    store.open()
    store.append([draft(bytes(1800)), draft(bytes(1700))])
    disk.fail(2, "write", path="commitlog", partial_bytes=300)  # the blank record is the first
    with pytest.raises(StoreError):
        store.append([draft(b"lost %d" % n + bytes(100)) for n in range(3)])
    send(store, b"s")  # fits before the blank
    assert store.log_end < 4096
    after = make_store(disk.kill())
    report = after.open()
    assert report.damages == []
    assert [r.body[-1:] for r in read_queue(after)] == [b"\0", b"\0", b"s"]


def test_nothing_is_acknowledged_after_a_failed_sync() -> None:
    disk = RecordingDisk()
    store = make_store(disk)
    store.open()
    send(store, b"good")
    told: list[StoreError | None] = []
    disk.fail(1, "sync", path="commitlog")
    end = send(store, b"bad")
    store.on_safe(end, told.append)
    assert isinstance(told[0], StoreFencedError)
    with pytest.raises(StoreFencedError):
        send(store, b"worse")
    assert bodies(store) == [b"good"]
    store.tick()
    store.close()
    assert disk.exists("/store/abort")
    after = make_store(disk.kill())
    after.open()
    assert bodies(after)[:1] == [b"good"]


def test_readers_and_waiters_wait_for_the_sync() -> None:
    disk = RecordingDisk()
    store = make_store(disk)
    store.open()
    disk.complete_queued()
    told: list[str] = []
    first = send(store, b"1")
    store.on_safe(first, lambda error: told.append(f"1 {error}"))
    second = send(store, b"2")
    store.on_safe(second, lambda error: told.append(f"2 {error}"))
    cancelled = store.on_safe(second, lambda error: told.append("cancelled"))
    assert cancelled is not None
    cancelled.cancel()
    assert bodies(store) == []
    assert disk.pending_count == 1  # one sync at a time
    disk.run_pending(1)
    assert told == ["1 None"]
    assert bodies(store) == [b"1"]
    third = send(store, b"3")
    disk.run_pending(1)  # the second sync was asked before the third was written
    assert told == ["1 None", "2 None"]
    disk.run_pending()
    assert store.flushed_offset == third
    store.on_safe(third, lambda error: told.append(f"3 {error}"))
    assert told[-1] == "3 None"
    assert bodies(store) == [b"1", b"2", b"3"]


def test_the_confirm_limit_hides_what_is_not_replicated() -> None:
    store = make_store(RecordingDisk(), small_config(sync=False))
    store.open(confirm_limit=0)
    ends = [send(store, body) for body in numbered(4)]
    end = store.append([draft(b"a"), draft(b"b")])
    told: list[StoreError | None] = []
    store.on_safe(ends[1], told.append)
    assert bodies(store) == []
    store.set_confirm_limit(ends[0])
    assert (bodies(store), told) == (numbered(1), [])
    store.set_confirm_limit(ends[2] + 1)
    assert (bodies(store), told) == (numbered(3), [None])
    store.set_confirm_limit(end - 1)
    assert bodies(store) == [*numbered(4), b"a"]
    store.set_confirm_limit(None)
    assert bodies(store) == [*numbered(4), b"a", b"b"]


def test_records_that_may_not_be_seen_yet_are_no_reason_to_recover() -> None:
    """A replica that stops in order has a tail which its group has not confirmed."""
    disk = RecordingDisk()
    store = make_store(disk)
    store.open(confirm_limit=0)
    ends = [send(store, body) for body in numbered(5)]
    store.set_confirm_limit(ends[2])
    store.close()
    assert not disk.exists("/store/abort")
    after = make_store(disk.kill())
    report = after.open(confirm_limit=ends[2])
    assert (report.abnormal, report.damages, after.log_end, bodies(after)) == (False, [], ends[4], numbered(3))
    after.set_confirm_limit(None)
    assert bodies(after) == numbered(5)
    assert after.max_offset(b"topic", 0) == 5
    assert send(after, b"next") == after.log_end and bodies(after)[-1] == b"next"


def test_a_replica_takes_raw_bytes_in_any_pieces() -> None:
    master = make_store(RecordingDisk(), small_config(sync=False))
    master.open()
    for body in numbered(50):
        send(master, body, queue_id=len(body) % 3)
    replica = make_store(RecordingDisk(), small_config(sync=False))
    replica.open()
    position, step = 0, 1
    while position < master.log_end:
        data = master.read_log(position, step)
        position = replica.append_raw(position, data)
        step = step * 2 % 997 + 1
    for queue_id in range(3):
        assert bodies(replica, queue_id=queue_id) == bodies(master, queue_id=queue_id)
    with pytest.raises(InvalidArgumentError):
        replica.append_raw(position + 1, b"x")
    # Promoted, it numbers on where the master stopped.
    send(replica, b"mine", queue_id=0)
    assert [r.queue_offset for r in read_queue(replica)] == list(range(replica.max_offset(b"topic", 0)))


def test_a_replica_dispatches_whole_records_without_reading_them_again() -> None:
    master = make_store(RecordingDisk(), small_config(sync=False))
    master.open()
    ends = [send(master, body) for body in numbered(8)]
    disk = RecordingDisk()
    replica = make_store(disk, small_config(sync=False))
    replica.open()
    disk.fail(1, "read", times=None)
    replica.append_raw(0, master.read_log(0, ends[2]))
    assert replica.max_offset(b"topic", 0) == 3
    # What begins inside a record is read from the log, when that can be read again.
    disk.heal()
    replica.append_raw(ends[2], master.read_log(ends[2], ends[5] - ends[2] - 7))
    assert replica.max_offset(b"topic", 0) == 5
    replica.append_raw(ends[5] - 7, master.read_log(ends[5] - 7, ends[7] - ends[5] + 7))
    assert bodies(replica) == numbered(8)


def test_a_replica_that_may_not_show_records_yet_dispatches_them_once() -> None:
    master = make_store(RecordingDisk(), small_config(sync=False))
    master.open()
    ends = [send(master, body) for body in numbered(6)]
    replica = make_store(RecordingDisk(), small_config(sync=False))
    replica.open(confirm_limit=0)
    replica.append_raw(0, master.read_log(0, ends[3]))
    for limit, shown in ((ends[0], 1), (ends[2], 3), (ends[5], 4)):
        replica.set_confirm_limit(limit)
        assert bodies(replica) == numbered(shown)
    replica.truncate(ends[3])
    replica.append_raw(ends[3], master.read_log(ends[3], ends[5] - ends[3]))
    assert bodies(replica) == numbered(6)


def test_what_was_written_last_is_forgotten_with_a_cut() -> None:
    store, other = make_store(RecordingDisk(), small_config(sync=False)), make_store(RecordingDisk(), small_config())
    for one in (store, other):
        one.open()
        one.log.keeps_last = True
    at = send(store, b"same")
    end = send(store, b"mine")
    assert (send(other, b"same"), send(other, b"else")) == (at, end)
    theirs = other.read_log(at, end - at)
    assert store.read_log(at, end - at) != theirs
    store.truncate(at)
    assert store.read_log(at, end - at) == b""
    store.append_raw(at, theirs)
    assert store.read_log(at, end - at) == theirs


def test_a_promoted_replica_counts_what_it_may_not_show_yet() -> None:
    master = make_store(RecordingDisk(), small_config(sync=False))
    master.open()
    for body in numbered(5):
        send(master, body)
    replica = make_store(RecordingDisk(), small_config(sync=False))
    replica.open(confirm_limit=0)
    replica.append_raw(0, master.read_log(0, master.log_end))
    send(replica, b"own")
    replica.set_confirm_limit(None)
    assert [(r.queue_offset, r.body) for r in read_queue(replica)][-1] == (5, b"own")
    half = make_store(RecordingDisk(), small_config(sync=False))
    half.open()
    half.append_raw(0, master.read_log(0, master.log_end - 1))
    with pytest.raises(StoreError, match="inside a record"):
        send(half, b"x")


def test_truncate_takes_back_records_and_numbers() -> None:
    disk = RecordingDisk()
    store = make_store(disk)
    store.open()
    ends = [send(store, body) for body in numbered(60)]
    store.flush_sinks()
    store.truncate(ends[20])
    assert store.log_end == ends[20]
    assert bodies(store) == numbered(21)
    with pytest.raises(InvalidArgumentError):
        store.truncate(ends[30])
    send(store, b"new")
    assert [(r.queue_offset, r.body) for r in read_queue(store)][-1] == (21, b"new")
    for image in (disk.kill(), disk):
        if image is disk:
            store.close()
        after = make_store(image)
        after.open()
        assert bodies(after) == [*numbered(21), b"new"]
        after.close()


def test_two_stores_do_not_share_a_directory() -> None:
    disk = RecordingDisk()
    store = make_store(disk)
    store.open()
    with pytest.raises(StoreLockedError):
        make_store(disk).open()
    store.close()
    store.close()
    other = make_store(disk)
    other.open()
    other.close()


def test_a_closed_store_refuses() -> None:
    store = make_store(RecordingDisk())
    with pytest.raises(StoreClosedError):
        send(store, b"x")
    with pytest.raises(StoreClosedError):
        store.get_messages(b"topic", 0, 0)
    told: list[StoreError | None] = []
    store.on_safe(0, told.append)
    assert isinstance(told[0], StoreClosedError)
    store.tick()


def test_rocksdb_data_is_refused_in_words() -> None:
    disk = RecordingDisk()
    # Apache's broker leaves an empty database behind: its log is empty and it has no table.
    disk.put("/store/rocksdbstore/CURRENT", b"x")
    disk.put("/store/rocksdbstore/000004.log", b"")
    disk.put("/store/rocksdbstore/000006.sst", b"x")
    with pytest.raises(StoreError, match="RocksDB"):
        make_store(disk).open()
    disk.unlink("/store/rocksdbstore/000006.sst")
    make_store(disk).open()


def test_static_topics_of_apaches_broker_are_refused_in_words() -> None:
    disk = RecordingDisk()
    path = "/store/config/topicQueueMapping.json"
    # Apache's broker writes the file in every store. It is empty where no topic is static.
    empty = b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":1},"topicQueueMappingInfoMap":{}}'
    disk.put(path, empty)
    make_store(disk).open()
    disk = RecordingDisk()
    mapped = b'{"bname":"broker-a","currIdMap":{0:1},"epoch":7,"hostedQueues":{0:[{"bname":"broker-a","gen":0}]}}'
    disk.put(path, b'{"topicQueueMappingInfoMap":{"orders":' + mapped + b',"a/b":' + mapped + b"}}")
    with pytest.raises(StoreError, match=r"topics static \(a/b, orders\)"):
        make_store(disk).open()
    assert not disk.exists("/store/abort"), "nothing was changed before the refusal"
    disk.put(path, b"not JSON")
    with pytest.raises(StoreError, match=r"topicQueueMapping\.json"):
        make_store(disk).open()
    disk.put(path + ".bak", empty)
    make_store(disk).open()


@pytest.mark.parametrize("topic", [b"../../x", b"a/b", b"..", b".", b"a\0", "tópico".encode(), b"x" * 256])
def test_names_never_reach_a_path(topic: bytes) -> None:
    disk = RecordingDisk()
    store = make_store(disk)
    store.open()
    with pytest.raises(InvalidArgumentError):
        send(store, b"x", topic)
    assert store.log_end == 0
    assert all(path.startswith("/store/") for path in disk.contents())


def test_syncs_off_the_thread_are_told_on_it(tmp_path: object) -> None:
    posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    disk = RealDisk(posted.put)
    store = make_store(disk, root=f"{tmp_path}/store")
    store.open()
    told: list[StoreError | None] = []
    for body in numbered(20):
        store.on_safe(send(store, body), told.append)
    while len(told) < 20:
        posted.get(timeout=30)()
    assert told == [None] * 20
    store.flush_sinks()
    while store.is_busy:
        posted.get(timeout=30)()
    assert bodies(store) == numbered(20)
    store.close()
    assert not disk.exists(f"{tmp_path}/store/abort")
    disk.close()


def test_works_on_real_files(tmp_path: object) -> None:
    root = f"{tmp_path}/store"
    store = make_store(InlineDisk(), root=root)
    store.open()
    for body in numbered(40):
        send(store, body)
    store.tick()
    assert bodies(store) == numbered(40)
    store.close()
    again = make_store(InlineDisk(), root=root)
    assert not again.open().abnormal
    assert bodies(again) == numbered(40)
    result = again.get_messages(b"topic", 0, 3, 1)
    assert decode_records(bytes(result.buffers[0]))[0].body == b"message 3"
    again.close()


class Stubborn(Sink):
    """A sink that refuses until told otherwise."""

    name = "stubborn"

    def __init__(self) -> None:
        self.is_full = True
        self.seen: list[int] = []

    def position(self) -> int:
        return -1

    def dispatch(self, drafts: list[Draft]) -> None:
        if self.is_full:
            raise DiskFullError("no")
        self.seen.extend(item.physical_offset for item in drafts)


def test_a_sink_that_cannot_take_a_record_gets_it_later() -> None:
    sink = Stubborn()
    store = make_store(RecordingDisk(), sinks=(sink,))
    store.open()
    told: list[StoreError | None] = []
    ends = [send(store, body) for body in numbered(3)]
    store.on_safe(ends[-1], told.append)
    assert told == [None]  # stored as promised
    assert store.dispatched_offset == 0
    sink.is_full = False
    store.tick()
    assert sink.seen == [0, *ends[:-1]]
    assert bodies(store) == numbered(3)


def test_a_disk_error_while_making_a_segment_is_the_stores_error() -> None:
    disk = RecordingDisk()
    store = make_store(disk)
    store.open()
    for kind in ("truncate", "reserve"):
        disk.fail(1, kind, path="commitlog")
        with pytest.raises(StoreError):
            send(store, b"x")
    send(store, b"y")
    assert bodies(store) == [b"y"]
    disk.fail(1, "sync", path="commitlog")
    with pytest.raises(StoreFencedError):
        store.append([draft(bytes(1900)), draft(bytes(1900))])
    with pytest.raises(StoreFencedError):
        send(store, b"z")
