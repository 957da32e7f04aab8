"""The options of the source, and what they mean together: what to read, from where, and how much at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aerobee.model.names import group_problem, topic_problem
from aerobee.model.queue import MessageQueue
from pyspark_rocketmq.columns import schema as c
from pyspark_rocketmq.formats.options import BODY_OPTIONS, BodySettings, body_settings
from pyspark_rocketmq.options import (
    COMMON,
    LOST_OPTIONS,
    Endpoint,
    Option,
    OptionError,
    boolean,
    duration_ms,
    endpoint_of,
    moment_ms,
    one_of,
    positive,
    read_options,
    size_bytes,
    text,
    wait_ms,
)
from pyspark_rocketmq.source.offsets import EARLIEST, LATEST, read_assignment, read_offsets

COMMITTED: Final = "committed"

Edge = int | str | Mapping[MessageQueue, int]


def _starting(value: str) -> Edge:
    word = value.strip().lower()
    named: dict[str, Edge] = {"earliest": EARLIEST, "latest": LATEST, COMMITTED: COMMITTED}
    if word in named:
        return named[word]
    if value.lstrip().startswith("{"):
        return read_offsets(value)
    raise ValueError('is none of earliest, latest, committed or {"topic":{"broker":{"0":n}}}')


def _ending(value: str) -> Edge:
    if value.strip().lower() == "latest":
        return LATEST
    if value.lstrip().startswith("{"):
        found = read_offsets(value)
        if EARLIEST in found.values():
            raise ValueError("has -2 (earliest), which cannot be an end")
        return found
    raise ValueError('is neither latest nor {"topic":{"broker":{"0":n}}}')


def columns_of(value: str) -> tuple[str, ...]:
    """Return the names of columns, or raise ValueError for one that does not exist."""
    names = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    for name in names:
        if name not in c.COLUMNS:
            near = difflib.get_close_matches(name.lower(), c.COLUMNS, n=1, cutoff=0.5)
            raise ValueError(f"has the unknown column {name!r}" + (f" (did you mean {near[0]}?)" if near else ""))
    if not names:
        raise ValueError("names no column")
    return names


def _expression(value: str) -> str:
    """Return an SQL92 expression. A wrong one would be told by tasks only, and never where a topic has no messages."""
    from aerobee.model.sql92.compiler import compile_filter  # most reads do not need it
    from aerobee.model.sql92.errors import FilterSyntaxError

    try:
        found = compile_filter(text(value))
    except FilterSyntaxError as error:
        raise ValueError(f"is no SQL92 filter: {error.reason} at character {error.position + 1}") from None
    if found.ignored:
        raise ValueError(f"goes on behind its end with {found.ignored[:40]!r}, which brokers ignore")
    return value


def _pattern(value: str) -> str:
    try:
        re.compile(text(value))
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return value


SOURCE_OPTIONS: Final = (
    *COMMON,
    Option("topicPattern", _pattern, aliases=("subscribePattern",), help="every topic whose whole name matches"),
    Option("assign", read_assignment, help='queues: {"topic":[0,1]} or {"topic":{"broker":[0,1]}}'),
    Option("tags", text, help="`A || B`, filtered by the broker"),
    Option("sql92", _expression, help="an SQL92 filter on properties, filtered by the broker"),
    Option("startingOffsets", _starting, help="earliest (batch), latest (stream), committed, or JSON"),
    Option("startingTimestamp", moment_ms, help="messages stored at this time or later"),
    Option("endingOffsets", _ending, help="latest, or JSON; batch only"),
    Option("endingTimestamp", moment_ms, help="messages stored before this time; batch only"),
    Option("failOnDataLoss", boolean, True, "whether lost messages are an error"),
    Option(
        "onMissingBroker",
        one_of("fail", "skip"),
        "fail",
        "what a broker group that is away does: an error after retryTimeoutMs, or a read without it",
    ),
    Option("columns", columns_of, help="the columns to read, separated by commas; fewer columns read faster"),
    Option("archive", text, help="the directory of an archive: queues begin at their first archived message"),
    Option("maxOffsetsPerTrigger", positive, help="most messages that a micro-batch reads"),
    Option("maxBytesPerTrigger", size_bytes, help="most stored bytes that a micro-batch reads, estimated"),
    Option("minOffsetsPerTrigger", positive, help="messages for which a micro-batch waits"),
    Option("maxTriggerDelay", duration_ms, 900_000, "how long a micro-batch waits for minOffsetsPerTrigger"),
    Option("minPartitions", positive, help="fewest tasks: queues are divided into smaller ranges"),
    Option("maxRecordsPerPartition", positive, help="most messages that a task reads"),
    Option("group", text, help="the consumer group that mirrors the progress of a stream"),
    Option("longPollMs", wait_ms, 500, "how long a stream waits for messages in one call"),
    Option(
        "filterPushdown",
        boolean,
        False,
        "WHERE narrows what brokers send: only for a DataFrame that is used once (batch)",
    ),
    *BODY_OPTIONS,
)

# Options for writing, so that the error can say so.
_ELSEWHERE: Final = {
    name: "it is an option of writing, not of reading"
    for name in ("deliveryGuarantee", "idempotencyKey")
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wanted:
    """The wanted topics, by name or by pattern. `queues` limits their queues by topic and broker ("*" means any)."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: Mapping[str, Mapping[str, frozenset[int]]] = field(default_factory=dict)

    def takes(self, queue: MessageQueue) -> bool:
        """Return whether a queue of a wanted topic is wanted too."""
        by_broker = self.queues.get(queue.topic)
        if by_broker is None:
            return True
        return queue.queue_id in by_broker.get(queue.broker_name, by_broker.get("*", frozenset()))


