"""What is deleted with its topic never comes back, and what is sent to a new topic of that name stays."""

from __future__ import annotations

import pytest

from aerobee.errors import StoreError
from aerobee.hot.log.record import Draft
from aerobee.store.deleting import delete_topics_below
from aerobee.store.deletions import Deletions
from aerobee.store.dispatch import Sink
from aerobee.store.messagestore import MessageStore
from aerobee.store.offline.problems import CannotLookError
from aerobee.store.offline.repair import repair
from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.offlinekit import open_store, seen, verified
from aerobee.testing.storekit import ROOT, bodies, draft, make_store, records_by_key, small_config

NOTE = f"{ROOT}/config/deletedTopics.json"
OLD = [b"old %d" % number for number in range(20)]
NEW = [b"new %d" % number for number in range(5)]


def send(store: MessageStore, *sent: bytes, topic: bytes = b"topic") -> None:
    for body in sent:
        store.append([draft(body, topic, keys="key")])


def by_key(store: MessageStore, topic: str = "topic") -> int:
    return len(records_by_key(store, topic, "key"))


def replaced(disk: RecordingDisk) -> MessageStore:
    """Return a store in which a topic was deleted and made again."""
    store = open_store(disk)
    send(store, *OLD)
    store.delete_topics([b"topic"])
    send(store, *NEW)
    return store


def lose(disk: RecordingDisk, name: str) -> None:
    for path in [path for path in disk.contents() if path.startswith(f"{ROOT}/{name}")]:
        disk.unlink(path)


def test_the_notes_are_one_for_a_name_and_none_for_what_the_log_has_left_behind() -> None:
    disk = RecordingDisk()
    deletions = Deletions(disk, ROOT)
    deletions.load()
    for place in range(100, 2000, 100):
        deletions.note([b"a", b"b"] if place == 100 else [b"a"], 0, place)
    again = Deletions(disk, ROOT)
    again.load()
    assert again.positions() == deletions.positions() == {b"a": 1900, b"b": 100}
    assert (again.highest, again.covers(b"b", 99), again.covers(b"b", 100), again.covers(b"c", 0)) == (
        1900, True, False, False,
    )  # fmt: skip
    again.note([b"c"], 100, 2000)
    assert again.positions() == {b"a": 1900, b"c": 2000}
    again.cut(1950)
    deletions.load(1900)
    assert deletions.positions() == {b"c": 1950}


@pytest.mark.parametrize("name", [b"a", b"%RETRY%g", b"x" * 4000, b'"\\', "ü€".encode(), b"\xff\x00\n"])
def test_every_name_comes_back_as_it_was(name: bytes) -> None:
    disk = RecordingDisk()
    Deletions(disk, ROOT).note([name], 0, 7)
    found = Deletions(disk, ROOT)
    found.load()
    assert found.positions() == {name: 7}


@pytest.mark.parametrize(
    "content", [b"{}", b'{"deletedBelow":{"a":-1}}', b'{"deletedBelow":{"a":"9"}}', b"[]", b"\xff"]
)
def test_notes_that_cannot_be_read_are_no_reason_to_bring_everything_back(content: bytes) -> None:
    disk = RecordingDisk()
    replaced(disk).close()
    disk.put(NOTE, content)
    with pytest.raises(StoreError, match="deletedTopics"):
        open_store(disk)
    with pytest.raises(CannotLookError, match="which topics were deleted is not known"):
        repair(seen(disk))


@pytest.mark.parametrize("lost", ["nothing", "index/", "consumequeue/", "config/queueTable", "config/indexFiles"])
@pytest.mark.parametrize("clean", [True, False])
def test_whatever_is_lost_is_built_again_without_what_was_deleted(lost: str, clean: bool) -> None:
    disk = RecordingDisk()
    store = replaced(disk)
    if clean:
        store.close()
    else:
        disk = disk.kill()
    lose(disk, lost)
    store = open_store(disk)
    assert bodies(store) == NEW
    assert by_key(store) == len(NEW)
    assert store.max_offset(b"topic", 0) == len(NEW)
    store.close()
    assert verified(disk).findings.problems == []


class Taker(Sink):
    """A sink that says where it stands, and keeps what it is given."""

    name = "taker"

    def __init__(self, position: int) -> None:
        self._position = position
        self.taken: list[bytes] = []

    def position(self) -> int:
        return self._position

    def dispatch(self, drafts: list[Draft]) -> None:
        self.taken += [d.body for d in drafts]


