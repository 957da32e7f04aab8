"""Records of the commit log: encode, check, scan and decode. The layout itself is written in layout.py.

The outcome of looking at bytes is a number: a size above 0, or one of the reasons below. Hostile bytes never
raise anything but CorruptLogError, and that only from decode_record(s).
RocketMQ: MessageExtEncoder, CommitLog.doAppend, CommitLog.checkMessageAndReturnSize, MessageDecoder.decode.
"""

from typing import Final
from zlib import crc32

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i32, i64, u8

from aerobee.errors import CorruptLogError, InvalidArgumentError
from aerobee.hot.draft import Draft as Draft
from aerobee.hot.draft import Record as Record
from aerobee.hot.host import decode_host as decode_host
from aerobee.hot.host import encode_host as encode_host
from aerobee.hot.javahash import java_hash_utf8
from aerobee.hot.layout import (
    BLANK_SIZE_MIN,
    BORNHOST_V6,
    FIXED_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_SIZE_MAX,
    STOREHOST_V6,
    TOPIC_V1_SIZE_MAX,
    V6_HOST_EXTRA,
)
from aerobee.hot.properties import remove_property
from aerobee.hot.seal import CRC_MASK, SEAL_BROKEN, SEAL_NAME, SEAL_SIZE, SEAL_SOUND, check_seal, write_seal

# Reasons. Zero and below: no whole sound record stands at this position.
NEED_MORE: Final = 0
BLANK: Final = -1  # the rest of the file is unused
ZERO: Final = -2  # nothing was written here yet
BAD_MAGIC: Final = -3
BAD_SIZE: Final = -4
BAD_LENGTH: Final = -5
BAD_OFFSET: Final = -6
BAD_CRC: Final = -7
BAD_PROPERTIES: Final = -8
NO_CRC: Final = -9

# How much to verify.
VERIFY_NONE: Final = 0  # lengths, magic and physical offset
VERIFY_BODY: Final = 1  # and the body's own CRC, which every record has
VERIFY_RECORD: Final = 2  # the whole-record CRC where the record carries one, else the body's
VERIFY_SEALED: Final = 3  # the whole-record CRC must be there

_REASONS: Final = {
    NEED_MORE: "the bytes end inside the record",
    BLANK: "end of the file's records",
    ZERO: "nothing written here",
    BAD_MAGIC: "magic number is not a record's",
    BAD_SIZE: "total size does not equal the sum of the parts",
    BAD_LENGTH: "length of hosts, body, topic or properties is impossible",
    BAD_OFFSET: "physical offset in the record is not where it stands",
    BAD_CRC: "checksum does not match",
    BAD_PROPERTIES: "properties end in zeros: torn write",
    NO_CRC: "whole-record checksum is missing",
}

_TOPIC_SIZE_MAX: Final = 32767
_RECORD_SIZE_MAX: Final = 0x7FFFFFFF
_SCHEDULE_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"


def describe(reason: int) -> str:
    """A reason in words."""
    return _REASONS.get(reason, f"record of {reason} bytes" if reason > 0 else f"unknown reason {reason}")


# ---- encode ----


def record_size(draft: Draft, with_crc: bool) -> int:
    """Bytes the draft takes in the log. Refuses a draft that no record can hold; sets `draft.size`."""
    return _seal(draft, with_crc)


def encode_records(drafts: list[Draft], physical_offset: int, store_timestamp: int, with_crc: bool) -> bytes:
    """The bytes of all drafts, laid end to end from `physical_offset`. Sets where and when each one stands.

    Every draft is checked before the first one is changed in a way the caller could see as stored.
    """
    for draft in drafts:
        _seal(draft, with_crc)
    out = BytesWriter()
    one = BytesWriter()
    offset: i64 = physical_offset
    for draft in drafts:
        draft.physical_offset = offset
        draft.store_timestamp = store_timestamp
        draft.body_crc = crc32(draft.body) & CRC_MASK
        if with_crc:
            one.truncate(0)
            _write_record(one, draft, SEAL_SIZE)
            record = one.getvalue()
            out.write(record)
            write_seal(out, crc32(record) & CRC_MASK)
        else:
            _write_record(out, draft, 0)
        offset += draft.size
    return out.getvalue()


