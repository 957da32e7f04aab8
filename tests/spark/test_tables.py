"""Topics into Delta and Iceberg: a driver that ends between write and commit, or right after the commit, loses nothing
and writes nothing twice; compaction, time travel and new columns work in between. Read back with the libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_rocketmq.tables import to_delta, to_iceberg
from pyspark_rocketmq.tables.delta import DeltaFormat
from pyspark_rocketmq.tables.iceberg import IcebergFormat
from pyspark_rocketmq.tables.values import TableError


class FallenError(Exception):
    """The driver of a test ends here."""


class Table:
    """One table of a test, by either library."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.format: Any = {"delta": DeltaFormat, "iceberg": IcebergFormat}[kind]
        self.path = str(directory / "table")
        self.catalog = {
            "type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}/warehouse",
        }  # fmt: skip

    def writer(self, stream: Any, **options: Any) -> Any:
        if self.kind == "delta":
            return to_delta(stream, self.path, **options)
        return to_iceberg(stream, self.catalog, "shop.orders", **options)

    def _iceberg(self) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog(None, **self.catalog).load_table("shop.orders")

    def rows(self, version: int | None = None) -> list[dict[str, Any]]:
        if self.kind == "delta":
            from deltalake import DeltaTable

            found: list[dict[str, Any]] = DeltaTable(self.path, version=version).to_pyarrow_table().to_pylist()
            return found
        table = self._iceberg()
        snapshot = None if version is None else table.snapshots()[version].snapshot_id
        read: list[dict[str, Any]] = table.scan(snapshot_id=snapshot).to_arrow().to_pylist()
        return read

    def versions(self) -> int:
        """How many batches were committed (Delta's version 0 is the empty table)."""
        if self.kind == "delta":
            from deltalake import DeltaTable

            return int(DeltaTable(self.path).version())
        return len(self._iceberg().snapshots())

    def compact(self) -> None:
        if self.kind == "delta":
            from deltalake import DeltaTable

            DeltaTable(self.path).optimize.compact()
            DeltaTable(self.path).create_checkpoint()
        else:
            table = self._iceberg()
            table.overwrite(table.scan().to_arrow())


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["body"]) for row in rows)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_topic_is_in_a_table_exactly_once(
    spark: Any, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    table = Table(kind, tmp_path)
    topic = cluster.topic(f"to-{kind}")
    sent: list[int] = []

    def send(count: int) -> None:
        new = range(len(sent), len(sent) + count)
        cluster.send(topic, [str(n) for n in new], keys="a/b é")
        sent.extend(new)

    def run(*more: str, **options: Any) -> None:
        reading = spark.readStream.format("rocketmq").options(nameServer=cluster.namesrv, topic=topic)
        rows = reading.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 20).load()
        columns = ("cast(body as string) body", "keys", "store_timestamp", "properties", *more)
        writing = table.writer(rows.selectExpr(*columns), partition_by=["keys"], **options)
        query = writing.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
        query.awaitTermination()

    def falling(after: bool) -> Callable[..., bool]:
        whole = table.format.commit

        def commit(self: Any, *arguments: Any) -> bool:
            if after:
                whole(self, *arguments)
            raise FallenError("the driver ends here")

        return commit

    send(40)
    run()
    assert numbers(table.rows()) == sent and {row["keys"] for row in table.rows()} == {"a/b é"}
    first = table.versions()
    for after in (False, True):
        send(10)
        with monkeypatch.context() as patch:
            patch.setattr(table.format, "commit", falling(after))
            with pytest.raises(Exception, match="the driver ends here"):
                run()
        assert len(table.rows()) == len(sent) - (0 if after else 10)
        table.compact()
        send(5)
        run()
        assert numbers(table.rows()) == sent, f"fell {'after' if after else 'before'} the commit"
    # Time travel: what the table was before.
    assert numbers(table.rows(first if kind == "delta" else first - 1)) == sent[:40]
    # A new column is an error, or is added.
    send(3)
    with pytest.raises(TableError, match="no column length"):
        run("length(body) length")
    run("length(body) length", merge_schema=True)
    found = table.rows()
    assert numbers(found) == sent and sorted(row["length"] for row in found if row["length"]) == [2, 2, 2]
    with pytest.raises(TableError, match="column length is string, the table has int32"):
        run("'x' length", merge_schema=True)


def test_what_does_not_fit_is_told_before_the_start(spark: Any, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load()
    path = str(tmp_path / "t")
    for rows, options, reason in (
        (spark.range(1), {}, "not a stream"),
        (stream, {"partition_by": "value"}, "list of columns"),
        (stream, {"partition_by": ["nope"]}, "no column nope"),
        (stream, {"partition_by": ["timestamp"]}, "column timestamp is timestamp"),
        (stream, {"partition_by": ["timestamp", "value"]}, "possible"),
        (stream.selectExpr("value", "value VALUE"), {}, "column VALUE is there twice"),
        (stream.selectExpr("value", "null n"), {}, "column n has the type null"),
        (stream.selectExpr("value", "array(struct(interval 1 day)) i"), {}, "column i has the type duration"),
    ):
        with pytest.raises(TableError, match=reason):
            to_delta(rows, path, **options)
    assert not Path(path).exists()
    to_delta(stream, path)
    with pytest.raises(TableError, match="partitioned by nothing"):
        to_delta(stream, path, partition_by=["value"])
    with pytest.raises(TableError, match=r"NAMESPACE\.TABLE"):
        to_iceberg(stream, {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db"}, "orders")
