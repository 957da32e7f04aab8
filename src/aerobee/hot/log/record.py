"""Records of the commit log: encode drafts, decode records. The layout itself is written in layout.py.

The names of check.py, scan.py, draft.py and host.py are found here too: this module is the codec's front.
RocketMQ: MessageExtEncoder, CommitLog.doAppend, MessageDecoder.decode.
"""

from collections.abc import Callable
from typing import Any, Final

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
from aerobee.hot.log.check import BAD_CRC as BAD_CRC
from aerobee.hot.log.check import BAD_LENGTH as BAD_LENGTH
from aerobee.hot.log.check import BAD_MAGIC as BAD_MAGIC
from aerobee.hot.log.check import BAD_OFFSET as BAD_OFFSET
from aerobee.hot.log.check import BAD_PROPERTIES as BAD_PROPERTIES
from aerobee.hot.log.check import BAD_SIZE as BAD_SIZE
from aerobee.hot.log.check import BLANK as BLANK
from aerobee.hot.log.check import NEED_MORE as NEED_MORE
from aerobee.hot.log.check import NO_CRC as NO_CRC
from aerobee.hot.log.check import VERIFY_BODY as VERIFY_BODY
from aerobee.hot.log.check import VERIFY_NONE as VERIFY_NONE
from aerobee.hot.log.check import VERIFY_RECORD as VERIFY_RECORD
from aerobee.hot.log.check import VERIFY_SEALED as VERIFY_SEALED
from aerobee.hot.log.check import ZERO as ZERO
from aerobee.hot.log.check import check_record as check_record
from aerobee.hot.log.check import describe as describe
from aerobee.hot.log.checksum import crc32
from aerobee.hot.log.draft import Draft as Draft
from aerobee.hot.log.draft import Record as Record
from aerobee.hot.log.host import decode_host as decode_host
from aerobee.hot.log.host import encode_host as encode_host
from aerobee.hot.log.layout import (
    BLANK_SIZE_MIN,
    BORNHOST_V6,
    FIXED_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_SIZE_MAX,
    STOREHOST_V6,
    TOPIC_V1_SIZE_MAX,
)
from aerobee.hot.log.properties import remove_property
from aerobee.hot.log.scan import COLUMNS as COLUMNS
from aerobee.hot.log.scan import scan_columns as scan_columns
from aerobee.hot.log.scan import scan_records as scan_records
from aerobee.hot.log.scan import set_index_fields as set_index_fields
from aerobee.hot.log.seal import CRC_MASK, SEAL_NAME, SEAL_SIZE, write_seal

_TOPIC_SIZE_MAX: Final = 32767
_RECORD_SIZE_MAX: Final = 0x7FFFFFFF


def record_size(draft: Draft, with_crc: bool) -> int:
    """Bytes the draft takes in the log. Refuses a draft that no record can hold; sets `draft.size`."""
    return _seal(draft, with_crc)


def records_size(drafts: list[Draft], with_crc: bool, body_size_max: int) -> int:
    """Bytes all drafts take together. Refuses, as `record_size`, and a body that is too large."""
    total: i64 = 0
    for draft in drafts:
        if len(draft.body) > body_size_max:
            raise InvalidArgumentError(f"message body of {len(draft.body)} bytes, maxMessageSize is {body_size_max}")
        total += _seal(draft, with_crc)
    return total


def encode_records(
    drafts: list[Draft], physical_offset: int, store_timestamp: int, with_crc: bool, measured: bool = False
) -> bytes:
    """The bytes of all drafts, laid end to end from `physical_offset`. Sets where and when each one stands.

    Every draft is checked before the first one is changed in a way the caller could see as stored, unless
    `records_size` has done that just before (`measured`).
    """
    if not measured:
        for draft in drafts:
            _seal(draft, with_crc)
    # What stands before and behind a body; the body itself is copied once, by the join.
    parts: list[bytes] = []
    out = BytesWriter()
    # An object in and out: compiled code would turn what goes from one sum into the next into a number and back.
    checksum: Callable[..., Any] = crc32
    offset: i64 = physical_offset
    for draft in drafts:
        body = draft.body
        draft.physical_offset = offset
        draft.store_timestamp = store_timestamp
        body_crc: int = checksum(body)
        draft.body_crc = body_crc & CRC_MASK
        out.truncate(0)
        _write_head(out, draft)
        head = out.getvalue()
        out.truncate(0)
        _write_tail(out, draft, SEAL_SIZE if with_crc else 0)
        if with_crc:
            crc: int = checksum(out.getvalue(), checksum(body, checksum(head)))
            write_seal(out, crc & CRC_MASK)
        parts.append(head)
        parts.append(body)
        parts.append(out.getvalue())
        offset += draft.size
    return b"".join(parts)


def encode_blank(size: int) -> bytes:
    """The eight bytes that close a file: `size` counts to the end of the file, itself included."""
    if not BLANK_SIZE_MIN <= size <= _RECORD_SIZE_MAX:
        raise InvalidArgumentError(f"a blank of {size} bytes cannot be written")
    out = BytesWriter()
    write_i32_be(out, i32(size))
    write_i32_be(out, MAGIC_BLANK)
    return out.getvalue()


def _seal(draft: Draft, with_crc: bool) -> i64:
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
    # Most are far from the ends, and a compiled program compares up to these bounds without building an object.
    if -0x4000000000000000 <= value <= 0x3FFFFFFFFFFFFFFF:
        return
    if not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        raise InvalidArgumentError(f"{name} {value} does not fit 64 bits")


def _write_head(out: BytesWriter, draft: Draft) -> None:
    """A record up to its body."""
    write_i32_be(out, i32(draft.size))
    if len(draft.topic) <= TOPIC_V1_SIZE_MAX:
        write_i32_be(out, MAGIC_V1)
    else:
        write_i32_be(out, MAGIC_V2)
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


def _write_tail(out: BytesWriter, draft: Draft, seal_size: i64) -> None:
    """A record from its body's end to its seal."""
    topic = draft.topic
    topic_size: i64 = len(topic)
    if topic_size <= TOPIC_V1_SIZE_MAX:
        out.append(u8(topic_size))
    else:
        write_i16_be(out, i16(topic_size))
    out.write(topic)
    write_i16_be(out, i16(len(draft.properties) + seal_size))
    out.write(draft.properties)


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
