"""The key index file: 40-byte header, hash slots of 4 bytes, entries of 20 bytes.

    header  begin and end timestamp 8 each, begin and end physical offset 8 each, slots used 4, entries 4
    slot    number of the newest entry of this hash, 0 for none
    entry   key hash 4, physical offset 8, seconds since the begin timestamp 4, previous entry of the slot 4

Entries are numbered from 1: the header's count starts at 1 and entry 0 stays empty.
RocketMQ: IndexHeader; IndexFile.putKey, indexKeyHashMethod; IndexService.buildKey, buildIndex.
"""

from __future__ import annotations

from array import array

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from librt.vecs import vec
from mypy_extensions import i32, i64

from aerobee.errors import CorruptLogError, InvalidArgumentError
from aerobee.hot.log.draft import Draft
from aerobee.hot.log.javahash import extend_hash, extend_hash_utf8, java_hash
from aerobee.hot.log.layout import INDEX_ENTRY_SIZE as INDEX_ENTRY_SIZE
from aerobee.hot.log.layout import INDEX_FIRST_COUNT as INDEX_FIRST_COUNT
from aerobee.hot.log.layout import INDEX_HEADER_SIZE as INDEX_HEADER_SIZE
from aerobee.hot.log.layout import INDEX_SLOT_SIZE as INDEX_SLOT_SIZE
from aerobee.hot.log.layout import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from aerobee.hot.log.properties import find_property


class IndexHeader:
    """The six numbers at the head of an index file."""

    def __init__(
        self,
        begin_timestamp: int = 0,
        end_timestamp: int = 0,
        begin_physical_offset: int = 0,
        end_physical_offset: int = 0,
        slot_count: int = 0,
        entry_count: int = INDEX_FIRST_COUNT,
    ) -> None:
        self.begin_timestamp = begin_timestamp
        self.end_timestamp = end_timestamp
        self.begin_physical_offset = begin_physical_offset
        self.end_physical_offset = end_physical_offset
        self.slot_count = slot_count
        self.entry_count = entry_count


def encode_index_header(header: IndexHeader) -> bytes:
    """The 40 bytes of a header."""
    if not 0 <= header.slot_count <= 0x7FFFFFFF or not 0 <= header.entry_count <= 0x7FFFFFFF:
        raise InvalidArgumentError("an index header counts up to 2^31 - 1")
    out = BytesWriter()
    write_i64_be(out, header.begin_timestamp)
    write_i64_be(out, header.end_timestamp)
    write_i64_be(out, header.begin_physical_offset)
    write_i64_be(out, header.end_physical_offset)
    write_i32_be(out, i32(header.slot_count))
    write_i32_be(out, i32(header.entry_count))
    return out.getvalue()


def decode_index_header(buf: bytes) -> IndexHeader:
    """A header from the first 40 bytes. RocketMQ: IndexHeader.load counts an unwritten file as holding 1."""
    if len(buf) < INDEX_HEADER_SIZE:
        raise CorruptLogError("index header", len(buf), f"{INDEX_HEADER_SIZE} bytes expected")
    return IndexHeader(
        read_i64_be(buf, 0),
        read_i64_be(buf, 8),
        read_i64_be(buf, 16),
        read_i64_be(buf, 24),
        read_i32_be(buf, 32),
        max(read_i32_be(buf, 36), INDEX_FIRST_COUNT),
    )


def index_hash(key: str) -> int:
    """The hash an index stores: Java's, made positive; the one value without a positive becomes 0."""
    h: i64 = java_hash(key)
    if h < 0:
        h = -h
    return h if h <= 0x7FFFFFFF else 0


def index_key(topic: str, key: str) -> str:
    """What is hashed for a key or unique key of a message."""
    return topic + "#" + key


def index_tag_key(topic: str, tag: str) -> str:
    """What is hashed for a message's tag."""
    return topic + "#T#" + tag


def index_keys(draft: Draft) -> list[str]:
    """Every key a message is to be found by, in the order Apache writes them; none when rolled back."""
    keys: list[str] = []
    if draft.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
        return keys
    topic = draft.topic.decode("utf-8", "replace")
    if draft.uniq_key:
        keys.append(index_key(topic, draft.uniq_key))
    if draft.keys:
        for key in draft.keys.split(" "):
            if key:
                keys.append(index_key(topic, key))
    tags = find_property(draft.properties, b"TAGS")
    if tags is not None:
        keys.append(index_tag_key(topic, tags.decode("utf-8", "replace")))
    return keys