@dataclass(frozen=True, slots=True)
class Filter:
    """The filter for the broker: an expression of tags or of SQL92. Neither means all messages."""

    expression: str | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The values of all options. Times are milliseconds."""

    endpoint: Endpoint
    wanted: Wanted
    filter: Filter = Filter()
    starting: Edge | None = None
    starting_timestamp: int | None = None
    ending: Edge | None = None
    ending_timestamp: int | None = None
    fail_on_data_loss: bool = True
    skip_missing: bool = False
    archive: str | None = None
    rows_max: int | None = None
    bytes_max: int | None = None
    rows_min: int | None = None
    trigger_delay_max_ms: int = 900_000
    partitions_min: int | None = None
    partition_records_max: int | None = None
    group: str | None = None
    long_poll_ms: int = 500
    pushdown: bool = False
    # How bodies become columns; None if they stay bytes.
    body: BodySettings | None = None


def source_settings(options: Mapping[str, str], environ: Mapping[str, str], *, streaming: bool) -> SourceSettings:
    """Return the settings from Spark's map of options, or raise OptionError."""
    given = dict(options)
    path = given.pop("path", None)
    values = read_options(given, SOURCE_OPTIONS, elsewhere=_ELSEWHERE)
    wanted = _wanted(values, path)
    if values["tags"] is not None and values["sql92"] is not None:
        raise OptionError("options tags and sql92: give one of them")
    for one, other in (("startingOffsets", "startingTimestamp"), ("endingOffsets", "endingTimestamp")):
        if values[one] is not None and values[other] is not None:
            raise OptionError(f"options {one} and {other}: give one of them")
        if streaming and one == "endingOffsets" and (values[one] is not None or values[other] is not None):
            raise OptionError("options endingOffsets and endingTimestamp are for batch reads: a stream has no end")
    if not streaming and values["startingOffsets"] == LATEST:
        raise OptionError("option startingOffsets: a batch read cannot begin at latest, because nothing comes after it")
    _refuse_together(values, given)
    _refuse_strangers(values, wanted)
    group = values["group"]
    if values["startingOffsets"] == COMMITTED and group is None:
        raise OptionError("option startingOffsets: committed needs option group")
    if group is not None and (problem := group_problem(group)):
        raise OptionError(f"option group: {problem}")
    rows_min, rows_max = values["minOffsetsPerTrigger"], values["maxOffsetsPerTrigger"]
    if rows_min is not None and rows_max is not None and rows_min > rows_max:
        raise OptionError("option minOffsetsPerTrigger is larger than maxOffsetsPerTrigger")
    return SourceSettings(
        endpoint=endpoint_of(values, environ),
        wanted=wanted,
        filter=_filter(values),
        starting=values["startingOffsets"],
        starting_timestamp=values["startingTimestamp"],
        ending=values["endingOffsets"],
        ending_timestamp=values["endingTimestamp"],
        fail_on_data_loss=values["failOnDataLoss"],
        skip_missing=values["onMissingBroker"] == "skip",
        archive=values["archive"],
        rows_max=rows_max,
        bytes_max=values["maxBytesPerTrigger"],
        rows_min=rows_min,
        trigger_delay_max_ms=values["maxTriggerDelay"],
        partitions_min=values["minPartitions"],
        partition_records_max=values["maxRecordsPerPartition"],
        group=group,
        long_poll_ms=values["longPollMs"],
        pushdown=values["filterPushdown"],
        body=body_settings(values),
    )


