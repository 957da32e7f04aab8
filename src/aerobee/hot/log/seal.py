"""The whole-record checksum: Apache's `__CRC32#` property, the last 20 bytes of a record that carries it.

    name `__CRC32#` 8, 0x01, ten digits with the LOWEST first, 0x02

It covers every byte of the record before itself, as crc32 masked to 31 bits. One flipped bit always changes
those 31 bits: CRC-32's polynomial is primitive, a flip of only the masked bit is 2^32 - 1 bits away.
What the sum does not cover (its own 20 bytes) is compared byte for byte.
RocketMQ: MessageDecoder.createCrc32, CommitLog.CRC32_RESERVED_LEN, MessageStoreConfig.enabledAppendPropCRC.
"""

from typing import Final

from librt.strings import BytesWriter, read_i64_be, write_i64_be
from mypy_extensions import i64, u8

from aerobee.hot.log.checksum import crc32
from aerobee.hot.log.layout import CRC_MASK as CRC_MASK
from aerobee.hot.log.layout import SEAL_DIGITS as _DIGITS
from aerobee.hot.log.layout import SEAL_NAME as SEAL_NAME
from aerobee.hot.log.layout import SEAL_NAME_WORD as _NAME_WORD
from aerobee.hot.log.layout import SEAL_SIZE as SEAL_SIZE

# What `check_seal` finds.
SEAL_ABSENT: Final = 0
SEAL_SOUND: Final = 1
SEAL_BROKEN: Final = 2


def write_seal(out: BytesWriter, crc: i64) -> None:
    """Append the checksum property for a record whose masked crc32 is `crc`."""
    write_i64_be(out, _NAME_WORD)
    out.append(1)
    rest: i64 = crc
    i: i64 = 0
    while i < _DIGITS:
        tenth: i64 = rest // 10
        out.append(u8(48 + rest - tenth * 10))
        rest = tenth
        i += 1
    out.append(2)


def check_seal(buf: bytes, pos: i64, size: i64, properties_size: i64) -> i64:
    """Whether the record at `pos` ends with a seal, and whether that seal is right.

    A seal with one flipped bit in its fixed bytes (or in the separator before it) no longer looks like one.
    It is told from a sender's odd property by mending the bit: only for a true seal does the sum then agree.
    """
    if properties_size < SEAL_SIZE:
        return SEAL_ABSENT
    at: i64 = pos + size - SEAL_SIZE
    if read_i64_be(buf, at) == _NAME_WORD and buf[at + 8] == 1 and buf[at + 19] == 2:
        if properties_size == SEAL_SIZE or buf[at - 1] == 2:
            crc: i64 = crc32(buf[pos:at]) & CRC_MASK
            return SEAL_SOUND if _digits_match(buf, at + 9, crc) else SEAL_BROKEN
    word: i64 = read_i64_be(buf, at) ^ _NAME_WORD
    differing: i64 = _bits(word >> 32) + _bits(word) + _bits(buf[at + 8] ^ 1) + _bits(buf[at + 19] ^ 2)
    mended: bytes = buf[pos:at]
    if properties_size > SEAL_SIZE:
        differing += _bits(buf[at - 1] ^ 2)
        mended = buf[pos : at - 1] + b"\x02"
    if differing == 1 and _digits_match(buf, at + 9, crc32(mended) & CRC_MASK):
        return SEAL_BROKEN
    return SEAL_ABSENT


def _digits_match(buf: bytes, at: i64, crc: i64) -> bool:
    rest: i64 = crc
    i: i64 = 0
    while i < _DIGITS:
        digit: i64 = buf[at + i]
        if digit != 48 + rest % 10:
            return False
        rest //= 10
        i += 1
    return True


def _bits(word: i64) -> i64:
    """How many of the low 32 bits are set."""
    count: i64 = 0
    rest: i64 = word & 0xFFFFFFFF
    while rest != 0:
        rest &= rest - 1
        count += 1
    return count
