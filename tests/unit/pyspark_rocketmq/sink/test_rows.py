"""Schemas checked and rows encoded, without Spark running."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from aerobee.hot.log.batch import decode_batch
from aerobee.hot.log.properties import decode_properties
from aerobee.testing.secrets import secret_for
from pyspark_rocketmq.options import OptionError
from pyspark_rocketmq.sink.layout import SinkSchemaError, layout_of
from pyspark_rocketmq.sink.rows import Row, RowEncoder, RowError, encode_part, key_digest
from pyspark_rocketmq.sinkoptions import SinkOptions, sink_options

TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "timestamp": TimestampType(),
    "map": MapType(StringType(), StringType()),
    "array": ArrayType(StringType()),
}


def columns_of(text: str) -> StructType:
    """`body binary, tags string`: Spark's own parser needs a running session."""
    return StructType([StructField(name, TYPES[kind]) for name, kind in (one.split() for one in text.split(", "))])


def options(**given: str) -> SinkOptions:
    return sink_options({"nameServer": "h:9876", "topic": "T", **given}, {})


def encode(schema: str, columns: dict[str, pa.Array], **given: str) -> list[Row]:
    read = options(**given)
    layout = layout_of(columns_of(schema), read)
    ids = iter(range(1_000_000))
    encoder = RowEncoder(layout, read.topic, 1000, lambda: f"id{next(ids)}")
    return list(encoder.rows(pa.record_batch(list(columns.values()), names=list(columns))))


def test_a_row_becomes_a_part_of_a_batch() -> None:
    rows = encode(
        "body string, tags string, keys string, properties map, sharding_key string, deliver_at timestamp",
        {
            "body": pa.array(["a", "ä"]),
            "tags": pa.array(["T1", None]),
            "keys": pa.array(["k1 k2", None]),
            "properties": pa.array([[("p", "1"), ("q", "2")], None], pa.map_(pa.string(), pa.string())),
            "sharding_key": pa.array(["s", None]),
            "deliver_at": pa.array([datetime(2026, 1, 2, tzinfo=UTC), None], pa.timestamp("us", "Europe/Berlin")),
        },
    )
    body = b"".join(piece for row in rows for piece in encode_part(row.body, row.properties))
    assert len(body) == sum(row.size for row in rows)
    parts = decode_batch(body, 10)
    assert [part[1] for part in parts] == [b"a", "ä".encode()]
    assert decode_properties(parts[0][2]) == {
        "UNIQ_KEY": "id0", "TAGS": "T1", "KEYS": "k1 k2", "__SHARDINGKEY": "s", "TIMER_DELIVER_MS": "1767312000000",
        "p": "1", "q": "2",
    }  # fmt: skip
    assert decode_properties(parts[1][2]) == {"UNIQ_KEY": "id1"}
    assert [(row.topic, row.place, row.is_timed) for row in rows] == [("T", "s", True), ("T", None, False)]


def test_places() -> None:
    body = pa.array([b"1", b"2", b"3"])
    queue = pa.array([0, 7, None], pa.int32())
    rows = encode("body binary, queue_id int", {"body": body, "queue_id": queue})
    assert [row.place for row in rows] == [0, 7, None]
    broker = pa.array(["a", None, "c"])
    rows = encode("body binary, broker string, queue_id int", {"body": body, "broker": broker, "queue_id": queue})
    assert [row.place for row in rows] == [("a", 0), 7, None]


def test_keys_are_told_apart_by_type() -> None:
    assert len({key_digest(key) for key in ("1", b"1", 1, "2", "")}) == 5
    rows = encode(
        "body binary, n bigint", {"body": pa.array([b"1"]), "n": pa.array([1])}, idempotencyKey="N",
        deliveryGuarantee="idempotent",
    )  # fmt: skip
    assert rows[0].key == key_digest(1)


@pytest.mark.parametrize(
    ("column", "values", "says"),
    [
        ("body string", pa.array([None], pa.string()), "column body: 1 rows are NULL"),
        ("body string", pa.array([""]), "empty"),
        ("body binary", pa.array([b"x" * 1001]), "1001 bytes, more than maxMessageSize=1000"),
        ("tags string", pa.array(["a\x02b"]), "column tags.*separator"),
        ("topic string", pa.array(["no good"]), "column topic.*illegal characters"),
        ("topic string", pa.array(["RMQ_SYS_TRANS_HALF_TOPIC"]), "forbidden"),
        ("topic string", pa.array(["rmq_sys_AEROBEE_BATCH"]), "forbidden"),
        ("properties map", [[("DELAY", "3")]], "'DELAY' is RocketMQ's own"),
        ("properties map", [[("__AEROBEE_X", "3")]], "RocketMQ's own"),
        ("properties map", [[("k", None)]], "drops a property without a name or a value"),
        ("properties map", [[("k", "x" * 40_000)]], "take 40"),
    ],
)
def test_rows_that_are_refused(column: str, values: Any, says: str) -> None:
    if isinstance(values, list):
        values = pa.array(values, pa.map_(pa.string(), pa.string()))
    name = column.split()[0]
    columns = {name: values} if name == "body" else {"body": pa.array([b"1"]), name: values}
    schema = column if name == "body" else f"body binary, {column}"
    with pytest.raises(RowError, match=says):
        encode(schema, columns)


@pytest.mark.parametrize(
    ("schema", "given", "says"),
    [
        ("value binary", {}, "value is unknown; body is missing"),
        ("body binary, tag string", {}, r"tag is unknown \(did you mean tags\?\)"),
        ("body int, keys array", {}, "body is INT, not BINARY or STRING; keys is ARRAY<STRING>, not STRING"),
        ("body binary, broker string", {}, "broker needs queue_id too"),
        ("body binary, sharding_key string, queue_id int", {}, "exclude each other"),
        ("body binary, BODY string", {}, "BODY occurs twice"),
        ("body binary", {"deliveryGuarantee": "idempotent"}, "idempotencyKey is missing"),
        ("body binary, n double", {"deliveryGuarantee": "idempotent", "idempotencyKey": "n"}, "n is DOUBLE, an idemp"),
    ],
)
def test_schemas_that_are_refused(schema: str, given: dict[str, str], says: str) -> None:
    with pytest.raises(SinkSchemaError, match=says):
        layout_of(columns_of(schema), options(**given))


def test_a_topic_must_come_from_somewhere() -> None:
    read = sink_options({"nameServer": "h:1"}, {})
    with pytest.raises(SinkSchemaError, match="topic is missing: a column, or option topic"):
        layout_of(columns_of("body binary"), read)
    assert sink_options({"nameServer": "h:1", "path": "orders"}, {}).topic == "orders"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"startingOffsets": "earliest"}, "startingOffsets: is an option for reading"),
        ({"topic": "a b"}, "option topic: .*illegal"),
        ({"requestBytes": "8m"}, "option requestBytes"),
        ({"secretKey": secret_for("who")}, "accessKey and secretKey go together"),
        ({"jobId": "x" * 300}, "option jobId"),
    ],
)
def test_options_that_are_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says) as caught:
        options(**given)
    assert "hunter2" not in str(caught.value)
