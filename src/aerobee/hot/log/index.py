"""The key index: which keys a message is found by, their hashes, and the loops that write and verify entries.

RocketMQ: IndexFile.putKey, indexKeyHashMethod; IndexService.buildKey, buildIndex.
"""

from __future__ import annotations

from array import array

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from librt.vecs import vec
from mypy_extensions import i32, i64

from aerobee.hot.log.javahash import extend_hash, extend_hash_utf8, java_hash
from aerobee.hot.log.layout import (
    INDEX_ENTRY_HASH_POS,
    INDEX_ENTRY_OFFSET_POS,
    INDEX_ENTRY_PREVIOUS_POS,
    INDEX_ENTRY_SECONDS_POS,
    INDEX_ENTRY_SIZE,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
)
from aerobee.hot.log.properties import find_property
from aerobee.hot.log.record import Draft


def index_hash(key: str) -> int:
    """Return the hash of a key: the absolute value of Java's, or 0 for the one value that has none."""
    h: i64 = java_hash(key)
    if h < 0:
        h = -h
    return h if h <= 0x7FFFFFFF else 0


def index_key(topic: str, key: str) -> str:
    """Return the text whose hash stands for a key or unique key of a message."""
    return topic + "#" + key


def index_tag_key(topic: str, tag: str) -> str:
    """Return the text whose hash stands for the tag of a message."""
    return topic + "#T#" + tag


