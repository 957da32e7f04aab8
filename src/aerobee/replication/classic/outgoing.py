"""What of the log a master sends next: whole records, so that a slave's log always ends between two of them."""

from __future__ import annotations

from aerobee.hot.log.layout import BLANK_SIZE_MIN


def whole_records(data: bytes) -> int:
    """Return how many bytes of `data`, which begins with a record, are whole records.

    Where the first record is cut its size is returned, which exceeds the size of `data`. The unused end of a segment
    counts as a record.
    """
    at, end = 0, len(data)
    while end - at >= BLANK_SIZE_MIN:
        size = int.from_bytes(data[at : at + 4], "big")
        if size <= 0:
            return at
        if at + size > end:
            return at or size
        at += size
    return at
