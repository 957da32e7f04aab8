"""Whether a sound record stands at a position: lengths, magic, position and checksums.

The outcome is a number: a size above 0, or one of the reasons below. Hostile bytes never raise.
RocketMQ: CommitLog.checkMessageAndReturnSize.
"""

from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from aerobee.hot.log.checksum import crc32
from aerobee.hot.log.layout import (
    BLANK_SIZE_MIN,
    BORNHOST_V6,
    FIXED_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    STOREHOST_V6,
    TOPIC_V1_SIZE_MAX,
    V6_HOST_EXTRA,
)
from aerobee.hot.log.seal import CRC_MASK, SEAL_BROKEN, SEAL_SOUND, check_seal

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
    BAD_PROPERTIES: "topic or properties end in zeros: torn write",
    NO_CRC: "whole-record checksum is missing",
}


def describe(reason: int) -> str:
    """A reason in words."""
    return _REASONS.get(reason, f"record of {reason} bytes" if reason > 0 else f"unknown reason {reason}")


def check_record(buf: bytes, pos: int, physical_offset: int, verify: int) -> int:
    """The size of the sound record at `pos`, or a reason. `physical_offset` -1: position not checked."""
    if not 0 <= pos <= len(buf):
        return NEED_MORE
    size, _, _, properties_size = measure(buf, pos, len(buf), physical_offset)
    if size <= 0 or verify == VERIFY_NONE:
        return size
    return verify_record(buf, pos, size, properties_size, verify)


def measure(buf: bytes, pos: i64, end: i64, physical_offset: i64) -> tuple[i64, i64, i64, i64]:
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


def verify_record(buf: bytes, pos: i64, size: i64, properties_size: i64, verify: i64) -> i64:
    """The size again when the checksums asked for agree, else a reason."""
    if verify >= VERIFY_RECORD:
        found = check_seal(buf, pos, size, properties_size)
        if found == SEAL_SOUND:
            return size
        if found == SEAL_BROKEN:
            return BAD_CRC
        if verify >= VERIFY_SEALED:
            return NO_CRC
        # The last byte of the properties or, where there are none, of the topic.
        if buf[pos + size - (1 if properties_size > 0 else 3)] == 0:
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
