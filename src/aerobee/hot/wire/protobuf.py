"""Protobuf by tables: read and write objects whose fields a table names. There is no generated code.

    field       tag (a varint: number * 8 + wire type), then the value
    wire type   0 varint · 1 eight bytes · 2 a length and so many bytes · 5 four bytes

As the specification of proto3 says: unknown fields are passed over, the last of several values wins, messages that come
twice are merged, lists of numbers may be packed, and text is UTF-8. Groups, which proto3 does not have, are refused.
"""

from typing import Final

from librt.strings import BytesWriter, read_f32_le, write_f32_le
from mypy_extensions import i32, i64

from aerobee.errors import RemoteProtocolError

INT32: Final = 0
INT64: Final = 1
BOOL: Final = 2
FLOAT: Final = 3
STRING: Final = 4
BYTES: Final = 5
MESSAGE: Final = 6
# A map of texts to texts, which is a list of messages with the fields 1 and 2.
TEXTS: Final = 7

_VARINT: Final = 0
_EIGHT: Final = 1
_LENGTH: Final = 2
_FOUR: Final = 5
_LOWEST: Final = -(1 << 63)
_UNBOUNDED: Final = 1 << 62
# How the value of each kind begins.
_WIRE: Final = (_VARINT, _VARINT, _VARINT, _FOUR, _LENGTH, _LENGTH, _LENGTH, _LENGTH)


class PbField:
    """One field: its number, the attribute that holds it, and what it is."""

    def __init__(
        self, number: int, name: str, kind: int, *, many: bool, optional: bool, rivals: tuple[str, ...]
    ) -> None:
        self.number: int = number
        self.name: str = name
        self.kind: int = kind
        self.many: bool = many
        # Whether absent and empty differ: absent is None then.
        self.optional: bool = optional
        # The other fields of its oneof: setting this one clears them.
        self.rivals: tuple[str, ...] = rivals
        self.table: PbTable | None = None
        packed = many and kind <= BOOL
        self.tag: bytes = varint(number * 8 + (_LENGTH if packed else _WIRE[kind]))


class PbTable:
    """The fields of a message, and the function that makes an empty one."""

    def __init__(self, make: object, fields: list[PbField]) -> None:
        self.make = make
        self.fields: list[PbField] = fields
        self.by_number: dict[int, PbField] = {one.number: one for one in fields}

    def new(self) -> object:
        """Return an empty message."""
        assert callable(self.make)
        made: object = self.make()
        return made


class _Reader:
    """A position in bytes."""

    def __init__(self, data: bytes, fields_max: int) -> None:
        self.data: bytes = data
        self.at: i64 = 0
        # How many more fields are read.
        self.left: i64 = fields_max

    def varint(self, end: i64) -> i64:
        """Read a number of up to 64 bits, as a signed one."""
        data = self.data
        at: i64 = self.at
        if at >= end:
            raise RemoteProtocolError("protobuf: a number is missing")
        byte: i64 = data[at]
        at += 1
        if byte < 0x80:
            self.at = at
            return byte
        number: i64 = byte & 0x7F
        shift: i64 = 7
        while True:
            if at >= end or shift > 63:
                raise RemoteProtocolError("protobuf: a number does not end")
            byte = data[at]
            at += 1
            if shift < 63:
                number |= (byte & 0x7F) << shift
            elif byte & 1:
                number |= _LOWEST
            if byte < 0x80:
                break
            shift += 7
        self.at = at
        return number

    def count(self) -> None:
        """Note one more field, or one more number of a packed field."""
        self.left -= 1
        if self.left < 0:
            raise RemoteProtocolError("protobuf: the message has too many fields")

    def size(self, end: i64) -> i64:
        """Read a length, and return where what is so long ends."""
        size = self.varint(end)
        if size < 0 or size > end - self.at:
            raise RemoteProtocolError("protobuf: a field is longer than its message")
        return self.at + size

    def skip(self, wire: i64, end: i64) -> None:
        """Pass over a value."""
        if wire == _VARINT:
            self.varint(end)
            return
        if wire == _LENGTH:
            self.at = self.size(end)
            return
        if wire != _EIGHT and wire != _FOUR:
            raise RemoteProtocolError(f"protobuf: wire type {wire}")
        self.at += 8 if wire == _EIGHT else 4
        if self.at > end:
            raise RemoteProtocolError("protobuf: a field is longer than its message")

    def text(self, end: i64) -> str:
        """Read a text."""
        stop: i64 = self.size(end)
        start: i64 = self.at
        self.at = stop
        try:
            return self.data[int(start) : int(stop)].decode()
        except UnicodeDecodeError:
            raise RemoteProtocolError("protobuf: a text is not UTF-8") from None


def decode_message(table: PbTable, data: bytes, fields_max: int = _UNBOUNDED) -> object:
    """Return the message that the bytes are. Raise RemoteProtocolError where they are none, or have more fields, with
    those of their parts, than `fields_max`: two bytes can be an object each."""
    made = table.new()
    _read(table, made, _Reader(data, fields_max), len(data))
    return made


