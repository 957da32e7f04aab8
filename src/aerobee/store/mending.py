"""How one flipped bit of a record is found by the whole-record checksum.

A CRC is linear: what a flipped bit adds to it depends only on how far that bit is from the end. So one walk over the
record finds the bit, without trying each. A mended record is never served. It tells rot from a torn write, and it tells
the queue number of a damaged record.
"""

from __future__ import annotations

from typing import Final

from aerobee.hot.log.checksum import crc32
from aerobee.hot.log.layout import (
    CRC_MASK,
    MAGIC_BLANK,
    RECORD_MAGIC_POS,
    SEAL_DIGITS,
    SEAL_DIGITS_POS,
    SEAL_NAME,
    SEAL_SIZE,
    SEAL_VALUE_END_POS,
)
from aerobee.hot.log.record import VERIFY_SEALED, check_record
from aerobee.model.numbers import int_or

# A walk over this many bytes takes a tenth of a second.
SIZE_MAX: Final = 64 * 1024
_POLYNOMIAL: Final = 0xEDB88320
_BLANK: Final = MAGIC_BLANK.to_bytes(4, "big", signed=True)


def _table_entry(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value


CRC_TABLE: Final = [_table_entry(value) for value in range(256)]


def mend(data: bytes, physical_offset: int) -> bytes | None:
    """Return the sound record from which `data` differs by one bit; None where no single bit explains the damage."""
    if not SEAL_SIZE < len(data) <= SIZE_MAX or data.count(0) == len(data):
        return None
    covered, seal = data[:-SEAL_SIZE], data[-SEAL_SIZE:]
    crc = crc32(covered) & CRC_MASK
    wanted = seal_of(crc)
    mended: bytes | None = None
    if _bits_between(seal, wanted) == 1:
        mended = covered + wanted
    elif (said := _crc_of(seal)) is not None:
        mended = _flip(covered, crc ^ said, seal)
    if mended is None or check_record(mended, 0, physical_offset, VERIFY_SEALED) != len(data):
        return None
    return mended


def before_blank(data: bytes, size: int) -> bytes:
    """Return the part of a damaged stretch before the blank record that closes it, all of it where none does.

    The stretch has `size` bytes and `data` is its beginning. Damage to a segment's last record reaches to the segment's
    end.
    """
    at = data.find(_BLANK)
    while at >= 0:
        start = at - RECORD_MAGIC_POS
        if start >= 0 and start + int.from_bytes(data[start:at], "big") == size:
            return data[:start]
        at = data.find(_BLANK, at + 1)
    return data


def seal_of(crc: int) -> bytes:
    """Return the checksum property, its lowest digit first."""
    return SEAL_NAME + b"\x01" + f"{crc:0{SEAL_DIGITS}d}"[::-1].encode() + b"\x02"


def _crc_of(seal: bytes) -> int | None:
    digits = seal[SEAL_DIGITS_POS:SEAL_VALUE_END_POS]
    if seal[:SEAL_DIGITS_POS] != SEAL_NAME + b"\x01" or seal[-1:] != b"\x02" or not digits.isdigit():
        return None
    return int_or(digits[::-1], None, 0)


def _bits_between(left: bytes, right: bytes) -> int:
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).bit_count()


def _flip(covered: bytes, syndrome: int, seal: bytes) -> bytes | None:
    """Flip the one bit that changes the checksum by `syndrome`."""
    table = CRC_TABLE
    # What a flip of each bit of the current byte adds to the checksum. The walk begins with the last byte.
    added = [table[1 << bit] for bit in range(8)]
    for position in range(len(covered) - 1, -1, -1):
        for bit, change in enumerate(added):
            if change & CRC_MASK == syndrome:
                mended = bytearray(covered)
                mended[position] ^= 1 << bit
                return bytes(mended) + seal
        added = [change >> 8 ^ table[change & 0xFF] for change in added]
    return None


def lacks_a_byte(found: bytes, mended: bytes) -> bool:
    """Tell whether the bit that differs is the only one set in its byte: that byte may never have been written."""
    return any(left != right and left == 0 for left, right in zip(found, mended, strict=True))