def test_every_sink_gets_what_lies_above_its_own_position() -> None:
    disk = RecordingDisk()
    store = make_store(disk)
    store.open()
    places = []
    for number in range(10):
        places.append(store.log_end)
        send(store, b"%d" % number)
    store.close()
    takers = [Taker(-1), Taker(places[7]), Taker(places[3]), Taker(1 << 62)]
    store = make_store(disk, sinks=tuple(takers))
    store.open()
    send(store, b"more")
    counts = [len(taker.taken) for taker in takers]
    assert counts == [11, 4, 8, 1]


def test_a_lost_index_brings_nothing_behind_the_messages_of_a_queue() -> None:
    """Deleted by an older version, or by Apache: there is no note."""
    disk = RecordingDisk()
    replaced(disk).close()
    disk.unlink(NOTE)
    lose(disk, "index/")
    store = open_store(disk)
    assert bodies(store) == NEW
    store.close()
    lose(disk, "consumequeue/other")
    assert bodies(open_store(disk)) == NEW


def test_a_queue_built_again_takes_nothing_for_the_others() -> None:
    disk = RecordingDisk()
    store = replaced(disk)
    send(store, b"1", b"2", topic=b"other")
    store.close()
    disk.unlink(NOTE)
    lose(disk, "consumequeue/other")
    store = open_store(disk)
    assert bodies(store) == NEW
    assert bodies(store, b"other") == [b"1", b"2"]


def test_what_is_not_confirmed_yet_is_deleted_too() -> None:
    disk = RecordingDisk()
    store = make_store(disk)
    store.open(confirm_limit=0)
    send(store, *OLD)
    store.delete_topics([b"topic"])
    send(store, *NEW)
    store.set_confirm_limit(None)
    assert bodies(store) == NEW


@pytest.mark.parametrize("kind", ["write", "rename"])
def test_a_deletion_that_cannot_be_noted_has_not_happened(kind: str) -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    send(store, *OLD)
    disk.fail(1, kind, path="deletedTopics", errno=28 if kind == "write" else 13)
    with pytest.raises(StoreError):
        store.delete_topics([b"topic"])
    assert store.fenced is None
    disk.heal()
    assert bodies(store) == OLD
    assert bodies(open_store(disk.kill())) == OLD


def test_a_deletion_whose_sync_fails_fences() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    send(store, *OLD)
    disk.fail(1, "sync", path="deletedTopics")
    with pytest.raises(StoreError):
        store.delete_topics([b"topic"])
    assert store.fenced is not None


def test_what_is_written_where_the_log_was_cut_is_not_deleted() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    send(store, *OLD[:2])
    place = store.log_end
    send(store, *OLD[2:])
    store.delete_topics([b"topic"])
    store.truncate(place)
    send(store, *NEW)
    assert bodies(store) == NEW
    for image in (disk.kill(), disk.crash(CrashMode.NONE)):
        assert bodies(open_store(image)) == NEW


def test_repair_builds_nothing_of_a_deleted_topic_and_removes_what_is_left_of_it() -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    send(store, *OLD)
    send(store, b"kept", topic=b"other")
    store.flush_sinks()
    before = {path: data for path, (_, data) in disk.contents().items() if "/consumequeue/topic/" in path}
    assert before
    store.delete_topics([b"topic"])
    store.close()
    size = small_config().mapped_file_size_consume_queue
    for path, data in before.items():
        disk.put(path, data.ljust(size, b"\0"))
    assert verified(disk).findings.exit_code == 1
    repair(seen(disk, config=small_config()))
    assert verified(disk).findings.problems == []
    assert not [path for path in disk.contents() if "/consumequeue/topic/" in path]
    store = open_store(disk)
    assert (bodies(store), bodies(store, b"other"), by_key(store)) == ([], [b"kept"], 0)


def test_a_deletion_is_forgotten_with_the_segments_that_held_its_records() -> None:
    disk = RecordingDisk()
    store = replaced(disk)
    send(store, *(bytes(900) for _ in range(12)), topic=b"other")
    while store.delete_oldest_segment():
        pass
    store.delete_topics([b"third"])
    assert set(store.deletions.positions()) == {b"third"}
    assert store.max_offset(b"topic", 0) == len(NEW)
    store = open_store(disk.kill())
    assert store.max_offset(b"topic", 0) == len(NEW)


def test_a_deletion_of_the_group_that_is_read_again_takes_nothing_more() -> None:
    """A start may dispatch the record of a deletion again, after the queues have gone on behind it."""
    store = open_store(RecordingDisk(seed=1))
    store.append([draft(b"old", b"T")])
    place = store.log_end
    delete_topics_below(store, [b"T"], place)
    store.append([draft(b"new", b"T")])
    delete_topics_below(store, [b"T"], place)
    delete_topics_below(store, [b"T"], place - 1)
    assert bodies(store, b"T") == [b"new"]
    assert store.deletions.position_of(b"T") == place
    store.close()
