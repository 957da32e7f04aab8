"""Columns equal messages: every column of every record against `Message`, golden records and made ones."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.batch import encode_batch
from aerobee.hot.log.layout import COMPRESSED, INNER_BATCH, NEED_UNWRAP
from aerobee.hot.log.lean import ALL_PARTS, BODY, PROPERTIES, lean_records
from aerobee.hot.log.properties import encode_properties
from aerobee.hot.log.record import VERIFY_NONE, VERIFY_RECORD, Draft, decode_records, encode_records
from aerobee.hot.log.scan import scan_columns
from aerobee.model.compression import CompressionType, compress
from aerobee.model.message import Message, from_record, unwrap
from aerobee.model.sysproperties import RESERVED
from pyspark_rocketmq.columns import rows as r
from pyspark_rocketmq.columns import schema as c
from pyspark_rocketmq.columns.decode import BadMessageError, batches, cut, decode
from pyspark_rocketmq.columns.text import binary_at
from pyspark_rocketmq.source.pulling import parts_of

DATA = Path(__file__).parents[3] / "golden" / "data"
V4 = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])
V6 = bytes(range(1, 17)) + bytes([0, 0, 0x2A, 0x9F])
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAMES = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=24)
VALUES = st.text(st.characters(exclude_characters="\x02", exclude_categories=["Cs"]), min_size=1, max_size=30)
BLOCKS = st.one_of(
    st.dictionaries(NAMES | st.sampled_from(sorted(RESERVED)), VALUES, max_size=8).map(encode_properties),
    # Pairs without name or value, names twice, bytes that are no text.
    st.lists(
        st.sampled_from([b"KEYS", b"TAGS", b"UNIQ_KEY", b"\x01", b"\x02", b"a", b"\xff", b"\xe4\xb8"]), max_size=12
    ).map(b"".join),
)
BODIES = st.one_of(
    st.binary(max_size=200).map(lambda body: (0, body)),
    st.tuples(st.sampled_from(list(CompressionType)), st.binary(max_size=200)).map(
        lambda made: (made[0].flag, compress(made[1], made[0]))
    ),
    st.lists(st.tuples(st.integers(-9, 9), st.binary(max_size=20), BLOCKS), min_size=1, max_size=4).map(
        lambda parts: (INNER_BATCH | NEED_UNWRAP, encode_batch(parts))
    ),
    st.lists(st.tuples(st.integers(-9, 9), st.binary(max_size=20), BLOCKS), min_size=1, max_size=4).map(
        lambda parts: (
            INNER_BATCH | NEED_UNWRAP | CompressionType.ZSTD.flag,
            compress(encode_batch(parts), CompressionType.ZSTD),
        )
    ),
)
TIMES = st.integers(-(1 << 40), 1 << 45) | st.sampled_from([-(1 << 63), (1 << 63) - 1, 0])


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    sys_flag, body = draw(BODIES)
    topic = draw(st.sampled_from([b"orders", b"a|b", "Ünicode-主题".encode(), b"\xff\xfe", b"x" * 127, b"y" * 130]))
    made = Draft(
        topic, draw(st.integers(0, 99)), draw(st.integers(-9, 9)), sys_flag, draw(TIMES),
        draw(st.sampled_from([V4, V6])), draw(st.sampled_from([V4, V6])), draw(st.integers(0, 16)),
        draw(st.integers(0, 1 << 62)), body, draw(BLOCKS), 0, "", "",
    )  # fmt: skip
    made.queue_offset = draw(st.integers(0, 1 << 60))
    return made


def messages_of(log: bytes, broker: str = "") -> list[Message]:
    return [one for record in decode_records(log, VERIFY_NONE) for one in unwrap(from_record(record, broker))]


def moment(value_ms: int) -> datetime:
    low, high = -62_135_596_800_000, 253_402_300_799_999
    return EPOCH + timedelta(milliseconds=min(max(value_ms, low), high))


def expected(message: Message, column: str) -> Any:
    value = getattr(message, column)
    if column in (c.KEYS, c.TAGS, c.BROKER):
        return value or None
    if column in (c.BORN_TIMESTAMP, c.STORE_TIMESTAMP):
        return moment(value)
    return value


def check(batch: pa.RecordBatch, messages: list[Message], columns: tuple[str, ...] = c.COLUMNS) -> None:
    batch.validate(full=True)
    assert batch.schema.equals(to_arrow_schema(c.spark_schema(columns), timezone="UTC"))
    for column in columns:
        found = batch.column(column).to_pylist()
        if column in (c.PROPERTIES, c.SYSTEM_PROPERTIES):
            assert all(len({name for name, _ in pairs}) == len(pairs) for pairs in found)
            found = [dict(pairs) for pairs in found]
        assert found == [expected(message, column) for message in messages], column


@pytest.mark.parametrize("name", ["store.json", "store_crc.json"])
def test_golden_records(name: str) -> None:
    golden = json.loads((DATA / name).read_bytes())
    for row in golden["records"]:
        log = bytes.fromhex(row["bytes"])
        rows, consumed, _ = r.scan(log)
        assert consumed == len(log)
        check(decode(log, rows, c.COLUMNS, broker="b"), messages_of(log, "b"))


@settings(deadline=None)
@given(st.lists(drafts(), max_size=6), st.booleans())
def test_every_column_is_what_message_says(sent: list[Draft], with_crc: bool) -> None:
    log = encode_records(sent, 4096, 1_700_000_000_000, with_crc)
    rows, consumed, _ = r.scan(log, 4096, VERIFY_RECORD)
    assert (len(rows), consumed) == (len(sent), len(log))
    check(decode(log, rows, c.COLUMNS), messages_of(log))
    check(decode(log, rows, c.DEFAULT_COLUMNS, broker="b"), messages_of(log, "b"), c.DEFAULT_COLUMNS)


@settings(deadline=None)
@given(st.lists(drafts(), max_size=6), st.sampled_from([0, BODY, PROPERTIES, ALL_PARTS]))
def test_a_lean_record_gives_the_same_columns(sent: list[Draft], parts: int) -> None:
    log = encode_records(sent, 4096, 1_700_000_000_000, False)
    columns = tuple(name for name in c.COLUMNS if parts_of([name]) & ~parts == 0)
    lean = lean_records(log, parts)
    rows, consumed, _ = r.scan(lean)
    assert (len(rows), consumed) == (len(sent), len(lean))
    assert len(lean) <= len(log) and (lean == log or parts != ALL_PARTS)
    check(decode(lean, rows, columns), messages_of(log), columns)


@settings(deadline=None)
@given(st.lists(drafts(), min_size=1, max_size=4), st.data())
def test_a_damaged_log_is_scanned_as_far_as_the_reference_goes(sent: list[Draft], data: st.DataObject) -> None:
    log = bytearray(encode_records(sent, 0, 1_700_000_000_000, True))
    for _ in range(data.draw(st.integers(1, 3))):
        log[data.draw(st.integers(0, len(log) - 1))] ^= data.draw(st.integers(1, 255))
    torn = bytes(log[: data.draw(st.integers(0, len(log)))])
    for verify in (VERIFY_NONE, VERIFY_RECORD):
        for place in (0, -1):
            table, count, taken, why = scan_columns(torn, place, verify)
            rows, consumed, reason = r.scan(torn, place, verify)
            assert (len(rows), consumed, reason) == (count, taken, why)
            assert rows.tobytes() == table


def draft(topic: bytes, body: bytes, sys_flag: int = 0, properties: bytes = b"") -> Draft:
    return Draft(topic, 0, 0, sys_flag, 1, V4, V4, 0, 0, body, properties, 0, "", "")


def test_batches_are_cut_by_rows_and_by_bytes() -> None:
    log = encode_records([draft(b"t", b"x" * 2000) for _ in range(5000)], 0, 1, False)
    assert [batch.num_rows for batch in batches(log, ["queue_id"])] == [2004, 2004, 992]
    log = encode_records([draft(b"t", b"x" * 1000) for _ in range(5000)], 0, 1, False)
    assert [batch.num_rows for batch in batches(log, ["queue_id"])] == [2048, 2048, 904]
    log = encode_records([draft(b"t", b"x" * 10) for _ in range(20_000)], 0, 1, False)
    assert [batch.num_rows for batch in batches(log, ["queue_id"])] == [16_384, 3616]
    log = encode_records([draft(b"t", b"x" * 1_000_000) for _ in range(9)], 0, 1, False)
    assert [batch.num_rows for batch in batches(log, ["body"])] == [4, 4, 1]
    log = encode_records([draft(b"t", b"x" * 6_000_000) for _ in range(2)], 0, 1, False)
    assert [batch.num_rows for batch in batches(log, ["body"])] == [1, 1]


def test_bodies_that_unfold_to_much_are_cut_again() -> None:
    folded = compress(bytes(60 << 20), CompressionType.ZSTD)
    log = encode_records([draft(b"t", folded, CompressionType.ZSTD.flag) for _ in range(6)], 0, 1, False)
    sizes = [(batch.num_rows, batch.nbytes) for batch in batches(log, ["body"])]
    assert sum(rows for rows, _ in sizes) == 6
    assert max(size for _, size in sizes) < 300 << 20


def test_a_bad_body_is_named_or_left_out() -> None:
    bad = draft(b"t", b"no zlib", COMPRESSED)
    log = encode_records([draft(b"t", b"1"), bad, draft(b"t", b"3")], 7000, 1, False)
    rows, _, _ = r.scan(log, 7000)
    place = int(rows[1, r.PHYSICAL_OFFSET])
    with pytest.raises(BadMessageError, match=f"physical offset {place}: .*ZLIB"):
        decode(log, rows, ["body"])
    seen: list[int] = []
    (batch,) = cut(log, rows, ["body"], on_bad=lambda error: seen.append(error.physical_offset))
    assert batch.column("body").to_pylist() == [b"1", b"3"]
    assert seen == [place]
    # Its other columns can still be read.
    assert decode(log, rows, ["topic"]).num_rows == 3


@pytest.mark.parametrize("count", [0, 1, 511, 512, 3000])
def test_pieces_of_a_buffer_are_taken_whatever_their_number_and_order(count: int) -> None:
    data = bytes(range(256)) * 400
    draw = np.random.default_rng(count)
    sizes = draw.integers(0, 30, count)
    at = np.cumsum(sizes + draw.integers(0, 3, count)) - sizes
    for places, lengths in ((at, sizes), (at[::-1], sizes[::-1]), (np.zeros(count, np.int64), sizes)):
        found = binary_at(data, places, lengths)
        assert found.type == pa.binary() and not found.null_count
        expected = [data[start : start + size] for start, size in zip(places.tolist(), lengths.tolist(), strict=True)]
        assert found.to_pylist() == expected


def test_more_names_than_the_table_holds() -> None:
    blocks = [encode_properties({f"name{i}-{j}": str(j) for j in range(4)} | {"KEYS": "k"}) for i in range(400)]
    log = encode_records([draft(b"t", b"", 0, block) for block in blocks], 0, 1, False)
    rows, _, _ = r.scan(log)
    for _ in range(2):
        check(decode(log, rows, c.COLUMNS), messages_of(log))


def test_rows_of_topics() -> None:
    log = encode_records([draft(topic, b"") for topic in (b"a", b"bb", b"a", b"c", b"ab")], 0, 1, False)
    rows, _, _ = r.scan(log)
    assert r.of_topics(log, rows, [b"a", b"ab"]).tolist() == [True, False, True, False, True]


def test_the_default_schema_is_frozen() -> None:
    assert c.DEFAULT_SCHEMA.simpleString() == (
        "struct<topic:string,broker:string,queue_id:int,queue_offset:bigint,message_id:string,keys:string,tags:string,"
        "body:binary,properties:map<string,string>,born_timestamp:timestamp,store_timestamp:timestamp>"
    )


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (StructType([StructField("tpic", StringType())]), "no column 'tpic': did you mean 'topic'"),
        (StructType([StructField("Topic", StringType())]), "did you mean 'topic'"),
        (StructType([StructField("zzz", StringType())]), "there are topic, broker"),
        (StructType([StructField("queue_id", LongType())]), "'queue_id' is INT, not BIGINT: cast it after load"),
        (StructType([StructField("topic", StringType(), False)]), "leave NOT NULL out"),
        (StructType([StructField("topic", StringType()), StructField("topic", StringType())]), "twice"),
        (StructType([]), "names no column"),
    ],
)
def test_a_wrong_schema_is_told_in_words(schema: StructType, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        c.require_columns(schema)
    assert c.require_columns(c.spark_schema(["body", "topic"])) == ("body", "topic")
