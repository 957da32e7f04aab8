"""Signed frames, checked in place: the values of all fields in the order of their names, and their HMAC-SHA1.

`scan_signed` reads what known clients write: a JSON header without blanks whose field values are plain or hold the
escapes of message properties, or a binary header. It returns None for any other frame, which the caller then decodes in
the general way; so this reader only ever makes checks cheaper. Of the fields it hands over those that name what is
asked for: topic and consumer group. A frame that names one of them, or any field, twice is left to the general way.

A key keeps the two SHA-1 states of its HMAC, which are copied for each check: half the cost of an HMAC from its key.
RocketMQ: AclUtils.combineRequestContent, AclSigner, DefaultAuthenticationContextBuilder.
"""

import binascii
import hashlib
import hmac
from typing import Any, Final

from librt.strings import BytesWriter, read_i32_be, read_i64_le, write_i64_le
from mypy_extensions import i64, u8

from aerobee.hot.wire.frame import (
    CODEC_JSON,
    EXT_NAME_POS,
    EXT_VALUE_LENGTH_SIZE,
    Frame,
    ext_start,
    value_start,
    value_stop,
)
from aerobee.hot.wire.jsonheader import LastText, ends_well, find_ext, plain_bytes, text_end

_FIELDS_MAX: Final = 64
_SHAPES_MAX: Final = 512
_ACCESS_KEY: Final = b"AccessKey"
_SIGNATURE: Final = b"Signature"
_UNIQUE_KEY_QUERY: Final = b"_UNIQUE_KEY_QUERY"
_FOR_USER: Final = b"__AEROBEE_FOR_USER"
_TOPIC: Final = b"topic"
_TOPIC_V2: Final = b"b"
_GROUP: Final = b"consumerGroup"
_SIGNATURE_SIZE: Final = 28
_BLOCK: Final = 64
_LARGE_BODY: Final = 64 << 10
_MARGIN: Final = bytes(16)


_access_key: Final = LastText()
_topic: Final = LastText()
_group: Final = LastText()


class SigningKey:
    """A user's secret as the two states of SHA-1 from which every signature with it goes on."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) > _BLOCK:
            secret = hashlib.sha1(secret, usedforsecurity=False).digest()
        block = secret + bytes(_BLOCK - len(secret))
        self._inner: Any = hashlib.sha1(bytes([one ^ 0x36 for one in block]), usedforsecurity=False)
        self._outer: Any = hashlib.sha1(bytes([one ^ 0x5C for one in block]), usedforsecurity=False)

    def digest(self, content: bytes, body: bytes | memoryview) -> bytes:
        """Return the signature of a request: of its content and its body."""
        inner: Any = self._inner.copy()
        inner.update(content)
        if body:
            inner.update(body)
        outer: Any = self._outer.copy()
        outer.update(inner.digest())
        found: bytes = outer.digest()
        return found


class _Shape:
    """What the names of a frame's fields say: where the known ones are, and in which order the values are signed."""

    def __init__(self, names: list[bytes]) -> None:
        self.access_key: i64 = _place(names, _ACCESS_KEY)
        self.signature: i64 = _place(names, _SIGNATURE)
        self.topic_v1: i64 = _place(names, _TOPIC)
        self.topic_v2: i64 = _place(names, _TOPIC_V2)
        self.group: i64 = _place(names, _GROUP)
        # Clients up to 4.9.3 do not sign that field, and only the general way reads the version. It alone knows what a
        # request for another user means.
        self.is_usable: bool = (
            self.access_key >= 0
            and self.signature >= 0
            and len(set(names)) == len(names)
            and _UNIQUE_KEY_QUERY not in names
            and _FOR_USER not in names
        )
        signed = [place for place in range(len(names)) if names[place] != _SIGNATURE]
        self.order: bytes = bytes(sorted(signed, key=lambda place: names[place]))


def _place(names: list[bytes], name: bytes) -> int:
    return names.index(name) if name in names else -1


_shapes: dict[bytes, _Shape] = {}


def _shape_of(names: bytes) -> _Shape:
    found = _shapes.get(names)
    if found is None:
        if len(_shapes) >= _SHAPES_MAX:
            _shapes.clear()
        # Names have no control characters here, so a zero byte ends each.
        found = _shapes[names] = _Shape(names.split(b"\0")[:-1])
    return found


class Signed:
    """A signed frame: who says to have signed it, what for, and what the signature must be made of."""

    def __init__(self, access_key: str, topic: str, group: str, content: bytes, signature: bytes) -> None:
        self.access_key: str = access_key
        self.topic: str = topic
        self.group: str = group
        self.content: bytes = content
        self.signature: bytes = signature

    def is_by(self, key: SigningKey, frame: Frame) -> bool:
        """Tell whether the frame was signed with this key. The comparison takes the same time whatever differs."""
        size = frame.end - frame.body_pos
        if size == 0:
            body: bytes | memoryview = b""
        elif size > _LARGE_BODY:
            body = memoryview(frame.buf)[frame.body_pos : frame.end]
        else:
            body = frame.buf[frame.body_pos : frame.end]
        return hmac.compare_digest(key.digest(self.content, body), self.signature)


