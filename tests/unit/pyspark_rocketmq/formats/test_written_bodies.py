"""Columns become bodies that the reading side turns back into the same values, for every format."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pyspark_rocketmq.formats import protobuf
from pyspark_rocketmq.formats.types import SchemaError, arrow_type, parse_ddl
from pyspark_rocketmq.options import OptionError
from pyspark_rocketmq.sink.typed import body_writer
from pyspark_rocketmq.sinkoptions import sink_options

FLAT = "id bigint, name string, price decimal(10,2), ok boolean, day date, at timestamp, raw binary"
NESTED = FLAT + ", lines array<struct<n:int, tags:array<string>>>, extra map<string,double>"
AT = datetime.datetime(2026, 11, 17, 3, 4, 5, 6, tzinfo=datetime.UTC)
ROW: dict[str, Any] = {
    "id": -(1 << 63), "name": 'a, "b"\nå', "price": Decimal("-12.50"), "ok": True, "day": datetime.date(2026, 1, 2),
    "at": AT, "raw": b"\x00\xff", "lines": [{"n": 1, "tags": ["x", None]}, None], "extra": {"k": 0.5, "n": None},
}  # fmt: skip


def bodies(ddl: str, rows: list[dict[str, Any]], **options: str) -> tuple[list[bytes], Any]:
    """The bodies of rows, and the rest of their columns."""
    schema = parse_ddl(ddl)
    read = sink_options({"nameServer": "127.0.0.1:1", "topic": "orders", **options}, {})
    assert read.body is not None
    made, writer = body_writer(read, read.body, schema)
    kind = pa.schema([pa.field(one.name, arrow_type(one.dataType)) for one in schema.fields])
    (batch,) = writer.rows([pa.RecordBatch.from_pylist(rows, schema=kind)])
    assert batch.schema.names == [one.name for one in made.fields]
    return batch.column("body").to_pylist(), (batch, writer)


@pytest.mark.parametrize(("kind", "ddl"), [("json", NESTED), ("msgpack", NESTED), ("avro", NESTED), ("csv", FLAT)])
def test_what_is_written_is_read(kind: str, ddl: str) -> None:
    empty = dict.fromkeys(ROW)
    found, (_, writer) = bodies(ddl, [ROW, {**empty, "id": 1}], format=kind)
    decoder = writer.definition.decoder(writer.definition.whole())
    names = [one.name for one in parse_ddl(ddl).fields]
    assert {name: decoder.decode(found[0]).get(name) for name in names} == {name: ROW[name] for name in names}
    assert {name for name, one in decoder.decode(found[1]).items() if one is not None} == {"id"}


PROTO = """
syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
message Other { int32 x = 1; }
message Order {
  int64 id = 1; optional string name = 2; repeated Line lines = 3; map<string, double> extra = 4;
  google.protobuf.Timestamp at = 5; google.protobuf.StringValue note = 6; uint64 big = 7; Kind kind = 8; bytes raw = 9;
  enum Kind { A = 0; B = 1; }
  message Line { int32 n = 1; }
}
"""
PROTO_DDL = (
    "id bigint, name string, lines array<struct<n:int>>, extra map<string,double>, at timestamp, note string, "
    "big decimal(20,0), kind string, raw binary"
)


def test_protobuf_is_written_and_read() -> None:
    row = {
        "id": 1, "name": None, "lines": [{"n": 5}], "extra": {"k": 0.5}, "at": AT, "note": "", "kind": "B",
        "big": Decimal((1 << 64) - 1), "raw": b"\xff",
    }  # fmt: skip
    options = {"format": "protobuf", "schema": PROTO, "message": "shop.Order"}
    (body,), (_, writer) = bodies(PROTO_DDL, [row], **options)
    assert writer.definition.decoder(writer.definition.whole()).decode(body) == row
    with pytest.raises(SchemaError, match="does not fit message"):
        bodies(PROTO_DDL, [{**row, "kind": "NOPE"}], **options)
    with pytest.raises(SchemaError, match="cannot hold null"):
        bodies(PROTO_DDL, [{**row, "lines": [None]}], **options)
    descriptors = protobuf.compiled(PROTO)
    assert protobuf.index_bytes(descriptors, "shop.Other") == b"\0"
    assert protobuf.index_bytes(descriptors, "shop.Order") == b"\x02\x02"


def test_columns_of_the_message_stay_and_one_struct_may_be_the_body() -> None:
    found, (batch, _) = bodies("id int, tags string, sharding_key string", [{"id": 1, "tags": "T"}], format="json")
    assert found == [b'{"id":1}'] and batch.schema.names == ["tags", "sharding_key", "body"]
    found, _ = bodies("o struct<tags:string>, tags string", [{"o": {"tags": "x"}}], format="json", payload="o")
    assert found == [b'{"tags":"x"}']
    same = {"deliveryGuarantee": "idempotent", "format": "json"}
    found, (batch, _) = bodies("id int, idempotencyKey string", [{"id": 1, "idempotencyKey": "k"}], **same)
    assert found == [b'{"id":1}'] and batch.schema.names == ["idempotencyKey", "body"]
    found, (batch, _) = bodies("id int, n int", [{"id": 1, "n": 2}], idempotencyKey="id", **same)
    assert found == [b'{"id":1,"n":2}'] and batch.schema.names == ["id", "body"]


@pytest.mark.parametrize(
    ("ddl", "options", "reason"),
    [
        ("body binary, id int", {"format": "json"}, "leave out column body"),
        ("tags string", {"format": "json"}, "there are none"),
        ("id int", {"format": "json", "schema": "id bigint"}, "is INT, the schema of the body has BIGINT"),
        ("x int", {"format": "json", "schema": "id bigint"}, "no such field"),
        ("x array<int>", {"format": "csv"}, "nested"),
        ("id int", {"format": "protobuf"}, "needs option schema"),
        ("id int", {"format": "json", "payload": "o"}, "option payload"),
        ("id int", {"format": "json", "mode": "FAILFAST"}, "for reading"),
    ],
)
def test_what_cannot_be_written_is_told_first(ddl: str, options: dict[str, str], reason: str) -> None:
    with pytest.raises((SchemaError, OptionError), match=reason):
        bodies(ddl, [], **options)


def test_a_row_that_does_not_fit_an_avro_schema_is_told() -> None:
    schema = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}'
    with pytest.raises(SchemaError, match="does not fit the Avro schema"):
        bodies("id bigint", [{"id": None}], format="avro", schema=schema)
