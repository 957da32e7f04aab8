"""The source's side of typed bodies: where the schema comes from, and which columns are read.

A schema is found in the driver, at `load()`. Tasks get it with the reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from pyspark.sql.types import StructType

from aerobee.runtime.clock import SystemClock
from aerobee.runtime.process import environment
from pyspark_rocketmq.columns import schema as c
from pyspark_rocketmq.formats.definition import define
from pyspark_rocketmq.formats.options import REGISTERED, BodySettings
from pyspark_rocketmq.formats.reading import TypedBodies, body_fields, table_schema, typed_bodies
from pyspark_rocketmq.formats.stored import read_stored
from pyspark_rocketmq.options import OptionError
from pyspark_rocketmq.source.cluster import Cluster
from pyspark_rocketmq.source.complete import all_bounds, patiently
from pyspark_rocketmq.source.planning import QueueRange
from pyspark_rocketmq.source.pulling import PlannedRange, PullSettings, RangesPartition, read_partition
from pyspark_rocketmq.source.settings import SourceSettings, source_settings

_SAMPLE: Final = 1_000
# They say where a read begins and ends. What is allowed differs for batch and stream, and is checked there.
_EDGES: Final = frozenset(("startingoffsets", "endingoffsets", "startingtimestamp", "endingtimestamp"))


def full_schema(options: Mapping[str, str]) -> StructType:
    """Return the columns for a query that names none."""
    kept = {name: value for name, value in options.items() if name.lower() not in _EDGES}
    settings = source_settings(kept, environment(), streaming=False)
    if settings.body is None:
        return c.DEFAULT_SCHEMA
    body = _resolved(settings, settings.body)
    definition = define(body, _subject(settings, body), None, lambda: _sample(settings))
    return table_schema(definition, body)


def columns_of(
    settings: SourceSettings, asked: BodySettings, schema: StructType
) -> tuple[tuple[str, ...], TypedBodies]:
    """Return the columns to read of each message, and what becomes of the body. Raises for a wrong column."""
    body = _resolved(settings, asked)
    given = body_fields(schema, body)
    messages = [one for one in schema.fields if one.name in c.COLUMNS]
    if messages:
        c.require_columns(StructType(messages))
    elif not schema.fields:
        c.require_columns(schema)
    definition = define(body, _subject(settings, body), given, lambda: _sample(settings))
    typed = typed_bodies(schema, body, definition)
    return typed.pulled, typed


def _resolved(settings: SourceSettings, body: BodySettings) -> BodySettings:
    """Return the settings with what is stored for the topic, if format=registered asks for it."""
    if body.format != REGISTERED:
        return body
    topic = _one_topic(settings)
    if topic is None:
        raise OptionError("format=registered needs one topic")
    stored = read_stored(Cluster(settings.endpoint), topic)
    if stored is None:
        raise OptionError(
            f"no schema is registered for topic {topic}: pyspark_rocketmq.formats.stored.register does it"
        )
    return replace(stored, mode=body.mode, payload=body.payload or stored.payload)


def _one_topic(settings: SourceSettings) -> str | None:
    topics = settings.wanted.topics
    return topics[0] if len(topics) == 1 else None


def _subject(settings: SourceSettings, body: BodySettings) -> str:
    topic = _one_topic(settings)
    if body.registry is not None and body.subject is None and topic is None:
        raise OptionError("option schemaRegistry needs option schemaSubject if not exactly one topic is read")
    return f"{topic}-value"


def _sample(settings: SourceSettings) -> Iterator[bytes]:
    """Yield the newest bodies of every queue, about a thousand together."""
    cluster = Cluster(settings.endpoint)
    timeout_ms = settings.endpoint.retry_timeout_ms
    bounds = patiently(SystemClock(), timeout_ms, lambda: all_bounds(cluster, settings)).bounds
    share = max(1, _SAMPLE // max(1, len(bounds)))
    ranges = tuple(
        PlannedRange(QueueRange(queue, max(one.first, one.end - share), one.end), cluster.require_address(queue))
        for queue, one in sorted(bounds.items())
        if one.end > one.first
    )
    pulling = PullSettings(settings.endpoint, settings.filter, False, (c.BODY,))
    for batch in read_partition(pulling, RangesPartition(ranges)):
        yield from batch.column(c.BODY).to_pylist()
