"""Bodies of every format become columns, and what cannot become columns is told: by rows, without Spark."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from aerobee.errors import InvalidArgumentError
from pyspark_rocketmq.columns import schema as c
from pyspark_rocketmq.formats import avro, jsonschema, protobuf
from pyspark_rocketmq.formats.definition import define
from pyspark_rocketmq.formats.options import BODY_OPTIONS, body_settings
from pyspark_rocketmq.formats.reading import BadBodyError, body_fields, table_schema, typed_bodies
from pyspark_rocketmq.formats.types import SchemaError, parse_ddl, require_fields
from pyspark_rocketmq.options import OptionError, read_options

ORDERS = "id bigint, amount decimal(10,2), customer struct<name:string, tags:array<string>>, at timestamp"


def rows(bodies: list[bytes], columns: str | None = None, **options: str) -> list[dict[str, Any]]:
    """What a task yields for these bodies: the fields of the body and `_corrupt`."""
    settings = body_settings(read_options(options, BODY_OPTIONS))
    assert settings is not None
    given = None if columns is None else body_fields(parse_ddl(columns), settings)
    definition = define(settings, "orders-value", given, lambda: bodies)
    wanted = parse_ddl(columns) if columns is not None else table_schema(definition, settings)
    typed = typed_bodies(wanted, settings, definition)
    count = len(bodies)
    every: dict[str, Any] = {
        c.TOPIC: ["orders"] * count, c.BROKER: ["a"] * count, c.QUEUE_ID: [0] * count,
        c.QUEUE_OFFSET: list(range(count)), c.BODY: bodies,
    }  # fmt: skip
    kinds = c.arrow_schema(typed.pulled)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(every.get(one.name, [None] * count), one.type) for one in kinds], schema=kinds
    )
    made = list(typed.rows(iter([batch])))
    for one in made:
        assert one.schema.equals(to_arrow_schema(wanted, timezone="UTC")), "Spark compares the types"
    own = {one.name for one in definition.whole().fields} | {"_corrupt", settings.payload}
    return [{k: v for k, v in row.items() if k in own} for one in made for row in one.to_pylist()]


def reasons(bodies: list[bytes], schema: str = "id bigint", **options: str) -> list[str | None]:
    found = rows(bodies, f"{schema}, _corrupt string", **options)
    names = [one.name for one in parse_ddl(schema).fields]
    for row in found:
        assert row["_corrupt"] is None or all(row[name] is None for name in names)
    return [row["_corrupt"] for row in found]


def test_json_bodies_become_nested_columns() -> None:
    body = {
        "id": 7,
        "amount": 12.5,
        "customer": {"name": "Åse", "tags": ["a", None]},
        "at": "2026-11-17T03:00:00+01:00",
    }
    other = {"customer": None, "unknown": {"deep": [1]}}
    found = rows([json.dumps(body).encode(), json.dumps(other).encode()], ORDERS, format="json")
    assert found == [
        {
            "id": 7, "amount": Decimal("12.50"), "customer": {"name": "Åse", "tags": ["a", None]},
            "at": datetime.datetime(2026, 11, 17, 2, tzinfo=datetime.UTC),
        },
        {"id": None, "amount": None, "customer": None, "at": None},
    ]  # fmt: skip


BAD_JSON = {
    b"": "the body is empty", b" ": "truncated", b"null": "object", b"[1]": "object", b'{"id":1': "truncated",
    b'{"id":1}{"id":2}': "trailing", b'{"id":"1"}': "`$.id`", b'{"id":1.5}': "`$.id`", b'{"id":true}': "`$.id`",
    b'{"id":9223372036854775808}': "`$.id`", b'{"id":' + b"9" * 5000 + b"}": "range", b'{"id":1,"s":"\xff"}': "utf-8",
    b"\xff\xfe": "malformed", b'{"x":' + b"[" * 100_000: "recursion", b'{"s":"\\ud800"}': "",
    b'{"d":1.005}': "", b'{"d":123456}': "", b'{"d":1e99999999}': "", b'{"f":1e39}': "`$.f`", b'{"n":1e999}': "`$.n`",
    b'{"t":"yesterday"}': "`$.t`", b'{"b":"%%"}': "base64", b'{"o":{"y":300}}': "`$.o.y`", b'{"l":[1,"x"]}': "`$.l[1]`",
    b'{"m":{"k":"v"}}': "`$.m[...]`",
}  # fmt: skip


def test_bad_json_is_told_row_by_row_and_never_raises() -> None:
    schema = (
        "id bigint, s string, d decimal(5,2), f float, n double, t timestamp, b binary, o struct<y:tinyint>, "
        "l array<int>, m map<string,int>"
    )
    bodies = [*BAD_JSON, b'{"id":1}']
    found = reasons(bodies, schema, format="json")
    for body, reason, expected in zip(bodies, found, BAD_JSON.values(), strict=False):
        assert reason is not None and expected in reason and len(reason) <= 300, (body[:40], reason)
    assert found[-1] is None


def test_the_edges_of_numbers_are_kept_exactly() -> None:
    low, high = -(1 << 63), (1 << 63) - 1
    schema = "id bigint, d decimal(38,0), n double"
    nines = "9" * 38
    body = b'{"id":%d,"d":%s,"n":123456789012345678901234567890}'
    found = rows([body % (low, nines.encode()), body % (high, f"-{nines}".encode())], schema, format="json")
    assert [row["id"] for row in found] == [low, high]
    assert [row["d"] for row in found] == [Decimal(nines), Decimal(f"-{nines}")]
    assert found[0]["n"] == 123456789012345678901234567890.0


def test_modes_keep_drop_or_fail() -> None:
    bodies = [b'{"id":1}', b"oops", b'{"id":3}']
    assert [row["id"] for row in rows(bodies, "id bigint", format="json")] == [1, None, 3]
    assert [row["id"] for row in rows(bodies, "id bigint", format="json", mode="DROPMALFORMED")] == [1, 3]
    assert rows([b"oops"], "id bigint", format="json", mode="DROPMALFORMED") == []
    with pytest.raises(BadBodyError, match="offset 1 of queue 0 of topic orders on a cannot be read") as told:
        rows(bodies, "id bigint", format="json", mode="FailFast")
    assert "DROPMALFORMED" in (told.value.hint or "")


def test_the_fields_can_be_one_struct_column() -> None:
    found = rows([b'{"topic":"t","id":1}', b"x"], format="json", schema="topic string, id int", payload="order")
    assert [row["order"] for row in found] == [{"topic": "t", "id": 1}, None]
    assert found[1]["_corrupt"]
    with pytest.raises(SchemaError, match="'topic' of the body has the name of a column") as told:
        rows([b"{}"], format="json", schema="topic string, id int")
    assert "payload" in (told.value.hint or "")


def test_messagepack() -> None:
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    sound = msgspec.msgpack.encode({"id": 1, "at": at, "customer": {"name": "x", "tags": []}, "more": b"\x00"})
    bad = [b"", b"\xc1", sound[:-1], msgspec.msgpack.encode({1: 2}), msgspec.msgpack.encode({"id": (1 << 64) - 1})]
    found = rows([sound, *bad], ORDERS + ", _corrupt string", format="msgpack")
    assert found[0] == {
        "id": 1, "amount": None, "customer": {"name": "x", "tags": []}, "at": at, "_corrupt": None,
    }  # fmt: skip
    assert all(row["_corrupt"] for row in found[1:])


def test_csv_lines() -> None:
    schema = "id bigint, name string, price decimal(6,2), ok boolean, day date"
    sound = [b'1,"a, ""b""\nc",12.5,true,2026-01-02', b"2,,,,\r\n", "3;å;1;0;".encode().replace(b";", b",")]
    found = rows(sound, schema, format="csv")
    assert found[0] == {
        "id": 1, "name": 'a, "b"\nc', "price": Decimal("12.50"), "ok": True, "day": datetime.date(2026, 1, 2),
    }  # fmt: skip
    assert found[1]["id"] == 2 and set(list(found[1].values())[1:]) == {None}
    assert (found[2]["name"], found[2]["ok"]) == ("å", False)
    bad = [
        b"",
        b"\n",
        b"1,2",
        b"1,2,3,true,2026-01-02,7",
        b"x,a,1,true,",
        b'1,"a,1,true,',
        b"\xff,a,1,true,",
        b"1,a,1,2,\n1,a,1,2,",
        b"null,a,1,true,",
        b"1,a,1,Null,",
    ]
    assert rows([b"1,null,1,true,"], schema, format="csv")[0]["name"] == "null"
    assert all(reasons(bad, schema, format="csv"))
    assert rows([b"1|x"], "id int, s string", format="csv", delimiter="|") == [{"id": 1, "s": "x"}]
    with pytest.raises(SchemaError, match="nested"):
        rows([b"1"], "id array<int>", format="csv")


AVRO = json.dumps({
    "type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}}},
        {"name": "extra", "type": {"type": "map", "values": "double"}},
        {"name": "last", "type": ["null", "Line"], "default": None},
    ]})  # fmt: skip


def avro_body(record: dict[str, Any], schema: str = AVRO) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, avro.parsed(schema), record)
    return out.getvalue()


def test_avro_records() -> None:
    at = datetime.datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=datetime.UTC)
    record = {
        "id": 1, "amount": Decimal("1.50"), "at": at, "kind": "B", "ref": "r-1", "lines": [{"n": 1}, {"n": 2}],
        "extra": {"x": 0.5}, "last": None,
    }  # fmt: skip
    body = avro_body(record)
    found = rows([body, body + b"\x00", body[:-4], b"", b"\xff" * 30], format="avro", schema=AVRO)
    assert {**found[0], "extra": dict(found[0]["extra"])} == {**record, "_corrupt": None}
    assert "1 bytes follow" in found[1]["_corrupt"] and all(row["_corrupt"] for row in found[1:])
    assert all(row["id"] is None for row in found[1:])
    for schema, reason in {
        '"string"': "not a record", "{": "cannot be read", '{"type":"record","name":"R","fields":[]}': "no fields",
        '{"type":"record","name":"R","fields":[{"name":"r","type":["null","R"]}]}': "contains itself",
        '{"type":"record","name":"R","fields":[{"name":"r","type":["int","string"]}]}': "union",
        '{"type":"record","name":"R","fields":[{"name":"r","type":{"type":"array","items":"null"}}]}': "null",
        # Ten bytes would be an array of 2**62 such items, and keep a task busy for hours.
        '{"type":"record","name":"R","fields":[{"name":"r","type":{"type":"array","items":'
        '{"type":"fixed","name":"F","size":0}}}]}': "field r.*: a fixed type of size 0 has no values",
        '{"type":"array","items":' * 5000 + '"long"' + "}" * 5000: "nested too deeply",
    }.items():  # fmt: skip
        with pytest.raises(SchemaError, match=reason):
            rows([b"x"], format="avro", schema=schema)


@pytest.mark.timeout(60)
def test_a_number_of_a_few_bytes_does_not_keep_a_task_busy() -> None:
    """Arrow writes out the zeros of 1e-9999999, and fastavro works for hours on a decimal of megabytes."""
    wide = "x decimal(38,10), l array<decimal(10,2)>, m map<string,decimal(10,2)>, s array<struct<d:decimal(10,2)>>"
    body = '{"x": %s, "l": [%s], "m": {"a": %s}, "s": [{"d": %s}]}'
    sound = [["1.5", "2.25", "-3", "0.00"], ["9" * 28 + ".5", "1e7", "1", "-0"]]
    for numbers in sound:
        (found,) = rows([(body % tuple(numbers)).encode()], wide, format="json")
        assert found["x"] == Decimal(numbers[0])
    bad = [
        (body % tuple(hard if place == which else "1" for place in range(4))).encode()
        for hard in ("1e-9999999", "-9e9999999", '"1e-999999999999"', "0." + "0" * 100_000 + "1")
        for which in range(4)
    ]
    assert all(reasons(bad, wide, format="json"))
    assert all(reasons([b"1e-9999999", b"9" * 1_000_000], "x decimal(38,10)", format="csv"))
    schema = json.dumps({"type": "record", "name": "R", "fields": [
        {"name": "x", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}}]})  # fmt: skip
    whole = avro_body({"x": Decimal("9" * 36 + ".25")}, schema)
    million = b"\x80\x89\x7a" + b"\x7f" * 1_000_000
    found = rows([whole, million], format="avro", schema=schema)
    assert found[0]["x"] == Decimal("9" * 36 + ".25") and "a decimal has 1000000 bytes" in found[1]["_corrupt"]


PROTO = """
syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
message Order {
  int64 id = 1; optional double amount = 2; repeated Line lines = 3; map<string, int32> extra = 4;
  google.protobuf.Timestamp at = 5; google.protobuf.StringValue note = 6; uint64 big = 7; Kind kind = 8; bytes raw = 9;
  enum Kind { A = 0; B = 1; }
  message Line { uint32 n = 1; }
}
"""


def test_protobuf_messages() -> None:
    from google.protobuf import message_factory

    descriptors = protobuf.compiled(PROTO)
    made = message_factory.GetMessageClass(protobuf.message_of(descriptors, "shop.Order"))
    order = made(id=-5, big=(1 << 64) - 1, kind=7, raw=b"\xff", lines=[{"n": (1 << 32) - 1}], extra={"k": 3})
    order.at.seconds = 10
    order.note.value = ""
    full = order.SerializeToString()
    found = rows([full, b"\x08", b"\xff" * 9, b"\x32\x04\x0a\x02\xff\xff"], format="protobuf", schema=PROTO)
    assert {**found[0], "extra": dict(found[0]["extra"])} == {
        "id": -5, "amount": None, "lines": [{"n": (1 << 32) - 1}], "extra": {"k": 3}, "note": "", "kind": "7",
        "at": datetime.datetime(1970, 1, 1, 0, 0, 10, tzinfo=datetime.UTC), "big": Decimal((1 << 64) - 1),
        "raw": b"\xff", "_corrupt": None,
    }  # fmt: skip
    assert all(row["_corrupt"] and row["id"] is None for row in found[1:])
    with pytest.raises(SchemaError, match="no message shop"):
        rows([full], format="protobuf", schema=PROTO, message="shop.Nope")
    with pytest.raises(SchemaError, match="contains itself"):
        rows([full], format="protobuf", schema='syntax = "proto3"; message A { A a = 1; }')


def test_a_schema_is_inferred_from_json_bodies() -> None:
    bodies = [b'{"a":1,"b":null,"c":{"d":[]},"e":true}', b"broken", b'{"a":1.5,"b":"x","c":{"d":[{"f":2}]}}', b"[1]"]
    assert (
        jsonschema.infer(bodies).simpleString()
        == "struct<a:double,b:string,c:struct<d:array<struct<f:bigint>>>,e:boolean>"
    )
    with pytest.raises(SchemaError, match="field a has different types"):
        jsonschema.infer([b'{"a":1}', b'{"a":"1"}'])
    with pytest.raises(SchemaError, match="no messages yet"):
        jsonschema.infer([])
    with pytest.raises(SchemaError, match="none is a JSON object"):
        jsonschema.infer([b"x"])
    with pytest.raises(SchemaError, match="more than 2000"):
        jsonschema.infer([json.dumps({f"k{n}": 1}).encode() for n in range(2100)])


def test_json_schema_gives_fields() -> None:
    text = json.dumps({
        "type": "object", "$defs": {"Line": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        "properties": {
            "id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"},
            "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}}, "x": {"type": ["null", "number"]},
            "y": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
            "m": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    })  # fmt: skip
    assert jsonschema.fields_of(text).simpleString() == (
        "struct<id:bigint,at:timestamp,lines:array<struct<n:bigint>>,x:double,y:boolean,m:map<string,string>>"
    )
    for bad in ("[]", "{", '{"type":"string"}', '{"type":"object"}', '{"properties":{"a":{"$ref":"#/properties/a"}}}',
                '{"properties":{"a":{"$ref":"http://x"}}}',
                '{"properties":{"a":{"type":["string","integer"]}}}'):  # fmt: skip
        with pytest.raises(SchemaError):
            jsonschema.fields_of(bad)


def test_ddl_is_sparks_or_an_error() -> None:
    text = "id BIGINT NOT NULL COMMENT 'a, b', `a b` struct<x: array<int>, y:decimal(10,2)>, m map<string,double>"
    assert (
        parse_ddl(text).simpleString()
        == "struct<id:bigint,a b:struct<x:array<int>,y:decimal(10,2)>,m:map<string,double>>"
    )
    for bad in ("", "id", "id bigint,", "id bigin", "a struct<>", "a array<int", "a int b", "a int; x",
                "a " + "array<" * 99 + "int" + ">" * 99):  # fmt: skip
        with pytest.raises(SchemaError):
            parse_ddl(bad)
    for bad in ("a decimal(99)", "a int, A int", "a map<int,int>"):
        with pytest.raises(SchemaError):
            require_fields(parse_ddl(bad))
    with pytest.raises(SchemaError, match="INTERVAL"):
        require_fields(t.StructType([t.StructField("i", t.DayTimeIntervalType())]))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mode": "FAILFAST"}, "needs option format"),
        ({"format": "jsn"}, "did you mean json"),
        ({"format": "json", "schema": "a int", "schemaFile": "f"}, "give one of them"),
        ({"format": "json", "message": "M"}, "is for format=protobuf"),
        ({"format": "avro"}, "needs option schema"),
        ({"format": "msgpack"}, "needs a schema"),
        ({"format": "json", "schemaFile": "/nonexistent"}, "cannot be read"),
        ({"format": "json", "schemaRegistry": "file:///etc/passwd"}, "http"),
        ({"format": "json", "schemaRegistry": "http://u:p@h"}, "schemaRegistryUser"),
        ({"format": "json", "schemaSubject": "s"}, "needs option schemaRegistry"),
        ({"format": "csv", "delimiter": "ab", "schema": "a int"}, "one character"),
        ({"format": "csv", "schemaRegistry": "http://h"}, "CSV"),
        ({"format": "json", "schemaRegistry": "http://h", "schemaRegistryUser": "marker"}, "go together"),
    ],
)
def test_wrong_options_are_told(options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason) as told:
        settings = body_settings(read_options(options, BODY_OPTIONS))
        assert settings is not None
        define(settings, "s", None, None)
    assert "marker" not in str(told.value)


def test_columns_that_the_body_does_not_have_are_told() -> None:
    for schema, reason in (("idd bigint", "did you mean 'id'"), ("id string", "is BIGINT in the schema of the body")):
        with pytest.raises(InvalidArgumentError, match=reason):
            _project(schema)


def _project(columns: str) -> None:
    settings = body_settings(read_options({"format": "json", "schema": "id bigint"}, BODY_OPTIONS))
    assert settings is not None
    typed_bodies(parse_ddl(columns), settings, define(settings, "s", None, None))
