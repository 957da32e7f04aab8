"""Avro bodies: the fields of an Avro schema, and the decoder and encoder of single records (fastavro does the work)."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql import types as t

from pyspark_rocketmq.formats.decoders import Converted, Fields, MalformedBodyError, MissingLibraryError, short
from pyspark_rocketmq.formats.types import SchemaError

_DEPTH_MAX: Final = 32
_SIMPLE: Final[dict[str, t.DataType]] = {
    "boolean": t.BooleanType(), "int": t.IntegerType(), "long": t.LongType(), "float": t.FloatType(),
    "double": t.DoubleType(), "bytes": t.BinaryType(), "string": t.StringType(), "enum": t.StringType(),
    "fixed": t.BinaryType(),
}  # fmt: skip
_LOGICAL: Final[dict[str, t.DataType]] = {
    "date": t.DateType(), "timestamp-millis": t.TimestampType(), "timestamp-micros": t.TimestampType(),
    "local-timestamp-millis": t.TimestampNTZType(), "local-timestamp-micros": t.TimestampNTZType(),
}  # fmt: skip
_DECIMAL: Final = "decimal"
# What fastavro raises for bytes that are no record of the schema.
_BAD_BYTES: Final = (
    EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError,
    StopIteration, MemoryError,
)  # fmt: skip
_Named = dict[str, Any]
# A DECIMAL of 38 digits has 16 bytes. Some writers put more of them in front.
_DECIMAL_BYTES_MAX: Final = 64


def parsed(text: str) -> Any:
    """Return an Avro schema as fastavro uses it, or raise SchemaError.

    Logical types that have no type in Spark (time, uuid, duration) are read as the type that carries them.
    """
    try:
        import fastavro
        from fastavro.schema import SchemaParseException, UnknownType
    except ImportError:
        raise MissingLibraryError("format=avro", "fastavro", "formats") from None
    try:
        plain = _without_unknown_logical(json.loads(text), 0)
        return fastavro.parse_schema(plain)
    except RecursionError:
        raise SchemaError("the Avro schema is nested too deeply") from None
    except (ValueError, TypeError, KeyError, AttributeError, SchemaParseException, UnknownType) as error:
        raise SchemaError(f"the Avro schema cannot be read: {short(error)}") from None


def _limit_decimals() -> None:
    """Let fastavro refuse decimals with many bytes. Its work grows with the square of their number."""
    from fastavro.read import LOGICAL_READERS

    for name in ("bytes-decimal", "fixed-decimal"):
        read = LOGICAL_READERS[name]
        if not isinstance(read, _ShortDecimals):
            LOGICAL_READERS[name] = _ShortDecimals(read)


class _ShortDecimals:
    """fastavro's reader of decimals, for those of a few bytes."""

    def __init__(self, read: Callable[..., Any]) -> None:
        self._read = read

    def __call__(self, data: bytes, *schemas: Any) -> Any:
        if len(data) > _DECIMAL_BYTES_MAX:
            raise ValueError(f"a decimal has {len(data)} bytes")
        return self._read(data, *schemas)


def _without_unknown_logical(node: Any, depth: int) -> Any:
    if depth > 4 * _DEPTH_MAX:
        raise SchemaError("the Avro schema is nested too deeply")
    if isinstance(node, list):
        return [_without_unknown_logical(one, depth + 1) for one in node]
    if not isinstance(node, dict):
        return node
    kept = {
        key: _without_unknown_logical(value, depth + 1) if key in ("type", "items", "values", "fields") else value
        for key, value in node.items()
    }
    logical = kept.get("logicalType")
    if logical is not None and logical != _DECIMAL and logical not in _LOGICAL:
        del kept["logicalType"]
    return kept


def fields_of(text: str) -> t.StructType:
    """Return the fields of an Avro record. Raises SchemaError for what cannot be columns."""
    schema = parsed(text)
    found = _type(schema, {}, "", ())
    if not isinstance(found, t.StructType):
        raise SchemaError("the Avro schema is not a record")
    return found


def _type(node: Any, named: _Named, where: str, inside: tuple[str, ...]) -> t.DataType:
    if len(inside) > _DEPTH_MAX or where.count("[]") > _DEPTH_MAX:
        raise SchemaError("the Avro schema is nested too deeply")
    if isinstance(node, list):
        return _union(node, named, where, inside)
    if isinstance(node, str):
        return _by_name(node, named, where, inside)
    kind = node.get("type")
    if "name" in node:
        named[node["name"]] = node
    logical = node.get("logicalType")
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if logical == _DECIMAL:
        return t.DecimalType(node["precision"], node.get("scale", 0))
    if kind == "fixed" and not node["size"]:
        # Values that take no bytes would let an array of a few bytes claim any number of them.
        raise SchemaError(f"field {where}: a fixed type of size 0 has no values")
    if kind in ("record", "error"):
        return _record(node, named, where, inside)
    if kind == "array":
        return t.ArrayType(_type(node["items"], named, f"{where}[]", inside))
    if kind == "map":
        return t.MapType(t.StringType(), _type(node["values"], named, f"{where}{{}}", inside))
    return _type(kind, named, where, inside)


