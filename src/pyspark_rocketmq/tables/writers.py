"""Streams into tables: the functions that users call, and what happens in each batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_rocketmq.tables.files import TaskWriter
from pyspark_rocketmq.tables.values import (
    FileStore,
    TableError,
    TableFormat,
    WrittenFile,
    require_partition_columns,
    require_storable,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def to_delta(
    stream: DataFrame, path: str, *, partition_by: Sequence[str] = (), merge_schema: bool = False
) -> DataStreamWriter:
    """Return a writer of a stream into the Delta table at `path`, not started yet.

    Each batch is in the table exactly once. The table is created now if it does not exist.
    """
    columns = _checked(stream, partition_by)
    return _writer(stream, DeltaTarget(str(path), columns, merge_schema), columns)


def to_iceberg(
    stream: DataFrame,
    catalog: str | Mapping[str, str],
    table: str,
    *,
    partition_by: Sequence[str] = (),
    merge_schema: bool = False,
) -> DataStreamWriter:
    """Return a writer of a stream into an Iceberg table (`namespace.table`), not started yet.

    `catalog` is the name of a catalog in pyiceberg's configuration, or its properties (`type`, `uri`, `warehouse` ...).
    Each batch is in the table exactly once. The table is created now if it does not exist.
    """
    columns = _checked(stream, partition_by)
    named = catalog if isinstance(catalog, str) else dict(catalog)
    return _writer(stream, IcebergTarget(named, table, columns, merge_schema), columns)


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    """The arguments of `to_delta`."""

    path: str
    partition_by: tuple[str, ...]
    merge_schema: bool

    def open(self) -> TableFormat:
        from pyspark_rocketmq.tables.delta import DeltaFormat

        return DeltaFormat(self.path, self.partition_by, self.merge_schema)


@dataclass(frozen=True, slots=True)
class IcebergTarget:
    """The arguments of `to_iceberg`."""

    catalog: str | dict[str, str]
    table: str
    partition_by: tuple[str, ...]
    merge_schema: bool

    def open(self) -> TableFormat:
        from pyspark_rocketmq.tables.iceberg import IcebergFormat

        return IcebergFormat(self.catalog, self.table, self.partition_by, self.merge_schema)


def _checked(stream: DataFrame, partition_by: Sequence[str]) -> tuple[str, ...]:
    if not stream.isStreaming:
        raise TableError("this DataFrame is not a stream", hint="use spark.readStream, not spark.read")
    if not hasattr(stream.sparkSession, "sparkContext"):
        raise TableError(
            "tables need the classic API: Spark Connect tells no batch of which query it is",
            hint="run the query with pyspark_rocketmq.session.session(), or by aerobee pipeline start",
        )
    if isinstance(partition_by, str):
        raise TableError("partition_by is a list of columns", hint=f"partition_by=[{partition_by!r}]")
    columns, schema = tuple(partition_by), arrow_schema(stream)
    require_storable(schema)
    require_partition_columns(schema, columns)
    return columns


def _writer(stream: DataFrame, target: DeltaTarget | IcebergTarget, columns: tuple[str, ...]) -> DataStreamWriter:
    # A missing library, and a table whose columns do not fit, are told now and not in the first batch.
    target.open().prepare(arrow_schema(stream))
    return stream.writeStream.foreachBatch(TableBatches(target, columns))


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Return the columns of a DataFrame as Arrow's. Each of them may be null, and times are UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    found = to_arrow_schema(frame.schema, timezone="UTC")
    return pa.schema([field.with_nullable(True) for field in found])


class TableBatches:
    """What the driver does with each batch. Spark calls it with the rows and the number of the batch."""

    def __init__(self, target: DeltaTarget | IcebergTarget, partition_by: tuple[str, ...]) -> None:
        self._target = target
        self._partition_by = partition_by

    def __call__(self, rows: DataFrame, batch: int) -> None:
        table = self._target.open()
        schema = arrow_schema(rows)
        store = table.prepare(schema)
        query = _query_of_driver(rows)
        if query is not None and table.committed(query) >= batch:
            return  # it was committed before the driver that ran it ended
        files = self.write(rows, store, schema, batch, table.keeps_partition_columns, query)
        if files and not table.commit(files, files[0].query, batch, schema):
            table.discard(files)

    def write(
        self, rows: DataFrame, store: FileStore, schema: pa.Schema, batch: int, keeps: bool, query: str | None
    ) -> list[WrittenFile]:
        """Return the files that the tasks have written."""
        task = TaskWriter(store, schema, self._partition_by, keeps, batch, query)

        def run(batches: Any) -> Any:
            return task(batches)

        found = rows.mapInArrow(run, "file string").collect()
        return [WrittenFile.from_text(row[0]) for row in found]


def _query_of_driver(rows: DataFrame) -> str | None:
    """Return the query's id, which Spark keeps in the checkpoint; None where only tasks are told (Spark Connect)."""
    context = getattr(rows.sparkSession, "sparkContext", None)
    found = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    return found or None
