import pytest

from aerobee.hot.log.layout import INDEX_HEADER_SIZE
from aerobee.hot.log.record import Draft
from aerobee.store.config import StoreConfig
from aerobee.store.index import MessageIndex
from aerobee.store.indexfile import IndexFile, key_hash
from aerobee.testing.disk import RecordingDisk

BASE = 1_700_000_000_000
CONFIG = StoreConfig(max_hash_slot_num=7, max_index_num=12, max_msgs_num_batch=100)

# By Apache's IndexFile (5.5.0, 13 slots, 40 entries): six keys at offsets 1000, 1200..., 1500 ms apart.
APACHE_KEYS = [
    "TopicA#k1",
    "TopicA#k2",
    "TopicA#k1",
    "TopicA#\U0001f600",
    "TopicA#T#tag",
    "polygenelubricants",
]
APACHE_FILE = bytes.fromhex(
    "0000018bcfe568000000018bcfe5854c00000000000003e800000000000007d00000000500000007"
    "00000006000000000000000000000000000000000000000000000000000000000000000000000005000000020000000300000004"
    "0000000000000000000000000000000000000000717125c900000000000003e80000000000000000"
    "717125c800000000000004b00000000100000000717125c900000000000005780000000300000001"
    "7156258c000000000000064000000004000000005f64d3c600000000000007080000000600000000"
    "0000000000000000000007d000000007"
)


def draft(offset: int, *, key: str = "", uniq: str = "", tag: str = "", sys_flag: int = 0) -> Draft:
    properties = f"TAGS\x01{tag}\x02".encode() if tag else b""
    host = bytes(8)
    made = Draft(b"TopicA", 0, 0, sys_flag, BASE, host, host, 0, 0, b"", properties, 0, key, uniq)
    made.physical_offset = offset
    made.store_timestamp = BASE + offset
    made.size = 100
    return made


def drafts(count: int, start: int = 0) -> list[Draft]:
    return [draft(i * 100, key=f"k{i % 5}", uniq=f"u{i}") for i in range(start, start + count)]


def opened(disk: RecordingDisk, log_end: int, log_start: int = 0) -> MessageIndex:
    index = MessageIndex(disk, "/store", CONFIG)
    index.recover(log_start, log_end)
    return index


def everything(index: MessageIndex, count: int) -> dict[str, tuple[int, ...]]:
    keys = [f"k{i}" for i in range(5)] + [f"u{i}" for i in range(count)]
    return {key: index.query("TopicA", key, 100).offsets for key in keys}


def expected(count: int) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {f"k{k}": () for k in range(5)}
    for i in range(count):
        found[f"u{i}"] = (i * 100,)
        found[f"k{i % 5}"] = (i * 100, *found[f"k{i % 5}"])
    return found


def sync(index: MessageIndex) -> None:
    for file in index.flush():
        file.sync()
    index.flushed()


def test_bytes_are_apaches() -> None:
    disk = RecordingDisk()
    disk.make_dirs("/i")
    file = IndexFile(disk, "/i/20231114221320000", 13, 40, create=True)
    for number, key in enumerate(APACHE_KEYS):
        file.put(key_hash(key), 1000 + number * 200, BASE + number * 1500)
    file.save()
    assert file.file.read(0, file.size) == APACHE_FILE.ljust(INDEX_HEADER_SIZE + 13 * 4 + 40 * 20, b"\0")


def test_reads_a_file_that_apache_wrote() -> None:
    disk = RecordingDisk()
    size = INDEX_HEADER_SIZE + 13 * 4 + 40 * 20
    disk.put("/store/index/20231114221320000", APACHE_FILE.ljust(size, b"\0"))
    index = MessageIndex(disk, "/store", StoreConfig(max_hash_slot_num=13, max_index_num=40))
    index.recover(0, 5000)
    assert index.query("TopicA", "k1", 10).offsets == (1400, 1000)
    assert index.query("TopicA", "\U0001f600", 10).offsets == (1600,)
    assert index.query("TopicA", "tag", 10, index_type="T").offsets == (1800,)
    assert index.query("TopicA", "tag", 10).offsets == ()
    assert index.position() == 2000
    assert index.problems == []


def test_a_hash_that_overflows_is_zero() -> None:
    assert key_hash("polygenelubricants") == 0


def test_tags_keys_and_rolled_back_transactions() -> None:
    index = opened(RecordingDisk(), 0)
    index.dispatch([draft(0, key="a  b", uniq="U", tag="x"), draft(100, key="a", sys_flag=0xC)])
    assert index.query("TopicA", "a", 9).offsets == (0,)
    assert index.query("TopicA", "b", 9).offsets == (0,)
    assert index.query("TopicA", "U", 9).offsets == (0,)
    assert index.query("TopicA", "x", 9, index_type="T").offsets == (0,)
    assert index.query("TopicA", "", 9).offsets == ()


def test_query_by_time_and_limit_newest_first_across_files() -> None:
    index = opened(RecordingDisk(), 0)
    index.dispatch([draft(i * 10_000, key="same") for i in range(30)])
    assert index.query("TopicA", "same", 3).offsets == (290_000, 280_000, 270_000)
    span = index.query("TopicA", "same", 100, BASE + 100_000, BASE + 120_000)
    assert span.offsets == (120_000, 110_000, 100_000)
    assert span.last_update_offset == 290_000
    assert span.last_update_timestamp == BASE + 290_000