def seconds_since(begin_timestamp: int, store_timestamp: int) -> int:
    """An entry's time: whole seconds after the file's first message, within 0 and 2^31 - 1."""
    if begin_timestamp <= 0 or store_timestamp <= begin_timestamp:
        return 0
    return min((store_timestamp - begin_timestamp) // 1000, 0x7FFFFFFF)


def encode_index_entry(key_hash: int, physical_offset: int, seconds: int, previous: int) -> bytes:
    """The 20 bytes of an entry."""
    out = BytesWriter()
    write_i32_be(out, i32(key_hash))
    write_i64_be(out, physical_offset)
    write_i32_be(out, i32(seconds))
    write_i32_be(out, i32(previous))
    return out.getvalue()


def encode_index_entries(
    key_hashes: list[int], physical_offsets: list[int], seconds: list[int], previous: list[int]
) -> bytes:
    """Entries from four lists of equal length: a file takes them by one write."""
    n = len(key_hashes)
    if len(physical_offsets) != n or len(seconds) != n or len(previous) != n:
        raise InvalidArgumentError("the four columns of index entries differ in length")
    out = BytesWriter()
    for i in range(n):
        write_i32_be(out, i32(key_hashes[i]))
        write_i64_be(out, physical_offsets[i])
        write_i32_be(out, i32(seconds[i]))
        write_i32_be(out, i32(previous[i]))
    return out.getvalue()


def decode_index_entry(buf: bytes, pos: int) -> tuple[int, int, int, int]:
    """(key hash, physical offset, seconds, previous entry) at `pos`."""
    if pos < 0 or pos + INDEX_ENTRY_SIZE > len(buf):
        raise CorruptLogError("index entry", pos, f"{INDEX_ENTRY_SIZE} bytes expected")
    return (
        read_i32_be(buf, pos),
        read_i64_be(buf, pos + 4),
        read_i32_be(buf, pos + 12),
        read_i32_be(buf, pos + 16),
    )


class IndexPut:
    """How far a run of drafts has been put into index files, and what the file at hand has become by it."""

    def __init__(self, drafts: list[Draft]) -> None:
        self.drafts = drafts
        # The next draft, and the first of its keys that has no entry yet.
        self.draft: int = 0
        self.key: int = 0
        # Entries of the file at hand, and what its header must say with them.
        self.entries: bytes = b""
        self.slots_added: int = 0
        self.begin_timestamp: int = 0
        self.begin_offset: int = 0
        self.end_timestamp: int = 0
        self.end_offset: int = -1
        # The file at hand: its next entry, where its entries end, the time they count from.
        self._at: i64 = 0
        self._end: i64 = 0
        self._begin: i64 = 0
        self._added: i64 = 0
        # Hashes of what keys and tags of a topic begin with; those of the last topic at hand.
        self._prefixes: dict[bytes, int] = {}
        self._topic: bytes | None = None
        self._prefix: i64 = 0
        self._tag_prefix: i64 = 0

    def hashes(self, draft: Draft) -> list[int]:
        """`index_hash` of each of `index_keys(draft)`: the topic's part is hashed once, no key is built."""
        found: list[int] = []
        if draft.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            return found
        self._use_topic(draft.topic)
        if draft.uniq_key:
            found.append(_positive(extend_hash(self._prefix, draft.uniq_key)))
        for key in draft.keys.split(" "):
            if key:
                found.append(_positive(extend_hash(self._prefix, key)))
        tags = _tags_of(draft)
        if tags:
            found.append(_positive(extend_hash_utf8(self._tag_prefix, tags, 0, len(tags))))
        return found

    def _use_topic(self, topic: bytes) -> None:
        """Make the hashes of a topic's keys begin with the topic's."""
        if topic is self._topic:
            return
        prefix = self._prefixes.get(topic)
        if prefix is None:
            prefix = extend_hash(extend_hash_utf8(0, topic, 0, len(topic)), "#")
            self._prefixes[topic] = prefix
        self._topic = topic
        self._prefix = prefix
        self._tag_prefix = extend_hash(prefix, "T#")

    def has_entries(self) -> bool:
        """Pass over drafts without keys; whether one with a key is left."""
        while self.draft < len(self.drafts):
            if self.key < len(self.hashes(self.drafts[self.draft])):
                return True
            self.draft += 1
            self.key = 0
        return False

    def fill(self, slots: vec[i32], number: int, number_end: int, begin_timestamp: int) -> int:
        """Entries from `number` on for as many drafts as fit below `number_end`; the next number.

        `slots` is changed in place. `begin_timestamp` is the file's, unless it is empty (number 1).
        """
        out = BytesWriter()
        self._at = number
        self._end = number_end
        self._begin = begin_timestamp
        self._added = 0
        drafts = self.drafts
        while self.draft < len(drafts) and self._at < self._end:
            if not self._put_draft(out, slots, drafts[self.draft]):
                break
            self.draft += 1
            self.key = 0
        self.entries = out.getvalue()
        self.slots_added = self._added
        return self._at

    def _put_draft(self, out: BytesWriter, slots: vec[i32], draft: Draft) -> bool:
        """Entries for the keys of a draft that have none yet, in the order of `hashes`. False where one has no room."""
        if draft.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            return True
        self._use_topic(draft.topic)
        seen = 0
        if draft.uniq_key:
            if self.key <= seen and not self._put(out, slots, draft, extend_hash(self._prefix, draft.uniq_key)):
                return False
            seen += 1
        keys = draft.keys
        if " " in keys:
            for key in keys.split(" "):
                if key:
                    if self.key <= seen and not self._put(out, slots, draft, extend_hash(self._prefix, key)):
                        return False
                    seen += 1
        elif keys:
            if self.key <= seen and not self._put(out, slots, draft, extend_hash(self._prefix, keys)):
                return False
            seen += 1
        tags = _tags_of(draft)
        return (
            not tags
            or self.key > seen
            or self._put(out, slots, draft, extend_hash_utf8(self._tag_prefix, tags, 0, len(tags)))
        )

    def _put(self, out: BytesWriter, slots: vec[i32], draft: Draft, unsigned: i64) -> bool:
        """One entry, for a hash made by `extend_hash`. False where the file has no room for it."""
        at: i64 = self._at
        if at >= self._end:
            return False
        offset: i64 = draft.physical_offset
        if at <= 1:
            self._begin = draft.store_timestamp
            self.begin_timestamp = draft.store_timestamp
            self.begin_offset = offset
        hashed: i64 = _positive(unsigned)
        slot: i64 = hashed % len(slots)
        older = slots[slot]
        if older == 0:
            self._added += 1
        write_i32_be(out, i32(hashed))
        write_i64_be(out, offset)
        write_i32_be(out, i32(_seconds(draft.store_timestamp - self._begin)))
        write_i32_be(out, older)
        slots[slot] = i32(at)
        self._at = at + 1
        self.key += 1
        self.end_timestamp = draft.store_timestamp
        self.end_offset = offset
        return True


def _tags_of(draft: Draft) -> bytes:
    """b"" for none."""
    tags = draft.tags
    if tags is None:
        tags = find_property(draft.properties, b"TAGS") or b""
    return tags


def empty_slots(count: int) -> vec[i32]:
    """The slots of a file without entries."""
    return slots_of(array("i", (0,)) * count)


def slots_of(numbers: array[int]) -> vec[i32]:
    """Slots as `IndexPut` changes them: without an object for each number."""
    return vec[i32](numbers)


def follow_slots(slots: vec[i32], entries: bytes, number: int) -> int:
    """Give each slot the newest of its entries, of which `number` is the first; the number of the first that does not
    name the one before it in its slot, 0 where all do."""
    at: i64 = number
    pos: i64 = 0
    size: i64 = len(entries)
    count: i64 = len(slots)
    while pos + INDEX_ENTRY_SIZE <= size:
        hashed: i64 = i64(read_i32_be(entries, pos))
        if hashed < 0:
            return at
        slot: i64 = hashed % count
        if slots[slot] != read_i32_be(entries, pos + 16):
            return at
        slots[slot] = i32(at)
        at += 1
        pos += INDEX_ENTRY_SIZE
    return 0


def slots_are_below(slots: vec[i32], count: int) -> bool:
    """Whether every slot names an entry that a file with this next number can hold, or none."""
    end: i64 = count
    for number in slots:
        if number < 0 or i64(number) >= end:
            return False
    return True


def slots_in_use(slots: vec[i32]) -> int:
    """How many hold an entry."""
    used: i64 = 0
    for number in slots:
        if number != 0:
            used += 1
    return used


def _positive(h: i64) -> i64:
    """`index_hash` from an unsigned hash."""
    if h <= 0x7FFFFFFF:
        return h
    h = 0x100000000 - h
    if h <= 0x7FFFFFFF:
        return h
    return 0


def _seconds(milliseconds: i64) -> i64:
    if milliseconds <= 0:
        return 0
    seconds: i64 = milliseconds // 1000
    if seconds > 0x7FFFFFFF:
        return 0x7FFFFFFF
    return seconds
