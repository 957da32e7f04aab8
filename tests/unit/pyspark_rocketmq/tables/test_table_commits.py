"""Commits of table writes without Spark: a batch is in the table once, whatever is done twice or at the same time."""

from __future__ import annotations

import datetime
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_rocketmq.tables.delta import DeltaFormat
from pyspark_rocketmq.tables.files import TaskWriter, split
from pyspark_rocketmq.tables.iceberg import IcebergFormat
from pyspark_rocketmq.tables.values import TableError, TableFormat, WrittenFile, new_columns

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("at", pa.timestamp("us", "UTC"))])
AT = datetime.datetime(2026, 11, 17, tzinfo=datetime.UTC)


def opened(kind: str, directory: Path) -> TableFormat:
    if kind == "delta":
        return DeltaFormat(str(directory / "t"), ("day",), False)
    catalog = {"type": "sql", "uri": f"sqlite:///{directory}/c.db", "warehouse": f"file://{directory}/w"}
    return IcebergFormat(catalog, "shop.orders", ("day",), False)


def written(table: TableFormat, rows: list[tuple[int, str | None]], batch: int) -> list[WrittenFile]:
    store = table.prepare(SCHEMA)
    task = TaskWriter(store, SCHEMA, ("day",), table.keeps_partition_columns, batch, "query-1")
    ids, days = [one for one, _ in rows], [day for _, day in rows]
    made = pa.RecordBatch.from_pydict({"id": ids, "day": days, "at": [AT] * len(rows)}, schema=SCHEMA)
    return [WrittenFile.from_text(text) for one in task(iter([made])) for text in one.column("file").to_pylist()]


def content(kind: str, directory: Path) -> list[tuple[int, str | None]]:
    if kind == "delta":
        from deltalake import DeltaTable

        rows = DeltaTable(str(directory / "t")).to_pyarrow_table().to_pylist()
    else:
        table: Any = opened(kind, directory)
        rows = table._table().scan().to_arrow().to_pylist()
    assert all(row["at"] == AT for row in rows)
    return sorted(((row["id"], row["day"]) for row in rows), key=str)


ROWS: list[tuple[int, str | None]] = [(1, "a/b"), (2, "å=1 %2F"), (3, None), (4, "a/b"), (5, "True"), (6, "false")]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_batch_is_committed_once(tmp_path: Path, kind: str) -> None:
    table = opened(kind, tmp_path)
    assert len(written(table, ROWS, 0)) == 5, "one file for each partition"
    assert table.committed("query-1") == -1 and content(kind, tmp_path) == [], "files alone are not in the table"
    files = written(table, ROWS, 0)
    assert table.commit(files, "query-1", 0, SCHEMA)
    assert table.committed("query-1") == 0 and table.committed("query-2") == -1
    again = written(table, ROWS, 0)
    assert not table.commit(again, "query-1", 0, SCHEMA)
    table.discard(again)
    assert content(kind, tmp_path) == sorted(ROWS, key=str)
    assert table.commit(written(table, [(9, "z")], 5), "query-1", 5, SCHEMA)
    assert not table.commit(written(table, [(8, "z")], 4), "query-1", 4, SCHEMA), "an old driver comes too late"
    assert table.commit(written(table, [(7, "z")], 0), "query-2", 0, SCHEMA), "another query counts for itself"
    assert [one for one, _ in content(kind, tmp_path)] == [1, 2, 3, 4, 5, 6, 7, 9]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_two_drivers_of_one_query_commit_a_batch_once(tmp_path: Path, kind: str) -> None:
    opened(kind, tmp_path).prepare(SCHEMA)
    rounds = 5
    for batch in range(rounds):
        gate = threading.Barrier(2, timeout=60)
        results: list[bool] = []

        def drive(number: int, batch: int = batch, gate: threading.Barrier = gate, to: list[bool] = results) -> None:
            table = opened(kind, tmp_path)
            files = written(table, [(batch, f"driver {number}")], batch)
            gate.wait()
            to.append(table.commit(files, "query-1", batch, SCHEMA))

        threads = [threading.Thread(target=drive, args=(number,)) for number in range(2)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(60)
        assert sorted(results) == [False, True]
    assert [one for one, _ in content(kind, tmp_path)] == list(range(rounds))


def test_a_table_with_rules_of_its_own_is_refused(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    opened("delta", tmp_path).prepare(SCHEMA)
    DeltaTable(str(tmp_path / "t")).alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(TableError, match=r"delta\.constraints\.positive"):
        opened("delta", tmp_path).prepare(SCHEMA)


def test_columns_that_do_not_fit_are_told() -> None:
    more = pa.schema([*SCHEMA, ("new", pa.int32())])
    assert [one.name for one in new_columns(SCHEMA, more, True)] == ["new"]
    for want, reason in (
        (more, "no column new"),
        (pa.schema([("ID", pa.int64())]), "differs only by case"),
        (pa.schema([("id", pa.string())]), "id is string"),
    ):
        with pytest.raises(TableError, match=reason):
            new_columns(SCHEMA, want, False)


def test_rows_are_split_by_their_partition_in_order() -> None:
    batch = pa.RecordBatch.from_pydict({"n": [1, 2, 3, 4], "a": ["x", None, "x", ""], "b": [True, True, True, None]})
    found = {values: part.column("n").to_pylist() for values, part in split(batch, ("a", "b"))}
    assert found == {("x", True): [1, 3], (None, True): [2], ("", None): [4]}
    assert list(split(batch.slice(0, 0), ("a",))) == []


def test_partitions_of_truth_values_and_of_their_names_are_told_apart(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    schema = pa.schema([("id", pa.int64()), ("paid", pa.bool_()), ("word", pa.string())])
    table = DeltaFormat(str(tmp_path / "t"), ("paid", "word"), False)
    task = TaskWriter(table.prepare(schema), schema, ("paid", "word"), False, 0, "query-1")
    rows = [
        {"id": number, "paid": paid, "word": word}
        for number, (paid, word) in enumerate([(True, "True"), (False, "true"), (None, "False"), (True, None)])
    ]
    texts = [
        text for one in task(iter([pa.RecordBatch.from_pylist(rows, schema)])) for text in one.column(0).to_pylist()
    ]
    assert table.commit([WrittenFile.from_text(text) for text in texts], "query-1", 0, schema)
    found = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().select(schema.names).to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == rows


def test_a_table_keeps_its_own_number_of_retries(tmp_path: Path) -> None:
    table = opened("iceberg", tmp_path)
    table.commit(written(table, ROWS, 0), "query-1", 0, SCHEMA)
    fresh: Any = opened("iceberg", tmp_path)
    assert set(fresh._catalog.load_table("shop.orders").properties) == {
        "aerobee.query.query-1", "schema.name-mapping.default",
    }  # fmt: skip
