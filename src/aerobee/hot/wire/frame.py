"""Frames of the remoting protocol: find them in received bytes, read what dispatch needs, and write their parts.

    0   4  length of all that follows        4 .. 16,777,212
    4   1  codec                             0 JSON, 1 binary ("ROCKETMQ")
    5   3  header length
    8   .  header, then the body to the end

Binary header: code 2, language 1, version 2, opaque 4, flag 4, remark length 4 and remark, ext length 4 and
ext fields (name length 2, name, value length 4, value).
RocketMQ: NettyDecoder, RemotingCommand.decode, RocketMQSerializable.
"""

from typing import Final

import msgspec
from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i16_be, write_i32_be
from mypy_extensions import i64

from aerobee.errors import RemoteProtocolError

# LengthFieldBasedFrameDecoder counts the length word itself in its limit of 16 MiB.
FRAME_LENGTH_MAX: Final = 16_777_212
# The properties of a send have up to 32,767 bytes, each of which JSON may write as six. A pop's answer lists offsets.
HEADER_LENGTH_MAX: Final = 1 << 20
EXT_FIELDS_MAX: Final = 1024

CODEC_JSON: Final = 0
CODEC_BINARY: Final = 1

LENGTH_SIZE: Final = 4
HEADER_POS: Final = 8

# Positions in a binary header. The remark moves what follows it.
BINARY_CODE_POS: Final = 0
BINARY_OPAQUE_POS: Final = 5
BINARY_FLAG_POS: Final = 9
BINARY_REMARK_LENGTH_POS: Final = 13
BINARY_EXT_LENGTH_POS: Final = 17
BINARY_EXT_POS: Final = 21
# An ext field without its name and its value.
EXT_NAME_POS: Final = 2
EXT_FIXED_SIZE: Final = 6
EXT_VALUE_LENGTH_SIZE: Final = 4

_OPEN_CO: Final = 0x7B22636F  # {"co
_DE_COLON: Final = 0x6465223A  # de":
_OPAQUE: Final = 0x226F706171756522  # "opaque"
_FLAG: Final = 0x22666C616722  # "flag"
_NO_INT: Final = 1 << 40
_INT_MIN: Final = -(1 << 31)
_INT_MAX: Final = (1 << 31) - 1
_BELOW_1000: Final = [b"%d" % i for i in range(1000)]
_THREE_DIGITS: Final = [b"%03d" % i for i in range(1000)]


class Frame:
    """One frame inside a buffer. Its positions count from the start of `buf`, and it copies nothing until asked."""

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
        """Return the bytes of the header."""
        return self.buf[self.header_pos : self.body_pos]

    def body(self) -> bytes:
        """Return the bytes of the body, which may be empty."""
        return self.buf[self.body_pos : self.end]

    def is_response(self) -> bool:
        """Tell whether this is the answer to a request."""
        return self.flag & 1 != 0

    def is_oneway(self) -> bool:
        """Tell whether the sender wants no answer."""
        return self.flag & 2 != 0


def scan_frames(buf: bytes, pos: int = 0) -> tuple[list[Frame], int]:
    """Return all whole frames from `pos` on, and the position after them.

    A bad frame ends the list. If the first frame is bad, this raises RemoteProtocolError.
    """
    frames, end, problem = scan(buf, pos)
    if problem and not frames:
        raise RemoteProtocolError(problem)
    return frames, end


def scan(buf: bytes, pos: int) -> tuple[list[Frame], int, str]:
    """Return what `scan_frames` does, and what is wrong at the returned position, or '' if nothing is."""
    frames: list[Frame] = []
    size: i64 = len(buf)
    at: i64 = pos
    while size - at >= HEADER_POS:
        length: i64 = i64(read_i32_be(buf, at))
        word: i64 = i64(read_i32_be(buf, at + LENGTH_SIZE))
        codec: i64 = (word >> 24) & 0xFF
        header: i64 = word & 0xFFFFFF
        problem = _frame_problem(length, codec, header)
        if problem:
            return frames, int(at), problem
        header_at: i64 = at + HEADER_POS
        body: i64 = header_at + header
        end: i64 = at + LENGTH_SIZE + length
        if end > size:
            break
        if codec == CODEC_BINARY:
            problem = binary_problem(buf, int(header_at), int(body))
            if problem:
                return frames, int(at), problem
            code: i64 = i64(read_i16_be(buf, header_at + BINARY_CODE_POS))
            opaque: i64 = i64(read_i32_be(buf, header_at + BINARY_OPAQUE_POS))
            flag: i64 = i64(read_i32_be(buf, header_at + BINARY_FLAG_POS))
            frames.append(
                Frame(buf, CODEC_BINARY, int(code), int(opaque), int(flag), int(header_at), int(body), int(end))
            )
        else:
            frame = _json_frame(buf, int(header_at), int(body), int(end))
            if frame is None:
                return frames, int(at), "the header is not a JSON command"
            frames.append(frame)
        at = end
    if LENGTH_SIZE <= size - at < HEADER_POS:
        left: i64 = i64(read_i32_be(buf, at))
        return frames, int(at), _frame_problem(left, 0, 0)
    return frames, int(at), ""