def encode_blank(size: int) -> bytes:
    """The eight bytes that close a file: `size` counts to the end of the file, itself included."""
    if not BLANK_SIZE_MIN <= size <= _RECORD_SIZE_MAX:
        raise InvalidArgumentError(f"a blank of {size} bytes cannot be written")
    out = BytesWriter()
    write_i32_be(out, i32(size))
    write_i32_be(out, MAGIC_BLANK)
    return out.getvalue()


def _seal(draft: Draft, with_crc: bool) -> int:
    """Make a draft ready for the log and compute its size: host flags, property end, no foreign checksum."""
    _require_fit(draft)
    properties = draft.properties
    if draft.sealed is not properties:
        # A `__CRC32#` of the sender's would be read as ours, so it is dropped whether we write one or not.
        if SEAL_NAME in properties:
            properties = remove_property(properties, SEAL_NAME)
    if with_crc and properties and properties[-1] != 2:
        properties += b"\x02"
    draft.properties = properties
    draft.sealed = properties
    properties_size: i64 = len(properties)
    if with_crc:
        properties_size += SEAL_SIZE
    if properties_size > PROPERTIES_SIZE_MAX:
        raise InvalidArgumentError(f"properties of {properties_size} bytes exceed {PROPERTIES_SIZE_MAX}")
    born: i64 = len(draft.born_host)
    store: i64 = len(draft.store_host)
    flags: i64 = draft.sys_flag & ~(BORNHOST_V6 | STOREHOST_V6)
    if born == 20:
        flags |= BORNHOST_V6
    if store == 20:
        flags |= STOREHOST_V6
    draft.sys_flag = flags
    topic_size: i64 = len(draft.topic)
    size: i64 = FIXED_SIZE - 16 + born + store + len(draft.body) + topic_size + properties_size
    if topic_size > TOPIC_V1_SIZE_MAX:
        size += 1
    if size > _RECORD_SIZE_MAX:
        raise InvalidArgumentError(f"a record of {size} bytes cannot be written")
    draft.size = size
    return size


def _require_fit(draft: Draft) -> None:
    if not 0 < len(draft.topic) <= _TOPIC_SIZE_MAX:
        raise InvalidArgumentError(f"topic of {len(draft.topic)} bytes, 1 to {_TOPIC_SIZE_MAX} allowed")
    if len(draft.born_host) not in (8, 20) or len(draft.store_host) not in (8, 20):
        raise InvalidArgumentError("a host is 8 bytes (IPv4) or 20 bytes (IPv6), address and port")
    _require_int("queue id", draft.queue_id)
    _require_int("flag", draft.flag)
    _require_int("sys flag", draft.sys_flag)
    _require_int("reconsume times", draft.reconsume_times)
    _require_long("born timestamp", draft.born_timestamp)
    _require_long("prepared transaction offset", draft.prepared_transaction_offset)
    _require_long("queue offset", draft.queue_offset)


def _require_int(name: str, value: int) -> None:
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise InvalidArgumentError(f"{name} {value} does not fit 32 bits")


def _require_long(name: str, value: int) -> None:
    if not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        raise InvalidArgumentError(f"{name} {value} does not fit 64 bits")


