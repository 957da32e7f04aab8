"""The decoders of bodies: bytes become a dict whose values have the types of the wanted fields, or a reason why not.

A decoder checks every value. `columns.py` can then build Arrow columns without a look at single rows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec
from pyspark.sql import types as t

from aerobee.errors import AerobeeError
from pyspark_rocketmq.formats.types import SchemaError, checked_type

Fields = Mapping[str, Any]
_REASON_MAX: Final = 300
# A body may be as large as the largest message. The limit of the csv module is for one field.
_CSV_FIELD_MAX: Final = 1 << 28


class MalformedBodyError(AerobeeError):
    """A body cannot be read as its schema says. The message gives the reason."""


class BodyDecoder(Protocol):
    """The decoder of one format, in a task."""

    def decode(self, body: bytes) -> Fields:
        """Return the wanted fields of a body, or raise MalformedBodyError."""
        ...


class MissingLibraryError(AerobeeError):
    """A format needs a library that is not installed."""

    def __init__(self, what: str, library: str, extra: str) -> None:
        super().__init__(f"{what} needs {library}", hint=f"pip install 'aerobee[{extra}]'")


def short(reason: object) -> str:
    """Return a reason as one line of limited length."""
    text = " ".join(str(reason).split())
    return text if len(text) <= _REASON_MAX else text[: _REASON_MAX - 3] + "..."


class SelfDescribing:
    """The decoder of JSON and MessagePack, whose bodies name their fields."""

    def __init__(self, fields: t.StructType, *, packed: bool) -> None:
        wanted = checked_type(fields)
        self._decode = (msgspec.msgpack.Decoder(wanted) if packed else msgspec.json.Decoder(wanted)).decode

    def decode(self, body: bytes) -> Fields:
        if not body:
            raise MalformedBodyError("the body is empty")
        try:
            found: Fields = self._decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedBodyError(short(error)) from None
        return found


class Converted:
    """The check of values that a library decoded: a value of another type than the schema's is an error."""

    def __init__(self, fields: t.StructType, *, from_text: bool = False) -> None:
        self._type = checked_type(fields)
        self._is_strict = not from_text

    def convert(self, found: object) -> Fields:
        """Return the wanted fields, or raise MalformedBodyError."""
        try:
            made: Fields = msgspec.convert(found, self._type, strict=self._is_strict)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise MalformedBodyError(short(error)) from None
        return made


class CsvLine:
    """The decoder of one line of CSV. Its fields are in the order of the whole schema."""

    def __init__(self, whole: t.StructType, fields: t.StructType, delimiter: str) -> None:
        require_flat(whole)
        self._names = [one.name for one in whole.fields]
        self._delimiter = delimiter
        self._converted = Converted(fields, from_text=True)
        csv.field_size_limit(_CSV_FIELD_MAX)

    def decode(self, body: bytes) -> Fields:
        if not body.strip(b"\r\n"):
            raise MalformedBodyError("the body is empty")
        try:
            text = io.StringIO(body.decode(), newline="")
            lines = list(csv.reader(text, delimiter=self._delimiter, strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            raise MalformedBodyError(short(error)) from None
        if len(lines) != 1:
            raise MalformedBodyError(f"the body has {len(lines)} lines of CSV, not one")
        if len(lines[0]) != len(self._names):
            raise MalformedBodyError(f"the line has {len(lines[0])} fields, the schema has {len(self._names)}")
        texts = {name: value if value else None for name, value in zip(self._names, lines[0], strict=True)}
        made = self._converted.convert(texts)
        for name, value in made.items():
            if value is None and texts[name] is not None:  # the library takes the word null for a NULL
                raise MalformedBodyError(f"field {name} is {texts[name]!r}: only an empty field is NULL")
        return made


def require_flat(fields: t.StructType) -> None:
    """Raise SchemaError for nested fields, which CSV does not have."""
    for one in fields.fields:
        if isinstance(one.dataType, t.StructType | t.ArrayType | t.MapType):
            raise SchemaError(f"field {one.name} is nested, which a line of CSV cannot be")