def bytes_needed(buf: bytes, pos: int) -> int:
    """Return how many bytes the frame at `pos` has in all, or 8 while its length is not known."""
    if len(buf) - pos < LENGTH_SIZE:
        return HEADER_POS
    return read_i32_be(buf, pos) + LENGTH_SIZE


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
    """Return what is wrong with the lengths of a binary header, or ''. They must fill the header exactly."""
    size: i64 = end - pos
    if size < BINARY_EXT_POS:
        return f"binary header of {int(size)} bytes is shorter than {BINARY_EXT_POS}"
    remark: i64 = i64(read_i32_be(buf, pos + BINARY_REMARK_LENGTH_POS))
    if remark < 0 or remark > size - BINARY_EXT_POS:
        return f"remark length {int(remark)} does not fit a header of {int(size)} bytes"
    ext: i64 = i64(read_i32_be(buf, pos + BINARY_EXT_LENGTH_POS + remark))
    if ext != size - BINARY_EXT_POS - remark:
        return f"ext fields length {int(ext)} does not fill a header of {int(size)} bytes"
    return ""


def _json_frame(buf: bytes, pos: int, body: int, end: int) -> Frame | None:
    """Read code, opaque and flag in place if the header is written as known writers do, else by a full decode."""
    code = _NO_INT
    if body - pos > 8 and read_i32_be(buf, pos) == _OPEN_CO and read_i32_be(buf, pos + 4) == _DE_COLON:
        code = _int_at(buf, pos + 8, body)
    if code != _NO_INT:
        opaque, flag = opaque_and_flag(buf, pos, body)
        if opaque != _NO_INT and flag != _NO_INT:
            return Frame(buf, CODEC_JSON, code, opaque, flag, pos, body, end)
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
    return Frame(buf, CODEC_JSON, code, opaque, flag, pos, body, end)


def _as_int(value: object, missing: int) -> int:
    if value is None:
        return missing
    if isinstance(value, bool) or not isinstance(value, int):
        return _NO_INT
    return value if _INT_MIN <= value <= _INT_MAX else _NO_INT


def opaque_and_flag(buf: bytes, pos: int, end: int) -> tuple[int, int]:
    """Return the integers after the last `"opaque":` and `"flag":` of a header, which is read from its end.

    Neither name can be found elsewhere: inside a JSON string their quotes are escaped, and the value of an ext field
    of that name is a string.
    """
    opaque = _NO_INT
    flag = _NO_INT
    first: i64 = pos
    at: i64 = i64(end) - 1
    while at >= first + 6:
        # A name ends in a quote and a colon, so it is enough to look at every second byte.
        mark: i64 = buf[at]
        colon: i64 = at if mark == 0x3A else at + 1
        at -= 2
        if (mark != 0x3A and mark != 0x22) or colon >= end or buf[colon] != 0x3A or buf[colon - 1] != 0x22:
            continue
        # This may read before the header, where eight bytes of length words are.
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
    """Return the JSON integer of at most ten digits at `pos`, which a comma or a brace must follow, else _NO_INT."""
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
    """Return a text as a JSON string, as fastjson2 writes it."""
    if text.isalnum() and text.isascii():
        return '"' + text + '"'
    encoded: bytes = msgspec.json.encode(text.encode("utf-8", "replace").decode())
    return encoded.decode()


def json_frame(header: str, body_size: int) -> bytes:
    """Return the length words and a JSON header, for a body of `body_size` bytes that the caller sends after them."""
    data = header.encode()
    size = len(data)
    out = BytesWriter()
    write_i32_be(out, size + LENGTH_SIZE + body_size)
    write_i32_be(out, size)
    out.write(data)
    return out.getvalue()


