"""Verify finds every damage and names its file and byte; what a running or killed broker leaves is no damage."""

from __future__ import annotations

import pytest

from aerobee.hot.log.layout import UNIT_SIZE
from aerobee.hot.log.record import decode_record
from aerobee.runtime.seams import File
from aerobee.store.offline.problems import CannotLookError
from aerobee.store.offline.walk import OfflineLog
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.offlinekit import fill, open_store, places, seen, verified, written
from aerobee.testing.storekit import ROOT, draft, small_config

LOG = ("commitlog/00000000000000000000", "commitlog/00000000000000004096")
QUEUE = "consumequeue/topic0/0/00000000000000000000"
COUNT = 45


@pytest.fixture(scope="module")
def sound() -> RecordingDisk:
    return written(COUNT)


def index_name(disk: RecordingDisk) -> str:
    return "index/" + disk.listdir(f"{ROOT}/index")[-1]


def content(disk: RecordingDisk, name: str) -> bytes:
    file: File = disk.open(f"{ROOT}/{name}", write=False)
    return file.read(0, file.size())


def log_end(disk: RecordingDisk) -> int:
    return verified(disk).log_end


def test_a_sound_store_is_counted_whole(sound: RecordingDisk) -> None:
    report = verified(sound)
    assert report.findings.exit_code == 0
    assert report.findings.notes == []
    assert (report.records, report.sealed_records, report.queue_units, report.queues) == (COUNT, COUNT, COUNT, 2)
    assert report.index_entries == COUNT * 4
    assert (report.log_start, report.segments) == (0, 2)


def flips(disk: RecordingDisk, name: str, used: int, step: int) -> None:
    """Flip one bit in every `step`th byte of a file's used part; each is found at this very byte."""
    for at in range(0, used, step):
        disk.rot(f"{ROOT}/{name}", at, 1 << at % 8)
        found = places(verified(disk))
        assert (name, at) in found, (name, at, found)
        disk.rot(f"{ROOT}/{name}", at, 1 << at % 8)


def test_a_flipped_bit_in_the_log_is_named_by_its_byte(sound: RecordingDisk) -> None:
    first = content(sound, LOG[0])
    blank_at = first.rindex(b"\xcb\xd4\x31\x94") - 4
    flips(sound, LOG[0], blank_at + 8, 13)
    flips(sound, LOG[1], log_end(sound) - 4096, 29)


def test_a_flipped_bit_in_a_queue_is_named_by_its_byte(sound: RecordingDisk) -> None:
    flips(sound, QUEUE, 16 * UNIT_SIZE, 7)


def test_a_flipped_bit_in_the_index_is_named_by_its_byte(sound: RecordingDisk) -> None:
    # Header, slots, then entries 1 to 180; entry 0 is never used.
    name = index_name(sound)
    entries_at = 40 + 100 * 4
    for at in (*range(16, 36), *range(40, entries_at, 11), *range(entries_at + 20, entries_at + 20 * 181, 17)):
        sound.rot(f"{ROOT}/{name}", at, 2)
        found = places(verified(sound))
        assert (name, at) in found, (at, found)
        sound.rot(f"{ROOT}/{name}", at, 2)


def test_one_flipped_bit_is_one_problem(sound: RecordingDisk) -> None:
    for name, at in ((LOG[0], 700), (LOG[1], log_end(sound) - 4096 - 1), (QUEUE, 25), (index_name(sound), 700)):
        sound.rot(f"{ROOT}/{name}", at)
        report = verified(sound)
        assert places(report) == [(name, at)]
        assert report.findings.problems[0].repairable == (not name.startswith("commitlog"))
        sound.rot(f"{ROOT}/{name}", at)


def test_one_changed_byte_is_named_whatever_the_change(sound: RecordingDisk) -> None:
    for at, mask in ((700, 0xFF), (701, 0x81), (1333, 0x3C)):
        sound.rot(f"{ROOT}/{LOG[0]}", at, mask)
        assert places(verified(sound)) == [(LOG[0], at)]
        sound.rot(f"{ROOT}/{LOG[0]}", at, mask)


def test_a_record_that_lost_its_checksum_is_damage(sound: RecordingDisk) -> None:
    disk = sound.kill()
    at = content(disk, LOG[0]).index(b"__CRC32#")
    disk.open(f"{ROOT}/{LOG[0]}").write(at, b"__NAME##")
    (problem,) = verified(disk).findings.problems
    assert (problem.path, problem.offset) == (LOG[0], 0)
    assert "whole-record checksum is missing" in problem.what


