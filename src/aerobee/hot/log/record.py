"""Records of the commit log: the two classes that hold one, the encoder, the checks, the checksum and the decoder.

The layout of a record is in `layout`. `check_record` and `measure` accept any bytes and raise nothing: they return the
size of the record, which is above 0, or one of the reasons below.
RocketMQ: MessageExtEncoder, CommitLog.doAppend, CommitLog.checkMessageAndReturnSize, MessageDecoder.decode.
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
from aerobee.hot.log.checksum import crc32
from aerobee.hot.log.layout import (
    BLANK_SIZE_MIN,
    BODY_LENGTH_SIZE,
    BORNHOST_V6,
    CRC_MASK,
    FIXED_SIZE,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_LENGTH_SIZE,
    PROPERTIES_SIZE_MAX,
    RECORD_BODY_CRC_POS,
    RECORD_BODY_POS,
    RECORD_BODY_SIZE_POS,
    RECORD_BORN_HOST_POS,
    RECORD_BORN_TIMESTAMP_POS,
    RECORD_FLAG_POS,
    RECORD_HEAD_SIZE,
    RECORD_MAGIC_POS,
    RECORD_PHYSICAL_OFFSET_POS,
    RECORD_PREPARED_OFFSET_POS,
    RECORD_QUEUE_ID_POS,
    RECORD_QUEUE_OFFSET_POS,
    RECORD_RECONSUME_TIMES_POS,
    RECORD_STORE_HOST_POS,
    RECORD_STORE_TIMESTAMP_POS,
    RECORD_SYS_FLAG_POS,
    SEAL_DIGITS,
    SEAL_DIGITS_POS,
    SEAL_NAME,
    SEAL_NAME_END_POS,
    SEAL_NAME_WORD,
    SEAL_SIZE,
    SEAL_VALUE_END_POS,
    STOREHOST_V6,
    TOPIC_V1_SIZE_MAX,
    V6_HOST_EXTRA,
)
from aerobee.hot.log.properties import remove_property

_TOPIC_SIZE_MAX: Final = 32767
_RECORD_SIZE_MAX: Final = 0x7FFFFFFF

# Reasons, all 0 or less: why no whole sound record stands at a position.
NEED_MORE: Final = 0
BLANK: Final = -1  # the rest of the file is unused
ZERO: Final = -2  # nothing has been written here
BAD_MAGIC: Final = -3
BAD_SIZE: Final = -4
BAD_LENGTH: Final = -5
BAD_OFFSET: Final = -6
BAD_CRC: Final = -7
BAD_PROPERTIES: Final = -8
NO_CRC: Final = -9

# How much to verify.
VERIFY_NONE: Final = 0  # lengths, magic and physical offset
VERIFY_BODY: Final = 1  # also the CRC of the body, which every record has
VERIFY_RECORD: Final = 2  # also the seal if the record has one, else the CRC of the body
VERIFY_SEALED: Final = 3  # as VERIFY_RECORD, and the record must have a seal

_REASONS: Final = {
    NEED_MORE: "the bytes end inside the record",
    BLANK: "end of the file's records",
    ZERO: "nothing written here",
    BAD_MAGIC: "magic number is not a record's",
    BAD_SIZE: "total size does not equal the sum of the parts",
    BAD_LENGTH: "length of hosts, body, topic or properties is impossible",
    BAD_OFFSET: "physical offset in the record is not where it stands",
    BAD_CRC: "checksum does not match",
    BAD_PROPERTIES: "topic or properties end in zeros: torn write",
    NO_CRC: "whole-record checksum is missing",
}

# What `_check_seal` finds.
_SEAL_ABSENT: Final = 0
_SEAL_SOUND: Final = 1
_SEAL_BROKEN: Final = 2


class Draft:
    """A message on its way into the log: the steps assign, encode, write and dispatch share this object.

    A scan of the log builds the same object without the body. A host is an address and a 4-byte port: 8 or 20 bytes.
    """

    def __init__(
        self,
        topic: bytes,
        queue_id: int,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        reconsume_times: int,
        prepared_transaction_offset: int,
        body: bytes,
        properties: bytes,
        tags_code: int,
        keys: str,
        uniq_key: str,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.flag = flag
        self.sys_flag = sys_flag
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.store_host = store_host
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset
        self.body = body
        self.properties = properties
        self.tags_code = tags_code
        self.keys = keys
        self.uniq_key = uniq_key
        # The store sets these when it assigns a place, or `encode_records` does, or a scan of the log.
        self.queue_offset: int = 0
        self.physical_offset: int = -1
        self.store_timestamp: int = 0
        self.size: int = 0
        self.body_crc: int = 0
        # The property bytes that `_fit` last made ready for the log; it compares them by identity. A caller whose
        # properties are known to hold no checksum may set this too.
        self.sealed: bytes | None = None
        # The value of TAGS: b"" if there is none, None if it has not been looked for.
        self.tags: bytes | None = None

    def __repr__(self) -> str:
        return (
            f"Draft({self.topic!r}, queue {self.queue_id} offset {self.queue_offset}, "
            f"physical {self.physical_offset}, {self.size} bytes)"
        )


class Record:
    """All fields of one stored message. Topic, body and properties are the stored bytes."""

    def __init__(
        self,
        size: int,
        body_crc: int,
        queue_id: int,
        flag: int,
        queue_offset: int,
        physical_offset: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        store_timestamp: int,
        store_host: bytes,
        reconsume_times: int,
        prepared_transaction_offset: int,
        body: bytes,
        topic: bytes,
        properties: bytes,
    ) -> None:
        self.size = size
        self.body_crc = body_crc
        self.queue_id = queue_id
        self.flag = flag
        self.queue_offset = queue_offset
        self.physical_offset = physical_offset
        self.sys_flag = sys_flag
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.store_timestamp = store_timestamp
        self.store_host = store_host
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset
        self.body = body
        self.topic = topic
        self.properties = properties

    def __repr__(self) -> str:
        return (
            f"Record({self.topic!r}, queue {self.queue_id} offset {self.queue_offset}, "
            f"physical {self.physical_offset}, {self.size} bytes)"
        )


def records_size(drafts: list[Draft], with_crc: bool, body_size_max: int) -> int:
    """Return how many bytes the drafts take in the log together, and set the size of each.

    Raises InvalidArgumentError for a draft that no record can hold and for a body that is too large.
    """
    total: i64 = 0
    for draft in drafts:
        if len(draft.body) > body_size_max:
            raise InvalidArgumentError(f"message body of {len(draft.body)} bytes, maxMessageSize is {body_size_max}")
        total += _fit(draft, with_crc)
    return total


def encode_records(
    drafts: list[Draft], physical_offset: int, store_timestamp: int, with_crc: bool, measured: bool = False
) -> bytes:
    """Return the bytes of all drafts, one after the other, and set the place and store time of each.

    The first record begins at `physical_offset`. All drafts are checked before the first is changed, unless the caller
    says that `records_size` has just done it (`measured`).
    """
    if not measured:
        for draft in drafts:
            _fit(draft, with_crc)
    # The parts before and after each body are built apart, so that only the join copies the body.
    parts: list[bytes] = []
    out = BytesWriter()
    # Called as an untyped object: otherwise compiled code converts each sum to a native number and back.
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
            _write_seal(out, crc & CRC_MASK)
        parts.append(head)
        parts.append(body)
        parts.append(out.getvalue())
        offset += draft.size
    return b"".join(parts)


def encode_blank(size: int) -> bytes:
    """Return the eight bytes that close a file. `size` is the distance from their start to the end of the file."""
    if not BLANK_SIZE_MIN <= size <= _RECORD_SIZE_MAX:
        raise InvalidArgumentError(f"a blank of {size} bytes cannot be written")
    out = BytesWriter()
    write_i32_be(out, i32(size))
    write_i32_be(out, MAGIC_BLANK)
    return out.getvalue()


def _fit(draft: Draft, with_crc: bool) -> i64:
    """Make a draft ready for the log and return its size: set the host flags, end the properties, drop a checksum."""
    _require_fit(draft)
    properties = draft.properties
    if draft.sealed is not properties:
        # A reader would take the sender's `__CRC32#` for ours, so it is dropped even if we write none.
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
    if born == HOST_V6_SIZE:
        flags |= BORNHOST_V6
    if store == HOST_V6_SIZE:
        flags |= STOREHOST_V6
    draft.sys_flag = flags
    topic_size: i64 = len(draft.topic)
    size: i64 = FIXED_SIZE - 2 * HOST_V4_SIZE + born + store + len(draft.body) + topic_size + properties_size
    if topic_size > TOPIC_V1_SIZE_MAX:
        size += 1
    if size > _RECORD_SIZE_MAX:
        raise InvalidArgumentError(f"a record of {size} bytes cannot be written")
    draft.size = size
    return size


def _require_fit(draft: Draft) -> None:
    if not 0 < len(draft.topic) <= _TOPIC_SIZE_MAX:
        raise InvalidArgumentError(f"topic of {len(draft.topic)} bytes, 1 to {_TOPIC_SIZE_MAX} allowed")
    born: i64 = len(draft.born_host)
    store: i64 = len(draft.store_host)
    if (born != HOST_V4_SIZE and born != HOST_V6_SIZE) or (store != HOST_V4_SIZE and store != HOST_V6_SIZE):
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
    # Almost all values pass this first test, which compiled code does without building an object.
    if -0x4000000000000000 <= value <= 0x3FFFFFFFFFFFFFFF:
        return
    if not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        raise InvalidArgumentError(f"{name} {value} does not fit 64 bits")


def _write_head(out: BytesWriter, draft: Draft) -> None:
    """Write a record up to its body."""
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
    """Write a record from the end of its body to its seal."""
    topic = draft.topic
    topic_size: i64 = len(topic)
    if topic_size <= TOPIC_V1_SIZE_MAX:
        out.append(u8(topic_size))
    else:
        write_i16_be(out, i16(topic_size))
    out.write(topic)
    write_i16_be(out, i16(len(draft.properties) + seal_size))
    out.write(draft.properties)


def _write_seal(out: BytesWriter, crc: i64) -> None:
    """Append the seal of a record. `crc` is the masked crc32 of all its bytes before the seal."""
    write_i64_be(out, SEAL_NAME_WORD)
    out.append(1)
    rest: i64 = crc
    i: i64 = 0
    while i < SEAL_DIGITS:
        tenth: i64 = rest // 10
        out.append(u8(48 + rest - tenth * 10))
        rest = tenth
        i += 1
    out.append(2)


def _check_seal(buf: bytes, pos: i64, size: i64, properties_size: i64) -> i64:
    """Tell whether the record at `pos` ends with a seal, and whether the seal is right.

    The seal covers all bytes of the record before it. Its crc32 keeps 31 bits. One flipped bit always changes them:
    CRC-32's polynomial is primitive, and a flip of only the dropped bit is 2^32 - 1 bits away. The 20 bytes of the
    seal itself are compared one by one.

    A seal with one flipped bit in its fixed bytes, or in the separator before it, no longer looks like a seal. To tell
    it from an odd property of the sender, this function corrects the bit: the checksum then agrees only for a seal.
    RocketMQ: MessageDecoder.createCrc32, MessageStoreConfig.enabledAppendPropCRC.
    """
    if properties_size < SEAL_SIZE:
        return _SEAL_ABSENT
    at: i64 = pos + size - SEAL_SIZE
    word: i64 = read_i64_be(buf, at) ^ SEAL_NAME_WORD
    name_end: i64 = buf[at + SEAL_NAME_END_POS] ^ 1
    value_end: i64 = buf[at + SEAL_VALUE_END_POS] ^ 2
    if word == 0 and name_end == 0 and value_end == 0 and (properties_size == SEAL_SIZE or buf[at - 1] == 2):
        crc: i64 = crc32(buf[pos:at]) & CRC_MASK
        return _SEAL_SOUND if _digits_match(buf, at + SEAL_DIGITS_POS, crc) else _SEAL_BROKEN
    differing: i64 = _bits(word >> 32) + _bits(word) + _bits(name_end) + _bits(value_end)
    mended: bytes = buf[pos:at]
    if properties_size > SEAL_SIZE:
        differing += _bits(buf[at - 1] ^ 2)
        mended = buf[pos : at - 1] + b"\x02"
    if differing == 1 and _digits_match(buf, at + SEAL_DIGITS_POS, crc32(mended) & CRC_MASK):
        return _SEAL_BROKEN
    return _SEAL_ABSENT


def _digits_match(buf: bytes, at: i64, crc: i64) -> bool:
    rest: i64 = crc
    i: i64 = 0
    while i < SEAL_DIGITS:
        digit: i64 = buf[at + i]
        if digit != 48 + rest % 10:
            return False
        rest //= 10
        i += 1
    return True


def _bits(word: i64) -> i64:
    """Return how many of the low 32 bits are set."""
    count: i64 = 0
    rest: i64 = word & 0xFFFFFFFF
    while rest != 0:
        rest &= rest - 1
        count += 1
    return count


def describe(reason: int) -> str:
    """Return a reason in words."""
    return _REASONS.get(reason, f"record of {reason} bytes" if reason > 0 else f"unknown reason {reason}")


def check_record(buf: bytes, pos: int, physical_offset: int, verify: int) -> int:
    """Return the size of the sound record at `pos`, or a reason.

    The record must say that it stands at `physical_offset`, unless that is -1.
    """
    if not 0 <= pos <= len(buf):
        return NEED_MORE
    size, _, _, properties_size = measure(buf, pos, len(buf), physical_offset)
    if size <= 0 or verify == VERIFY_NONE:
        return size
    return verify_record(buf, pos, size, properties_size, verify)


def measure(buf: bytes, pos: i64, end: i64, physical_offset: i64) -> tuple[i64, i64, i64, i64]:
    """Return the size or a reason, the position of the topic, its size, and the size of the properties.

    Each length that can be read is compared with the total size. So a damaged total size that points past the buffer
    gives BAD_SIZE or BAD_LENGTH, not NEED_MORE.
    """
    room: i64 = end - pos
    if room < BLANK_SIZE_MIN:
        return NEED_MORE, 0, 0, 0
    size: i64 = i64(read_i32_be(buf, pos))
    magic: i64 = i64(read_i32_be(buf, pos + RECORD_MAGIC_POS))
    if size == 0 and magic == 0:
        return ZERO, 0, 0, 0
    if magic == MAGIC_BLANK:
        return (BLANK if size >= BLANK_SIZE_MIN else BAD_SIZE), 0, 0, 0
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return BAD_MAGIC, 0, 0, 0
    if size < FIXED_SIZE:
        return BAD_SIZE, 0, 0, 0
    if room < RECORD_HEAD_SIZE:
        return NEED_MORE, 0, 0, 0
    if physical_offset >= 0 and read_i64_be(buf, pos + RECORD_PHYSICAL_OFFSET_POS) != physical_offset:
        return BAD_OFFSET, 0, 0, 0
    flags: i64 = i64(read_i32_be(buf, pos + RECORD_SYS_FLAG_POS))
    # `at` moves along the record. The fields that must still follow have to fit the total size.
    at: i64 = RECORD_BODY_POS
    if flags & BORNHOST_V6:
        at += V6_HOST_EXTRA
    if flags & STOREHOST_V6:
        at += V6_HOST_EXTRA
    if at + 1 + PROPERTIES_LENGTH_SIZE > size:
        return BAD_LENGTH, 0, 0, 0
    if at > room:
        return NEED_MORE, 0, 0, 0
    body_size: i64 = i64(read_i32_be(buf, pos + at - BODY_LENGTH_SIZE))
    at += body_size
    if body_size < 0 or at + 1 + PROPERTIES_LENGTH_SIZE > size:
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
    if topic_size <= 0 or at + topic_size + PROPERTIES_LENGTH_SIZE > size:
        return BAD_LENGTH, 0, 0, 0
    if at + topic_size + PROPERTIES_LENGTH_SIZE > room:
        return NEED_MORE, 0, 0, 0
    properties_size: i64 = i64(read_i16_be(buf, pos + at + topic_size))
    if properties_size < 0:
        return BAD_LENGTH, 0, 0, 0
    if at + topic_size + PROPERTIES_LENGTH_SIZE + properties_size != size:
        return BAD_SIZE, 0, 0, 0
    if size > room:
        return NEED_MORE, 0, 0, 0
    return size, pos + at, topic_size, properties_size


def verify_record(buf: bytes, pos: i64, size: i64, properties_size: i64, verify: i64) -> i64:
    """Return the size again if the checksums that `verify` asks for agree, else a reason."""
    if verify >= VERIFY_RECORD:
        found = _check_seal(buf, pos, size, properties_size)
        if found == _SEAL_SOUND:
            return size
        if found == _SEAL_BROKEN:
            return BAD_CRC
        if verify >= VERIFY_SEALED:
            return NO_CRC
        # The last byte of the properties or, if there are none, of the topic.
        if buf[pos + size - (1 if properties_size > 0 else 1 + PROPERTIES_LENGTH_SIZE)] == 0:
            return BAD_PROPERTIES
    flags: i64 = i64(read_i32_be(buf, pos + RECORD_SYS_FLAG_POS))
    at: i64 = pos + RECORD_BODY_POS
    if flags & BORNHOST_V6:
        at += V6_HOST_EXTRA
    if flags & STOREHOST_V6:
        at += V6_HOST_EXTRA
    body_size: i64 = i64(read_i32_be(buf, at - BODY_LENGTH_SIZE))
    # RocketMQ: checkMessageAndReturnSize compares the CRC of a body only if there is a body.
    if body_size > 0 and crc32(buf[at : at + body_size]) & CRC_MASK != read_i32_be(buf, pos + RECORD_BODY_CRC_POS):
        return BAD_CRC
    return size


def decode_record(buf: bytes, pos: int, verify: int = VERIFY_NONE) -> Record:
    """Return the record at `pos`. Raises CorruptLogError if no whole record stands there."""
    size = check_record(buf, pos, -1, verify)
    if size <= 0:
        raise CorruptLogError("record", pos, describe(size))
    return _record_at(buf, pos)


def decode_records(buf: bytes, verify: int = VERIFY_NONE) -> list[Record]:
    """Return the records of a buffer that holds nothing else, such as the body of a pull's answer."""
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
    flags: i64 = i64(read_i32_be(buf, pos + RECORD_SYS_FLAG_POS))
    # Each IPv6 host moves the fields after it.
    after_born: i64 = pos + V6_HOST_EXTRA if flags & BORNHOST_V6 else pos
    after_store: i64 = after_born + V6_HOST_EXTRA if flags & STOREHOST_V6 else after_born
    body_at: i64 = after_store + RECORD_BODY_POS
    body_size: i64 = i64(read_i32_be(buf, after_store + RECORD_BODY_SIZE_POS))
    topic_at: i64 = body_at + body_size + 1
    topic_size: i64 = buf[topic_at - 1]
    if read_i32_be(buf, pos + RECORD_MAGIC_POS) == MAGIC_V2:
        topic_size = i64(read_i16_be(buf, topic_at - 1))
        topic_at += 1
    return Record(
        size,
        read_i32_be(buf, pos + RECORD_BODY_CRC_POS),
        read_i32_be(buf, pos + RECORD_QUEUE_ID_POS),
        read_i32_be(buf, pos + RECORD_FLAG_POS),
        read_i64_be(buf, pos + RECORD_QUEUE_OFFSET_POS),
        read_i64_be(buf, pos + RECORD_PHYSICAL_OFFSET_POS),
        flags,
        read_i64_be(buf, pos + RECORD_BORN_TIMESTAMP_POS),
        buf[pos + RECORD_BORN_HOST_POS : after_born + RECORD_STORE_TIMESTAMP_POS],
        read_i64_be(buf, after_born + RECORD_STORE_TIMESTAMP_POS),
        buf[after_born + RECORD_STORE_HOST_POS : after_store + RECORD_RECONSUME_TIMES_POS],
        read_i32_be(buf, after_store + RECORD_RECONSUME_TIMES_POS),
        read_i64_be(buf, after_store + RECORD_PREPARED_OFFSET_POS),
        buf[body_at : body_at + body_size],
        buf[topic_at : topic_at + topic_size],
        buf[topic_at + topic_size + PROPERTIES_LENGTH_SIZE : pos + size],
    )