def scan_signed(frame: Frame, second_version: bool) -> Signed | None:
    """Return the signed fields of a frame. `second_version` tells that the topic is in the field `b`."""
    names = BytesWriter()
    places = BytesWriter()
    if frame.codec == CODEC_JSON:
        buf = frame.buf
        start: i64 = frame.header_pos
        end: i64 = frame.body_pos
        if end + len(_MARGIN) > i64(len(buf)):
            buf = buf[frame.header_pos : frame.body_pos] + _MARGIN
            end -= start
            start = 0
        if not _scan_json(frame, buf, start, end, names, places):
            return None
    else:
        buf = frame.buf
        if not _scan_binary(frame, names, places):
            return None
        if frame.body_pos + len(_MARGIN) > len(buf):
            buf += _MARGIN
    shape = _shape_of(names.getvalue())
    if not shape.is_usable:
        return None
    found = places.getvalue()
    at: i64 = shape.signature * 16
    first: i64 = read_i64_le(found, at)
    stop: i64 = read_i64_le(found, at + 8)
    if stop - first != _SIGNATURE_SIZE:
        return None
    try:
        signature: bytes = binascii.a2b_base64(buf[int(first) : int(stop)])
    except binascii.Error:
        return None
    content = BytesWriter()
    order = shape.order
    size: i64 = 0
    for k in range(len(order)):
        at = i64(order[k]) * 16
        size = _copy(content, size, buf, read_i64_le(found, at), read_i64_le(found, at + 8))
    topic_at: i64 = shape.topic_v2 if second_version else shape.topic_v1
    return Signed(
        _text(_access_key, buf, found, shape.access_key),
        _text(_topic, buf, found, topic_at),
        _text(_group, buf, found, shape.group),
        content.getvalue(),
        signature,
    )


def _text(last: LastText, buf: bytes, places: bytes, place: i64) -> str:
    """Return the text of a field, '' if it is absent or not plain."""
    if place < 0:
        return ""
    first: i64 = read_i64_le(places, place * 16)
    stop: i64 = read_i64_le(places, place * 16 + 8)
    if stop < first:
        return ""
    at: i64 = first
    # Of a binary frame: only ASCII is handed over.
    while at < stop:
        if buf[at] >= 0x80:
            return ""
        at += 1
    return last.take(buf, first, stop)


def _scan_json(frame: Frame, buf: bytes, start: i64, end: i64, names: BytesWriter, places: BytesWriter) -> bool:
    """Write the names of all fields, each ended by a zero byte, and where their values begin and stop. The stop of a
    value with escapes is written as its negative."""
    last: i64 = end + len(_MARGIN) - 8
    at: i64
    seen: i64
    at, seen = find_ext(frame, buf, start, end, last)
    if at < 0 or buf[at] != 0x7B:
        return False
    count: i64 = 0
    named: i64 = 0
    while True:
        at += 1
        if at > last or buf[at] != 0x22:
            return False
        stop: i64 = text_end(buf, at + 1, last)
        if stop < 0 or stop == at + 1 or buf[stop + 1] != 0x3A or buf[stop + 2] != 0x22:
            return False
        named = _copy(names, named, buf, at + 1, stop)
        names.append(u8(0))
        named += 1
        at = stop + 3
        stop = _value_end(buf, at, last)
        if stop == 0:
            return False
        write_i64_le(places, at)
        write_i64_le(places, stop)
        count += 1
        at = (stop if stop > 0 else -stop) + 1
        if count > _FIELDS_MAX or at >= end:
            return False
        if buf[at] != 0x2C:
            break
    if buf[at] != 0x7D:
        return False
    return ends_well(frame, buf, at + 1, end, last, seen)


def _value_end(buf: bytes, at: i64, last: i64) -> i64:
    """Return where the closing quote of a value is, as a negative number if the value has escapes; 0 if there is none,
    or if the value has other characters than those that message properties are written with."""
    escaped = False
    while at <= last:
        plain: i64 = plain_bytes(read_i64_le(buf, at))
        at += plain
        if plain == 8:
            continue
        c: i64 = buf[at]
        if c == 0x22:
            return -at if escaped else at
        if c != 0x5C:
            return 0
        escaped = True
        c = buf[at + 1]
        if c == 0x75:
            c = i64(read_i32_be(buf, at + 2)) - 0x30303030
            if c != 1 and c != 2:
                return 0
            at += 6
        elif c == 0x22 or c == 0x5C or c == 0x2F:
            at += 2
        else:
            return 0
    return 0


def _copy(out: BytesWriter, size: i64, buf: bytes, at: i64, stop: i64) -> i64:
    """Append the bytes to the next one to `stop` to a writer that holds `size`, and return what it holds then. Where
    `stop` is negative, escapes are resolved."""
    if stop >= 0:
        size += stop - at
        while at < stop:
            write_i64_le(out, read_i64_le(buf, at))
            at += 8
        out.truncate(size)
        return size
    stop = -stop
    while at < stop:
        word: i64 = read_i64_le(buf, at)
        plain: i64 = plain_bytes(word)
        if plain > stop - at:
            plain = stop - at
        if plain:
            write_i64_le(out, word)
            at += plain
            size += plain
            if plain == 8:
                continue
            out.truncate(size)
            continue
        c: i64 = buf[at + 1]
        if c == 0x75:
            c = i64(buf[at + 5]) - 0x30
            at += 6
        else:
            at += 2
        out.append(u8(c))
        size += 1
    return size


def _scan_binary(frame: Frame, names: BytesWriter, places: BytesWriter) -> bool:
    """Write names and places as `_scan_json` does. As in Apache, a field without a value does not count."""
    buf = frame.buf
    at: i64 = ext_start(frame)
    end: i64 = frame.body_pos
    count: i64 = 0
    while at < end:
        start: i64 = value_start(buf, at, end)
        stop: i64 = value_stop(buf, start, end)
        count += 1
        if count > _FIELDS_MAX:
            return False
        name: i64 = at + EXT_NAME_POS
        after: i64 = start - EXT_VALUE_LENGTH_SIZE
        if stop > start and after > name:
            while name < after:
                c: i64 = buf[name]
                if c < 0x20 or c >= 0x7F:
                    return False
                names.append(u8(c))
                name += 1
            names.append(u8(0))
            write_i64_le(places, start)
            write_i64_le(places, stop)
        at = stop
    return True
