from aerobee.hot.log.index import encode_index_entry, index_hash, index_keys, match_entries
from aerobee.hot.log.record import Draft
from aerobee.testing.storekit import draft

SLOTS = 5


def made(count: int) -> tuple[list[Draft], bytes, list[int]]:
    """Drafts, their entries from number 1 on, and the slots after them."""
    drafts, out, slots, number = [], b"", [0] * SLOTS, 1
    for at in range(count):
        one = draft(keys=f"a{at} b{at}" if at % 3 else "", uniq_key=f"U{at}" if at % 4 else "")
        one.physical_offset, one.store_timestamp = at * 100, 5000 + at * 700
        drafts.append(one)
        for key in index_keys(one):
            hashed = index_hash(key)
            out += encode_index_entry(hashed, at * 100, at * 700 // 1000, slots[hashed % SLOTS])
            slots[hashed % SLOTS] = number
            number += 1
    return drafts, out, slots


def test_entries_of_the_drafts_agree_and_move_the_slots() -> None:
    drafts, entries, slots = made(20)
    mine = [0] * SLOTS
    count = len(entries) // 20
    assert match_entries(drafts, 0, entries, 0, 1, count + 1, 5000, mine) == (20, count)
    assert mine == slots


def test_any_changed_byte_stops_before_its_draft_with_the_slots_of_those_before() -> None:
    drafts, entries, _ = made(12)
    starts = [0]
    for one in drafts:
        starts.append(starts[-1] + len(index_keys(one)))
    for at in range(0, len(entries), 3):
        damaged = bytearray(entries)
        damaged[at] ^= 1
        slots = [0] * SLOTS
        found, taken = match_entries(drafts, 0, bytes(damaged), 0, 1, 1000, 5000, slots)
        assert starts[found] <= at // 20 < starts[found + 1]
        assert taken == starts[found]
        _, _, right = made(found)
        assert slots == right


def test_entries_cut_or_forbidden_are_left() -> None:
    drafts, entries, _ = made(12)
    assert match_entries(drafts, 0, entries[:-1], 0, 1, 1000, 5000, [0] * SLOTS)[0] == 11
    found, taken = match_entries(drafts, 0, entries, 0, 1, 4, 5000, [0] * SLOTS)
    assert taken <= 3
    assert found < 12
