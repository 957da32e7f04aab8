"""The JSON header of a send read in place, as known writers make it: no blanks, plain texts, no name twice.

Compiled, this costs a third of a general decode. What is written in any other way gives None, and
protocol.sending decodes it whole: so both give the same, and only that one says what is wrong.
RocketMQ: RemotingSerializable.encode, SendMessageRequestHeaderV2.
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, read_i64_le, write_i64_le
from mypy_extensions import i64, u8

from aerobee.hot.extfields import NEEDED_LETTERS, SendFields, set_number
from aerobee.hot.frame import Frame
from aerobee.hot.jsontext import json_number, pair_end, plain_bytes, text_end

_CODE: Final = 0x22636F6465223A  # "code":
_FLAG: Final = 0x22666C6167223A  # "flag":
_OPAQUE: Final = 0x226F706171756522  # "opaque"
_EXT: Final = 0x226578744669656C  # "extFiel
_EXT_REST: Final = 0x6473223A  # ds":
_TRUE: Final = 0x74727565
_FALS: Final = 0x66616C73


def scan_json_send(frame: Frame) -> SendFields | None:
    """The fields of a JSON SEND_MESSAGE_V2; the frame's opaque and flag are those of the header."""
    buf = frame.buf
    at: i64 = frame.header_pos
    end: i64 = frame.body_pos
    if at >= end or buf[at] != 0x7B:
        return None
    send = SendFields("", "", "", 0, -1, 0, 0, 0, b"", 0, False, -1, False, "")
    # Eight bytes are read at a time, also beyond the header: a value that ends there is refused.
    last: i64 = i64(len(buf)) - 16
    code: i64 = 0
    opaque: i64 = 0
    flag: i64 = 0
    seen: i64 = 0
    while True:
        at += 1  # past the brace or the comma
        if at > last:
            return None
        word: i64 = read_i64_be(buf, at)
        bit: i64 = 0
        if word == _EXT and read_i32_be(buf, at + 8) == _EXT_REST:
            bit = 8
            at = _scan_ext(send, buf, at + 12, last)
        elif word >> 8 == _CODE:
            bit = 1
            at, code = json_number(buf, at + 7)
        elif word >> 8 == _FLAG:
            bit = 2
            at, flag = json_number(buf, at + 7)
        elif word == _OPAQUE and buf[at + 8] == 0x3A:
            bit = 4
            at, opaque = json_number(buf, at + 9)
        else:
            at = pair_end(buf, at, last)
        if at < 0 or at >= end or seen & bit:
            return None
        seen |= bit
        if buf[at] != 0x2C:
            break
    if buf[at] != 0x7D or at + 1 != end or seen & 9 != 9 or code != frame.code:
        return None
    frame.opaque = int(opaque)
    frame.flag = int(flag)
    return send


def _scan_ext(send: SendFields, buf: bytes, at: i64, last: i64) -> i64:
    """What follows the object at `at`; -1 when it is not read here."""
    if buf[at] != 0x7B:
        return -1
    seen: i64 = 0
    while True:
        at += 1
        if at > last:
            return -1
        word: i64 = i64(read_i32_be(buf, at))
        letter: i64 = (word >> 16) & 0xFF
        if word & 0xFF00FFFF != 0x2200223A or letter < 0x61 or letter > 0x6E:
            at = pair_end(buf, at, last)
        else:
            bit: i64 = 1 << (letter - 0x61)
            if buf[at + 4] != 0x22 or seen & bit:
                return -1
            seen |= bit
            at = _set_field(send, letter, buf, at + 5, last)
        if at < 0:
            return -1
        if buf[at] != 0x2C:
            break
    if buf[at] != 0x7D or seen & NEEDED_LETTERS != NEEDED_LETTERS:
        return -1
    return at + 1


def _set_field(send: SendFields, letter: i64, buf: bytes, start: i64, last: i64) -> i64:
    """One field whose text goes on at `start`; what follows its closing quote, or -1."""
    if letter == 0x69:  # i
        return _set_properties(send, buf, start, last)
    stop: i64
    if 0x64 <= letter <= 0x6A or letter == 0x6C:  # d e f g h j l
        value: i64
        stop, value = json_number(buf, start)
        if stop < 0 or buf[stop] != 0x22 or not set_number(send, letter, value):
            return -1
        return stop + 1
    stop = text_end(buf, start, last)
    if stop < 0:
        return -1
    if letter == 0x61:
        send.producer_group = buf[int(start) : int(stop)].decode("ascii")
    elif letter == 0x62:
        send.topic = buf[int(start) : int(stop)].decode("ascii")
    elif letter == 0x63:
        send.default_topic = buf[int(start) : int(stop)].decode("ascii")
    elif letter == 0x6E:
        send.broker_name = buf[int(start) : int(stop)].decode("ascii")
    elif stop - start == 4 and read_i32_be(buf, start) == _TRUE:
        if letter == 0x6B:
            send.unit_mode = True
        else:
            send.batch = True
    elif stop - start != 5 or read_i32_be(buf, start) != _FALS or buf[start + 4] != 0x65:
        return -1
    return stop + 1


def _set_properties(send: SendFields, buf: bytes, at: i64, last: i64) -> i64:
    """The properties, whose separators JSON escapes; what follows their closing quote, or -1."""
    out = BytesWriter()
    size: i64 = 0
    while at <= last:
        word: i64 = read_i64_le(buf, at)
        plain: i64 = plain_bytes(word)
        if plain:
            write_i64_le(out, word)
            at += plain
            size += plain
            if plain == 8:
                continue
            out.truncate(size)
        c: i64 = buf[at]
        if c == 0x22:
            send.properties = out.getvalue()
            return at + 1
        if c != 0x5C:
            return -1
        c = buf[at + 1]
        if c == 0x75:
            c = i64(read_i32_be(buf, at + 2)) - 0x30303030
            if c != 1 and c != 2:
                return -1
            at += 6
        elif c == 0x22 or c == 0x5C or c == 0x2F:
            at += 2
        else:
            return -1
        out.append(u8(c))
        size += 1
    return -1