def _write_record(out: BytesWriter, draft: Draft, seal_size: i64) -> None:
    """All of a record but its seal."""
    topic = draft.topic
    topic_size: i64 = len(topic)
    write_i32_be(out, i32(draft.size))
    write_i32_be(out, MAGIC_V1 if topic_size <= TOPIC_V1_SIZE_MAX else MAGIC_V2)
    write_i32_be(out, i32(draft.body_crc))
    write_i32_be(out, i32(draft.queue_id))
    write_i32_be(out, i32(draft.flag))
    write_i64_be(out, draft.queue_offset)
    write_i64_be(out, draft.physical_offset)
    write_i32_be(out, i32(draft.sys_flag))
    write_i64_be(out, draft.born_timestamp)
    out.write(draft.born_host)
    write_i64_be(out, draft.store_timestamp)
    out.write(draft.store_host)
    write_i32_be(out, i32(draft.reconsume_times))
    write_i64_be(out, draft.prepared_transaction_offset)
    write_i32_be(out, i32(len(draft.body)))
    out.write(draft.body)
    if topic_size <= TOPIC_V1_SIZE_MAX:
        out.append(u8(topic_size))
    else:
        write_i16_be(out, i16(topic_size))
    out.write(topic)
    write_i16_be(out, i16(len(draft.properties) + seal_size))
    out.write(draft.properties)


# ---- check and scan ----


def check_record(buf: bytes, pos: int, physical_offset: int, verify: int) -> int:
    """The size of the sound record at `pos`, or a reason. `physical_offset` -1: position not checked."""
    if not 0 <= pos <= len(buf):
        return NEED_MORE
    size, _, _, properties_size = _measure(buf, pos, len(buf), physical_offset)
    if size <= 0 or verify == VERIFY_NONE:
        return size
    return _verify(buf, pos, size, properties_size, verify)


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
        size, topic_at, topic_size, properties_size = _measure(buf, pos, end, offset)
        if size > 0 and verify != VERIFY_NONE:
            size = _verify(buf, pos, size, properties_size, verify)
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


def _measure(buf: bytes, pos: i64, end: i64, physical_offset: i64) -> tuple[i64, i64, i64, i64]:
    """Size or reason, position of the topic, its size, size of the properties.

    Lengths are compared with the total as far as they can be read, so a damaged total that points past the
    buffer is found out here and not taken for a record still to come.
    """
    room: i64 = end - pos
    if room < 8:
        return NEED_MORE, 0, 0, 0
    size: i64 = i64(read_i32_be(buf, pos))
    magic: i64 = i64(read_i32_be(buf, pos + 4))
    if size == 0 and magic == 0:
        return ZERO, 0, 0, 0
    if magic == MAGIC_BLANK:
        return (BLANK if size >= BLANK_SIZE_MIN else BAD_SIZE), 0, 0, 0
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return BAD_MAGIC, 0, 0, 0
    if size < FIXED_SIZE:
        return BAD_SIZE, 0, 0, 0
    if room < 40:
        return NEED_MORE, 0, 0, 0
    if physical_offset >= 0 and read_i64_be(buf, pos + 28) != physical_offset:
        return BAD_OFFSET, 0, 0, 0
    flags: i64 = i64(read_i32_be(buf, pos + 36))
    at: i64 = 84
    if flags & BORNHOST_V6:
        at += V6_HOST_EXTRA
    if flags & STOREHOST_V6:
        at += V6_HOST_EXTRA
    # `at` runs along the record; whatever must still follow has to fit the total.
    if at + 7 > size:
        return BAD_LENGTH, 0, 0, 0
    if at + 4 > room:
        return NEED_MORE, 0, 0, 0
    body_size: i64 = i64(read_i32_be(buf, pos + at))
    at += 4 + body_size
    if body_size < 0 or at + 3 > size:
        return BAD_LENGTH, 0, 0, 0
    if at + 2 > room:
        return NEED_MORE, 0, 0, 0
    topic_size: i64 = buf[pos + at]
    at += 1
    if magic == MAGIC_V2:
        topic_size = i64(read_i16_be(buf, pos + at - 1))
        at += 1
    elif topic_size > TOPIC_V1_SIZE_MAX:
        return BAD_LENGTH, 0, 0, 0
    if topic_size <= 0 or at + topic_size + 2 > size:
        return BAD_LENGTH, 0, 0, 0
    if at + topic_size + 2 > room:
        return NEED_MORE, 0, 0, 0
    properties_size: i64 = i64(read_i16_be(buf, pos + at + topic_size))
    if properties_size < 0:
        return BAD_LENGTH, 0, 0, 0
    if at + topic_size + 2 + properties_size != size:
        return BAD_SIZE, 0, 0, 0
    if size > room:
        return NEED_MORE, 0, 0, 0
    return size, pos + at, topic_size, properties_size


