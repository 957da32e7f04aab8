"""The sink's side of typed bodies: columns that are no part of a message become fields of its body."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import types as t

from aerobee.client.blocking import BlockingClient
from pyspark_rocketmq.formats.definition import Definition, define
from pyspark_rocketmq.formats.encoders import encoder_of, require_same_fields
from pyspark_rocketmq.formats.options import REGISTERED, BodySettings
from pyspark_rocketmq.formats.stored import read_stored
from pyspark_rocketmq.formats.types import SchemaError, require_fields
from pyspark_rocketmq.options import OptionError
from pyspark_rocketmq.sink.layout import BODY, COLUMNS
from pyspark_rocketmq.sink.levels import BatchName, Level, Written
from pyspark_rocketmq.sinkoptions import IDEMPOTENT, SinkOptions


@dataclass(frozen=True, slots=True)
class BodyWriter:
    """What a task must know to make bodies of rows."""

    definition: Definition
    # The columns that stay as they are, and the columns that become the body; or one STRUCT column of all fields.
    kept: tuple[str, ...]
    fields: tuple[str, ...]
    payload: str | None

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with a column `body`."""
        encode = encoder_of(self.definition)
        for batch in batches:
            if self.payload is not None:
                column = batch.column(self.payload)
                if column.null_count:
                    raise SchemaError(f"column {self.payload}: {column.null_count} rows are NULL")
                rows = column.to_pylist(maps_as_pydicts="strict")
            else:
                rows = batch.select(list(self.fields)).to_pylist(maps_as_pydicts="strict")
            bodies = pa.array([encode(row) for row in rows], pa.binary())
            columns = [batch.column(name) for name in self.kept]
            yield pa.RecordBatch.from_arrays([*columns, bodies], names=[*self.kept, BODY])


class EncodingLevel:
    """A level of the sink whose rows get their bodies first."""

    def __init__(self, level: Level, bodies: BodyWriter) -> None:
        self._level = level
        self._bodies = bodies

    def job(self) -> BatchName:
        return self._level.job()

    def write(self, name: BatchName, batches: Iterable[pa.RecordBatch]) -> Written:
        return self._level.write(name, self._bodies.rows(batches))

    def commit(self, messages: Sequence[Written | None], batch: int) -> None:
        self._level.commit(messages, batch)

    def abort(self, messages: Sequence[Written | None], batch: int) -> None:
        self._level.abort(messages, batch)


def body_writer(options: SinkOptions, settings: BodySettings, schema: t.StructType) -> tuple[t.StructType, BodyWriter]:
    """Return the columns of the rows with their bodies, and how the bodies are made. Raises SchemaError."""
    if any(one.name.lower() == BODY for one in schema.fields):
        raise SchemaError("option format makes the body of the other columns: leave out column body")
    body = _resolved(options, settings)
    key = options.idempotency_key.lower() if options.guarantee == IDEMPOTENT else None
    fields = [one for one in schema.fields if one.name.lower() not in COLUMNS]
    given = _given(fields, body, key)
    definition = define(body, f"{options.topic}-value", given, None)
    require_same_fields(definition, given)
    kept = [one for one in schema.fields if one.name.lower() in COLUMNS or one.name.lower() == key]
    names = tuple(one.name for one in given.fields)
    made = BodyWriter(definition, tuple(one.name for one in kept), names, body.payload)
    return t.StructType([*kept, t.StructField(BODY, t.BinaryType())]), made


def _given(fields: list[t.StructField], body: BodySettings, key: str | None) -> t.StructType:
    if body.payload is None:
        # A column that only names the row is no part of it, unless it has a name of its own.
        own = [one for one in fields if not (one.name.lower() == key == "idempotencykey")]
        found = t.StructType(own)
    else:
        for one in fields:
            if one.name != body.payload and one.name.lower() != key:
                raise SchemaError(f"column {one.name}: option payload says that {body.payload} is the body")
        kinds = [one.dataType for one in fields if one.name == body.payload]
        if not kinds or not isinstance(kinds[0], t.StructType):
            raise SchemaError(f"option payload: there is no STRUCT column {body.payload}")
        found = kinds[0]
    if not found.fields:
        raise SchemaError("option format needs columns that become the body; there are none")
    return require_fields(t.StructType.fromJson(json.loads(found.json())))


def _resolved(options: SinkOptions, body: BodySettings) -> BodySettings:
    if body.registry is not None and body.subject is None and options.topic is None:
        raise OptionError("option schemaRegistry needs option schemaSubject if option topic is not set")
    if body.format != REGISTERED:
        return body
    if options.topic is None:
        raise OptionError("format=registered needs option topic")
    stored = read_stored(BlockingClient(options.endpoint.client_config()), options.topic)
    if stored is None:
        raise OptionError(
            f"no schema is registered for topic {options.topic}: pyspark_rocketmq.formats.stored.register does it"
        )
    return replace(stored, payload=body.payload or stored.payload)