def test_damage_to_many_bytes_is_named_by_its_record() -> None:
    disk = written(COUNT)
    start = decode_record(content(disk, LOG[0]), 0).size
    disk.open(f"{ROOT}/{LOG[0]}").write(start + 40, b"\xff" * 60)
    report = verified(disk)
    (problem,) = report.findings.problems
    assert (problem.path, problem.physical_offset) == (LOG[0], start)
    assert (
        problem.physical_end
        == start + decode_record(content(disk, LOG[0]), problem.physical_end or 0).physical_offset - start
    )
    assert report.records == COUNT - 1


def test_a_cut_file_is_bad_from_its_end_on(sound: RecordingDisk) -> None:
    for name, size in ((LOG[0], 1000), (LOG[1], 900), (QUEUE, 50), (QUEUE, 100), (index_name(sound), 3000)):
        disk = sound.kill()
        disk.open(f"{ROOT}/{name}").truncate(size)
        found = places(verified(disk, config=small_config()))
        assert (name, size) in found, (name, size, found)


@pytest.mark.parametrize("at", [0, 1])
def test_a_missing_segment_is_named(at: int) -> None:
    disk = written(80)
    name = f"commitlog/{4096 * (at + 1):020d}"
    disk.unlink(f"{ROOT}/{name}")
    assert (name, 0) in places(verified(disk))


def test_a_missing_last_segment_is_noticed_by_the_durable_mark(sound: RecordingDisk) -> None:
    disk = sound.kill()
    disk.unlink(f"{ROOT}/{LOG[1]}")
    assert places(verified(disk))[0] == (LOG[1], 0)


def test_missing_derived_files_are_named() -> None:
    disk = written(COUNT)
    for name in (QUEUE, index_name(disk)):
        damaged = disk.kill()
        damaged.unlink(f"{ROOT}/{name}")
        report = verified(damaged)
        assert report.findings.exit_code == 1
        assert all(problem.repairable for problem in report.findings.problems)
        path, _ = places(report)[0]
        assert path in (name, "index")


def test_swapped_queue_files_are_found(sound: RecordingDisk) -> None:
    disk = sound.kill()
    names = [f"{ROOT}/consumequeue/topic{number}/0/00000000000000000000" for number in (0, 1)]
    disk.rename(names[0], f"{ROOT}/aside")
    disk.rename(names[1], names[0])
    disk.rename(f"{ROOT}/aside", names[1])
    found = {path for path, _ in places(verified(disk))}
    assert found == {name.removeprefix(f"{ROOT}/") for name in names}


def test_the_checkpoint_is_judged(sound: RecordingDisk) -> None:
    for at, value, bad in ((40, 1 << 40, 40), (32, 1 << 40, 32), (16, -5, 16), (2000, 7, 2007)):
        disk = sound.kill()
        disk.open(f"{ROOT}/checkpoint").write(at, value.to_bytes(8, "big", signed=True))
        assert ("checkpoint", bad) in places(verified(disk))


def test_state_files_are_parsed() -> None:
    disk = written(5)
    disk.put(f"{ROOT}/config/topics.json", b'{"topicConfigTable":{"a":1,}}')
    disk.put(f"{ROOT}/config/consumerOffset.json.bak", b"\0\0\0")
    disk.put(f"{ROOT}/config/delayOffset.json", b'{"offsetTable":{1:5}}')
    found = places(verified(disk))
    assert ("config/consumerOffset.json.bak", 0) in found
    assert ("config/topics.json", 27) in found
    assert len(found) == 2


def test_what_a_killed_broker_leaves_is_no_damage() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    fill(store, COUNT)
    report = verified(disk.kill())
    assert report.findings.exit_code == 0
    assert report.records == COUNT
    assert any("not in their consume queues yet" in note for note in report.findings.notes)


@pytest.mark.parametrize("cut", [5, 60, 130])
def test_a_torn_tail_after_a_kill_is_the_end_of_the_log(cut: int) -> None:
    disk = RecordingDisk()
    store = open_store(disk, small_config(sync=False))
    fill(store, 10)
    whole = store.log_end
    fill(store, 1, 10)
    end = store.log_end
    image = disk.kill()
    image.open(f"{ROOT}/{LOG[0]}").write(whole + cut, bytes(end - whole - cut))
    report = verified(image)
    assert report.findings.exit_code == 0
    assert report.log_end == whole
    assert any(note.startswith(f"log ends at {whole}") for note in report.findings.notes)


def test_damage_to_what_was_synced_is_damage_even_after_a_kill() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    fill(store, 10)
    store.flush_sinks()  # writes mark and checkpoint
    end = store.log_end
    image = disk.kill()
    image.rot(f"{ROOT}/{LOG[0]}", end - 30)
    assert places(verified(image)) == [(LOG[0], end - 30)]


def test_a_live_store_is_read_without_touching_it() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    fill(store, COUNT)
    before = disk.contents()
    report = verified(disk, holder=4711)
    assert disk.contents() == before
    assert report.findings.exit_code == 0
    assert report.is_live
    assert report.records == COUNT
    assert f"a broker is running: looked up to offset {store.log_end}" in report.findings.notes


