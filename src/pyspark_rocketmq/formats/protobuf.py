"""Protobuf bodies: the fields of a message type, and the decoder and encoder of messages.

The schema is a set of file descriptors (`protoc --include_imports --descriptor_set_out`), or the text of a .proto file,
which the driver compiles. Tasks get the descriptors.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from pyspark.sql import types as t

from pyspark_rocketmq.formats.avro import schema_id
from pyspark_rocketmq.formats.decoders import Converted, Fields, MalformedBodyError, MissingLibraryError, short
from pyspark_rocketmq.formats.types import SchemaError

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LONGS: Final = t.DecimalType(20, 0)
_DEPTH_MAX: Final = 32


def compiled(proto: str) -> bytes:
    """Return the descriptors of a .proto text. It may import only Google's own types."""
    try:
        from grpc_tools import protoc
    except ImportError:
        raise MissingLibraryError("the text of a .proto file", "grpcio-tools", "formats") from None
    include = str(Path(protoc.__file__).parent / "_proto")
    with tempfile.TemporaryDirectory(prefix="aerobee-proto-") as directory:
        source, made = Path(directory, "schema.proto"), Path(directory, "schema.desc")
        source.write_text(proto, encoding="utf-8")
        words = ["protoc", f"-I{directory}", f"-I{include}", "--include_imports", f"--descriptor_set_out={made}"]
        if protoc.main([*words, str(source)]) or not made.exists():
            raise SchemaError("the .proto text cannot be compiled: protoc printed the reason")
        return made.read_bytes()


def from_text(text: str) -> bytes:
    """Return the descriptors of option schema: a .proto text, or descriptors in base64."""
    if any(word in text for word in ("message ", "syntax", "edition")):
        return compiled(text)
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise SchemaError("the schema is neither the text of a .proto file nor descriptors in base64") from None


