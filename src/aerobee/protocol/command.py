"""Commands: requests and answers, and their bytes in both codecs.

RocketMQ: RemotingCommand, RemotingSerializable.encode (fastjson2 sorts keys and leaves out nulls).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from librt.strings import BytesWriter

from aerobee.errors import LocalProtocolError, RemoteProtocolError
from aerobee.hot.wire.frame import (
    EXT_FIELDS_MAX,
    FRAME_LENGTH_MAX,
    Frame,
    binary_frame,
    ext_fields,
    json_frame,
    json_text,
    scan_frames,
    start_binary,
    write_field,
)
from aerobee.protocol.codes import (
    BINARY,
    BINARY_CODE_MAX,
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    JSON,
    LANGUAGE,
    LANGUAGE_CODES,
    LANGUAGES,
    VERSION,
    ResponseCode,
)
from aerobee.protocol.headers.base import Header, encode_header
from aerobee.protocol.javaorder import map_order


@dataclass(slots=True)
class Command:
    """A request or an answer. The encoder keeps the order of `ext`."""

    code: int
    opaque: int = 0
    flag: int = 0
    ext: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    remark: str | None = None
    language: str = LANGUAGE
    version: int = VERSION
    codec: int = JSON

    @property
    def is_response(self) -> bool:
        """Tell whether this is the answer to a request."""
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """Tell whether the sender wants no answer."""
        return self.flag & FLAG_ONEWAY != 0


def request(
    code: int,
    header: Header | None = None,
    body: bytes = b"",
    *,
    opaque: int,
    oneway: bool = False,
    codec: int = JSON,
    ext: Mapping[str, str] | None = None,
) -> Command:
    """Return a request. A code that does not fit the binary header makes it JSON, as for POP in Apache's clients."""
    if codec == BINARY and code > BINARY_CODE_MAX:
        codec = JSON
    flag = FLAG_ONEWAY if oneway else 0
    return Command(code, opaque, flag, _joined(header, ext, codec), body, codec=codec)


def response(
    to: Command | Frame,
    code: int = 0,
    header: Header | None = None,
    body: bytes = b"",
    remark: str | None = None,
    *,
    ext: Mapping[str, str] | None = None,
) -> Command:
    """Return the answer to a request, in the codec of the request."""
    return Command(code, to.opaque, FLAG_RESPONSE, _joined(header, ext, to.codec), body, remark, codec=to.codec)


def too_large(answer: Command, reason: str) -> Command:
    """Return the error that replaces an answer that is too large for a frame."""
    remark = f"the answer cannot be sent: {reason}. Ask for less at a time: for one topic or group, or by pages"
    return Command(ResponseCode.SYSTEM_ERROR, answer.opaque, FLAG_RESPONSE, remark=remark, codec=answer.codec)


def _joined(header: Header | None, ext: Mapping[str, str] | None, codec: int) -> dict[str, str]:
    """Return the fields of a header and the further ones, in the order of Apache's map or as declared."""
    binary = codec == BINARY
    fields = encode_header(header, binary=binary) if header is not None else {}
    if ext:
        fields.update(ext)
        if not (binary and header is not None and header.declared_order):
            fields = {name: fields[name] for name in map_order(tuple(fields))}
    return fields


def encode_command(cmd: Command) -> bytes:
    """Return the whole frame."""
    return encode_head(cmd, len(cmd.body)) + cmd.body


def encode_head(cmd: Command, body_size: int) -> bytes:
    """Return the length words and the header, for a body of `body_size` bytes that the caller sends after them."""
    head = _json_head(cmd, body_size) if cmd.codec == JSON else _binary_head(cmd, body_size)
    if len(head) - 4 + body_size > FRAME_LENGTH_MAX:
        size, limit = len(head) + body_size, FRAME_LENGTH_MAX + 4
        raise LocalProtocolError(f"a frame of {size} bytes is too large, the limit is {limit} bytes")
    return head


def _json_head(cmd: Command, body_size: int) -> bytes:
    ext = '"extFields":' + _json_ext(cmd.ext) + "," if cmd.ext else ""
    remark = '"remark":' + json_text(cmd.remark) + "," if cmd.remark is not None else ""
    return json_frame(
        f'{{"code":{cmd.code},{ext}"flag":{cmd.flag},"language":"{cmd.language}","opaque":{cmd.opaque},{remark}'
        f'"serializeTypeCurrentRPC":"JSON","version":{cmd.version}}}',
        body_size,
    )


def _json_ext(ext: Mapping[str, str]) -> str:
    try:
        return msgspec.json.encode(ext).decode()
    except UnicodeEncodeError:
        return "{" + ",".join(f"{json_text(k)}:{json_text(v)}" for k, v in ext.items()) + "}"