def write_field(out: BytesWriter, key: bytes, value: bytes) -> None:
    """Write one ext field in the binary codec."""
    write_i16_be(out, len(key))
    out.write(key)
    write_i32_be(out, len(value))
    out.write(value)


def start_binary(out: BytesWriter, code: int, language: int, version: int, opaque: int, flag: int) -> None:
    """Write the numbers that a binary header begins with."""
    write_i16_be(out, code)
    out.append(language)
    write_i16_be(out, version)
    write_i32_be(out, opaque)
    write_i32_be(out, flag)


def binary_frame(head: bytes, remark: bytes, ext: bytes, body_size: int) -> bytes:
    """Return the length words and a binary header, for a body of `body_size` bytes that the caller sends after them."""
    size = len(head) + 8 + len(remark) + len(ext)
    out = BytesWriter()
    write_i32_be(out, size + LENGTH_SIZE + body_size)
    write_i32_be(out, (CODEC_BINARY << 24) | size)
    out.write(head)
    write_i32_be(out, len(remark))
    out.write(remark)
    write_i32_be(out, len(ext))
    out.write(ext)
    return out.getvalue()


def ext_start(frame: Frame) -> int:
    """Return where the ext fields of a binary frame begin. `scan_frames` has checked that they end at its body."""
    return frame.header_pos + BINARY_EXT_POS + read_i32_be(frame.buf, frame.header_pos + BINARY_REMARK_LENGTH_POS)


def value_start(buf: bytes, at: i64, end: i64) -> i64:
    """Return where the value of the ext field at `at` begins. Before it are the name and the length of the value."""
    if at + EXT_NAME_POS > end:
        raise RemoteProtocolError("an ext field's name does not fit the header")
    start: i64 = at + EXT_FIXED_SIZE + i64(read_i16_be(buf, at))
    if start < at + EXT_FIXED_SIZE or start > end:
        raise RemoteProtocolError("an ext field's name does not fit the header")
    return start


def value_stop(buf: bytes, start: i64, end: i64) -> i64:
    """Return where the value that begins at `start` ends."""
    stop: i64 = start + i64(read_i32_be(buf, start - EXT_VALUE_LENGTH_SIZE))
    if stop < start or stop > end:
        raise RemoteProtocolError("an ext field's value does not fit the header")
    return stop


def ext_fields(frame: Frame) -> dict[str, str]:
    """Return all ext fields of a binary frame. As in Apache, empty values are absent and the last of twins wins."""
    fields: dict[str, str] = {}
    buf = frame.buf
    at: i64 = ext_start(frame)
    end: i64 = frame.body_pos
    count = 0
    while at < end:
        start: i64 = value_start(buf, at, end)
        stop: i64 = value_stop(buf, start, end)
        count += 1
        if count > EXT_FIELDS_MAX:
            raise RemoteProtocolError(f"more than {EXT_FIELDS_MAX} ext fields")
        if start > at + EXT_FIXED_SIZE and stop > start:
            key = buf[int(at + EXT_NAME_POS) : int(start - EXT_VALUE_LENGTH_SIZE)].decode("utf-8", "replace")
            fields[key] = buf[int(start) : int(stop)].decode("utf-8", "replace")
        at = stop
    return fields


def text_of(data: bytes) -> str:
    """Return UTF-8 bytes as text, with U+FFFD for what is no UTF-8."""
    # The decoder that replaces is much slower, even where there is nothing to replace.
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def small_number(number: int) -> bytes:
    """Return a number in decimal, without building it if it is small."""
    return _BELOW_1000[number] if 0 <= number < 1000 else str(number).encode()


class Digits:
    """A decimal number in two pieces. Its last three digits are apart, as the others seldom change between messages."""

    def __init__(self) -> None:
        self.head: bytes = b""
        self.rest: bytes = b""
        self._high: i64 = -1
        self._high_text: bytes = b""

    def use(self, number: i64) -> i64:
        """Set both pieces, and return how many digits they have."""
        if number >= 1000:
            high: i64 = number // 1000
            if high != self._high:
                self._high = high
                self._high_text = str(high).encode()
            self.head = self._high_text
            self.rest = _THREE_DIGITS[number % 1000]
        elif number >= 0:
            self.head = b""
            self.rest = _BELOW_1000[number]
        else:
            self.head = str(number).encode()
            self.rest = b""
        return len(self.head) + len(self.rest)
