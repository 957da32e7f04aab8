import struct
from array import array

import pytest

from aerobee.hot.log import index
from aerobee.hot.log.javahash import java_hash
from aerobee.hot.log.layout import INDEX_ENTRY_FORMAT
from aerobee.hot.log.record import Draft

ENTRY = struct.Struct(INDEX_ENTRY_FORMAT)


def test_hash_is_never_negative() -> None:
    assert index.index_hash("polygenelubricants") == 0  # Java's hash of it has no positive
    negative = next(key for key in (f"topic#key-{i}" for i in range(100)) if java_hash(key) < 0)
    assert index.index_hash(negative) == -java_hash(negative)
    assert index.index_hash("PAID") == 2448076


def test_entry_layout() -> None:
    assert index.encode_index_entry(7, 1 << 40, 9, 10) == ENTRY.pack(7, 1 << 40, 9, 10)


def test_seconds_since_the_files_first_message() -> None:
    assert index.seconds_since(0, 5000) == 0
    assert index.seconds_since(5000, 4000) == 0
    assert index.seconds_since(5000, 7999) == 2
    assert index.seconds_since(1, 1 << 60) == 0x7FFFFFFF


def test_keys_of_a_message_in_apaches_order() -> None:
    draft = Draft(b"t", 0, 0, 0, 0, bytes(8), bytes(8), 0, 0, b"", b"TAGS\x01PAID\x02", 0, " a  b", "U1")
    assert index.index_keys(draft) == ["t#U1", "t#a", "t#b", "t#T#PAID"]
    draft.sys_flag = 0xC
    assert index.index_keys(draft) == []


@pytest.mark.parametrize("topic", ["t", "polygenelubricant", "\u8a02\u5355", "\U0001f680"])
@pytest.mark.parametrize("keys", ["", "a", " a  b ", "\u00fc\U0001f680 s"])
def test_hashes_are_those_of_the_keys(topic: str, keys: str) -> None:
    block = "TAGS\x01\u00fcber\x02".encode()
    draft = Draft(topic.encode(), 0, 0, 0, 0, bytes(8), bytes(8), 0, 0, b"", block, 0, keys, "U1")
    put = index.IndexPut([draft])
    assert put.hashes(draft) == [index.index_hash(key) for key in index.index_keys(draft)]
    draft.tags = "\u00fcber".encode()  # known to whoever made the draft
    assert put.hashes(draft) == [index.index_hash(key) for key in index.index_keys(draft)]
    draft.tags = b""
    assert put.hashes(draft) == [index.index_hash(key) for key in index.index_keys(draft)[:-1]]
    draft.sys_flag = 0xC
    assert put.hashes(draft) == []


@pytest.mark.parametrize("room", [1, 2, 3, 4, 100])
def test_entries_of_every_key_in_files_of_any_size(room: int) -> None:
    drafts = [
        Draft(topic, 0, 0, flag, 0, bytes(8), bytes(8), 0, 0, b"", block, 0, keys, unique)
        for topic in (b"t", b"other", "\u8a02".encode())
        for flag in (0, 0xC)
        for block in (b"", b"TAGS\x01x\x02", "a\x01b\x02TAGS\x01\u00fc".encode())
        for keys in ("", "k", " a  b ", "\u00fc")
        for unique in ("", "U1")
    ]
    for i, draft in enumerate(drafts):
        draft.physical_offset, draft.store_timestamp = i, 1 + i
    put, found = index.IndexPut(drafts), []
    while put.has_entries():
        slots = index.empty_slots(7)
        number = put.fill(slots, 1, 1 + room, 0)
        entries = list(ENTRY.iter_unpack(put.entries))
        assert len(entries) == number - 1 and put.slots_added == sum(1 for newest in slots if newest)
        found += [(entry[0], entry[1]) for entry in entries]
    assert found == [
        (index.index_hash(key), draft.physical_offset) for draft in drafts for key in index.index_keys(draft)
    ]


def test_entries_chain_through_their_slots_and_stop_where_the_file_ends() -> None:
    drafts = [
        Draft(b"t", 0, 0, 0, 0, bytes(8), bytes(8), 0, 0, b"", b"", 0, "k" if i % 2 else "", f"U{i}") for i in range(5)
    ]
    for i, draft in enumerate(drafts):
        draft.physical_offset, draft.store_timestamp = i * 100, 10_000 + i * 1500
    put, slots = index.IndexPut(drafts), index.empty_slots(3)
    assert put.fill(slots, 1, 6, 0) == 6  # U0, U1, k, U2, U3; the second "k" finds no room
    assert (put.draft, put.key, put.begin_timestamp, put.end_offset) == (3, 1, 10_000, 300)
    first = list(ENTRY.iter_unpack(put.entries))
    assert put.fill(index.empty_slots(3), 1, 6, 0) == 3
    second = list(ENTRY.iter_unpack(put.entries))
    keys = ["t#U0", "t#U1", "t#k", "t#U2", "t#U3", "t#k", "t#U4"]
    assert [entry[0] for entry in first + second] == [index.index_hash(key) for key in keys]
    assert [entry[2] for entry in first + second] == [0, 1, 1, 3, 4, 0, 1]
    newest: dict[int, int] = {}
    for number, entry in enumerate(first, 1):
        assert entry[3] == newest.get(entry[0] % 3, 0)
        newest[entry[0] % 3] = number
    assert not put.has_entries()


def test_slots_follow_from_the_entries() -> None:
    """As written, in any number of pieces; an entry that does not name the one before it in its slot is told."""
    hashes = [3, 10, 4, 17, 3, 24, 0]
    older, newest = [], [0] * 7
    for number, hashed in enumerate(hashes, 1):
        older.append(newest[hashed % 7])
        newest[hashed % 7] = number
    entries = b"".join(index.encode_index_entry(new, 100, 0, old) for new, old in zip(hashes, older, strict=True))
    for split in range(8):
        slots = index.empty_slots(7)
        assert index.follow_slots(slots, entries[: split * 20], 1) == 0
        assert index.follow_slots(slots, entries[split * 20 :], split + 1) == 0
        assert list(slots) == newest
        assert index.slots_in_use(slots) == 3
        assert index.slots_are_below(slots, 8)
        assert not index.slots_are_below(slots, 7)
    for wrong in range(7):
        torn = bytearray(entries)
        torn[wrong * 20 + 19] ^= 1
        assert index.follow_slots(index.empty_slots(7), bytes(torn), 1) == wrong + 1
    assert index.follow_slots(index.empty_slots(7), index.encode_index_entry(-1, 0, 0, 0), 5) == 5
    assert not index.slots_are_below(index.slots_of(array("i", (0, -1))), 8)