def _binary_head(cmd: Command, body_size: int) -> bytes:
    if not -BINARY_CODE_MAX - 1 <= cmd.code <= BINARY_CODE_MAX:
        raise LocalProtocolError(f"code {cmd.code} does not fit the binary header, which holds a short: use JSON")
    if cmd.codec != BINARY:
        raise LocalProtocolError(f"codec {cmd.codec} is unknown")
    head = BytesWriter()
    start_binary(head, cmd.code, LANGUAGE_CODES.get(cmd.language, 7), cmd.version, cmd.opaque, cmd.flag)
    fields = BytesWriter()
    for name, value in cmd.ext.items():
        key = name.encode("utf-8", "replace")
        if len(key) > BINARY_CODE_MAX:
            raise LocalProtocolError(f"the name of an ext field is {len(key)} bytes long")
        write_field(fields, key, value.encode("utf-8", "replace"))
    remark = (cmd.remark or "").encode("utf-8", "replace")
    return binary_frame(head.getvalue(), remark, fields.getvalue(), body_size)


class _JsonHeader(msgspec.Struct, gc=False):
    """A JSON header in the form that clients usually write."""

    code: int
    ext: dict[str, str] | None = msgspec.field(name="extFields", default=None)
    flag: int = 0
    language: str = "JAVA"
    opaque: int = 0
    remark: str | None = None
    version: int = 0


class _LooseHeader(msgspec.Struct, gc=False):
    """A JSON header in any form that fastjson accepts: ext values of any scalar type, a number for the language."""

    code: int
    ext: dict[str, str | int | float | bool | None] | None = msgspec.field(name="extFields", default=None)
    flag: int | None = 0
    language: str | int | None = "JAVA"
    opaque: int | None = 0
    remark: str | None = None
    version: int | None = 0


_strict = msgspec.json.Decoder(_JsonHeader)
_loose = msgspec.json.Decoder(_LooseHeader)


def decode_command(frame: Frame) -> Command:
    """Return the command in a frame. Raises RemoteProtocolError if it cannot be decoded."""
    return _from_json(frame) if frame.codec == JSON else _from_binary(frame)


def decode_frame(data: bytes) -> Command:
    """Return the command of bytes that are exactly one frame."""
    frames, end = scan_frames(data, 0)
    if len(frames) != 1 or end != len(data):
        raise RemoteProtocolError(f"{len(frames)} frames in {len(data)} bytes, {len(data) - end} left over")
    return decode_command(frames[0])


def _from_json(frame: Frame) -> Command:
    text = frame.header()
    try:
        head = _strict.decode(text)
    except msgspec.ValidationError:
        head = _decode_loose(text)
    except (ValueError, RecursionError) as problem:
        head = _decode_loose(_with_question_marks(text, problem))
    if head.code != frame.code:
        raise RemoteProtocolError(f"the header names two codes, {frame.code} and {head.code}")
    ext = head.ext or {}
    if len(ext) > EXT_FIELDS_MAX:
        raise RemoteProtocolError(f"more than {EXT_FIELDS_MAX} ext fields")
    return Command(head.code, head.opaque, head.flag, ext, frame.body(), head.remark, head.language, head.version, JSON)


def _with_question_marks(text: bytes, problem: Exception) -> bytes:
    """Return a header with a question mark for each half of a surrogate pair: Java reads one, our decoder does not.

    Raise RemoteProtocolError if it has none, or is no JSON besides.
    """
    if b"\\u" in text:
        try:
            return json.dumps(json.loads(text), ensure_ascii=False).encode(errors="replace")
        except (ValueError, RecursionError):
            pass
    raise RemoteProtocolError(f"the header is not JSON: {problem}") from None


def _decode_loose(text: bytes) -> _JsonHeader:
    try:
        head = _loose.decode(text)
    except (ValueError, RecursionError) as problem:
        raise RemoteProtocolError(f"the header is not a command: {problem}") from None
    ext = {name: _scalar(value) for name, value in (head.ext or {}).items() if value is not None}
    language = head.language
    if isinstance(language, int):
        language = LANGUAGES[language] if 0 <= language < len(LANGUAGES) else "OTHER"
    return _JsonHeader(
        head.code, ext, head.flag or 0, language or "JAVA", head.opaque or 0, head.remark, head.version or 0
    )


def _scalar(value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _from_binary(frame: Frame) -> Command:
    head = frame.header()
    language = head[2]
    size = int.from_bytes(head[13:17], "big")
    return Command(
        frame.code,
        frame.opaque,
        frame.flag,
        ext_fields(frame),
        frame.body(),
        head[17 : 17 + size].decode("utf-8", "replace") if size else None,
        LANGUAGES[language] if language < len(LANGUAGES) else "OTHER",
        int.from_bytes(head[3:5], "big", signed=True),
        BINARY,
    )
