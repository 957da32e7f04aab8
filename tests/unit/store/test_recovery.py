"""What a start finds: torn tails, rot, missing and rolled-back files, half-done truncations."""

from __future__ import annotations

from collections import Counter

import pytest

from aerobee.errors import StoreError
from aerobee.hot.log.layout import BORNHOST_V6, STOREHOST_V6, TRANSACTION_PREPARED
from aerobee.store.config import StoreConfig
from aerobee.store.index import MessageIndex
from aerobee.store.messagestore import MessageStore
from aerobee.store.recovery import find_end
from aerobee.store.segment import LogReader
from aerobee.testing.clock import VirtualClock
from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.storekit import ROOT, bodies, draft, make_store, read_queue, records_by_key, small_config

FIRST = "/store/commitlog/00000000000000000000"


def filled(disk: RecordingDisk, count: int = 12, config: StoreConfig | None = None) -> list[int]:
    """Fill a store with messages in two queues and two topics and stop it. Return where each record begins."""
    store = make_store(disk, config)
    store.open()
    starts = []
    for number in range(count):
        item = draft(b"message %d" % number, b"topic%d" % (number % 2), number % 3 % 2)
        store.append([item])
        starts.append(item.physical_offset)
    starts.append(store.log_end)
    store.close()
    return starts


def everything(store: MessageStore) -> dict[tuple[bytes, int], list[tuple[int, bytes]]]:
    return {
        (queue.topic, queue.queue_id): [
            (r.queue_offset, r.body) for r in read_queue(store, queue.topic, queue.queue_id)
        ]
        for queue in store.queues
    }


def reopened(disk: RecordingDisk, config: StoreConfig | None = None) -> MessageStore:
    store = make_store(disk, config)
    store.open()
    return store