def _read(table: PbTable, into: object, reader: _Reader, end: i64) -> None:
    fields = table.by_number
    while reader.at < end:
        reader.count()
        tag = reader.varint(end)
        number: i64 = tag >> 3
        wire: i64 = tag & 7
        if tag < 8 or tag > 0xFFFFFFFF:
            raise RemoteProtocolError("protobuf: a field without a number")
        field = fields.get(int(number))
        if field is None:
            reader.skip(wire, end)
        elif wire == _WIRE[field.kind]:
            _read_field(field, into, reader, end)
        elif wire == _LENGTH and field.many and field.kind <= BOOL:
            stop = reader.size(end)
            packed: list[object] = getattr(into, field.name)
            while reader.at < stop:
                reader.count()
                packed.append(_number(field.kind, reader.varint(stop)))
        else:
            reader.skip(wire, end)


def _number(kind: int, value: i64) -> object:
    if kind == INT64:
        return int(value)
    if kind == BOOL:
        return value != 0
    # Of a number that is too large its lower half counts.
    value &= 0xFFFFFFFF
    if value > 0x7FFFFFFF:
        value -= 0x100000000
    return int(value)


def _read_field(field: PbField, into: object, reader: _Reader, end: i64) -> None:
    kind = field.kind
    value: object
    if kind == STRING:
        value = reader.text(end)
    elif kind <= BOOL:
        value = _number(kind, reader.varint(end))
    elif kind == MESSAGE:
        table = field.table
        assert table is not None
        stop = reader.size(end)
        before = None if field.many else getattr(into, field.name)
        value = table.new() if before is None else before
        _read(table, value, reader, stop)
    elif kind == TEXTS:
        texts: dict[str, str] = getattr(into, field.name)
        _read_entry(texts, reader, reader.size(end))
        return
    elif kind == BYTES:
        stop = reader.size(end)
        start: i64 = reader.at
        value = reader.data[int(start) : int(stop)]
        reader.at = stop
    else:
        if end - reader.at < 4:
            raise RemoteProtocolError("protobuf: a field is longer than its message")
        value = read_f32_le(reader.data, reader.at)
        reader.at += 4
    if field.many:
        values: list[object] = getattr(into, field.name)
        values.append(value)
        return
    setattr(into, field.name, value)
    for rival in field.rivals:
        setattr(into, rival, None)


def _read_entry(texts: dict[str, str], reader: _Reader, end: i64) -> None:
    key = value = ""
    while reader.at < end:
        reader.count()
        tag = reader.varint(end)
        if tag == 8 + _LENGTH:
            key = reader.text(end)
        elif tag == 16 + _LENGTH:
            value = reader.text(end)
        elif tag < 8 or tag > 0xFFFFFFFF:
            raise RemoteProtocolError("protobuf: a field without a number")
        else:
            reader.skip(tag & 7, end)
    texts[key] = value


def encode_message(table: PbTable, message: object) -> bytes:
    """Return a message as bytes, its fields in the order of their numbers."""
    out = BytesWriter()
    for field in table.fields:
        value = getattr(message, field.name)
        if value is None or (not value and not field.optional):
            continue
        if field.many:
            _write_many(out, field, value)
        elif field.kind == TEXTS:
            texts: dict[str, str] = value
            for key, text in texts.items():
                entry = _text_field(b"\x0a", key) + _text_field(b"\x12", text)
                out.write(field.tag)
                _write_bytes(out, entry)
        else:
            out.write(field.tag)
            _write_value(out, field, value)
    return out.getvalue()


def _write_many(out: BytesWriter, field: PbField, value: object) -> None:
    values: list[object] = value  # type: ignore[assignment]
    if field.kind <= BOOL:
        packed = BytesWriter()
        for one in values:
            _write_value(packed, field, one)
        out.write(field.tag)
        _write_bytes(out, packed.getvalue())
        return
    for one in values:
        out.write(field.tag)
        _write_value(out, field, one)


def _write_value(out: BytesWriter, field: PbField, value: object) -> None:
    kind = field.kind
    if kind == STRING:
        assert isinstance(value, str)
        # A lone surrogate, which no UTF-8 has, must not stop an answer.
        _write_bytes(out, value.encode("utf-8", "replace"))
    elif kind <= BOOL:
        assert isinstance(value, int)
        _write_varint(out, value)
    elif kind == MESSAGE:
        table = field.table
        assert table is not None
        _write_bytes(out, encode_message(table, value))
    elif kind == BYTES:
        assert isinstance(value, bytes)
        _write_bytes(out, value)
    else:
        assert isinstance(value, float)
        write_f32_le(out, value)


def _write_bytes(out: BytesWriter, data: bytes) -> None:
    _write_varint(out, len(data))
    out.write(data)


def _text_field(tag: bytes, text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    return tag + varint(len(data)) + data


def _write_varint(out: BytesWriter, value: i64) -> None:
    """Write a number. A negative one takes ten bytes, as the specification says."""
    if 0 <= value < 0x80:
        out.append(int(value))
        return
    count: i32 = 0
    while count < 10:
        low: i64 = value & 0x7F
        value = (value >> 7) & 0x1FFFFFFFFFFFFFF
        count += 1
        if not value:
            out.append(int(low))
            return
        more: i64 = low | 0x80
        out.append(int(more))


def varint(number: int) -> bytes:
    """Return a number as bytes."""
    out = BytesWriter()
    _write_varint(out, number)
    return out.getvalue()
