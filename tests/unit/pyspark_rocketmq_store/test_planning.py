"""Where a store scan begins, ends and is cut, and what an archive's file is compared by: no Spark needed."""

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, In, LessThan, StringStartsWith

from aerobee.errors import CorruptLogError, StoreError
from aerobee.hot.log.record import Draft, encode_records
from aerobee.runtime.disk import InlineDisk
from aerobee.store.readonly import manifest_directory, manifest_name, parse_manifest_name
from aerobee.store.retention import archived_until
from aerobee.store.segment import segment_name
from pyspark_rocketmq.columns.decode import cut
from pyspark_rocketmq.columns.rows import scan
from pyspark_rocketmq.options import OptionError
from pyspark_rocketmq_store.archiving import COLUMNS, ColumnSums
from pyspark_rocketmq_store.manifest import escape, unescape
from pyspark_rocketmq_store.planning import narrowed, plan
from pyspark_rocketmq_store.reading import read_stretch
from pyspark_rocketmq_store.scan import wanted_of
from pyspark_rocketmq_store.settings import ScanSettings, WantedRecords, read_settings

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
SEGMENT = 1 << 18


def draft(number: int) -> Draft:
    made = Draft(b"t", 0, 0, 0, 1, HOST, HOST, 0, 0, b"%0500d" % number, b"KEYS\x01k\x02", 0, "", "")
    made.queue_offset = number
    return made


def write_segment(root: Path, count: int, *, queue: bool) -> bytes:
    log = encode_records([draft(number) for number in range(count)], 0, 1_700_000_000_000, True)
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / segment_name(0)).write_bytes(log.ljust(SEGMENT, b"\0"))
    if queue:
        rows, _, _ = scan(log)
        units = b"".join(
            int(at).to_bytes(8, "big") + int(size).to_bytes(4, "big") + bytes(8) for at, size in rows[:, :2]
        )
        (root / "consumequeue" / "t" / "0").mkdir(parents=True)
        (root / "consumequeue" / "t" / "0" / segment_name(0)).write_bytes(units.ljust(20 * 1000, b"\0"))
    return log


def numbers(settings: ScanSettings) -> list[int]:
    disk = InlineDisk()
    return [
        value
        for stretch in plan(disk, settings)
        for batch in read_stretch(disk, settings, stretch, ["queue_offset"])
        for value in batch.column(0).to_pylist()
    ]


@pytest.mark.parametrize("queue", [True, False])
def test_a_segment_is_cut_at_records_and_read_once(tmp_path: Path, queue: bool) -> None:
    log = write_segment(tmp_path, 300, queue=queue)
    settings = read_settings({"path": str(tmp_path), "splitBytes": "20000"})
    cuts = plan(InlineDisk(), settings)
    assert len(cuts) > 5
    starts = {int(at) for at in scan(log)[0][:, 0]}
    assert all(one.start in starts for one in cuts) and cuts[-1].stop == len(log)
    assert numbers(settings) == list(range(300))


@pytest.mark.parametrize("others", [0, 100])
def test_a_deleted_topic_is_not_read_below_the_place_of_its_deletion(tmp_path: Path, others: int) -> None:
    log = write_segment(tmp_path, 300, queue=False)
    starts = [int(at) for at in scan(log)[0][:, 0]]
    settings = read_settings({"path": str(tmp_path), "splitBytes": "20000"})
    names = {f"other-{number}": 10**9 for number in range(others)}
    (tmp_path / "config").mkdir()
    for place, left in ((0, 0), (starts[1], 1), (starts[137], 137), (len(log), 300), (10**12, 300)):
        noted = json.dumps({"deletedBelow": {**names, "t": place}})
        (tmp_path / "config" / "deletedTopics.json").write_text(noted)
        assert numbers(settings) == list(range(left, 300))


def test_a_queue_that_lies_about_the_log_is_not_believed(tmp_path: Path) -> None:
    write_segment(tmp_path, 300, queue=True)
    path = tmp_path / "consumequeue" / "t" / "0" / segment_name(0)
    units = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, 20).copy()
    units[:300, 7] ^= 1  # every unit points one byte aside
    path.write_bytes(units.tobytes())
    assert numbers(read_settings({"path": str(tmp_path), "splitBytes": "20000"})) == list(range(300))


def test_the_tail_of_a_dead_log(tmp_path: Path) -> None:
    log = write_segment(tmp_path, 50, queue=False)
    path = tmp_path / "commitlog" / segment_name(0)
    for torn in (len(log) - 3, len(log) - 400):
        path.write_bytes(log[:torn].ljust(SEGMENT, b"\0"))
        assert numbers(read_settings({"path": str(tmp_path)})) == list(range(49))
    path.write_bytes(bytes(SEGMENT))
    assert numbers(read_settings({"path": str(tmp_path)})) == []


