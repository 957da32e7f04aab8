"""The trace topic as tables: traced events, end-to-end latency, slow consumers.

Clients write what they did with each message to RMQ_SYS_TRACE_TOPIC. A trace message has many records. \\x01 separates
fields and \\x02 separates records. Spark's own expressions decode them, so no Python runs for each record.
RocketMQ: TraceDataEncoder.encoderFromContextBean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"

# Event -> column -> index of its field, as written by Apache's encoder and ours (aerobee.client.producer.trace).
_FIELDS: Final[dict[str, dict[str, int]]] = {
    "Pub": {
        "timestamp": 1, "region": 2, "group": 3, "topic": 4, "message_id": 5, "tags": 6, "keys": 7, "store_host": 8,
        "body_size": 9, "cost_ms": 10, "message_type": 11, "offset_id": 12, "success": 13,
    },
    "SubBefore": {
        "timestamp": 1, "region": 2, "group": 3, "request_id": 4, "message_id": 5, "reconsume_times": 6, "keys": 7,
    },
    "SubAfter": {
        "request_id": 1, "message_id": 2, "cost_ms": 3, "success": 4, "keys": 5, "context_code": 6, "timestamp": 7,
        "group": 8,
    },
    "EndTransaction": {
        "timestamp": 1, "region": 2, "group": 3, "topic": 4, "message_id": 5, "tags": 6, "keys": 7, "store_host": 8,
        "message_type": 9, "transaction_id": 10, "transaction_state": 11, "from_check": 12,
    },
    "Recall": {"timestamp": 1, "region": 2, "group": 3, "topic": 4, "message_id": 5, "success": 6},
}  # fmt: skip
_TYPES: Final = {
    "body_size": "int", "cost_ms": "int", "message_type": "int", "reconsume_times": "int", "context_code": "int",
    "success": "boolean", "from_check": "boolean",
}  # fmt: skip
COLUMNS: Final = (
    "event", "timestamp", "region", "group", "topic", "message_id", "keys", "tags", "store_host", "body_size",
    "cost_ms", "message_type", "offset_id", "success", "request_id", "reconsume_times", "context_code",
    "transaction_id", "transaction_state", "from_check",
)  # fmt: skip


def read_trace(spark: SparkSession, namesrv: str, topic: str = TRACE_TOPIC) -> DataFrame:
    """Return every event of the trace topic, decoded. A batch and a stream have the same columns."""
    source = spark.read.format("rocketmq").option("nameServer", namesrv).option("topic", topic)
    return decode_trace(source.schema("body binary").load())


def decode_trace(messages: DataFrame) -> DataFrame:
    """Return the events of trace messages. `messages` needs only the column `body`, and may be a stream."""
    from pyspark.sql import functions as f

    records = messages.select(f.explode(f.split(f.col("body").cast("string"), "\x02")).alias("record"))
    fields = records.where("record <> ''").select(f.split("record", "\x01").alias("fields"))
    event = f.get("fields", f.lit(0))
    return fields.where(event.isin(list(_FIELDS))).select(
        event.alias("event"), *(_column(name).alias(name) for name in COLUMNS[1:])
    )


def _column(name: str) -> Column:
    """Return the field of that name at its place in each kind of event. Java's `null` becomes NULL."""
    from pyspark.sql import functions as f

    chosen = f.lit(None).cast("string")
    for event, places in _FIELDS.items():
        if name in places:
            value = f.get("fields", f.lit(places[name]))
            chosen = f.when(f.get("fields", f.lit(0)) == event, value).otherwise(chosen)
    text = f.when(chosen != "null", chosen)
    if name == "timestamp":
        return f.timestamp_millis(text.try_cast("bigint"))
    return text.try_cast(_TYPES[name]) if name in _TYPES else text


def latency(trace: DataFrame) -> DataFrame:
    """Return one row for each delivery to a group: how long the message waited, was handled, and took in all."""
    from pyspark.sql import functions as f

    before = f.when(f.col("event") == "SubBefore", f.struct("timestamp", "group", "reconsume_times"))
    after = f.when(f.col("event") == "SubAfter", f.struct("success", "cost_ms"))
    rows = (
        _with_sender(trace)
        .where("event in ('SubBefore', 'SubAfter')")
        .groupBy("message_id", "request_id")
        .agg(f.first("pub").alias("pub"), f.min(before).alias("before"), f.min(after).alias("after"))
        .where("pub is not null and before is not null and after is not null")
    )
    wait_ms = (f.unix_millis("before.timestamp") - f.unix_millis("pub.timestamp")).cast("bigint")
    handled_ms = f.col("after.cost_ms").cast("bigint")
    return rows.select(
        "pub.topic", "before.group", "message_id", "pub.tags", "before.reconsume_times", "after.success",
        f.col("pub.timestamp").alias("sent"), f.col("pub.cost_ms").alias("send_ms"),
        f.col("before.timestamp").alias("began"), wait_ms.alias("wait_ms"), handled_ms.alias("handle_ms"),
        (wait_ms + handled_ms).alias("end_to_end_ms"),
    )  # fmt: skip


def _with_sender(trace: DataFrame) -> DataFrame:
    """Return every event with the first successful send of its message as `pub`, with one shuffle and no join."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    sent = f.when(f.expr("event = 'Pub' and success"), f.struct("timestamp", "topic", "tags", "cost_ms"))
    return trace.withColumn("pub", f.min(sent).over(Window.partitionBy("message_id")))


def slow_consumers(trace: DataFrame) -> DataFrame:
    """Return the groups of each topic, slowest first, with deliveries, failures, waiting and handling times."""
    from pyspark.sql import functions as f

    def at(share: float, column: str) -> Column:
        return f.percentile_approx(column, share).alias(f"{column}_p{int(share * 100)}")

    return (
        latency(trace)
        .groupBy("topic", "group")
        .agg(
            f.count("*").alias("deliveries"),
            f.count_if(~f.col("success")).alias("failures"),
            at(0.5, "wait_ms"),
            at(0.99, "wait_ms"),
            at(0.5, "handle_ms"),
            at(0.99, "handle_ms"),
            f.max("end_to_end_ms").alias("end_to_end_ms_max"),
        )
        .orderBy(f.desc("handle_ms_p99"), "topic", "group")
    )


def flow(trace: DataFrame, step_s: int = 1) -> DataFrame:
    """Return the messages of each step of time: columns time, topic, group, messages, in order of time.

    A row without a group counts sent messages. A row with a group counts messages that this group finished, each once.
    """
    from pyspark.sql import functions as f

    step = f.timestamp_seconds(f.floor(f.unix_seconds("timestamp") / step_s) * step_s).alias("time")
    group = f.when(f.col("event") == "SubAfter", f.col("group")).alias("group")
    return (
        _with_sender(trace)
        .where("success and pub is not null and event in ('Pub', 'SubAfter')")
        .select("message_id", f.col("pub.topic").alias("topic"), group, "timestamp")
        .groupBy("message_id", "topic", "group")
        .agg(f.min("timestamp").alias("timestamp"))
        .groupBy(step, "topic", "group")
        .agg(f.count("*").alias("messages"))
        .orderBy("time", "topic", "group")
    )
