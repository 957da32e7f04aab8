"""Remoting frames: find them in received bytes, peek what dispatch needs, write the two answers sent most.

    0   4  length of what follows            4 .. 16,777,212
    4   1  codec                             0 JSON, 1 binary ("ROCKETMQ")
    5   3  header length
    8   .  header, then the body to the end

Binary header: code 2, language 1, version 2, opaque 4, flag 4, remark length 4 and remark, ext length 4 and
ext fields (key length 2, key, value length 4, value).
RocketMQ: NettyDecoder, RemotingCommand.decode, RocketMQSerializable.
"""

import re
from types import FunctionType
from typing import Final

import msgspec
from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i16_be, write_i32_be
from mypy_extensions import i64

from aerobee.errors import RemoteProtocolError

# LengthFieldBasedFrameDecoder counts the length word itself in its limit of 16 MiB.
FRAME_LENGTH_MAX: Final = 16_777_212
# A send's properties reach 32,767 bytes, JSON may write each as six, and a pop's answer lists its offsets.
HEADER_LENGTH_MAX: Final = 1 << 20

CODEC_JSON: Final = 0
CODEC_BINARY: Final = 1

# Fixed part of a binary header: 13 bytes of numbers and the two lengths.
BINARY_FIXED: Final = 21

_OPEN_CO: Final = 0x7B22636F  # {"co
_DE_COLON: Final = 0x6465223A  # de":
_OPAQUE: Final = 0x226F706171756522  # "opaque"
_FLAG: Final = 0x22666C616722  # "flag"
_INTEGER: Final = re.compile(rb"(-?[0-9]{1,10})[,}]")
_NO_INT: Final = 1 << 40
_INT_MIN: Final = -(1 << 31)
_INT_MAX: Final = (1 << 31) - 1


class Frame:
    """One frame inside a buffer. Positions are absolute in `buf`; nothing is copied until asked for."""

    def __init__(
        self,
        buf: bytes,
        codec: int,
        code: int,
        opaque: int,
        flag: int,
        header_pos: int,
        body_pos: int,
        end: int,
    ) -> None:
        self.buf: bytes = buf
        self.codec: int = codec
        self.code: int = code
        self.opaque: int = opaque
        self.flag: int = flag
        self.header_pos: int = header_pos
        self.body_pos: int = body_pos
        self.end: int = end

    def header(self) -> bytes:
        """The header's bytes."""
        return self.buf[self.header_pos : self.body_pos]

    def body(self) -> bytes:
        """The body's bytes, empty when there is none."""
        return self.buf[self.body_pos : self.end]

    def is_response(self) -> bool:
        """Whether this answers a request."""
        return self.flag & 1 != 0

    def is_oneway(self) -> bool:
        """Whether the sender wants no answer."""
        return self.flag & 2 != 0


def scan_frames(buf: bytes, pos: int = 0) -> tuple[list[Frame], int]:
    """Every whole frame from `pos` on and the position after them.

    Frames before a bad one are returned first; a call that starts at a bad one raises RemoteProtocolError.
    """
    frames, end, problem = scan(buf, pos)
    if problem and not frames:
        raise RemoteProtocolError(problem)
    return frames, end


def scan(buf: bytes, pos: int) -> tuple[list[Frame], int, str]:
    """As scan_frames, with what is wrong at the returned position ('' for nothing) in place of a raise."""
    frames: list[Frame] = []
    size: i64 = len(buf)
    at: i64 = pos
    while size - at >= 8:
        length: i64 = i64(read_i32_be(buf, at))
        word: i64 = i64(read_i32_be(buf, at + 4))
        codec: i64 = (word >> 24) & 0xFF
        header: i64 = word & 0xFFFFFF
        problem = _frame_problem(length, codec, header)
        if problem:
            return frames, int(at), problem
        body: i64 = at + 8 + header
        end: i64 = at + 4 + length
        if end > size:
            break
        if codec == 1:
            problem = binary_problem(buf, int(at + 8), int(body))
            if problem:
                return frames, int(at), problem
            code: i64 = i64(read_i16_be(buf, at + 8))
            opaque: i64 = i64(read_i32_be(buf, at + 13))
            flag: i64 = i64(read_i32_be(buf, at + 17))
            frames.append(Frame(buf, 1, int(code), int(opaque), int(flag), int(at + 8), int(body), int(end)))
        else:
            frame = _json_frame(buf, int(at + 8), int(body), int(end))
            if frame is None:
                return frames, int(at), "the header is not a JSON command"
            frames.append(frame)
        at = end
    if 4 <= size - at < 8:
        left: i64 = i64(read_i32_be(buf, at))
        return frames, int(at), _frame_problem(left, 0, 0)
    return frames, int(at), ""


