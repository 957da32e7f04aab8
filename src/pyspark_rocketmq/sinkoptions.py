"""The options of the sink. They are read once on the driver and sent to every task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from aerobee.errors import InvalidArgumentError
from aerobee.model.names import require_group, require_sendable
from pyspark_rocketmq.formats.options import BODY_OPTIONS, BodySettings, body_settings
from pyspark_rocketmq.options import (
    COMMON,
    Endpoint,
    Option,
    OptionError,
    boolean,
    duration_ms,
    endpoint_of,
    not_negative,
    one_of,
    read_options,
    size_bytes,
    text,
)

AT_LEAST_ONCE: Final = "at-least-once"
IDEMPOTENT: Final = "idempotent"
EXACTLY_ONCE: Final = "exactly-once"

# A write that fails costs more than a read: Spark runs the whole batch again.
_RETRY_TIMEOUT_MS: Final = 120_000

SINK_OPTIONS: Final = (
    *(replace(one, default=_RETRY_TIMEOUT_MS) if one.name == "retryTimeoutMs" else one for one in COMMON),
    Option(
        "deliveryGuarantee",
        one_of(AT_LEAST_ONCE, IDEMPOTENT, EXACTLY_ONCE),
        AT_LEAST_ONCE,
        "at-least-once, idempotent or exactly-once; the last two need an Aerobee broker",
    ),
    Option("idempotencyKey", text, "idempotencyKey", "the column whose value names a row of a batch"),
    Option("cluster", text, help="the cluster whose broker groups take part, if the name server has several"),
    Option("group", text, "SPARK_SINK", "the producer group that brokers see"),
    Option("jobId", text, help="names a batch write, so that running it again does not write it twice"),
    Option("requestBytes", size_bytes, 512 << 10, "rows of one queue are sent together up to this size"),
    Option("maxBytesInFlight", size_bytes, 16 << 20, "how much a task sends before it waits for answers"),
    Option("queryLease", duration_ms, 3_600_000, "the broker drops the rows of an unfinished batch after this time"),
    Option("createTopics", boolean, False, "whether a topic that does not exist may be created by a write"),
    Option("exactlyOnceFrom", not_negative, help="the first batch of a running query that is sent exactly once"),
    *BODY_OPTIONS,
)

_READ_ONLY: Final = {
    name: "is an option for reading; the sink has none"
    for name in (
        "topicPattern", "subscribePattern", "assign", "tags", "sql92", "startingOffsets", "startingTimestamp",
        "endingOffsets", "endingTimestamp", "failOnDataLoss", "onMissingBroker", "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition",
        "longPollMs",
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What a task must know. Its text contains no secrets (`Endpoint` hides them)."""

    endpoint: Endpoint
    topic: str | None
    guarantee: str
    idempotency_key: str
    group: str
    job_id: str | None
    request_bytes: int
    in_flight_bytes_max: int
    lease_ms: int
    exactly_once_from: int | None
    cluster: str | None = None
    create_topics: bool = False
    # How columns become bodies; None if there is a column `body`.
    body: BodySettings | None = None


def sink_options(options: Mapping[str, str], environ: Mapping[str, str]) -> SinkOptions:
    """Return the options of a write, or raise OptionError with the name of the wrong one."""
    values = read_options(options, SINK_OPTIONS, elsewhere=_READ_ONLY)
    topic = values["topic"] or options.get("path")
    if topic is not None:
        _checked("topic", lambda: require_sendable(topic))
    _checked("group", lambda: require_group(values["group"]))
    if values["requestBytes"] > _REQUEST_BYTES_MAX:
        raise OptionError(f"option requestBytes: {values['requestBytes']} is above {_REQUEST_BYTES_MAX}")
    job_id = values["jobId"]
    if job_id is not None and (len(job_id) > _JOB_ID_MAX or not job_id.isprintable()):
        raise OptionError(f"option jobId: not a printable text of at most {_JOB_ID_MAX} characters")
    if values["mode"] is not None:
        raise OptionError("option mode is for reading: a row that cannot be written always fails")
    if not 0 < values["queryLease"] <= _LEASE_MAX_MS:
        raise OptionError("option queryLease: must be above 0 and at most 30 days (720h)")
    return SinkOptions(
        endpoint_of(values, environ),
        topic,
        values["deliveryGuarantee"],
        values["idempotencyKey"],
        values["group"],
        job_id,
        values["requestBytes"],
        values["maxBytesInFlight"],
        values["queryLease"],
        values["exactlyOnceFrom"],
        values["cluster"],
        values["createTopics"],
        body_settings(values),
    )


def require_no_job(options: Iterable[str]) -> None:
    """Raise OptionError where the options of a stream contain jobId."""
    if any(name.lower() == "jobid" for name in options):
        raise OptionError("option jobId: it names a batch write; a stream is named by its query and checkpoint")


# This is below the broker's maxMessageSize of 4 MiB, with room for what the broker adds.
_REQUEST_BYTES_MAX: Final = 3 << 20
_JOB_ID_MAX: Final = 200
# A broker reduces a longer lease to this.
_LEASE_MAX_MS: Final = 30 * 86_400_000


def _checked(name: str, check: object) -> None:
    try:
        check()  # type: ignore[operator]
    except InvalidArgumentError as error:
        raise OptionError(f"option {name}: {error.message}") from None
