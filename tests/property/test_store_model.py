"""The store against a list: appended, flushed, killed, cut off, truncated, rolled, expired, deleted, read."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aerobee.errors import StoreError
from aerobee.hot.log.record import VERIFY_RECORD, check_record
from aerobee.store.messagestore import MessageStore
from aerobee.testing.clock import VirtualClock
from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.storekit import draft, make_store, read_queue, small_config

QUEUES = [(b"a", 0), (b"a", 1), (b"b", 0)]


class Sent:
    """What the model knows of one message."""

    def __init__(self, queue: tuple[bytes, int], offset: int, body: bytes, start: int, end: int) -> None:
        self.queue = queue
        self.offset = offset
        self.body = body
        self.start = start
        self.end = end
        self.is_acked = False


class StoreModel(RuleBasedStateMachine):
    """`log` is every message that may be in the log, oldest first; a crash may take its unacknowledged end."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = RecordingDisk()
        self.clock = VirtualClock()
        self.log: list[Sent] = []
        self.next: dict[tuple[bytes, int], int] = dict.fromkeys(QUEUES, 0)
        self.number = 0
        self.store: MessageStore

    @initialize(sync=st.booleans(), queued=st.booleans(), hot=st.sampled_from([0, 3000, 1 << 30]))
    def begin(self, sync: bool, queued: bool, hot: int) -> None:
        self.config = small_config(sync=sync)
        self.is_sync = sync
        self.is_queued = queued
        self.hot = hot
        self.start_on(self.disk)

    def start_on(self, disk: RecordingDisk) -> None:
        self.disk = disk
        disk.complete_inline()
        self.store = make_store(disk, self.config, clock=self.clock, hot_bytes=self.hot)
        report = self.store.open()
        assert report.damages == []
        if self.is_queued:
            disk.complete_queued()

    @rule(queues=st.lists(st.sampled_from(QUEUES), min_size=1, max_size=4), size=st.integers(0, 700))
    def append(self, queues: list[tuple[bytes, int]], size: int) -> None:
        drafts = []
        for topic, queue_id in queues:
            self.number += 1
            drafts.append(draft(b"%d:" % self.number + bytes(size), topic, queue_id, tags=f"t{size % 3}"))
        end = self.store.append(drafts)
        batch = []
        for item in drafts:
            queue = (item.topic, item.queue_id)
            assert item.queue_offset == self.next[queue]
            self.next[queue] += 1
            at = item.physical_offset
            batch.append(Sent(queue, item.queue_offset, item.body, at, at + item.size))
        self.log.extend(batch)

        def told(error: StoreError | None) -> None:
            for sent in batch:
                sent.is_acked = error is None

        self.store.on_safe(end, told)

    @rule(seconds=st.sampled_from([0.0, 0.6, 1.5, 11.0]), jump=st.sampled_from([0, -5000, 5000]))
    def time_passes(self, seconds: float, jump: int) -> None:
        self.clock.advance(seconds)
        self.clock.jump(jump)
        self.store.tick()

    @rule(count=st.integers(1, 5))
    def disk_answers(self, count: int) -> None:
        self.disk.run_pending(count)

    @rule()
    def restart(self) -> None:
        self.disk.run_pending()
        self.store.close()
        assert not self.disk.exists("/store/abort")
        self.start_on(self.disk)
        assert self.found() == self.log

    @rule()
    def kill(self) -> None:
        """The process dies: all that was written is there."""
        self.start_on(self.disk.kill())
        assert self.found() == self.log

    @rule(mode=st.sampled_from(list(CrashMode)), seed=st.integers(0, 10_000))
    def power_cut(self, mode: CrashMode, seed: int) -> None:
        if not self.is_sync:
            flushed = self.store.flushed_offset
            for sent in self.log:
                sent.is_acked = sent.end <= flushed
        self.start_on(self.disk.crash(mode, seed))
        found = self.found()
        assert found == self.log[: len(found)]
        assert not any(sent.is_acked for sent in self.log[len(found) :])
        self.forget_after(len(found))

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def truncate(self, data: Any) -> None:
        keep = data.draw(st.integers(0, len(self.log) - 1))
        place = self.log[keep].start
        self.store.truncate(place)
        self.forget_after(keep)
        assert self.store.log_end == place

    def forget_after(self, count: int) -> None:
        for sent in reversed(self.log[count:]):
            self.next[sent.queue] = sent.offset
        del self.log[count:]

    @rule()
    def expire(self) -> None:
        if self.store.delete_oldest_segment():
            self.log = [sent for sent in self.log if sent.start >= self.store.log_start]

    @rule(topic=st.sampled_from([b"a", b"b"]))
    def delete_topic(self, topic: bytes) -> None:
        """Whatever is appended next makes it again."""
        self.store.delete_topics([topic])
        self.log = [sent for sent in self.log if sent.queue[0] != topic]
        self.next = {queue: 0 if queue[0] == topic else number for queue, number in self.next.items()}

    @precondition(lambda self: self.store.dispatched_offset == self.store.log_end)
    @rule(data=st.data())
    def read_by_time_and_place(self, data: Any) -> None:
        if self.log:
            sent: Sent = data.draw(st.sampled_from(self.log))
            record = self.store.run(self.store.message_at(sent.start))
            assert record is not None
            assert check_record(record, 0, sent.start, VERIFY_RECORD) == sent.end - sent.start
            topic, queue_id = sent.queue
            stored = self.store.run(self.store.store_time(topic, queue_id, sent.offset))
            assert stored is not None
            at = self.store.run(self.store.offset_by_time(topic, queue_id, stored))
            assert at is not None
            assert at <= sent.offset
            assert self.store.run(self.store.store_time(topic, queue_id, at)) == stored

    def found(self) -> list[Sent]:
        """The model's entries for what the store serves; fails where the store serves anything else."""
        by_place = {(sent.queue, sent.offset): sent for sent in self.log}
        entries = []
        for queue in QUEUES:
            for record in read_queue(self.store, *queue):
                sent = by_place[(queue, record.queue_offset)]
                assert (record.body, record.physical_offset) == (sent.body, sent.start)
                entries.append(sent)
        return sorted(entries, key=lambda sent: sent.start)

    @invariant()
    def serves_a_prefix_that_covers_what_is_acknowledged(self) -> None:
        if hasattr(self, "store"):
            found = self.found()
            assert found == self.log[: len(found)]
            assert not any(sent.is_acked for sent in self.log[len(found) :])

    @invariant()
    def positions_are_in_order(self) -> None:
        if hasattr(self, "store"):
            store = self.store
            assert store.dispatched_offset <= store.confirmed_offset <= store.log_end
            assert store.flushed_offset <= store.log_end
            if self.is_sync:
                assert store.confirmed_offset <= store.flushed_offset


StoreModel.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestStoreModel = StoreModel.TestCase
