"""The types that a body's fields may have: as Spark's types, as Arrow's, and as the types that msgspec checks."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, TypedDict

import msgspec
import pyarrow as pa
from pyspark.sql import types as t

from aerobee.errors import InvalidArgumentError
from aerobee.model.numbers import parse_int

_DEPTH_MAX: Final = 32
_FLOAT_MAX: Final = 3.4028234663852886e38

_SIMPLE: Final[dict[str, t.DataType]] = {
    "boolean": t.BooleanType(), "tinyint": t.ByteType(), "byte": t.ByteType(), "smallint": t.ShortType(),
    "short": t.ShortType(), "int": t.IntegerType(), "integer": t.IntegerType(), "bigint": t.LongType(),
    "long": t.LongType(), "float": t.FloatType(), "real": t.FloatType(), "double": t.DoubleType(),
    "string": t.StringType(), "binary": t.BinaryType(), "date": t.DateType(), "timestamp": t.TimestampType(),
    "timestamp_ntz": t.TimestampNTZType(), "decimal": t.DecimalType(10, 0), "dec": t.DecimalType(10, 0),
}  # fmt: skip
_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)*`|[\w]+|'(?:[^'\\]|\\.)*'|[<>(),:])")


class SchemaError(InvalidArgumentError):
    """A schema cannot be understood, or has a type that bodies cannot have. The message says where."""


# -- Spark's text of a schema


def parse_ddl(text: str) -> t.StructType:
    """Return the schema of a text such as `id bigint, address struct<city:string>`.

    Spark's own parser needs the JVM, which the process that plans a read does not have.
    """
    parser = _Ddl(text)
    return t.StructType(parser.fields(end="", separator="", depth=0))


class _Ddl:
    """A reader of the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        found = self._next()
        if found != token:
            wanted = repr(token) if token else "a comma or its end"
            raise SchemaError(f"the schema has {found or 'its end'!r} where {wanted} is expected: {self._text[:200]}")

    def fields(self, *, end: str, separator: str, depth: int) -> list[t.StructField]:
        """Return the fields up to `end`. Inside struct<...>, a separator may stand between name and type."""
        found: list[t.StructField] = []
        while True:
            name = self._name()
            if separator and self._peek() == separator:
                self._next()
            found.append(t.StructField(name, self._type(depth + 1)))
            self._skip_rest_of_field()
            if self._peek() != ",":
                break
            self._next()
        self._expect(end)
        return found

    def _name(self) -> str:
        token = self._next()
        if token.startswith("`"):
            return token[1:-1].replace("``", "`")
        if not re.fullmatch(r"\w+", token):
            raise SchemaError(f"the schema has {token or 'its end'!r} where a name is expected: {self._text[:200]}")
        return token

    def _skip_rest_of_field(self) -> None:
        """Accept NOT NULL and COMMENT '...'. Every column may be NULL, because a body may be wrong."""
        if self._peek().lower() == "not":
            self._next()
            if self._next().lower() != "null":
                raise SchemaError(f"the schema has NOT without NULL: {self._text[:200]}")
        if self._peek().lower() == "comment":
            self._next()
            self._next()

    def _type(self, depth: int) -> t.DataType:
        if depth > _DEPTH_MAX:
            raise SchemaError(f"the schema is nested deeper than {_DEPTH_MAX} levels")
        word = self._next().lower()
        if word == "array":
            self._expect("<")
            item = self._type(depth + 1)
            self._expect(">")
            return t.ArrayType(item)
        if word == "map":
            self._expect("<")
            key = self._type(depth + 1)
            self._expect(",")
            value = self._type(depth + 1)
            self._expect(">")
            return t.MapType(key, value)
        if word == "struct":
            self._expect("<")
            return t.StructType(self.fields(end=">", separator=":", depth=depth))
        if word in ("decimal", "dec") and self._peek() == "(":
            return self._decimal()
        if word not in _SIMPLE:
            raise SchemaError(f"the schema has {word or 'its end'!r} where a type is expected: {self._text[:200]}")
        return _SIMPLE[word]

    def _decimal(self) -> t.DataType:
        self._expect("(")
        numbers = [self._next()]
        if self._peek() == ",":
            self._next()
            numbers.append(self._next())
        self._expect(")")
        if not all(re.fullmatch(r"\d{1,2}", one) for one in numbers):
            raise SchemaError(f"the schema has a decimal without precision and scale: {self._text[:200]}")
        return t.DecimalType(*(parse_int(one) for one in numbers))


