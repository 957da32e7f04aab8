"""Texts and integers of a JSON header, found in place, for writers that escape nothing but separators.

Every function gives -1 for what it does not read: the general decode then says what is wrong, if anything.
"""

from librt.strings import read_i64_le
from mypy_extensions import i64


def pair_end(buf: bytes, at: i64, last: i64) -> i64:
    """What follows a pair that does not matter, its value a plain text or integer; else -1."""
    if buf[at] != 0x22:
        return -1
    stop: i64 = text_end(buf, at + 1, last)
    if stop < 0 or buf[stop + 1] != 0x3A:
        return -1
    if buf[stop + 2] != 0x22:
        return json_number(buf, stop + 2)[0]
    stop = text_end(buf, stop + 3, last)
    if stop < 0:
        return -1
    return stop + 1


def text_end(buf: bytes, at: i64, last: i64) -> i64:
    """Where the text closes that goes on at `at`; -1 when a character is escaped or outside ASCII."""
    while at <= last:
        plain: i64 = plain_bytes(read_i64_le(buf, at))
        at += plain
        if plain < 8:
            break
    # Not in one expression: mypyc would make an object of what comes out of it.
    if at > last + 8 or buf[at] != 0x22:
        return -1
    return at


def plain_bytes(word: i64) -> i64:
    """How many of eight bytes, the lowest first, come before a quote, a backslash, a control or no ASCII.

    The high bit of a byte is set where it is no ASCII and where a subtraction goes below zero, which can wrong only
    the bytes after it.
    """
    each: i64 = 0x0101010101010101
    quotes: i64 = (word ^ (each * 0x22)) - each
    slashes: i64 = (word ^ (each * 0x5C)) - each
    marks: i64 = (word | (word - each * 0x20) | quotes | slashes) & (each << 7)
    if marks == 0:
        return 8
    count: i64 = 0
    if marks & 0xFFFFFFFF == 0:
        count = 4
        marks >>= 32
    if marks & 0xFFFF == 0:
        count += 2
        marks >>= 16
    return count if marks & 0x80 else count + 1


def json_number(buf: bytes, at: i64) -> tuple[i64, i64]:
    """What follows the JSON integer at `at`, and its value; -1 when it is none or of more than eighteen digits."""
    size: i64 = len(buf)
    value: i64 = 0
    negative = at < size and buf[at] == 0x2D
    if negative:
        at += 1
    first: i64 = at
    while at < size:
        digit: i64 = i64(buf[at]) - 0x30
        if digit < 0 or digit > 9:
            break
        value = value * 10 + digit
        at += 1
        if at - first > 18:
            return -1, 0
    # Java reads -0 and 007 as well: left to the general decode.
    if at == first or at == size or (buf[first] == 0x30 and (negative or at - first > 1)):
        return -1, 0
    return at, -value if negative else value
