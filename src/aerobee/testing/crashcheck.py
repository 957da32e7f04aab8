"""What must hold of a store after any power cut or kill: the checks, run on one image.

the log          begins where it may, ends where a record ends, not below what was promised; its bytes are
                 those written, and behind its end there are only zeros
consume queues   each unit is its record's, none is missing, none too many; numbering goes on behind the
                 last record that was ever safe
index            an entry for each key of each record, in order
deletions        nothing of a deleted topic from below the place where it was deleted, in none of these
again            a second start, after another cut or kill, finds and leaves the same bytes
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from aerobee.model.numbers import parse_int
from aerobee.store.checkpoint import CheckpointFile
from aerobee.store.durablemark import DurableMark
from aerobee.store.messagestore import MessageStore
from aerobee.store.queues import FILL, UNIT
from aerobee.store.reads import GetMessageStatus
from aerobee.testing.clock import START_MS, VirtualClock
from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.history import Entry, Expectation, Queue
from aerobee.testing.storeshapes import ROOT, Shape

Contents = dict[str, tuple[int, bytes]]
_UNIT_SIZE = 20


class CrashCheckError(AssertionError):
    """A promise was broken."""


def require(truth: bool, what: str) -> None:
    if not truth:
        raise CrashCheckError(what)


def check_image(image: RecordingDisk, expect: Expectation, shape: Shape, *, again: CrashMode | None, deep: bool) -> int:
    """Recover and check; then cut by `again` (None: kill) and once more. Where the log was found to end."""
    require(not expect.entries or _is_known(image), "the store looks like another broker's")
    store = recover(image, shape)
    expect = expect.settled(store.deletions.positions())
    end = check_store(store, image.contents(), expect, shape, deep=deep)
    first = _settled(image.contents(), again is not None)
    second = image.kill() if again is None else image.crash(again)
    store = recover(second, shape, hours_later=-1)
    exact = expect._replace(safe_end=end, cut_to=end, starts=(store.log_start,))
    require(check_store(store, second.contents(), exact, shape, deep=False) == end, "ends elsewhere again")
    then = _settled(second.contents(), again is not None)
    differing = [path for path in {*first, *then} if first.get(path) != then.get(path)]
    require(not differing, f"a second recovery changed {differing}")
    return end


def _is_known(image: RecordingDisk) -> bool:
    """Tell whether mark and checkpoint go together: recovery knows our own writing by them."""
    mark = DurableMark(image, f"{ROOT}/config")
    mark.peek()
    return mark.believes(CheckpointFile(image, f"{ROOT}/checkpoint").value.encode())


def recover(image: RecordingDisk, shape: Shape, *, hours_later: int = 0) -> MessageStore:
    """Start on the image, whatever the clock says then."""
    store = shape.store(image, VirtualClock(wall_ms=START_MS + hours_later * 3_600_000))
    report = store.open()
    require(not report.damages, f"a power cut was taken for rot: {report.damages}")
    return store


def _settled(contents: Contents, was_cut: bool) -> Contents:
    """Return what a second start must leave as it is, byte for byte: the log, and after a kill the queues too.

    After a power cut a queue may be built again, without the units of expired records, which nobody can read.
    """
    kept = (f"{ROOT}/commitlog/",) if was_cut else (f"{ROOT}/commitlog/", f"{ROOT}/consumequeue/")
    return {path: data for path, data in contents.items() if path.startswith(kept)}


def check_store(store: MessageStore, contents: Contents, expect: Expectation, shape: Shape, *, deep: bool) -> int:
    """Check an open store in every way. Return where its log ends."""
    start, end = store.log_start, store.log_end
    _check_log(contents, start, end, expect, shape)
    expect = expect.settled(store.deletions.positions())
    stored = [entry for entry in expect.entries if entry.end <= end]
    held = [entry for entry in stored if expect.alive(entry)]
    dead = {entry.start for entry in stored if not expect.alive(entry)}
    require(store.dispatched_offset == store.confirmed_offset == end, "a part of the log is not dispatched")
    require(store.checkpoint.value.logics_physical_offset <= end, "the checkpoint claims too much")
    require(not stored or store.log.store_timestamp >= stored[-1].store_timestamp, "store time would go backwards")
    _check_queues(store, contents, held, start, shape)
    if shape.with_index:
        _check_index(store, [entry for entry in held if entry.start >= start], dead, start)
    if deep:
        check_reads(store, expect.log, held)
        for place in dead:
            require(store.run(store.message_at(place)) is None, f"a deleted message is served from {place}")
    return end


def _check_log(contents: Contents, start: int, end: int, expect: Expectation, shape: Shape) -> None:
    size = shape.segment_size
    if start != end or start:
        require(start in expect.starts, f"the log begins at {start}, not at one of {expect.starts}")
    lost = end < expect.safe_end and end != expect.cut_to
    require(not lost, f"acknowledged up to {expect.safe_end}, found up to {end}")
    require(end in expect.ends() or end == start, f"the log ends at {end}, where no record does")
    for begin in range(start - start % size, end, size):
        require(f"{ROOT}/commitlog/{begin:020d}" in contents, f"the segment of {begin} is gone")
    for path, (length, data) in contents.items():
        directory, _, name = path.rpartition("/")
        if directory == f"{ROOT}/commitlog":
            begin = parse_int(name)
            require(length == size, f"{path} is {length} bytes long")
            wanted = expect.log[begin : min(begin + size, end)].rstrip(b"\0")
            require(data == wanted, f"{path} does not hold what was written, or more")


def _check_queues(store: MessageStore, contents: Contents, held: Sequence[Entry], start: int, shape: Shape) -> None:
    queues: dict[Queue, list[Entry]] = {}
    for entry in held:
        if entry.is_queued:
            queues.setdefault(entry.queue, []).append(entry)
    for (topic, queue_id), entries in queues.items():
        where = f"queue {topic[:20]!r}/{queue_id}"
        count = len(entries)
        queue = store.queues.find(topic, queue_id)
        require(queue is not None, f"{where} is gone")
        assert queue is not None
        require(queue.next_offset == queue.assign_next == count, f"{where}: next {queue.next_offset}, not {count}")
        low = next((entry.queue_offset for entry in entries if entry.start >= start), count)
        require(queue.min_for(start) == low, f"{where}: begins at {queue.min_for(start)}, not {low}")
        _check_units(contents, queue.directory, entries, low, shape.units_per_file)
    for queue in store.queues:
        known = (queue.topic, queue.queue_id) in queues
        require(known or not queue.next_offset, f"{queue.directory} holds what the log does not")
    for path, (_, data) in contents.items():
        if path.startswith(f"{ROOT}/consumequeue/"):
            name, number = path.split("/")[-3:-1]
            is_known = (name.encode(), number) in {(topic, str(queue_id)) for topic, queue_id in queues}
            require(is_known or not data, f"{path} holds units of a queue that is not there")


def _check_units(contents: Contents, directory: str, entries: Sequence[Entry], low: int, per_file: int) -> None:
    """Check that each unit from the first readable one on is its record's, with zeros behind the last.

    A queue whose records have all expired needs no file.
    """
    count = len(entries)
    for base in range(low - low % per_file, count if low < count else 0, per_file):
        path = f"{directory}/{base * _UNIT_SIZE:020d}"
        require(path in contents, f"{path} is gone")
        length, data = contents[path]
        require(length == per_file * _UNIT_SIZE, f"{path} is {length} bytes long")
        first, last = max(low, base), min(base + per_file, count)
        wanted = b"".join(
            UNIT.pack(entry.start, entry.end - entry.start, entry.tags_code) for entry in entries[first:last]
        )
        found = data.ljust(length, b"\0")[(first - base) * _UNIT_SIZE :]
        require(found.rstrip(b"\0") == wanted.rstrip(b"\0"), f"{path} differs from the log")
    for path, (_, data) in contents.items():
        if path.startswith(f"{directory}/"):
            beyond = parse_int(path.rpartition("/")[2]) // _UNIT_SIZE >= max(count, 1)
            require(not beyond or not data.replace(FILL, b""), f"{path} lies behind the queue's end")


def _check_index(store: MessageStore, held: Sequence[Entry], dead: Collection[int], start: int) -> None:
    """Check the index entry by entry, oldest first, those still in memory too.

    Entries of expired and of deleted records may still be there, at most once.
    """
    assert store.index is not None
    wanted = [(hashed, entry.start) for entry in held for hashed in entry.hashes]
    found: list[tuple[int, int]] = []
    for file in store.index._files:
        for number in range(1, file.header.count):
            hashed, offset, _, _ = file._entry(number)
            if offset >= start and offset not in dead:
                found.append((hashed, offset))
    require(found == wanted, f"the index holds {len(found)} entries, the log {len(wanted)}")


def check_reads(store: MessageStore, log: bytes, held: Sequence[Entry]) -> None:
    """Check that every message is served as it was sent, by queue offset, key and physical offset, and nothing else."""
    queues: dict[Queue, list[bytes]] = {}
    for entry in held:
        if entry.start < store.log_start:
            continue
        record = log[entry.start : entry.end]
        require(store.run(store.message_at(entry.start)) == record, f"no message at {entry.start}")
        if entry.is_queued:
            queues.setdefault(entry.queue, []).append(record)
    for (topic, queue_id), records in queues.items():
        require(read_all(store, topic, queue_id) == records, f"{topic!r}/{queue_id} serves something else")
    if store.index is not None:
        _check_keys(store, held)
    require(not store.damages, "damage was reported where there is none")


def _check_keys(store: MessageStore, held: Sequence[Entry]) -> None:
    assert store.index is not None
    wanted: dict[str, list[int]] = {}
    for entry in held:
        if entry.start >= store.log_start:
            for key in entry.keys:
                wanted.setdefault(key, []).append(entry.start)
    for key, offsets in wanted.items():
        topic, _, word = key.partition("#")
        named = store.deletions.kept(topic.encode(), store.index.query(topic, word, 1000).offsets)
        found = [at for at in named if at >= store.log_start]
        newest = list(dict.fromkeys(reversed(offsets)))[: len(found)]
        require(len(found) >= min(len(offsets), 30) and found == newest, f"{key!r} finds {found}, not {newest}")


def read_all(store: MessageStore, topic: bytes, queue_id: int) -> list[bytes]:
    """Return the bytes of every record that a queue serves."""
    found: list[bytes] = []
    offset = store.min_offset(topic, queue_id)
    while True:
        result = store.get_messages(topic, queue_id, offset)
        if result.status is GetMessageStatus.COLD:
            result = store.fetch_now(result)
        for buffer in result.buffers:
            data = bytes(buffer)
            while data:
                size = int.from_bytes(data[:4], "big")
                found.append(data[:size])
                data = data[size:]
        if result.next_begin_offset <= offset:
            return found
        offset = result.next_begin_offset
