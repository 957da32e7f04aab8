"""What is known about the bodies of a topic: their format and schema, as the driver finds it and tasks use it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyspark.sql import types as t

from pyspark_rocketmq.formats import avro, jsonschema, protobuf
from pyspark_rocketmq.formats.decoders import BodyDecoder, CsvLine, Fields, SelfDescribing
from pyspark_rocketmq.formats.options import AVRO, CSV, JSON, MSGPACK, PROTOBUF, BodySettings, RegistryAccess
from pyspark_rocketmq.formats.registry import Registry
from pyspark_rocketmq.formats.types import SchemaError, parse_ddl, require_fields
from pyspark_rocketmq.options import OptionError

_FILE_MAX: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Definition:
    """The format and the whole schema of bodies. It is sent to tasks."""

    format: str
    # Spark's JSON of all fields of a body.
    fields: str
    avro: str | None = None
    descriptors: bytes | None = None
    message: str | None = None
    delimiter: str = ","
    # With a registry, a body begins with the id of its schema.
    registry: RegistryAccess | None = None
    schema_id: int | None = None

    def whole(self) -> t.StructType:
        """Return all fields of a body."""
        return t.StructType.fromJson(json.loads(self.fields))

    def decoder(self, wanted: t.StructType) -> BodyDecoder:
        """Return the decoder of the wanted fields."""
        registry = Registry(self.registry) if self.registry is not None else None
        id_bytes = registry.id_bytes if registry is not None else 0
        if self.format == AVRO:
            assert self.avro is not None
            by_id = registry.by_id if registry is not None else None
            return avro.AvroRecords(wanted, self.avro, by_id, id_bytes, self.schema_id)
        if self.format == PROTOBUF:
            assert self.descriptors is not None
            return protobuf.ProtobufMessages(wanted, self.descriptors, self.message, id_bytes)
        if self.format == CSV:
            return CsvLine(self.whole(), wanted, self.delimiter)
        plain = SelfDescribing(wanted, packed=self.format == MSGPACK)
        return plain if not id_bytes else _AfterId(plain, id_bytes)


class _AfterId:
    """A decoder of bodies whose first bytes are the id of their schema."""

    def __init__(self, decoder: BodyDecoder, id_bytes: int) -> None:
        self._decoder = decoder
        self._id_bytes = id_bytes

    def decode(self, body: bytes) -> Fields:
        _, start = avro.schema_id(body, self._id_bytes)
        return self._decoder.decode(body[start:])


def define(
    settings: BodySettings, subject: str, given: t.StructType | None, sample: Callable[[], Iterable[bytes]] | None
) -> Definition:
    """Return the definition that the options name.

    `given` are the fields of a user's `.schema()` or of the rows to write; `sample` returns bodies to infer from. The
    driver calls this: it reads the file, and asks the registry.
    """
    if settings.registry is not None:
        found = Registry(settings.registry).latest(settings.subject or subject, settings.format)
        made = _from_text(settings, found.text)
        return replace(made, registry=settings.registry, schema_id=found.number)
    if settings.schema_file is not None:
        return _from_file(settings, settings.schema_file)
    if settings.schema is not None:
        return _from_text(settings, settings.schema)
    if settings.format in (AVRO, PROTOBUF) and (given is None or sample is not None or settings.format == PROTOBUF):
        raise OptionError(f"format={settings.format} needs option schema, schemaFile or schemaRegistry")
    if given is not None and given.fields:
        return _defined(settings, given, avro=avro.schema_for(given) if settings.format == AVRO else None)
    if settings.format == JSON and sample is not None:
        return _defined(settings, jsonschema.infer(sample()))
    raise OptionError(f"format={settings.format} needs a schema: .schema(...), option schema, or option schemaFile")


def _from_file(settings: BodySettings, name: str) -> Definition:
    path = Path(name)
    try:
        if path.stat().st_size > _FILE_MAX:
            raise OptionError(f"option schemaFile: {name} is larger than {_FILE_MAX >> 20} MiB")
        data = path.read_bytes()
    except OSError as error:
        raise OptionError(f"option schemaFile: {name} cannot be read: {error.strerror}") from None
    if settings.format == PROTOBUF and path.suffix != ".proto":
        return _of_descriptors(settings, data)
    try:
        return _from_text(settings, data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise OptionError(f"option schemaFile: {name} is not text") from None


def _from_text(settings: BodySettings, text: str) -> Definition:
    if settings.format == AVRO:
        return _defined(settings, avro.fields_of(text), avro=text)
    if settings.format == PROTOBUF:
        return _of_descriptors(settings, protobuf.from_text(text))
    if text.lstrip().startswith("{"):
        return _defined(settings, jsonschema.fields_of(text))
    return _defined(settings, parse_ddl(text))


def _of_descriptors(settings: BodySettings, data: bytes) -> Definition:
    message = protobuf.message_of(data, settings.message)
    fields = protobuf.fields_of(message)
    return _defined(settings, fields, descriptors=data, message=message.full_name)


def _defined(
    settings: BodySettings,
    fields: t.StructType,
    *,
    avro: str | None = None,
    descriptors: bytes | None = None,
    message: str | None = None,
) -> Definition:
    checked = require_fields(fields)
    if settings.format == CSV:
        for one in checked.fields:
            if isinstance(one.dataType, t.StructType | t.ArrayType | t.MapType):
                raise SchemaError(f"field {one.name} is nested, which a line of CSV cannot be")
    return Definition(settings.format, checked.json(), avro, descriptors, message, settings.delimiter)