def test_a_query_off_the_thread_answers_the_same() -> None:
    disk = RecordingDisk()
    index = opened(disk, 0)
    index.dispatch(drafts(40))
    sync(index)
    answers: list[object] = []
    disk.complete_queued()
    index.submit_query("TopicA", "k3", 100, (0, 2**63 - 1), None, answers.append)
    assert answers == []
    disk.run_pending()
    assert answers == [index.query("TopicA", "k3", 100)]


def test_reopening_finds_everything_and_goes_on() -> None:
    disk = RecordingDisk()
    index = opened(disk, 0)
    index.dispatch(drafts(20))
    index.close()
    assert disk.unsynced() == []
    again = opened(disk, 2000)
    assert again.position() == 1900
    assert everything(again, 20) == expected(20)
    again.dispatch(drafts(30))
    assert everything(again, 30) == expected(30)


def test_what_was_seen_before_is_harmless() -> None:
    index = opened(RecordingDisk(), 0)
    index.dispatch(drafts(20))
    files = [file.header.count for file in index._files]
    index.dispatch(drafts(20))
    assert [file.header.count for file in index._files] == files


def test_position_counts_only_what_a_crash_leaves() -> None:
    disk = RecordingDisk()
    index = opened(disk, 0)
    assert index.position() == -1
    index.dispatch(drafts(3))
    assert index.position() == -1
    sync(index)
    assert index.position() == -1  # the header is written, and not yet synced
    sync(index)
    assert index.position() == 200
    assert index.flush() == []


@pytest.mark.parametrize("stage", range(7))
def test_every_crash_image_is_rebuilt_to_the_log(stage: int) -> None:
    disk = RecordingDisk(seed=stage)
    index = opened(disk, 0)
    claimed = -1
    for step in range(stage):
        index.dispatch(drafts(4, step * 4))
        files = index.flush()
        if step % 3 != 2:
            for file in files:
                file.sync()
            index.flushed()
        claimed = index.position()
    index.dispatch(drafts(4, stage * 4))
    index.flush()
    count = 0
    for image in disk.crash_images(stage, per_mode=6):
        recovered = opened(image.disk, 10_000_000)
        assert recovered.position() >= claimed, image.mode
        recovered.dispatch(drafts(stage * 4 + 8))
        assert everything(recovered, stage * 4 + 8) == expected(stage * 4 + 8), (image.mode, image.seed)
        count += 1
    assert count > 10


def test_not_ahead_of_a_log_that_lost_its_tail() -> None:
    for keep in (0, 1, 3, 5, 6, 7, 11, 19, 20):
        disk = RecordingDisk()
        index = opened(disk, 0)
        index.dispatch(drafts(20))
        index.close()
        again = opened(disk, keep * 100)
        assert everything(again, 20) == {**{key: () for key in expected(20)}, **expected(keep)}
        again.dispatch(drafts(25))
        assert everything(again, 25) == expected(25)


def test_truncate_while_open_is_durable() -> None:
    disk = RecordingDisk()
    index = opened(disk, 0)
    index.dispatch(drafts(13))
    index.truncate(900)
    assert everything(index, 9) == expected(9)
    for image in disk.crash_images(1, per_mode=3):
        recovered = opened(image.disk, 10_000_000)
        assert recovered.position() <= 800
        recovered.dispatch(drafts(9))
        assert everything(recovered, 13) == {**{key: () for key in expected(13)}, **expected(9)}


def test_a_missing_file_is_noticed_and_built_again() -> None:
    for victim in range(4):
        disk = RecordingDisk()
        index = opened(disk, 0)
        index.dispatch(drafts(20))
        index.close()
        names = disk.listdir("/store/index")
        assert len(names) == 4
        disk.unlink(f"/store/index/{names[victim]}")
        again = opened(disk, 2000)
        assert "is missing" in again.problems[0]
        again.dispatch(drafts(20))
        assert everything(again, 20) == expected(20)


def test_a_file_of_the_wrong_length_or_content_is_built_again() -> None:
    disk = RecordingDisk()
    index = opened(disk, 0)
    index.dispatch(drafts(20))
    index.close()
    names = disk.listdir("/store/index")
    disk.rot(f"/store/index/{names[1]}", 38, 0x40)
    again = opened(disk, 2000)
    assert names[1] in again.problems[0]
    again.dispatch(drafts(20))
    assert everything(again, 20) == expected(20)


def test_without_notes_a_large_gap_tells_of_a_missing_file() -> None:
    disk = RecordingDisk()
    index = opened(disk, 0)
    step = 2 * 1024 * 1024
    index.dispatch([draft(i * step, key="k", uniq=f"u{i}") for i in range(20)])
    index.close()
    disk.unlink(f"/store/index/{disk.listdir('/store/index')[1]}")
    disk.unlink("/store/config/indexFiles.json")
    disk.unlink("/store/config/indexFiles.json.bak")
    again = opened(disk, 20 * step)
    assert "nothing is indexed between" in again.problems[0]
    assert again.position() == 5 * step


def test_expired_files_go_and_the_newest_stays() -> None:
    disk = RecordingDisk()
    index = opened(disk, 0)
    index.dispatch(drafts(20))
    index.flush()
    assert len(disk.listdir("/store/index")) == 4
    assert index.delete_expired(1100) == 2
    assert index.delete_expired(10**9) == 1
    assert len(disk.listdir("/store/index")) == 1
    index.close()
    again = opened(disk, 2000, 1500)
    assert again.problems == []
    assert again.position() == 1900


def test_foreign_files_are_left_alone() -> None:
    disk = RecordingDisk()
    disk.put("/store/index/readme.txt", b"hello")
    index = opened(disk, 0)
    index.dispatch(drafts(2))
    index.close()
    assert "readme.txt" in disk.listdir("/store/index")
