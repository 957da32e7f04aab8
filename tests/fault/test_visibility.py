"""SYNC_FLUSH: nobody sees a message before its sync has returned, and no number is given to two messages."""

from __future__ import annotations

from aerobee.testing.clock import VirtualClock
from aerobee.testing.crash import CrashMode
from aerobee.testing.crashcheck import read_all
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.recordcases import draft_of
from aerobee.testing.storeshapes import Shape

SHAPE = Shape(
    sync_flush=True,
    segment_size=4096,
    units_per_file=5,
    with_index=True,
    late_syncs=True,
    queue_count=1,
    topic_count=1,
)


def test_nothing_is_seen_before_its_sync_has_returned() -> None:
    """RocketMQ #8239. The sync takes as long as it takes; a tailing reader looks after every step."""
    for seed in range(10):
        entropy, clock, disk = SeededEntropy(seed), VirtualClock(), RecordingDisk(seed=seed)
        store = SHAPE.store(disk, clock)
        store.open()
        disk.complete_queued()
        told: list[int] = []
        seen: dict[int, bytes] = {}
        for number in range(40):
            draft = draft_of(b"%d" % number + bytes(entropy.below(300)), properties={"KEYS": f"k{number}"})
            end = store.append([draft])
            store.on_safe(end, lambda error, end=end, told=told: told.append(end))  # type: ignore[misc]
            if entropy.chance(0.5):
                disk.run_pending(1)
            durable = SHAPE.store(disk.crash(CrashMode.NONE), clock)
            durable.open()
            records = read_all(store, b"orders", 0)
            assert records == read_all(durable, b"orders", 0)[: len(records)]
            assert all(end <= durable.log_end for end in told)
            assert store.index is not None
            assert len(store.index.query("orders", f"k{number}", 8).offsets) == (1 if number < len(records) else 0)
            assert (store.run(store.message_at(draft.physical_offset)) is not None) == (number < len(records))
            for place, record in enumerate(records):
                assert seen.setdefault(place, record) == record
        # A power cut, and a second life: no offset that anybody saw gets other content.
        after = SHAPE.store(disk.crash(CrashMode.RANDOM, seed), clock)
        after.open()
        for number in range(5):
            after.append([draft_of(b"second life %d" % number)])
        again = read_all(after, b"orders", 0)
        assert all(again[place] == record for place, record in seen.items())