def index_keys(draft: Draft) -> list[str]:
    """Return all texts that a message is indexed by, in Apache's order. A rolled back message has none."""
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
    """Return the time of an entry: whole seconds after the first message of the file, from 0 to 2^31 - 1."""
    if begin_timestamp <= 0 or store_timestamp <= begin_timestamp:
        return 0
    return min((store_timestamp - begin_timestamp) // 1000, 0x7FFFFFFF)


def encode_index_entry(key_hash: int, physical_offset: int, seconds: int, previous: int) -> bytes:
    """Return the bytes of an entry."""
    out = BytesWriter()
    write_i32_be(out, i32(key_hash))
    write_i64_be(out, physical_offset)
    write_i32_be(out, i32(seconds))
    write_i32_be(out, i32(previous))
    return out.getvalue()


class IndexPut:
    """The work of putting a run of drafts into index files: how far it is, and what the current file has gained."""

    def __init__(self, drafts: list[Draft]) -> None:
        self.drafts = drafts
        # The next draft, and the first of its keys that has no entry yet.
        self.draft: int = 0
        self.key: int = 0
        # The new entries of the current file, and the values that its header must have with them.
        self.entries: bytes = b""
        self.slots_added: int = 0
        self.begin_timestamp: int = 0
        self.begin_offset: int = 0
        self.end_timestamp: int = 0
        self.end_offset: int = -1
        # The current file: its next entry, the end of its entries, the time that they count from, slots newly used.
        self._at: i64 = 0
        self._end: i64 = 0
        self._begin: i64 = 0
        self._added: i64 = 0
        # Hashes of `topic#` for each topic, and for the last topic those of `topic#` and `topic#T#`.
        self._prefixes: dict[bytes, int] = {}
        self._topic: bytes | None = None
        self._prefix: i64 = 0
        self._tag_prefix: i64 = 0

    def hashes(self, draft: Draft) -> list[int]:
        """Return `index_hash` of each of `index_keys(draft)`. It hashes the topic once and builds no text."""
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
        """Set the hashes that all keys and tags of this topic begin with."""
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
        """Pass over drafts without keys, and tell whether one with a key is left."""
        while self.draft < len(self.drafts):
            if self.key < len(self.hashes(self.drafts[self.draft])):
                return True
            self.draft += 1
            self.key = 0
        return False

    def fill(self, slots: vec[i32], number: int, number_end: int, begin_timestamp: int) -> int:
        """Make entries from `number` on for as many drafts as fit below `number_end`, and return the next number.

        `slots` is changed in place. `begin_timestamp` is that of the file; an empty file (number 1) needs none.
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
        """Make the entries that a draft lacks, in the order of `hashes`. Return False if one has no room."""
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
        """Make one entry for a hash made by `extend_hash`. Return False if the file has no room for it."""
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
    """Return the value of TAGS, or b"" if there is none."""
    tags = draft.tags
    if tags is None:
        tags = find_property(draft.properties, b"TAGS") or b""
    return tags


def empty_slots(count: int) -> vec[i32]:
    """Return the slots of a file without entries."""
    return slots_of(array("i", (0,)) * count)


def slots_of(numbers: array[int]) -> vec[i32]:
    """Return slots in the form that `IndexPut` changes, which has no object for each number."""
    return vec[i32](numbers)


def follow_slots(slots: vec[i32], entries: bytes, number: int) -> int:
    """Set each slot to the newest of these entries, the first of which has the number `number`.

    Each entry must name the entry before it in its slot. Returns the number of the first that does not, or 0.
    """
    at: i64 = number
    pos: i64 = 0
    size: i64 = len(entries)
    count: i64 = len(slots)
    while pos + INDEX_ENTRY_SIZE <= size:
        hashed: i64 = i64(read_i32_be(entries, pos + INDEX_ENTRY_HASH_POS))
        if hashed < 0:
            return at
        slot: i64 = hashed % count
        if slots[slot] != read_i32_be(entries, pos + INDEX_ENTRY_PREVIOUS_POS):
            return at
        slots[slot] = i32(at)
        at += 1
        pos += INDEX_ENTRY_SIZE
    return 0


def slots_are_below(slots: vec[i32], count: int) -> bool:
    """Tell whether every slot holds 0 or the number of an entry below `count`."""
    end: i64 = count
    for number in slots:
        if number < 0 or i64(number) >= end:
            return False
    return True


def slots_in_use(slots: vec[i32]) -> int:
    """Return how many slots hold an entry."""
    used: i64 = 0
    for number in slots:
        if number != 0:
            used += 1
    return used


def _positive(h: i64) -> i64:
    """Return `index_hash` for an unsigned hash."""
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


def match_entries(
    drafts: list[Draft],
    first: int,
    buf: bytes,
    at: int,
    number: int,
    end_number: int,
    begin_timestamp: int,
    slots: list[int],
) -> tuple[int, int]:
    """Return the first draft from `first` on whose entries are not those in `buf`, and how many entries agreed.

    `buf` holds entries from `at` on. The first of them has the number `number`; those from `end_number` on are not
    compared. `slots` holds the newest entry of each slot so far, and is changed for the entries that agree.
    """
    slot_count: i64 = len(slots)
    position: i64 = at
    current: i64 = number
    last: i64 = end_number
    room: i64 = len(buf)
    taken = 0
    draft_at = first
    while draft_at < len(drafts):
        draft = drafts[draft_at]
        offset: i64 = draft.physical_offset
        hashes: list[int] = []
        for key in index_keys(draft):
            hashes.append(index_hash(key))
        wanted: i64 = len(hashes)
        size: i64 = wanted * INDEX_ENTRY_SIZE
        if position + size > room or current + wanted > last:
            break
        seconds: i64 = seconds_since(begin_timestamp, draft.store_timestamp)
        i: i64 = 0
        while i < wanted:
            entry: i64 = position + i * INDEX_ENTRY_SIZE
            hashed: i64 = hashes[i]
            slot: i64 = hashed % slot_count
            if (
                read_i32_be(buf, entry + INDEX_ENTRY_HASH_POS) != hashed
                or read_i64_be(buf, entry + INDEX_ENTRY_OFFSET_POS) != offset
                or read_i32_be(buf, entry + INDEX_ENTRY_SECONDS_POS) != seconds
                or read_i32_be(buf, entry + INDEX_ENTRY_PREVIOUS_POS) != slots[slot]
            ):
                break
            slots[slot] = current + i
            i += 1
        if i < wanted:
            # Undo in reverse: each entry that agreed names what its slot held before.
            while i > 0:
                i -= 1
                undone: i64 = hashes[i]
                older: i64 = position + i * INDEX_ENTRY_SIZE + INDEX_ENTRY_PREVIOUS_POS
                slots[undone % slot_count] = i64(read_i32_be(buf, older))
            break
        position += size
        current += wanted
        taken += wanted
        draft_at += 1
    return draft_at, taken