def _refuse_together(values: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """Raise OptionError for options that do not go together."""
    first_ms, last_ms = values["startingTimestamp"], values["endingTimestamp"]
    if first_ms is not None and last_ms is not None and first_ms > last_ms:
        raise OptionError(f"option startingTimestamp: {first_ms} is after endingTimestamp, {last_ms}")
    if values["columns"] is not None and "format" in {name.lower() for name in given}:
        raise OptionError("options columns and format: name the columns of a typed read by its schema")
    if values["archive"] is None:
        return
    for name in ("sql92", "startingTimestamp", "endingTimestamp", "filterPushdown"):
        if values[name]:
            raise OptionError(f"options archive and {name}: give one of them; archived files are read by offsets")


def _refuse_strangers(values: Mapping[str, Any], wanted: Wanted) -> None:
    """Raise OptionError for offsets of a topic or queue that is not read. If it is mistyped, they would not count."""
    for option in ("startingOffsets", "endingOffsets"):
        if wanted.pattern is not None or not isinstance(values[option], Mapping):
            continue
        for topic in sorted({queue.topic for queue in values[option]} - set(wanted.topics)):
            near = difflib.get_close_matches(topic, wanted.topics, n=1, cutoff=0.5)
            meant = f": did you mean {near[0]!r}?" if near else ""
            raise OptionError(f"option {option} names topic {topic!r}, which is not read{meant}")
        for queue in sorted(values[option]):
            if not wanted.takes(queue):
                place = f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"
                raise OptionError(f"option {option} names {place}, which option assign leaves out")


def _filter(values: Mapping[str, Any]) -> Filter:
    if values["sql92"] is not None:
        return Filter(values["sql92"], "SQL92")
    if values["tags"] is None or values["tags"] == "*":
        return Filter()
    if not values["tags"].replace("|", "").strip():
        raise OptionError(f"option tags: {values['tags']!r} names no tag")
    return Filter(values["tags"], "TAG")


def _wanted(values: Mapping[str, Any], path: str | None) -> Wanted:
    if path is not None and values["topic"] is not None and path != values["topic"]:
        raise OptionError(f"load({path!r}) and option topic ({values['topic']}) name two topics: give one of them")
    topic = values["topic"] or path
    given = [name for name, value in (("topic", topic), *_other(values)) if value is not None]
    if not given:
        raise OptionError(
            f'no topic: give option topic, topicPattern or assign, or load("the-topic"). Note that {LOST_OPTIONS}'
        )
    if len(given) > 1:
        raise OptionError(f"options {' and '.join(given)}: give one of them")
    if values["topicPattern"] is not None:
        return Wanted(pattern=values["topicPattern"])
    if values["assign"] is not None:
        return Wanted(_topics(list(values["assign"])), queues=values["assign"])
    assert topic is not None
    return Wanted(_topics([one.strip() for one in topic.split(",") if one.strip()]))


def _other(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, values[name]) for name in ("topicPattern", "assign")]


def _topics(names: list[str]) -> tuple[str, ...]:
    if not names:
        raise OptionError("option topic names no topic")
    for name in names:
        problem = topic_problem(name)
        if problem:
            raise OptionError(f"option topic: {problem}")
    return tuple(dict.fromkeys(names))
