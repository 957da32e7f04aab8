"""Loops over a stretch of the log, for recovery, dispatch, verification and Spark's scan of a store.

RocketMQ: CommitLog.recoverNormally, ReputMessageService.doReput.
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i64_le
from mypy_extensions import i64

from aerobee.hot.log.javahash import java_hash_utf8
from aerobee.hot.log.layout import (
    BORNHOST_V6,
    PROPERTIES_LENGTH_SIZE,
    RECORD_BODY_CRC_POS,
    RECORD_BODY_POS,
    RECORD_BODY_SIZE_POS,
    RECORD_BORN_HOST_POS,
    RECORD_BORN_TIMESTAMP_POS,
    RECORD_FLAG_POS,
    RECORD_PHYSICAL_OFFSET_POS,
    RECORD_PREPARED_OFFSET_POS,
    RECORD_QUEUE_ID_POS,
    RECORD_QUEUE_OFFSET_POS,
    RECORD_RECONSUME_TIMES_POS,
    RECORD_SIZE_POS,
    RECORD_STORE_HOST_POS,
    RECORD_STORE_TIMESTAMP_POS,
    RECORD_SYS_FLAG_POS,
    STOREHOST_V6,
    V6_HOST_EXTRA,
)
from aerobee.hot.log.record import NEED_MORE, VERIFY_NONE, Draft, measure, verify_record

_SCHEDULE_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"
_DELAY: Final = b"DELAY\x01"

# The columns of `scan_columns`, in this order. A host has 8 bytes, or 20 if the sys flag says IPv6.
COLUMNS: Final = (
    "at",
    "size",
    "queue_id",
    "flag",
    "queue_offset",
    "physical_offset",
    "sys_flag",
    "born_timestamp",
    "store_timestamp",
    "reconsume_times",
    "prepared_transaction_offset",
    "born_host_at",
    "store_host_at",
    "body_at",
    "body_size",
    "topic_at",
    "topic_size",
    "properties_at",
    "properties_size",
)


def scan_records(
    buf: bytes,
    physical_offset: int,
    verify: int,
    start: int = 0,
    delay_levels_ms: list[int] | None = None,
) -> tuple[list[Draft], int, int]:
    """Return the sound records from `start` on as drafts without body, how many bytes they have, and why it ended.

    The byte at `start` has the place `physical_offset` in the log. With `delay_levels_ms` (level 1 first) the tags code
    of a scheduled message is its delivery time, as dispatch needs it. Without it, the code is that of its tags.
    """
    drafts: list[Draft] = []
    end: i64 = len(buf)
    first: i64 = start
    pos: i64 = start
    offset: i64 = physical_offset
    if pos < 0 or pos > end:
        return drafts, 0, NEED_MORE
    while True:
        size, topic_at, topic_size, properties_size = measure(buf, pos, end, offset)
        if size > 0 and verify != VERIFY_NONE:
            size = verify_record(buf, pos, size, properties_size, verify)
        if size <= 0:
            return drafts, pos - first, size
        draft = _draft_at(buf, pos, topic_at, topic_size, properties_size)
        draft.size = size
        if delay_levels_ms is not None and topic_size == 19 and draft.topic == _SCHEDULE_TOPIC:
            _set_delivery_time(draft, delay_levels_ms)
        drafts.append(draft)
        pos += size
        if offset >= 0:
            offset += size


def scan_columns(buf: bytes, physical_offset: int, verify: int, start: int = 0) -> tuple[bytes, int, int, int]:
    """Return what `scan_records` finds as rows of COLUMNS, without an object for each record.

    The result is the rows, their count, how many bytes the records have, and why the scan ended. A row is one
    little-endian 64-bit number for each column, for `numpy.frombuffer(rows, "<i8")`. Columns named `_at` are positions
    in `buf`, so that a reader can take names, bodies and properties without a Python loop.
    """
    out = BytesWriter()
    end: i64 = len(buf)
    first: i64 = start
    pos: i64 = start
    offset: i64 = physical_offset
    count = 0
    if pos < 0 or pos > end:
        return b"", 0, 0, NEED_MORE
    while True:
        size, topic_at, topic_size, properties_size = measure(buf, pos, end, offset)
        if size > 0 and verify != VERIFY_NONE:
            size = verify_record(buf, pos, size, properties_size, verify)
        if size <= 0:
            return out.getvalue(), count, pos - first, size
        _write_row(out, buf, pos, topic_at, topic_size, properties_size)
        count += 1
        pos += size
        if offset >= 0:
            offset += size


def _write_row(out: BytesWriter, buf: bytes, pos: i64, topic_at: i64, topic_size: i64, properties_size: i64) -> None:
    flags: i64 = i64(read_i32_be(buf, pos + RECORD_SYS_FLAG_POS))
    # Each IPv6 host moves the fields after it.
    after_born: i64 = pos + V6_HOST_EXTRA if flags & BORNHOST_V6 else pos
    after_store: i64 = after_born + V6_HOST_EXTRA if flags & STOREHOST_V6 else after_born
    write_i64_le(out, pos)
    write_i64_le(out, i64(read_i32_be(buf, pos + RECORD_SIZE_POS)))
    write_i64_le(out, i64(read_i32_be(buf, pos + RECORD_QUEUE_ID_POS)))
    write_i64_le(out, i64(read_i32_be(buf, pos + RECORD_FLAG_POS)))
    write_i64_le(out, read_i64_be(buf, pos + RECORD_QUEUE_OFFSET_POS))
    write_i64_le(out, read_i64_be(buf, pos + RECORD_PHYSICAL_OFFSET_POS))
    write_i64_le(out, flags)
    write_i64_le(out, read_i64_be(buf, pos + RECORD_BORN_TIMESTAMP_POS))
    write_i64_le(out, read_i64_be(buf, after_born + RECORD_STORE_TIMESTAMP_POS))
    write_i64_le(out, i64(read_i32_be(buf, after_store + RECORD_RECONSUME_TIMES_POS)))
    write_i64_le(out, read_i64_be(buf, after_store + RECORD_PREPARED_OFFSET_POS))
    write_i64_le(out, pos + RECORD_BORN_HOST_POS)
    write_i64_le(out, after_born + RECORD_STORE_HOST_POS)
    write_i64_le(out, after_store + RECORD_BODY_POS)
    write_i64_le(out, i64(read_i32_be(buf, after_store + RECORD_BODY_SIZE_POS)))
    write_i64_le(out, topic_at)
    write_i64_le(out, topic_size)
    write_i64_le(out, topic_at + topic_size + 2)
    write_i64_le(out, properties_size)


def _draft_at(buf: bytes, pos: i64, topic_at: i64, topic_size: i64, properties_size: i64) -> Draft:
    flags: i64 = i64(read_i32_be(buf, pos + RECORD_SYS_FLAG_POS))
    after_born: i64 = pos + V6_HOST_EXTRA if flags & BORNHOST_V6 else pos
    after_store: i64 = after_born + V6_HOST_EXTRA if flags & STOREHOST_V6 else after_born
    properties_at: i64 = topic_at + topic_size + PROPERTIES_LENGTH_SIZE
    draft = Draft(
        buf[topic_at : topic_at + topic_size],
        read_i32_be(buf, pos + RECORD_QUEUE_ID_POS),
        read_i32_be(buf, pos + RECORD_FLAG_POS),
        flags,
        read_i64_be(buf, pos + RECORD_BORN_TIMESTAMP_POS),
        buf[pos + RECORD_BORN_HOST_POS : after_born + RECORD_STORE_TIMESTAMP_POS],
        buf[after_born + RECORD_STORE_HOST_POS : after_store + RECORD_RECONSUME_TIMES_POS],
        read_i32_be(buf, after_store + RECORD_RECONSUME_TIMES_POS),
        read_i64_be(buf, after_store + RECORD_PREPARED_OFFSET_POS),
        b"",
        buf[properties_at : properties_at + properties_size],
        0,
        "",
        "",
    )
    draft.body_crc = read_i32_be(buf, pos + RECORD_BODY_CRC_POS)
    draft.queue_offset = read_i64_be(buf, pos + RECORD_QUEUE_OFFSET_POS)
    draft.physical_offset = read_i64_be(buf, pos + RECORD_PHYSICAL_OFFSET_POS)
    draft.store_timestamp = read_i64_be(buf, after_born + RECORD_STORE_TIMESTAMP_POS)
    _set_index_fields(draft, buf, properties_at, properties_at + properties_size)
    return draft


def _set_index_fields(draft: Draft, buf: bytes, start: i64, end: i64) -> None:
    """Set the fields of a draft that come from KEYS, TAGS and UNIQ_KEY. The last of equal names counts."""
    draft.tags = b""
    at: i64 = start
    while at < end:
        mark: i64 = at
        while mark < end and buf[mark] > 2:
            mark += 1
        stop: i64 = mark
        while stop < end and buf[stop] != 2:
            stop += 1
        name_size: i64 = mark - at
        if mark < stop - 1 and buf[mark] == 1:
            if name_size == 4:
                word: i64 = i64(read_i32_be(buf, at))
                if word == 0x4B455953:  # KEYS
                    draft.keys = buf[mark + 1 : stop].decode("utf-8", "replace")
                elif word == 0x54414753:  # TAGS
                    draft.tags = buf[mark + 1 : stop]
                    draft.tags_code = java_hash_utf8(buf, mark + 1, stop)
            elif name_size == 8 and read_i64_be(buf, at) == 0x554E49515F4B4559:  # UNIQ_KEY
                draft.uniq_key = buf[mark + 1 : stop].decode("utf-8", "replace")
        at = stop + 1


def _set_delivery_time(draft: Draft, delay_levels_ms: list[int]) -> None:
    """Replace the tags code of a scheduled message by its delivery time.

    RocketMQ: checkMessageAndReturnSize, "Timing message processing".
    """
    at = draft.properties.find(_DELAY)
    while at > 0 and draft.properties[at - 1] != 2:
        at = draft.properties.find(_DELAY, at + 1)
    if at < 0 or not delay_levels_ms:
        return
    stop = draft.properties.find(b"\x02", at)
    digits = draft.properties[at + len(_DELAY) : stop if stop >= 0 else len(draft.properties)]
    if not digits.isdigit() or len(digits) > 9:
        return
    level = min(int(digits), len(delay_levels_ms))
    if level > 0:
        draft.tags_code = draft.store_timestamp + delay_levels_ms[level - 1]