def _tokens(text: str) -> Iterator[str]:
    at, stripped = 0, text.rstrip()
    while at < len(stripped):
        found = _TOKEN.match(stripped, at)
        if found is None:
            raise SchemaError(f"the schema has an unexpected character: {stripped[at : at + 40]!r}")
        yield found[1]
        at = found.end()


# -- checks


def require_fields(schema: t.StructType, where: str = "") -> t.StructType:
    """Return the schema with every part nullable, or raise SchemaError for a type that a body cannot have."""
    seen: set[str] = set()
    for field in schema.fields:
        if field.name.lower() in seen:
            raise SchemaError(f"field {where}{field.name} is named twice (names that differ only by case count as one)")
        seen.add(field.name.lower())
    fields = [t.StructField(f.name, _nullable(f.dataType, f"{where}{f.name}")) for f in schema.fields]
    return t.StructType(fields)


def _nullable(kind: t.DataType, where: str) -> t.DataType:
    if isinstance(kind, t.StructType):
        if not kind.fields:
            raise SchemaError(f"field {where} is a struct without fields")
        return require_fields(kind, f"{where}.")
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(_nullable(kind.elementType, f"{where}[]"))
    if isinstance(kind, t.MapType):
        if not isinstance(kind.keyType, t.StringType):
            raise SchemaError(f"field {where} is a map whose keys are not strings")
        return t.MapType(t.StringType(), _nullable(kind.valueType, f"{where}{{}}"))
    if isinstance(kind, t.DecimalType) and not 0 <= kind.scale <= kind.precision <= 38:
        raise SchemaError(f"field {where}: decimal({kind.precision},{kind.scale}) is not possible")
    if type(kind) not in _ARROW and not isinstance(kind, t.DecimalType):
        raise SchemaError(f"field {where} has the type {kind.simpleString().upper()}, which bodies cannot have")
    return kind


# -- Arrow

_ARROW: Final[dict[type, pa.DataType]] = {
    t.BooleanType: pa.bool_(), t.ByteType: pa.int8(), t.ShortType: pa.int16(), t.IntegerType: pa.int32(),
    t.LongType: pa.int64(), t.FloatType: pa.float32(), t.DoubleType: pa.float64(), t.StringType: pa.string(),
    t.BinaryType: pa.binary(), t.DateType: pa.date32(), t.TimestampType: pa.timestamp("us", "UTC"),
    t.TimestampNTZType: pa.timestamp("us"),
}  # fmt: skip


def arrow_type(kind: t.DataType) -> pa.DataType:
    """Return the Arrow type that Spark expects for a type."""
    if isinstance(kind, t.StructType):
        return pa.struct([pa.field(one.name, arrow_type(one.dataType)) for one in kind.fields])
    if isinstance(kind, t.ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType)))
    if isinstance(kind, t.MapType):
        return pa.map_(arrow_type(kind.keyType), pa.field("value", arrow_type(kind.valueType)))
    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return _ARROW[type(kind)]


# -- msgspec


def _whole(bits: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(1 << (bits - 1)), le=(1 << (bits - 1)) - 1)]


_CHECKED: Final[dict[type, Any]] = {
    t.BooleanType: bool, t.ByteType: _whole(8), t.ShortType: _whole(16), t.IntegerType: _whole(32),
    t.LongType: _whole(64), t.FloatType: Annotated[float, msgspec.Meta(ge=-_FLOAT_MAX, le=_FLOAT_MAX)],
    t.DoubleType: float, t.StringType: str, t.BinaryType: bytes, t.DateType: datetime.date,
    t.TimestampType: datetime.datetime, t.TimestampNTZType: datetime.datetime, t.DecimalType: decimal.Decimal,
}  # fmt: skip


def checked_type(kind: t.DataType) -> Any:
    """Return the type against which msgspec checks a value. Fields may be missing, and unknown fields are ignored."""
    if isinstance(kind, t.StructType):
        fields = {one.name: checked_type(one.dataType) | None for one in kind.fields}
        return TypedDict("Fields", fields, total=False)  # type: ignore[operator]
    if isinstance(kind, t.ArrayType):
        return list[checked_type(kind.elementType) | None]  # type: ignore[misc]
    if isinstance(kind, t.MapType):
        return dict[str, checked_type(kind.valueType) | None]  # type: ignore[misc]
    return _CHECKED[type(kind)]


def walk(kind: t.DataType, visit: Callable[[t.DataType], None]) -> None:
    """Call `visit` for a type and for every type inside it."""
    visit(kind)
    if isinstance(kind, t.StructType):
        for one in kind.fields:
            walk(one.dataType, visit)
    elif isinstance(kind, t.ArrayType):
        walk(kind.elementType, visit)
    elif isinstance(kind, t.MapType):
        walk(kind.valueType, visit)
