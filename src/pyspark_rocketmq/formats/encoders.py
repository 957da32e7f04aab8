"""The encoders of bodies: a row's fields become the bytes of a message."""

from __future__ import annotations

import base64
import csv
import datetime
import io
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import msgspec
from pyspark.sql import types as t

from pyspark_rocketmq.formats import avro, protobuf
from pyspark_rocketmq.formats.decoders import require_flat, short
from pyspark_rocketmq.formats.definition import Definition
from pyspark_rocketmq.formats.options import AVRO, CSV, MSGPACK, PROTOBUF
from pyspark_rocketmq.formats.registry import Registry
from pyspark_rocketmq.formats.types import SchemaError

Encode = Callable[[Mapping[str, Any]], bytes]


class UnwritableRowError(SchemaError):
    """A row cannot become a body. The message gives the reason."""


def encoder_of(definition: Definition) -> Encode:
    """Return the function that encodes a row."""
    made = _plain_encoder(definition)
    head = _head(definition)
    return made if not head else lambda row: head + made(row)


def _plain_encoder(definition: Definition) -> Encode:
    if definition.format == AVRO:
        return _avro(definition)
    if definition.format == PROTOBUF:
        assert definition.descriptors is not None
        return protobuf.message_encoder(definition.descriptors, definition.message)
    if definition.format == CSV:
        return _csv(definition)
    if definition.format == MSGPACK:
        return msgspec.msgpack.Encoder(decimal_format="string").encode
    return msgspec.json.Encoder(decimal_format="number").encode


def _head(definition: Definition) -> bytes:
    """Return what precedes a body whose schema is in a registry: a zero byte and the id."""
    if definition.registry is None or definition.schema_id is None:
        return b""
    head = b"\0" + definition.schema_id.to_bytes(Registry(definition.registry).id_bytes, "big")
    if definition.format == PROTOBUF:
        assert definition.descriptors is not None
        head += protobuf.index_bytes(definition.descriptors, definition.message)
    return head


def _avro(definition: Definition) -> Encode:
    import fastavro

    assert definition.avro is not None
    schema = avro.parsed(definition.avro)

    def encode(row: Mapping[str, Any]) -> bytes:
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, schema, dict(row), strict_allow_default=True)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, ArithmeticError) as error:
            raise UnwritableRowError(f"a row does not fit the Avro schema: {short(error)}") from None
        return out.getvalue()

    return encode


def _csv(definition: Definition) -> Encode:
    whole = definition.whole()
    require_flat(whole)
    names = [one.name for one in whole.fields]
    delimiter = definition.delimiter

    def encode(row: Mapping[str, Any]) -> bytes:
        out = io.StringIO()
        writer = csv.writer(out, delimiter=delimiter, lineterminator="")
        writer.writerow([_csv_text(row.get(name)) for name in names])
        return out.getvalue().encode()

    return encode


def _csv_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.date):
        return value.isoformat()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def require_same_fields(definition: Definition, given: t.StructType) -> None:
    """Raise SchemaError for columns that the schema of the body does not have, or has with another type."""
    known = {one.name: one.dataType for one in definition.whole().fields}
    for one in given.fields:
        if one.name not in known:
            raise SchemaError(f"column {one.name}: the schema of the body has no such field; it has {', '.join(known)}")
        if one.dataType != known[one.name]:
            want, have = known[one.name].simpleString().upper(), one.dataType.simpleString().upper()
            raise SchemaError(f"column {one.name} is {have}, the schema of the body has {want}: cast it")
