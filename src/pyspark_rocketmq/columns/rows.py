"""The table of where each record's parts lie, and filters over it."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from aerobee.hot.log.record import VERIFY_NONE
from aerobee.hot.log.scan import COLUMNS, scan_columns

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

AT, SIZE, QUEUE_ID, FLAG, QUEUE_OFFSET, PHYSICAL_OFFSET, SYS_FLAG = range(7)
BORN_TIMESTAMP, STORE_TIMESTAMP, RECONSUME_TIMES, PREPARED, BORN_HOST_AT, STORE_HOST_AT = range(7, 13)
BODY_AT, BODY_SIZE, TOPIC_AT, TOPIC_SIZE, PROPERTIES_AT, PROPERTIES_SIZE = range(13, 19)
assert COLUMNS[PROPERTIES_SIZE] == "properties_size" and COLUMNS[BODY_AT] == "body_at" and len(COLUMNS) == 19


def scan(buf: bytes, physical_offset: int = -1, verify: int = VERIFY_NONE, start: int = 0) -> tuple[Ints, int, int]:
    """Return the sound records from `start` on as rows of COLUMNS, how many bytes they have, and why the scan ended.

    The byte at `start` has the place `physical_offset` in the log. -1 means that the place is not checked.
    """
    table, count, consumed, reason = scan_columns(buf, physical_offset, verify, start)
    return np.frombuffer(table, "<i8").reshape(count, len(COLUMNS)), consumed, reason


def of_topics(buf: bytes, rows: Ints, topics: Collection[bytes]) -> Mask:
    """Tell which rows belong to one of these topics."""
    u8 = np.frombuffer(buf, np.uint8)
    result = np.zeros(len(rows), np.bool_)
    at, size = rows[:, TOPIC_AT], rows[:, TOPIC_SIZE]
    for topic in topics:
        places = np.flatnonzero(size == len(topic))
        if len(places):
            name = np.frombuffer(topic, np.uint8)
            found = (sliding_window_view(u8, len(topic))[at[places]] == name).all(axis=1)
            result[places] |= found
    return result
