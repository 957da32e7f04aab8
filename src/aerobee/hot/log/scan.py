"""Walk a stretch of the log in one call: recovery, dispatch, verify and the Spark store scan.

RocketMQ: CommitLog.recoverNormally, ReputMessageService.doReput.
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i64_le
from mypy_extensions import i64

from aerobee.hot.log.check import NEED_MORE, VERIFY_NONE, measure, verify_record
from aerobee.hot.log.draft import Draft
from aerobee.hot.log.javahash import java_hash_utf8
from aerobee.hot.log.layout import BORNHOST_V6, STOREHOST_V6

_SCHEDULE_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"

# What scan_columns tells of each record, in this order. Hosts are 8 bytes, 20 when the sys flag says IPv6.
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
    """Every sound record from `start` (at `physical_offset`): drafts without body, bytes consumed, reason.

    `delay_levels_ms` (level 1 first) turns the tags code of scheduled messages into their delivery time, as
    dispatch needs it; without it the code is that of their tags.
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
    """Like scan_records, without an object for each record: rows of COLUMNS, count, bytes consumed, reason.

    Rows are little-endian 64-bit numbers, COLUMNS of them each, for `numpy.frombuffer(rows, "<i8")`; those
    named `_at` are positions in `buf`, so names, bodies and properties can be gathered without a Python loop.
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
    flags: i64 = i64(read_i32_be(buf, pos + 36))
    born: i64 = 20 if flags & BORNHOST_V6 else 8
    store: i64 = 20 if flags & STOREHOST_V6 else 8
    stored_at: i64 = pos + 48 + born
    times_at: i64 = stored_at + 8 + store
    write_i64_le(out, pos)
    write_i64_le(out, i64(read_i32_be(buf, pos)))
    write_i64_le(out, i64(read_i32_be(buf, pos + 12)))
    write_i64_le(out, i64(read_i32_be(buf, pos + 16)))
    write_i64_le(out, read_i64_be(buf, pos + 20))
    write_i64_le(out, read_i64_be(buf, pos + 28))
    write_i64_le(out, flags)
    write_i64_le(out, read_i64_be(buf, pos + 40))
    write_i64_le(out, read_i64_be(buf, stored_at))
    write_i64_le(out, i64(read_i32_be(buf, times_at)))
    write_i64_le(out, read_i64_be(buf, times_at + 4))
    write_i64_le(out, pos + 48)
    write_i64_le(out, stored_at + 8)
    write_i64_le(out, times_at + 16)
    write_i64_le(out, i64(read_i32_be(buf, times_at + 12)))
    write_i64_le(out, topic_at)
    write_i64_le(out, topic_size)
    write_i64_le(out, topic_at + topic_size + 2)
    write_i64_le(out, properties_size)


def set_index_fields(draft: Draft) -> None:
    """Set keys, unique key and tags code of a draft from its properties."""
    draft.keys = ""
    draft.uniq_key = ""
    draft.tags_code = 0
    _set_index_fields(draft, draft.properties, 0, len(draft.properties))


def _draft_at(buf: bytes, pos: i64, topic_at: i64, topic_size: i64, properties_size: i64) -> Draft:
    flags: i64 = i64(read_i32_be(buf, pos + 36))
    born: i64 = 20 if flags & BORNHOST_V6 else 8
    store: i64 = 20 if flags & STOREHOST_V6 else 8
    store_at: i64 = pos + 56 + born
    times_at: i64 = store_at + store
    properties_at: i64 = topic_at + topic_size + 2
    draft = Draft(
        buf[topic_at : topic_at + topic_size],
        read_i32_be(buf, pos + 12),
        read_i32_be(buf, pos + 16),
        flags,
        read_i64_be(buf, pos + 40),
        buf[pos + 48 : pos + 48 + born],
        buf[store_at : store_at + store],
        read_i32_be(buf, times_at),
        read_i64_be(buf, times_at + 4),
        b"",
        buf[properties_at : properties_at + properties_size],
        0,
        "",
        "",
    )
    draft.body_crc = read_i32_be(buf, pos + 8)
    draft.queue_offset = read_i64_be(buf, pos + 20)
    draft.physical_offset = read_i64_be(buf, pos + 28)
    draft.store_timestamp = read_i64_be(buf, pos + 48 + born)
    _set_index_fields(draft, buf, properties_at, properties_at + properties_size)
    return draft


def _set_index_fields(draft: Draft, buf: bytes, start: i64, end: i64) -> None:
    """KEYS, TAGS and UNIQ_KEY in one walk over the property bytes. The last of equal names counts."""
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
    """RocketMQ: checkMessageAndReturnSize, "Timing message processing"."""
    at = draft.properties.find(b"DELAY\x01")
    while at > 0 and draft.properties[at - 1] != 2:
        at = draft.properties.find(b"DELAY\x01", at + 1)
    if at < 0 or not delay_levels_ms:
        return
    stop = draft.properties.find(b"\x02", at)
    digits = draft.properties[at + 6 : stop if stop >= 0 else len(draft.properties)]
    if not digits.isdigit() or len(digits) > 9:
        return
    level = min(int(digits), len(delay_levels_ms))
    if level > 0:
        draft.tags_code = draft.store_timestamp + delay_levels_ms[level - 1]