def test_damage_below_the_end_is_named(tmp_path: Path) -> None:
    log = bytearray(write_segment(tmp_path, 50, queue=False))
    rows, _, _ = scan(bytes(log))
    place = int(rows[7, 0])
    log[place + 4] = 0
    first, second = tmp_path / "commitlog" / segment_name(0), tmp_path / "commitlog" / segment_name(SEGMENT)
    first.write_bytes(log.ljust(SEGMENT, b"\0"))
    second.write_bytes(encode_records([draft(99)], SEGMENT, 1_700_000_000_000, True).ljust(SEGMENT, b"\0"))
    with pytest.raises(CorruptLogError, match=f"{first.name}: byte {place}: magic"):
        numbers(read_settings({"path": str(tmp_path)}))
    found = numbers(read_settings({"path": str(tmp_path), "badRecords": "skip"}))
    assert found == [number for number in range(50) if number != 7] + [99]


def test_what_filters_leave() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    ms = int(moment.timestamp() * 1000)
    assert wanted_of(EqualTo(("topic",), "a")).topics == {b"a"}
    assert wanted_of(In(("topic",), ("a", "b"))).topics == {b"a", b"b"}
    assert wanted_of(GreaterThan(("store_timestamp",), moment)) == WantedRecords(from_ms=ms - 1)
    assert wanted_of(LessThan(("store_timestamp",), moment)) == WantedRecords(until_ms=ms + 2)
    assert wanted_of(StringStartsWith(("topic",), "a")) == WantedRecords()
    settings = ScanSettings("/d", "/d/commitlog", WantedRecords(frozenset([b"a", b"b"]), 5, 90))
    both = narrowed(narrowed(settings, WantedRecords(frozenset([b"b", b"c"]), 3, 80)), WantedRecords())
    assert both.wanted == WantedRecords(frozenset([b"b"]), 5, 80)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no directory"),
        ({"path": "/d", "archived": "[1]"}, "option archived"),
        ({"path": "/d", "topic": " , "}, "names no topic"),
        ({"path": "/d", "startingTimestamp": "soon"}, "option startingTimestamp: 'soon'"),
    ],
)
def test_wrong_options(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        read_settings(options)


def test_sums_see_every_column_and_no_batches() -> None:
    log = encode_records([draft(number) for number in range(100)], 0, 1_700_000_000_000, True)
    rows, _, _ = scan(log)

    def sums(*pieces: pa.RecordBatch) -> tuple[int, str]:
        made = ColumnSums(COLUMNS)
        for piece in pieces:
            made.add(piece)
        return made.rows, made.text()

    (batch,) = cut(log, rows, COLUMNS, broker="b")
    whole = sums(batch)
    assert sums(batch.slice(0, 33), batch.slice(33, 40), batch.slice(73)) == whole
    for name in COLUMNS:
        index = COLUMNS.index(name)
        changed = batch.set_column(
            index, batch.schema.field(index), pa.concat_arrays([batch.column(index)[1:], batch.column(index)[:1]])
        )
        same = changed.column(index).equals(batch.column(index))
        assert (sums(changed) == whole) == same, name


def test_names_of_an_archive() -> None:
    for name in ("orders", "%RETRY%g", "a|b", "ü", "x=1/2"):
        assert unescape(escape(name)) == name and "/" not in escape(name)
    assert escape("%RETRY%g") == "%25RETRY%25g" == manifest_directory("%RETRY%g")
    assert parse_manifest_name(manifest_name(5, 10)) == (5, 10)
    assert parse_manifest_name(f".{manifest_name(5, 10)}.tmp") is None
    assert archived_until(10, [(0, 10), (10, 20), (20, 30), (40, 50)]) == 30
    assert archived_until(7, [(0, 10), (10, 20)]) == 7


def test_a_directory_that_is_not_there_is_an_error_at_load(tmp_path: Path) -> None:
    """Spark creates the source at load(), even where the columns are named."""
    from pyspark_rocketmq_store import DefaultSource

    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"")
    DefaultSource({"path": str(tmp_path / "store")})
    for path, words in (
        (tmp_path / "stroe", f"stroe/commitlog is not a directory: no commit log there. Did you mean {tmp_path}/store"),
        (tmp_path / "store" / "commitlog", "no commit log there. Give the directory above it"),
        (tmp_path / "file" / "x", "no commit log there. Give the directory above it"),
        (tmp_path / "far" / "away", "no commit log there. Give the directory above it"),
    ):
        with pytest.raises(StoreError, match=words):
            DefaultSource({"path": str(path)})
    with pytest.raises(OptionError, match="no option brokr: did you mean broker"):
        DefaultSource({"path": str(tmp_path / "store"), "brokr": "b"})