def _verify(buf: bytes, pos: i64, size: i64, properties_size: i64, verify: i64) -> i64:
    """The size again when the checksums asked for agree, else a reason."""
    if verify >= VERIFY_RECORD:
        found = check_seal(buf, pos, size, properties_size)
        if found == SEAL_SOUND:
            return size
        if found == SEAL_BROKEN:
            return BAD_CRC
        if verify >= VERIFY_SEALED:
            return NO_CRC
        if properties_size > 0 and buf[pos + size - 1] == 0:
            return BAD_PROPERTIES
    flags: i64 = i64(read_i32_be(buf, pos + 36))
    at: i64 = pos + 88
    if flags & BORNHOST_V6:
        at += V6_HOST_EXTRA
    if flags & STOREHOST_V6:
        at += V6_HOST_EXTRA
    body_size: i64 = i64(read_i32_be(buf, at - 4))
    # RocketMQ: checkMessageAndReturnSize looks at the CRC of a body only when there is one.
    if body_size > 0 and crc32(buf[at : at + body_size]) & CRC_MASK != read_i32_be(buf, pos + 8):
        return BAD_CRC
    return size


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


# ---- decode ----


def decode_record(buf: bytes, pos: int, verify: int = VERIFY_NONE) -> Record:
    """Every field of the record at `pos`; CorruptLogError when no whole record stands there."""
    size = check_record(buf, pos, -1, verify)
    if size <= 0:
        raise CorruptLogError("record", pos, describe(size))
    return _record_at(buf, pos)


def decode_records(buf: bytes, verify: int = VERIFY_NONE) -> list[Record]:
    """Records laid end to end, as a pull reply carries them."""
    records: list[Record] = []
    pos: i64 = 0
    end: i64 = len(buf)
    while pos < end:
        size: i64 = check_record(buf, pos, -1, verify)
        if size <= 0:
            raise CorruptLogError("record", pos, describe(size))
        records.append(_record_at(buf, pos))
        pos += size
    return records


def _record_at(buf: bytes, pos: i64) -> Record:
    size: i64 = i64(read_i32_be(buf, pos))
    flags: i64 = i64(read_i32_be(buf, pos + 36))
    born_end: i64 = pos + (68 if flags & BORNHOST_V6 else 56)
    store_end: i64 = born_end + (28 if flags & STOREHOST_V6 else 16)
    body_at: i64 = store_end + 16
    body_size: i64 = i64(read_i32_be(buf, body_at - 4))
    topic_at: i64 = body_at + body_size + 1
    topic_size: i64 = buf[topic_at - 1]
    if read_i32_be(buf, pos + 4) == MAGIC_V2:
        topic_size = i64(read_i16_be(buf, topic_at - 1))
        topic_at += 1
    return Record(
        size,
        read_i32_be(buf, pos + 8),
        read_i32_be(buf, pos + 12),
        read_i32_be(buf, pos + 16),
        read_i64_be(buf, pos + 20),
        read_i64_be(buf, pos + 28),
        flags,
        read_i64_be(buf, pos + 40),
        buf[pos + 48 : born_end],
        read_i64_be(buf, born_end),
        buf[born_end + 8 : store_end],
        read_i32_be(buf, store_end),
        read_i64_be(buf, store_end + 4),
        buf[body_at : body_at + body_size],
        buf[topic_at : topic_at + topic_size],
        buf[topic_at + topic_size + 2 : pos + size],
    )
