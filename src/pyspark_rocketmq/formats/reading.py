"""Typed bodies when reading: which columns a table has, and how a task turns bodies into them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import types as t

from aerobee.errors import AerobeeError
from pyspark_rocketmq.columns import schema as c
from pyspark_rocketmq.formats.columns import DecodedBodies
from pyspark_rocketmq.formats.definition import Definition
from pyspark_rocketmq.formats.options import DROPMALFORMED, FAILFAST, PERMISSIVE, BodySettings
from pyspark_rocketmq.formats.types import SchemaError, arrow_type, require_fields

CORRUPT: Final = "_corrupt"
# The columns that tell where a message is.
_PLACE: Final = (c.TOPIC, c.BROKER, c.QUEUE_ID, c.QUEUE_OFFSET)


class BadBodyError(AerobeeError):
    """A message has a body that cannot be read, and option mode is FAILFAST."""


def table_schema(definition: Definition, settings: BodySettings) -> t.StructType:
    """Return all columns of a table with typed bodies: the message's, then the body's, then `_corrupt`."""
    fields = list(c.DEFAULT_SCHEMA.fields)
    whole = definition.whole()
    if settings.payload is not None:
        _require_free(settings.payload, f"option payload: {settings.payload!r}")
        fields.append(t.StructField(settings.payload, whole))
    else:
        for one in whole.fields:
            _require_free(one.name, f"field {one.name!r} of the body")
        fields += whole.fields
    if settings.mode == PERMISSIVE:
        fields.append(t.StructField(CORRUPT, t.StringType()))
    return t.StructType(fields)


def _require_free(name: str, what: str) -> None:
    if name.lower() in c.COLUMNS or name.lower() == CORRUPT:
        raise SchemaError(
            f"{what} has the name of a column of every message",
            hint="option payload=NAME puts all fields of the body into one STRUCT column",
        )


def body_fields(schema: t.StructType, settings: BodySettings) -> t.StructType:
    """Return the fields of the body that a user's `.schema()` names."""
    if settings.payload is not None:
        for one in schema.fields:
            if one.name == settings.payload:
                if not isinstance(one.dataType, t.StructType):
                    raise SchemaError(f"column {one.name!r} is named by option payload, so it must be a STRUCT")
                return one.dataType
        return t.StructType([])
    return t.StructType([one for one in schema.fields if one.name not in c.COLUMNS and one.name != CORRUPT])


@dataclass(frozen=True, slots=True)
class TypedBodies:
    """What a task must know to read typed bodies. Types are kept as text, which is the same in every process."""

    definition: Definition
    settings: BodySettings
    # Spark's JSON of the columns, in their order, and of the fields of the body among them.
    columns: str
    wanted: str

    @property
    def pulled(self) -> tuple[str, ...]:
        """Return the columns of the message that must be read."""
        names = [one.name for one in self._columns().fields if one.name in c.COLUMNS]
        more = (c.BODY, *_PLACE) if self.settings.mode == FAILFAST else (c.BODY,)
        return (*names, *(one for one in more if one not in names))

    def _columns(self) -> t.StructType:
        return _schema(self.columns)

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with the columns of the table."""
        wanted = _schema(self.wanted)
        kind = arrow_type(wanted)
        decoder = self.definition.decoder(wanted) if wanted.fields else None
        schema = pa.schema([pa.field(one.name, arrow_type(one.dataType)) for one in self._columns().fields])
        for batch in batches:
            if decoder is None:
                yield self._assembled(batch, None, schema)
                continue
            found = DecodedBodies(decoder, batch.column(c.BODY).to_pylist(), kind)
            made = self._assembled(batch, found, schema)
            if self.settings.mode == DROPMALFORMED and any(found.reasons):
                made = made.filter(pa.array([one is None for one in found.reasons]))
            if made.num_rows:
                yield made

    def _assembled(self, batch: pa.RecordBatch, found: DecodedBodies | None, schema: pa.Schema) -> pa.RecordBatch:
        if found is not None and self.settings.mode == FAILFAST:
            _raise_first(batch, found.reasons)
        columns = []
        for field in schema:
            if field.name in c.COLUMNS:
                columns.append(batch.column(field.name))
            elif field.name == CORRUPT:
                reasons = found.reasons if found is not None else [None] * batch.num_rows
                columns.append(pa.array(reasons, pa.string()))
            elif self.settings.payload is not None:
                assert found is not None
                columns.append(_null_where_bad(found))
            else:
                assert found is not None
                columns.append(found.column.field(field.name))
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _schema(text: str) -> t.StructType:
    return t.StructType.fromJson(json.loads(text))


def _null_where_bad(found: DecodedBodies) -> pa.Array:
    if not any(found.reasons):
        return found.column
    kind = found.column.type
    fields = [kind.field(index) for index in range(kind.num_fields)]
    mask = pa.array([one is not None for one in found.reasons])
    return pa.StructArray.from_arrays([found.column.field(one.name) for one in fields], fields=fields, mask=mask)


def _raise_first(batch: pa.RecordBatch, reasons: list[str | None]) -> None:
    for index, reason in enumerate(reasons):
        if reason is not None:
            topic, broker, queue, offset = (batch.column(name)[index].as_py() for name in _PLACE)
            raise BadBodyError(
                f"the body at offset {offset} of queue {queue} of topic {topic} on {broker} cannot be read: {reason}",
                hint="mode=PERMISSIVE puts the reason into column _corrupt, mode=DROPMALFORMED leaves the message out.",
            )


def typed_bodies(schema: t.StructType, settings: BodySettings, definition: Definition) -> TypedBodies:
    """Return how the columns of `schema` are read. Raises SchemaError for a column that the body does not have."""
    asked = body_fields(schema, settings)
    wanted = require_fields(asked)
    if asked != wanted:
        raise SchemaError("leave NOT NULL out of the schema: a field of a body may be missing")
    known = {one.name: one.dataType for one in definition.whole().fields}
    for one in wanted.fields:
        if one.name not in known:
            near = difflib.get_close_matches(one.name, [*known, *c.COLUMNS], n=1, cutoff=0.5)
            there = f"did you mean {near[0]!r}?" if near else f"the body has {', '.join(known)}"
            raise SchemaError(f"no column {one.name!r}: {there}")
        if one.dataType != known[one.name]:
            raise SchemaError(
                f"column {one.name!r} is {known[one.name].simpleString().upper()} in the schema of the body, not "
                f"{one.dataType.simpleString().upper()}: cast it after load()"
            )
    for one in schema.fields:
        if one.name == CORRUPT and not isinstance(one.dataType, t.StringType):
            raise SchemaError(f"column {CORRUPT!r} is STRING")
    return TypedBodies(definition, settings, schema.json(), wanted.json())