def message_of(descriptors: bytes, name: str | None) -> Any:
    """Return the descriptor of a message. Without a name, the schema's last file must have only one."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool
        from google.protobuf.message import DecodeError
    except ImportError:
        raise MissingLibraryError("format=protobuf", "protobuf", "formats") from None
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
    except DecodeError:
        raise SchemaError("the schema is no set of Protobuf file descriptors") from None
    if not files:
        raise SchemaError("the schema has no Protobuf file")
    pool = descriptor_pool.DescriptorPool()
    try:
        for one in files:
            pool.Add(one)
        if name is None:
            package = f"{files[-1].package}." if files[-1].package else ""
            names = [f"{package}{one.name}" for one in files[-1].message_type]
            if len(names) != 1:
                raise SchemaError(f"the schema has {len(names)} messages: option message names one of {names[:20]}")
            name = names[0]
        return pool.FindMessageTypeByName(name)
    except KeyError:
        raise SchemaError(f"the schema has no message {name}: option message takes its full name") from None
    except TypeError as error:
        raise SchemaError(f"the Protobuf descriptors cannot be used: {short(error)}") from None


def fields_of(message: Any, inside: tuple[str, ...] = ()) -> t.StructType:
    """Return the fields of a message. Raises SchemaError for what cannot be columns."""
    if message.full_name in inside:
        raise SchemaError(f"message {message.full_name} contains itself, which a column cannot")
    if len(inside) > _DEPTH_MAX or not message.fields:
        raise SchemaError(f"message {message.full_name} has no fields, or is nested too deeply")
    below = (*inside, message.full_name)
    return t.StructType([t.StructField(one.name, _type(one, below)) for one in message.fields])


def _type(field: Any, inside: tuple[str, ...]) -> t.DataType:
    if _is_map(field):
        if field.message_type.fields_by_name["key"].type != field.TYPE_STRING:
            raise SchemaError(f"field {field.full_name} is a map whose keys are not strings")
        return t.MapType(t.StringType(), _single(field.message_type.fields_by_name["value"], inside))
    single = _single(field, inside)
    return t.ArrayType(single) if field.is_repeated else single


def _is_map(field: Any) -> bool:
    return bool(field.type == field.TYPE_MESSAGE and field.message_type.GetOptions().map_entry)


def _single(field: Any, inside: tuple[str, ...]) -> t.DataType:
    kind = field.type
    if kind in (field.TYPE_MESSAGE, field.TYPE_GROUP):
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return t.TimestampType()
        if name in _WRAPPERS:
            return _single(field.message_type.fields_by_name["value"], inside)
        return fields_of(field.message_type, inside)
    found: dict[int, t.DataType] = {
        field.CPPTYPE_INT32: t.IntegerType(), field.CPPTYPE_INT64: t.LongType(), field.CPPTYPE_UINT32: t.LongType(),
        field.CPPTYPE_UINT64: _LONGS, field.CPPTYPE_DOUBLE: t.DoubleType(), field.CPPTYPE_FLOAT: t.FloatType(),
        field.CPPTYPE_BOOL: t.BooleanType(), field.CPPTYPE_ENUM: t.StringType(), field.CPPTYPE_STRING: t.StringType(),
    }  # fmt: skip
    return t.BinaryType() if kind == field.TYPE_BYTES else found[field.cpp_type]


class ProtobufMessages:
    """The decoder of messages. With a registry, an id and the place of the message in its file come first."""

    def __init__(self, fields: t.StructType, descriptors: bytes, name: str | None, id_bytes: int) -> None:
        from google.protobuf import message_factory

        message = message_of(descriptors, name)
        self._parse = message_factory.GetMessageClass(message).FromString
        self._read = _reader(message, fields)
        self._converted = Converted(fields)
        self._id_bytes = id_bytes

    def decode(self, body: bytes) -> Fields:
        from google.protobuf.message import DecodeError

        if self._id_bytes:
            _, start = schema_id(body, self._id_bytes)
            body = body[_after_indexes(body, start) :]
        try:
            found = self._read(self._parse(body))
        except (DecodeError, ValueError, OverflowError, RecursionError) as error:
            raise MalformedBodyError(f"no Protobuf message: {short(error)}") from None
        return self._converted.convert(found)


def _after_indexes(body: bytes, start: int) -> int:
    """Return the place after the list of message indexes: a count and so many numbers, as zigzag varints."""
    count, at = _varint(body, start)
    for _ in range(min(count >> 1, _DEPTH_MAX)):
        _, at = _varint(body, at)
    return at


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(10):
        if at + index >= len(body):
            break
        byte = body[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise MalformedBodyError("the body ends inside the list of message indexes")


def _reader(message: Any, fields: t.StructType) -> Callable[[Any], dict[str, Any]]:
    """Return a function that takes the wanted fields out of a parsed message."""
    wanted = {one.name: one.dataType for one in fields.fields}
    takers = [
        (one.name, _taker(one, wanted[one.name]), one.has_presence) for one in message.fields if one.name in wanted
    ]

    def read(found: Any) -> dict[str, Any]:
        return {
            name: None if has_presence and not found.HasField(name) else take(getattr(found, name))
            for name, take, has_presence in takers
        }

    return read


def _taker(field: Any, kind: t.DataType) -> Callable[[Any], Any]:
    if _is_map(field):
        one = _value(field.message_type.fields_by_name["value"], _inner(kind))
        return lambda found: {key: one(value) for key, value in found.items()}
    if field.is_repeated:
        each = _value(field, _inner(kind))
        return lambda found: [each(value) for value in found]
    return _value(field, kind)


def _inner(kind: t.DataType) -> t.DataType:
    if isinstance(kind, t.ArrayType):
        return kind.elementType
    return kind.valueType if isinstance(kind, t.MapType) else kind


def _value(field: Any, kind: t.DataType) -> Callable[[Any], Any]:
    if field.type in (field.TYPE_MESSAGE, field.TYPE_GROUP):
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return lambda found: _EPOCH + datetime.timedelta(seconds=found.seconds, microseconds=found.nanos // 1000)
        if name in _WRAPPERS:
            inner = _value(field.message_type.fields_by_name["value"], kind)
            return lambda found: inner(found.value)
        return _reader(field.message_type, kind if isinstance(kind, t.StructType) else t.StructType([]))
    if field.cpp_type == field.CPPTYPE_UINT64:
        return Decimal
    if field.type == field.TYPE_ENUM:
        words = {number: one.name for number, one in field.enum_type.values_by_number.items()}
        return lambda found: words.get(found, str(found))
    return _same


def _same(value: Any) -> Any:
    return value


# -- writing


def message_encoder(descriptors: bytes, name: str | None) -> Callable[[Any], bytes]:
    """Return a function that encodes a row. A field that is null stays unset."""
    from google.protobuf import message_factory

    message = message_of(descriptors, name)
    made = message_factory.GetMessageClass(message)

    def encode(row: Any) -> bytes:
        try:
            data: bytes = made(**_filled(message, row)).SerializeToString()
        except (ValueError, TypeError, OverflowError) as error:
            raise SchemaError(f"a row does not fit message {message.full_name}: {short(error)}") from None
        return data

    return encode


def _filled(message: Any, row: Any) -> dict[str, Any]:
    return {one.name: _made(one, row[one.name]) for one in message.fields if row.get(one.name) is not None}


def _made(field: Any, value: Any) -> Any:
    if _is_map(field):
        item = field.message_type.fields_by_name["value"]
        return {key: _made_one(item, one) for key, one in value.items()}
    return [_made_one(field, one) for one in value] if field.is_repeated else _made_one(field, value)


def _made_one(field: Any, value: Any) -> Any:
    if value is None:
        raise ValueError(f"field {field.name}: a list or map of Protobuf cannot hold null")
    if field.type in (field.TYPE_MESSAGE, field.TYPE_GROUP):
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            since = value - _EPOCH
            return {"seconds": since.days * 86_400 + since.seconds, "nanos": since.microseconds * 1000}
        if name in _WRAPPERS:
            return {"value": _made_one(field.message_type.fields_by_name["value"], value)}
        return _filled(field.message_type, value)
    # It is a DECIMAL(20,0), which has no fraction.
    return round(value) if field.cpp_type == field.CPPTYPE_UINT64 else value


def index_bytes(descriptors: bytes, name: str | None) -> bytes:
    """Return the place of a message in its file, as registries want it before a body. The first message is one zero."""
    message = message_of(descriptors, name)
    if message.containing_type is not None:
        raise SchemaError(f"message {message.full_name} is inside another one, which cannot be written with a registry")
    place = list(message.file.message_types_by_name).index(message.name)
    return b"\0" if place == 0 else b"\2" + _zigzag(place)


def _zigzag(number: int) -> bytes:
    value, out = number << 1, bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))