class ListedDisk(RecordingDisk):
    """Remembers which directories were listed."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: Counter[str] = Counter()

    def listdir(self, path: str) -> list[str]:
        self.listed[path] += 1
        return super().listdir(path)


@pytest.mark.parametrize("has_table", [True, False])
def test_a_start_lists_each_directory_of_a_queue_once(has_table: bool) -> None:
    """Ten thousand queues are listed at every start."""
    disk = ListedDisk()
    filled(disk)
    if not has_table:
        for turn in (0, 1):
            disk.unlink(f"{ROOT}/config/queueTable.{turn}")
    disk.listed.clear()
    store = reopened(disk)
    assert store.queues.recovery.problems == []
    assert {queue.directory: disk.listed[queue.directory] for queue in store.queues} == {
        f"{ROOT}/consumequeue/topic{topic}/{queue_id}": 1 for topic in (0, 1) for queue_id in (0, 1)
    }


def test_a_record_torn_at_every_byte_is_cut_and_nothing_before_it() -> None:
    """Plain, long, prepared, IPv6: the tail is torn at each byte, by a power cut that had synced the rest."""
    kinds = [
        draft(b"plain", tags="t", keys="k"),
        draft(bytes(range(256)) * 2),
        draft(b"half", sys_flag=TRANSACTION_PREPARED),
        draft(b""),
    ]
    v6 = draft(b"v6")
    v6.born_host = v6.store_host = bytes(20)
    kinds.append(v6)
    for last in kinds:
        source = RecordingDisk()
        store = make_store(source, small_config(sync=False))
        store.open()
        store.append([draft(b"before")])
        begin = store.log_end
        end = store.append([last])
        data = store.read_log(begin, end - begin)
        assert last.sys_flag & (BORNHOST_V6 | STOREHOST_V6) == (0x30 if last is v6 else 0)
        for size in range(len(data)):
            image = source.kill()
            file = image.open(FIRST)
            file.write(begin, data[:size] + bytes(len(data) - size))
            after = make_store(image, small_config(sync=False))
            report = after.open()
            assert (report.log_end, report.damages) == (begin, [])
            assert bodies(after) == [b"before"]
            assert not any(file.read(begin, 4096))
            after.append([draft(b"after")])
            assert [r.queue_offset for r in read_queue(after)] == [0, 1]


def test_a_torn_blank_record_loses_nothing() -> None:
    for size in range(8):
        disk = RecordingDisk()
        store = make_store(disk, small_config(sync=False))
        store.open()
        store.append([draft(bytes(2000))])
        begin = store.log_end
        store.append([draft(bytes(2001))])
        image = disk.kill()
        blank = store.read_log(begin, 8)
        image.open(FIRST).write(begin, blank[:size] + bytes(8 - size))
        after = reopened(image, small_config(sync=False))
        assert [len(body) for body in bodies(after)][:1] == [2000]
        assert after.log_end in (begin, store.log_end)


@pytest.mark.parametrize("clean", [True, False])
def test_one_flipped_bit_in_the_log_costs_one_record(clean: bool) -> None:
    base = RecordingDisk()
    starts = filled(base)
    expected = everything(reopened(base.kill()))
    total = sum(map(len, expected.values()))
    for position in range(0, starts[-1], 7):
        disk = base.kill()
        if not clean:
            disk.put("/store/abort", b"")
        disk.rot(FIRST, position, 1 << position % 8)
        store = reopened(disk)
        found = everything(store)
        assert sum(map(len, found.values())) == total - 1
        for queue, messages in found.items():
            assert set(messages) <= set(expected[queue])
        assert len(store.damages) == 1
        assert store.log_end == starts[-1]
        store.append([draft(b"new", b"topic0")])
        offsets = [r.queue_offset for r in read_queue(store, b"topic0")]
        assert offsets[-1] == len(expected[(b"topic0", 0)])  # the lost record's number is not given away again


def test_rot_is_told_from_a_torn_tail_by_what_was_synced() -> None:
    disk = RecordingDisk()
    store = make_store(disk, small_config(sync=False))
    store.open()
    ends = [store.append([draft(b"message %d" % n)]) for n in range(10)]
    # Nothing synced: sectors lost in the middle are the tail, with all that follows.
    image = disk.kill()
    image.open(FIRST).write(ends[3], bytes(40))
    after = reopened(image, small_config(sync=False))
    assert len(bodies(after)) == 4
    assert after.log_end == ends[3]
    # Synced: the same hole is damage, and what follows stays.
    store.flush_sinks()
    image = disk.kill()
    image.open(FIRST).write(ends[3], bytes(40))
    after = reopened(image, small_config(sync=False))
    assert after.log_end == ends[-1]
    assert [len(bodies(after)), *map(lambda d: (d.start, d.end), after.damages.values())] == [
        9,
        (ends[3], ends[4]),
    ]


def test_recovery_twice_gives_the_same_bytes() -> None:
    disk = RecordingDisk()
    store = make_store(disk)
    store.open()
    for number in range(30):
        store.append([draft(bytes(number * 7))])
    image = disk.crash(CrashMode.RANDOM, 5)
    once = make_store(image)
    once.open()
    first = {path: data for path, data in image.contents().items() if "commitlog" in path or "queue/" in path}
    image = image.kill()
    make_store(image).open()
    again = {path: data for path, data in image.contents().items() if "commitlog" in path or "queue/" in path}
    assert again == first


DERIVED = ["consumequeue", "index", "checkpoint", "config/queueTable.0", "config/queueTable.1", "config/durableMark"]


def remove(disk: RecordingDisk, prefix: str) -> None:
    for path in list(disk.contents()):
        if path.startswith(f"/store/{prefix}"):
            disk.unlink(path)


@pytest.mark.parametrize("abnormal", [True, False])
def test_derived_files_are_rebuilt(abnormal: bool) -> None:
    base = RecordingDisk()
    filled(base, 80)
    expected = everything(reopened(base.kill()))
    queue_files = {p: d for p, d in base.contents().items() if "consumequeue" in p}
    paths = [path for path in base.contents() if "/consumequeue/" in path]
    groups = [[path.removeprefix("/store/")] for path in paths] + [[name] for name in DERIVED] + [DERIVED]
    groups += [[first, second] for first in DERIVED for second in DERIVED if first < second]
    for group in groups:
        disk = base.kill()
        if abnormal:
            disk.put("/store/abort", b"")
        for prefix in group:
            remove(disk, prefix)
        store = reopened(disk)
        assert everything(store) == expected, group
        store.close()
        assert {p: d for p, d in disk.contents().items() if "consumequeue" in p} == queue_files, group


def test_a_rolled_back_or_shortened_queue_file_is_rebuilt() -> None:
    base = RecordingDisk()
    filled(base, 80)
    expected = everything(reopened(base.kill()))
    for path, (size, data) in base.contents().items():
        if "/consumequeue/" not in path:
            continue
        for content in (data[: len(data) // 40 * 20].ljust(size, b"\0"), data[:37], b""):
            disk = base.kill()
            disk.unlink(path)
            disk.put(path, content)
            assert everything(reopened(disk)) == expected


def test_an_expired_queue_keeps_its_numbers() -> None:
    disk = RecordingDisk()
    store = make_store(disk)
    store.open()
    for number in range(5):
        store.append([draft(b"old %d" % number, b"old")])
    for _ in range(60):
        store.append([draft(bytes(200), b"busy")])
    while store.delete_oldest_segment():
        pass
    assert store.log_start > 0
    assert store.min_offset(b"old", 0) == store.max_offset(b"old", 0) == 5
    busy_min = store.min_offset(b"busy", 0)
    assert 0 < busy_min < 60
    for image in (disk.kill(), disk.crash(CrashMode.NONE), disk):
        if image is disk:
            store.close()
        for path in [p for p in image.contents() if "/consumequeue/" in p]:
            image.unlink(path)  # the numbering does not even need the queue's files
        after = reopened(image)
        assert after.min_offset(b"old", 0) == after.max_offset(b"old", 0) == 5
        assert after.min_offset(b"busy", 0) == busy_min
        item = draft(b"new", b"old")
        after.append([item])
        assert item.queue_offset == 5
        assert bodies(after, b"old") == [b"new"]
        after.close()


def test_truncation_survives_a_power_cut_at_every_step() -> None:
    images = 0
    for seed in range(3):
        disk = RecordingDisk(seed=seed)
        store = make_store(disk)
        store.open()
        ends = [store.append([draft(b"message %d" % n + bytes(100))]) for n in range(40)]
        store.flush_sinks()
        taken: list[RecordingDisk] = []
        disk.after_call = lambda call, taken=taken, disk=disk: taken.extend(  # type: ignore[misc]
            image.disk for image in disk.crash_images(len(taken))
        )
        store.truncate(ends[10])
        disk.after_call = None
        for image in taken:
            images += 1
            after = reopened(image)
            assert after.log_end in (ends[10], ends[-1])
            assert len(bodies(after)) == (11 if after.log_end == ends[10] else 40)
        # Once it has returned, no cut brings the tail back, whatever is written over it.
        store.append([draft(b"x")])
        for image in disk.crash_images(seed):
            after = reopened(image.disk)
            assert bodies(after) == [*(b"message %d" % n + bytes(100) for n in range(11)), b"x"]
    assert images > 100


def test_a_crash_during_recovery_changes_nothing() -> None:
    disk = RecordingDisk()
    store = make_store(disk)
    store.open()
    for number in range(40):
        store.append([draft(b"message %d" % number + bytes(80))])
    acked = len(bodies(store))
    disk.complete_queued()
    for number in range(5):
        store.append([draft(b"unsure %d" % number)])
    image = disk.crash(CrashMode.TORN_RANDOM, 3)
    taken: list[RecordingDisk] = []
    image.after_call = lambda call: taken.extend(i.disk for i in image.crash_images(len(taken)))
    once = reopened(image)
    image.after_call = None
    expected = bodies(once)
    assert len(expected) >= acked
    for second in taken:
        assert bodies(reopened(second)) == expected


def test_every_failing_call_leaves_a_store_that_recovers() -> None:
    """Fail the Nth call, whatever it is: no acknowledged message is lost, a start afterwards works."""
    calls = _scripted(RecordingDisk(), [])
    for nth in range(1, calls + 1, 3):
        for partial in (0, 60):
            disk = RecordingDisk()
            disk.fail(nth, partial_bytes=partial)
            acked: list[bytes] = []
            _scripted(disk, acked)
            disk.heal()
            for image in (disk.kill(), disk.crash(CrashMode.NONE)):
                found = bodies(reopened(image))
                assert set(acked) <= set(found), nth
                assert len(found) == len(set(found))


def _scripted(disk: RecordingDisk, acked: list[bytes]) -> int:
    store = make_store(disk)
    try:
        store.open()
    except (StoreError, OSError):
        return disk.calls
    for number in range(20):
        body = b"message %d" % number + bytes(number * 20)
        try:
            end = store.append([draft(body)])
            store.on_safe(end, lambda error, body=body: acked.append(body) if error is None else None)  # type: ignore[misc]
            if number % 5 == 0:
                store.flush_sinks()
        except (StoreError, OSError):
            continue
    try:
        store.close()
    except (StoreError, OSError):
        pass
    return disk.calls


def check_queue_files(disk: RecordingDisk, store: MessageStore) -> None:
    """Check that no file holds a unit that is not the queue's: Apache would take it for one."""
    for path, (_, data) in disk.contents().items():
        if "/consumequeue/" in path:
            _, _, _, topic, queue_id, name = path.split("/")
            last = (int(name) + len(data) + 19) // 20
            assert last <= store.max_offset(topic.encode(), int(queue_id)), path