def bytes_needed(buf: bytes, pos: int) -> int:
    """How many bytes the frame at `pos` needs in all; 8 while its length is not known yet."""
    if len(buf) - pos < 4:
        return 8
    return read_i32_be(buf, pos) + 4


def _frame_problem(length: i64, codec: i64, header: i64) -> str:
    if length < 4 or length > FRAME_LENGTH_MAX:
        return f"frame length {int(length)} is outside 4..{FRAME_LENGTH_MAX}"
    if codec > 1:
        return f"codec {int(codec)} is unknown"
    if header > length - 4:
        return f"header length {int(header)} exceeds the frame's {int(length - 4)}"
    if header > HEADER_LENGTH_MAX:
        return f"header length {int(header)} exceeds {HEADER_LENGTH_MAX}"
    return ""


def binary_problem(buf: bytes, pos: int, end: int) -> str:
    """What is wrong with the lengths of a binary header, or ''. They must fill the header exactly."""
    size: i64 = end - pos
    if size < BINARY_FIXED:
        return f"binary header of {int(size)} bytes is shorter than {BINARY_FIXED}"
    remark: i64 = i64(read_i32_be(buf, pos + 13))
    if remark < 0 or remark > size - BINARY_FIXED:
        return f"remark length {int(remark)} does not fit a header of {int(size)} bytes"
    ext: i64 = i64(read_i32_be(buf, pos + 17 + remark))
    if ext != size - BINARY_FIXED - remark:
        return f"ext fields length {int(ext)} does not fill a header of {int(size)} bytes"
    return ""


def _json_frame(buf: bytes, pos: int, body: int, end: int) -> Frame | None:
    """Peek code, opaque and flag: by position in a text such as known writers make, else by decoding."""
    code = _NO_INT
    if body - pos > 8 and read_i32_be(buf, pos) == _OPEN_CO and read_i32_be(buf, pos + 4) == _DE_COLON:
        code = _int_at(buf, pos + 8, body)
    if code != _NO_INT:
        if _INTERPRETED:
            opaque = find_int(buf, b'"opaque":', pos, body)
            flag = find_int(buf, b'"flag":', pos, body)
        else:
            opaque, flag = find_both(buf, pos, body)
        if opaque != _NO_INT and flag != _NO_INT:
            return Frame(buf, 0, code, opaque, flag, pos, body, end)
    return _json_frame_slow(buf, pos, body, end)


def _json_frame_slow(buf: bytes, pos: int, body: int, end: int) -> Frame | None:
    try:
        header: object = msgspec.json.decode(buf[pos:body])
    except (ValueError, RecursionError):
        return None
    if not isinstance(header, dict):
        return None
    code = _as_int(header.get("code"), _NO_INT)
    opaque = _as_int(header.get("opaque"), 0)
    flag = _as_int(header.get("flag"), 0)
    if code == _NO_INT or opaque == _NO_INT or flag == _NO_INT:
        return None
    return Frame(buf, 0, code, opaque, flag, pos, body, end)


def _as_int(value: object, missing: int) -> int:
    if value is None:
        return missing
    if isinstance(value, bool) or not isinstance(value, int):
        return _NO_INT
    return value if _INT_MIN <= value <= _INT_MAX else _NO_INT


def find_int(buf: bytes, name: bytes, pos: int, end: int) -> int:
    """The integer after the last `name` of buf[pos:end].

    Inside a JSON string its quotes would be escaped, and an ext field of that name holds a string.
    """
    at = buf.rfind(name, pos, end)
    while at > pos:
        if buf[at - 1] != 0x5C:
            value = _int_at(buf, at + len(name), end)
            if value != _NO_INT:
                return value
        at = buf.rfind(name, pos, at + len(name) - 1)
    return _NO_INT


