"""Compare a run of index entries with the records they were made from: the loop of a whole-store verify.

RocketMQ: IndexFile.putKey, IndexService.buildIndex.
"""

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from aerobee.hot.log.draft import Draft
from aerobee.hot.log.index import INDEX_ENTRY_SIZE, index_hash, index_keys, seconds_since


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
    """The first draft whose entries are not exactly those at hand, and how many entries the ones before have.

    `buf` holds entries from `at` on, the first of them entry `number` of its file; those from `end_number` on are
    left alone. `slots` are the newest entries of each slot so far, and are brought up to date for what agrees.
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
                read_i32_be(buf, entry) != hashed
                or read_i64_be(buf, entry + 4) != offset
                or read_i32_be(buf, entry + 12) != seconds
                or read_i32_be(buf, entry + 16) != slots[slot]
            ):
                break
            slots[slot] = current + i
            i += 1
        if i < wanted:
            # Undo in reverse, from what the entries themselves say: each agreed with the slot before it.
            while i > 0:
                i -= 1
                undone: i64 = hashes[i]
                slots[undone % slot_count] = i64(read_i32_be(buf, position + i * INDEX_ENTRY_SIZE + 16))
            break
        position += size
        current += wanted
        taken += wanted
        draft_at += 1
    return draft_at, taken