@pytest.mark.parametrize("sync", [True, False])
def test_power_cuts_lose_nothing_acknowledged(sync: bool) -> None:
    """At every call of a run, images of every kind: what is found is a prefix of what was sent."""
    config = small_config(sync=sync)
    disk, clock = RecordingDisk(), VirtualClock()
    sent: list[bytes] = []
    acked: list[bytes] = []
    images = 0

    def cut(call: object) -> None:
        nonlocal images
        disk.after_call = None
        for image in disk.crash_images(images):
            images += 1
            store = make_store(image.disk, config)
            report = store.open()
            found = read_queue(store)
            assert [r.body for r in found] == sent[: len(found)], (call, image.mode, image.seed)
            assert [r.queue_offset for r in found] == list(range(len(found)))
            assert len(found) >= len(acked) or not sync, (call, image.mode, image.seed)
            assert report.damages == [], (call, image.mode, image.seed)
            check_queue_files(image.disk, store)
        disk.after_call = cut

    disk.after_call = cut
    store = make_store(disk, config, clock=clock)
    store.open()
    for number in range(14):
        batch = [b"%d-%d" % (number, part) + bytes(number * 47 % 400) for part in range(number % 3 + 1)]
        sent.extend(batch)
        end = store.append([draft(body) for body in batch])
        store.on_safe(end, lambda error, batch=batch: acked.extend(batch) if error is None else None)  # type: ignore[misc]
        if number % 4 == 3:
            clock.advance(1.5)
            store.tick()
    store.close()
    assert acked == sent
    assert images > 800