def test_records_appended_while_we_look_are_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    fill(store, 5)
    directory = seen(disk, holder=4711)
    log = OfflineLog(directory)
    original = log.reader.read
    asked: list[int] = []

    def read(offset: int, size: int) -> bytes:
        data = original(offset, size)
        if offset == store.log_end and len(asked) < 3:
            asked.append(offset)
            fill(store, 2, 5 + 2 * len(asked))  # right after these bytes were read as empty
        return data

    monkeypatch.setattr(log.reader, "read", read)
    kinds = [stretch.kind.value for stretch in log.walk()]
    assert "damage" not in kinds
    assert kinds[-1] == "end"
    assert len(asked) > 0


def test_segments_deleted_while_we_look_are_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    fill(store, 100)
    directory = seen(disk, holder=4711)
    log = OfflineLog(directory)
    assert store.delete_oldest_segment()
    stretches = list(log.walk())
    assert [stretch.kind.value for stretch in stretches if stretch.kind.value != "records"] == ["deleted", "end"]
    assert stretches[0].end == store.log_start


def test_expired_segments_and_their_units_are_no_damage() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    fill(store, 100)
    assert store.delete_oldest_segment()
    store.close()
    report = verified(disk)
    assert report.findings.exit_code == 0, report.findings.problems
    assert report.log_start == 4096
    assert 0 < report.records < 100


def test_a_topic_deleted_and_made_again_is_no_damage() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(20):
        store.append([draft(b"old %d" % number)])
    store.delete_topics([b"topic"])
    for number in range(5):
        store.append([draft(b"new %d" % number)])
    store.close()
    report = verified(disk)
    assert report.findings.problems == []
    assert "20 records belong to topics that were deleted" in report.findings.notes


def test_a_deleted_topic_is_known_by_topics_json() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    store.append([draft(b"old")])
    store.delete_topics([b"topic"])
    store.close()
    assert verified(disk).findings.exit_code == 0
    disk.unlink(f"{ROOT}/config/deletedTopics.json")  # as RocketMQ deletes
    assert verified(disk).findings.exit_code == 1  # nobody says that it was deleted
    disk.put(f"{ROOT}/config/topics.json", b'{"topicConfigTable":{"other":{}}}')
    assert verified(disk).findings.exit_code == 0


def test_records_of_apache_are_covered_by_the_checksum_of_the_body() -> None:
    disk = written(COUNT, small_config(enabled_append_prop_crc=False))
    assert verified(disk).sealed_records == 0
    body_at = content(disk, LOG[0]).index(b"message 3")
    disk.rot(f"{ROOT}/{LOG[0]}", body_at + 4)
    assert places(verified(disk)) == [(LOG[0], body_at + 4)]


def test_a_scheduled_message_has_its_delivery_time_in_its_unit() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    message = draft(b"later", b"SCHEDULE_TOPIC_XXXX", 2)
    message.properties = b"DELAY\x013\x02"
    store.append([message])
    store.close()
    assert verified(disk).findings.exit_code == 0
    # Another broker's levels: whole seconds. Rot: not.
    name = "consumequeue/SCHEDULE_TOPIC_XXXX/2/00000000000000000000"
    unit = content(disk, name)[:UNIT_SIZE]
    later = int.from_bytes(unit[12:], "big") + 5000
    disk.open(f"{ROOT}/{name}").write(12, later.to_bytes(8, "big"))
    assert verified(disk).findings.exit_code == 0
    assert verified(disk, config=small_config()).findings.exit_code == 1
    disk.open(f"{ROOT}/{name}").write(12, (later + 64).to_bytes(8, "big"))
    assert verified(disk).findings.exit_code == 1


def test_an_index_of_unknown_shape_is_not_called_sound() -> None:
    config = small_config(max_hash_slot_num=7, max_index_num=50)
    disk = written(5, config)
    report = verified(disk)
    assert (report.findings.exit_code, report.findings.problems) == (2, [])
    assert "maxHashSlotNum" in report.findings.unseen[0]
    assert verified(disk, config=config).findings.exit_code == 0


def test_what_cannot_be_looked_at_is_said_in_words() -> None:
    disk = RecordingDisk(existing=("/store", "/empty"))
    with pytest.raises(CannotLookError, match="does not exist"):
        seen(RecordingDisk(existing=()))
    with pytest.raises(CannotLookError, match="holds no store"):
        seen(disk)
    disk.make_dirs(f"{ROOT}/commitlog")
    disk.make_dirs(f"{ROOT}/rocksdbstore")
    seen(disk)
    disk.put(f"{ROOT}/rocksdbstore/000004.log", b"x" * 100)
    with pytest.raises(CannotLookError, match="RocksDB"):
        seen(disk)