def _by_name(name: str, named: _Named, where: str, inside: tuple[str, ...]) -> t.DataType:
    if name in _SIMPLE:
        return _SIMPLE[name]
    if name in inside:
        raise SchemaError(f"field {where or name}: type {name} contains itself, which a column cannot")
    if name in named:
        return _type(named[name], named, where, inside)
    raise SchemaError(f"field {where}: Avro type {name} has no type in Spark")


def _record(node: Any, named: _Named, where: str, inside: tuple[str, ...]) -> t.DataType:
    if not node["fields"]:
        raise SchemaError(f"record {node['name']} has no fields")
    fields = []
    for one in node["fields"]:
        name = one["name"]
        fields.append(t.StructField(name, _type(one["type"], named, f"{where}{name}", (*inside, node["name"]))))
    return t.StructType(fields)


def _union(node: list[Any], named: _Named, where: str, inside: tuple[str, ...]) -> t.DataType:
    kinds = [one for one in node if one != "null"]
    if len(kinds) != 1:
        raise SchemaError(f"field {where}: a union of several types has no type in Spark; only null and one type has")
    return _type(kinds[0], named, where, inside)


class AvroRecords:
    """The decoder of Avro records. With a registry, each body names the schema that it was written with."""

    def __init__(
        self,
        fields: t.StructType,
        reader: str,
        writer: Callable[[int], str] | None,
        id_bytes: int,
        reader_id: int | None = None,
    ) -> None:
        """Create a decoder. `writer` returns the schema with an id, and `reader_id` is the id of `reader` if known."""
        self._reader = parsed(reader)
        _limit_decimals()
        self._converted = Converted(fields)
        self._writer = writer
        self._id_bytes = id_bytes
        # Most bodies were written with the reader's schema, and nobody need be asked for it. So a sender of ids that do
        # not exist, after which a task asks no more, cannot make these bodies unreadable.
        self._writers: dict[int, Any] = {} if reader_id is None else {reader_id: self._reader}

    def decode(self, body: bytes) -> Fields:
        import fastavro
        from fastavro.schema import SchemaParseException

        if not body:
            raise MalformedBodyError("the body is empty")
        schema, start = self._reader, 0
        if self._writer is not None:
            schema, start = self._written_with(body)
        source = io.BytesIO(body)
        source.seek(start)
        try:
            found = fastavro.schemaless_reader(source, schema, None if schema is self._reader else self._reader)
        except (*_BAD_BYTES, SchemaParseException, fastavro.read.SchemaResolutionError) as error:
            raise MalformedBodyError(f"no Avro record: {short(error) or type(error).__name__}") from None
        if source.tell() != len(body):
            raise MalformedBodyError(f"{len(body) - source.tell()} bytes follow the Avro record")
        return self._converted.convert(found)

    def _written_with(self, body: bytes) -> tuple[Any, int]:
        assert self._writer is not None
        number, start = schema_id(body, self._id_bytes)
        if number not in self._writers:
            self._writers[number] = _writer_of(number, self._writer(number))
        writer = self._writers[number]
        if isinstance(writer, str):
            raise MalformedBodyError(writer)
        return writer, start


def _writer_of(number: int, text: str) -> Any:
    """Return a schema that bodies name, or why none can be read with it: senders may name any of the registry."""
    try:
        # It must be one that can be columns, so that its values take bytes.
        fields_of(text)
        return parsed(text)
    except SchemaError as error:
        return f"schema {number} of the registry is none for columns: {error.message}"


def schema_id(body: bytes, id_bytes: int) -> tuple[int, int]:
    """Return the schema's id and where the record begins: a zero byte, and the id as a big-endian number."""
    if len(body) < 1 + id_bytes or body[0] != 0:
        raise MalformedBodyError("the body does not begin with a zero byte and the id of a schema")
    return int.from_bytes(body[1 : 1 + id_bytes], "big"), 1 + id_bytes


# -- writing


def schema_for(fields: t.StructType, name: str = "Row") -> str:
    """Return the Avro schema for columns, each of which may be null."""
    return json.dumps(_avro_record(fields, name))


def _avro_record(fields: t.StructType, name: str) -> dict[str, Any]:
    made = [
        {"name": one.name, "type": ["null", _avro_type(one.dataType, f"{name}_{one.name}")], "default": None}
        for one in fields.fields
    ]
    return {"type": "record", "name": name, "fields": made}


_AVRO: Final[Mapping[type, Any]] = {
    t.BooleanType: "boolean", t.ByteType: "int", t.ShortType: "int", t.IntegerType: "int", t.LongType: "long",
    t.FloatType: "float", t.DoubleType: "double", t.StringType: "string", t.BinaryType: "bytes",
    t.DateType: {"type": "int", "logicalType": "date"},
    t.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    t.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}  # fmt: skip


def _avro_type(kind: t.DataType, name: str) -> Any:
    if isinstance(kind, t.StructType):
        return _avro_record(kind, name)
    if isinstance(kind, t.ArrayType):
        return {"type": "array", "items": ["null", _avro_type(kind.elementType, name)]}
    if isinstance(kind, t.MapType):
        return {"type": "map", "values": ["null", _avro_type(kind.valueType, name)]}
    if isinstance(kind, t.DecimalType):
        return {"type": "bytes", "logicalType": _DECIMAL, "precision": kind.precision, "scale": kind.scale}
    return _AVRO[type(kind)]