def test_what_recovery_has_shown_survives_the_next_power_cut() -> None:
    disk = RecordingDisk()
    store = make_store(disk, small_config(sync=False))
    store.open()
    for number in range(50):
        store.append([draft(b"%d" % number)])
    image = disk.kill()
    seen = bodies(reopened(image))
    assert len(seen) == 50
    assert bodies(reopened(image.crash(CrashMode.NONE))) == seen


def test_numbers_of_an_expired_queue_survive_every_cut() -> None:
    disk = RecordingDisk()
    store = make_store(disk)
    store.open()
    store.append([draft(b"old", b"old")])
    for _ in range(60):
        store.append([draft(bytes(200), b"busy")])
    while store.delete_oldest_segment():
        pass
    images: list[RecordingDisk] = []
    disk.after_call = lambda call: images.extend(i.disk for i in disk.crash_images(len(images)))
    for _ in range(3):
        store.append([draft(bytes(200), b"busy")])
        store.flush_sinks()
    disk.after_call = None
    for image in images:
        remove(image, "consumequeue/old")
        assert reopened(image).max_offset(b"old", 0) == 1


def test_segments_of_another_length_are_refused() -> None:
    disk = RecordingDisk()
    filled(disk)
    with pytest.raises(StoreError, match="mappedFileSizeCommitLog"):
        make_store(disk, small_config(segment=8192)).open()
    disk.put("/store/commitlog/00000000000000004096", bytes(100))
    store = make_store(disk)
    assert "removed" in store.open().problems[0]
    store.close()
    disk.put("/store/commitlog/00000000000000004096", b"x" * 100)
    with pytest.raises(StoreError):
        make_store(disk).open()


def test_stale_bytes_of_another_life_are_not_records() -> None:
    """A file whose records name other offsets (recycled, copied) ends the log there. RocketMQ: #10017."""
    disk = RecordingDisk()
    starts = filled(disk)
    data = disk.open(FIRST).read(0, starts[3])
    image = disk.kill()
    image.put("/store/abort", b"")
    image.open(FIRST).write(starts[-1], data)
    store = make_store(image)
    assert store.open().log_end == starts[-1]
    assert sum(map(len, everything(store).values())) == 12


def test_the_index_is_fed_and_found_again() -> None:
    disk = RecordingDisk()
    config = small_config()
    store = make_store(disk, config, sinks=(MessageIndex(disk, ROOT, config),))
    store.open()
    for number in range(30):
        store.append([draft(b"%d" % number, keys=f"key{number % 3} other", uniq_key=f"U{number}")])
    found = records_by_key(store, "topic", "key1")
    assert len(found) == 10
    store.close()
    again = make_store(disk, config, sinks=(MessageIndex(disk, ROOT, config),))
    again.open()
    assert records_by_key(again, "topic", "U7") == [found[-3]]
    assert records_by_key(again, "topic", "none") == []
    again.close()


def test_find_end_stops_at_a_missing_file() -> None:
    disk = RecordingDisk()
    store = make_store(disk)
    store.open()
    for _ in range(60):
        store.append([draft(bytes(100))])
    store.close()
    last = max(path for path in disk.contents() if "commitlog" in path)
    disk.unlink(last)
    reader = LogReader(disk, "/store/commitlog")
    found = find_end(reader, 0, reader.stop, 0)
    assert (found.end, found.torn) == (reader.stop, False)
    reader.close()


def test_a_light_queue_of_apaches_is_emptied_in_words() -> None:
    disk = RecordingDisk()
    first = make_store(disk)
    first.open()
    first.append([draft(b"body")])
    first.close()
    disk.put("/store/consumequeue/%LMQ%light/0/00000000000000000000", bytes(range(20)) * 16)
    store = make_store(disk)
    report = store.open()
    assert any("%LMQ%light/0: light message queues (LMQ) are not supported" in problem for problem in report.problems)
    assert bodies(store) == [b"body"]
    assert store.max_offset(b"%LMQ%light", 0) == 0
    store.close()