def find_both(buf: bytes, pos: int, end: int) -> tuple[int, int]:
    """The same for opaque and flag, compiled: one pass from the end, before which known writers put both."""
    opaque = _NO_INT
    flag = _NO_INT
    first: i64 = pos
    at: i64 = i64(end) - 1
    while at >= first + 6:
        # Names end in a quote and a colon: one of every two bytes tells whether both are there.
        mark: i64 = buf[at]
        colon: i64 = at if mark == 0x3A else at + 1
        at -= 2
        if (mark != 0x3A and mark != 0x22) or colon >= end or buf[colon] != 0x3A or buf[colon - 1] != 0x22:
            continue
        # Eight bytes of length words lie before any header.
        word: i64 = read_i64_be(buf, colon - 8)
        if word == _OPAQUE:
            if opaque == _NO_INT and colon - 8 > first and buf[colon - 9] != 0x5C:
                opaque = _int_at(buf, int(colon + 1), end)
        elif word & 0xFFFFFFFFFFFF == _FLAG and flag == _NO_INT and colon - 6 > first and buf[colon - 7] != 0x5C:
            flag = _int_at(buf, int(colon + 1), end)
        if opaque != _NO_INT and flag != _NO_INT:
            break
    return opaque, flag


def _int_at(buf: bytes, pos: int, end: int) -> int:
    """The JSON integer of at most ten digits at `pos`, closed by a comma or a brace."""
    if _INTERPRETED:
        found = _INTEGER.match(buf, pos, end)
        number = int(found[1]) if found else _NO_INT
        return number if _INT_MIN <= number <= _INT_MAX else _NO_INT
    at: i64 = pos
    stop: i64 = end
    negative = at < stop and buf[at] == 0x2D
    if negative:
        at += 1
    value: i64 = 0
    first: i64 = at
    while at < stop:
        digit: i64 = buf[at]
        if digit < 0x30 or digit > 0x39:
            if at == first or (digit != 0x2C and digit != 0x7D):
                return _NO_INT
            value = -value if negative else value
            return int(value) if _INT_MIN <= value <= _INT_MAX else _NO_INT
        value = value * 10 + digit - 0x30
        at += 1
        if at - first > 10:
            return _NO_INT
    return _NO_INT


def json_text(text: str) -> str:
    """`text` between quotes as fastjson2 writes it."""
    if text.isalnum() and text.isascii():
        return '"' + text + '"'
    encoded: bytes = msgspec.json.encode(text.encode("utf-8", "replace").decode())
    return encoded.decode()


def json_frame(header: str, body_size: int) -> bytes:
    """Length words and a JSON header; the body follows apart."""
    data = header.encode()
    size = len(data)
    out = BytesWriter()
    write_i32_be(out, size + 4 + body_size)
    write_i32_be(out, size)
    out.write(data)
    return out.getvalue()


def write_field(out: BytesWriter, key: bytes, value: bytes) -> None:
    """One binary ext field."""
    write_i16_be(out, len(key))
    out.write(key)
    write_i32_be(out, len(value))
    out.write(value)


def start_binary(out: BytesWriter, code: int, language: int, version: int, opaque: int, flag: int) -> None:
    """The fixed numbers of a binary header."""
    write_i16_be(out, code)
    out.append(language)
    write_i16_be(out, version)
    write_i32_be(out, opaque)
    write_i32_be(out, flag)


def binary_frame(head: bytes, remark: bytes, ext: bytes, body_size: int) -> bytes:
    """Length words and a binary header out of its parts; the body follows apart."""
    size = len(head) + 8 + len(remark) + len(ext)
    out = BytesWriter()
    write_i32_be(out, size + 4 + body_size)
    write_i32_be(out, (CODEC_BINARY << 24) | size)
    out.write(head)
    write_i32_be(out, len(remark))
    out.write(remark)
    write_i32_be(out, len(ext))
    out.write(ext)
    return out.getvalue()


_INTERPRETED: Final = isinstance(scan, FunctionType)
