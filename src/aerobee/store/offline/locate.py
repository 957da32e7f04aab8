"""Which byte of a damaged record is bad, as far as its checksums can tell.

A CRC is linear: what one changed byte does to it depends only on the change and on how far the byte is from the end.
Undoing the bytes behind one by one shows where a single change explains the damage, and changing it back proves it.
Other damage is named by the field that cannot be right, or by the record's first byte.
"""

from __future__ import annotations

from typing import Final

from aerobee.hot.log.checksum import crc32
from aerobee.hot.log.layout import (
    BLANK_SIZE_MIN,
    CRC_MASK,
    FIXED_SIZE,
    MAGIC_BLANK,
    RECORD_BODY_CRC_POS,
    RECORD_MAGIC_POS,
    RECORD_PHYSICAL_OFFSET_POS,
    RECORD_QUEUE_ID_POS,
    SEAL_DIGITS_POS,
    SEAL_SIZE,
    SEAL_VALUE_END_POS,
)
from aerobee.hot.log.record import (
    BAD_MAGIC,
    BAD_OFFSET,
    BAD_PROPERTIES,
    VERIFY_BODY,
    VERIFY_NONE,
    VERIFY_SEALED,
    check_record,
)
from aerobee.model.numbers import parse_int
from aerobee.store.mending import CRC_TABLE
from aerobee.store.recordhead import body_of

# The search takes two steps for each byte. In a larger record the first byte is reported.
SEARCHED_MAX: Final = 1024 * 1024
_BLANK: Final = MAGIC_BLANK.to_bytes(4, "big", signed=True)
_FIELD_OF: Final = {BAD_MAGIC: RECORD_MAGIC_POS, BAD_OFFSET: RECORD_PHYSICAL_OFFSET_POS}
# The table's entry for each highest byte. All of them differ, so a step can be undone.
_BY_HIGHEST: Final = {entry >> 24: number for number, entry in enumerate(CRC_TABLE)}
_CHANGE_OF: Final = {entry: number for number, entry in enumerate(CRC_TABLE)}


def bad_byte(data: bytes, physical_offset: int, reason: int) -> tuple[int, bool]:
    """Return the first bad byte of the damaged stretch between two sound records, and whether that is proved."""
    if not data:
        return 0, False
    if FIXED_SIZE <= len(data) <= SEARCHED_MAX:
        found = _flipped_in_sealed(data, physical_offset)
        if found is None:
            found = _flipped_in_body(data, physical_offset)
        if found is not None:
            return found, True
    if reason == BAD_PROPERTIES:
        return len(data.rstrip(b"\0")), True
    return _FIELD_OF.get(reason, 0), False


def blank_in(data: bytes) -> int:
    """Return where the blank record begins in a stretch that reaches to a segment's end; the length where there is
    none.
    """
    at = data.find(_BLANK, RECORD_MAGIC_POS)
    while at >= 0:
        start = at - RECORD_MAGIC_POS
        if int.from_bytes(data[start:at], "big") == len(data) - start:
            return start
        at = data.find(_BLANK, at + 1)
    return len(data)


def bad_blank_byte(data: bytes) -> int | None:
    """Return the flipped byte where a stretch is the blank record of a segment but for one bit."""
    right = len(data).to_bytes(4, "big") + _BLANK
    wrong = [at for at in range(min(BLANK_SIZE_MIN, len(data))) if data[at] != right[at]]
    return wrong[0] if len(wrong) == 1 and (data[wrong[0]] ^ right[wrong[0]]).bit_count() == 1 else None


def _flipped_in_sealed(data: bytes, physical_offset: int) -> int | None:
    """Return where one changed byte breaks a record that carries the whole-record checksum."""
    covered = len(data) - SEAL_SIZE
    if covered <= 0:
        return None
    digits = data[covered + SEAL_DIGITS_POS : covered + SEAL_VALUE_END_POS]
    if digits.isdigit():
        difference = (crc32(data[:covered]) ^ parse_int(digits[::-1])) & CRC_MASK
        for at, change in _candidates(covered, difference):
            if _is_mended(data, at, change, physical_offset, VERIFY_SEALED):
                return at
    for at in range(covered - 1, len(data)):
        for bit in range(8):
            if _is_mended(data, at, 1 << bit, physical_offset, VERIFY_SEALED):
                return at
    return None


def _flipped_in_body(data: bytes, physical_offset: int) -> int | None:
    """Return where one changed byte breaks a body or its checksum. The record has no checksum of the whole."""
    if check_record(data, 0, physical_offset, VERIFY_NONE) != len(data):
        return None
    start, size = body_of(data)
    said = int.from_bytes(data[RECORD_BODY_CRC_POS:RECORD_QUEUE_ID_POS], "big")
    difference = (crc32(data[start : start + size]) ^ said) & CRC_MASK
    for at, change in _candidates(size, difference):
        if _is_mended(data, start + at, change, physical_offset, VERIFY_BODY):
            return start + at
    for at in range(RECORD_BODY_CRC_POS, RECORD_QUEUE_ID_POS):
        for bit in range(8):
            if _is_mended(data, at, 1 << bit, physical_offset, VERIFY_BODY):
                return at
    return None


def _is_mended(data: bytes, at: int, change: int, physical_offset: int, verify: int) -> bool:
    mended = bytearray(data)
    mended[at] ^= change
    return check_record(bytes(mended), 0, physical_offset, verify) == len(data)


def _candidates(size: int, difference: int) -> list[tuple[int, int]]:
    """Return each (byte, change) in `size` bytes that changes the CRC by `difference`, whose highest bit is unknown."""
    found: list[tuple[int, int]] = []
    if difference == 0:
        return found
    for rest in (difference, difference | 1 << 31):
        for at in range(size - 1, -1, -1):
            change = _CHANGE_OF.get(rest)
            if change is not None:
                found.append((at, change))
            number = _BY_HIGHEST[rest >> 24]
            rest = (rest ^ CRC_TABLE[number]) << 8 | number
    return found
