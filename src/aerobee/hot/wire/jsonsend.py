"""The JSON header of a send read in place, as known writers make it: no blanks, plain texts, no name twice.

Compiled, this costs a third of a general decode. What is written in any other way gives None, and
protocol.sending decodes it whole: so both give the same, and only that one says what is wrong.
RocketMQ: RemotingSerializable.encode, SendMessageRequestHeaderV2.
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_le, write_i64_le
from mypy_extensions import i64, u8

from aerobee.hot.wire.extfields import NEEDED_LETTERS, SendFields, set_number
from aerobee.hot.wire.frame import Frame
from aerobee.hot.wire.jsonheader import ends_well, find_ext
from aerobee.hot.wire.jsontext import json_number, pair_end, plain_bytes, text_end
from aerobee.hot.wire.lasttext import LastText

_TRUE: Final = 0x74727565
_FALS: Final = 0x66616C73

_group: Final = LastText()
_topic: Final = LastText()
_default_topic: Final = LastText()
_broker_name: Final = LastText()


def scan_json_send(frame: Frame) -> SendFields | None:
    """The fields of a JSON SEND_MESSAGE_V2; the frame's opaque and flag are those of the header."""
    buf = frame.buf
    end: i64 = frame.body_pos
    # Eight bytes are read at a time, also beyond the header: a value that ends there is refused.
    last: i64 = i64(len(buf)) - 16
    at: i64
    seen: i64
    at, seen = find_ext(frame, buf, frame.header_pos, end, last)
    if at < 0:
        return None
    send = SendFields("", "", "", 0, -1, 0, 0, 0, b"", 0, False, -1, False, "")
    at = _scan_ext(send, buf, at, last)
    return send if ends_well(frame, buf, at, end, last, seen) else None


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
        send.producer_group = _group.take(buf, start, stop)
    elif letter == 0x62:
        send.topic = _topic.take(buf, start, stop)
    elif letter == 0x63:
        send.default_topic = _default_topic.take(buf, start, stop)
    elif letter == 0x6E:
        send.broker_name = _broker_name.take(buf, start, stop)
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
