"""The tasks' side of a table write: the rows of a task become Parquet files, one or more for each partition."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from aerobee.runtime.entropy import SystemEntropy
from pyspark_rocketmq.tables.values import FileStore, WrittenFile

# If a task has more files open than this, it closes them all and begins new ones.
_OPEN_MAX: Final = 128
_FILE_BYTES: Final = 512 << 20
_Values = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TaskWriter:
    """What a task must know. Spark calls it with the rows of the task, and gets one row for each file."""

    store: FileStore
    schema: pa.Schema
    partition_by: tuple[str, ...]
    keeps_partition_columns: bool
    batch: int
    query: str | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        query = self.query or _query_of_task()
        made = _Files(self, query)
        try:
            for one in batches:
                made.write(one)
            found = made.close()
        finally:
            made.abandon()
        yield pa.RecordBatch.from_pydict({"file": [one.to_text() for one in found]})


def _query_of_task() -> str:
    from pyspark import TaskContext

    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    if query is None:
        raise RuntimeError("Spark tells the task no query: tables can be written by streams only")
    return query


class _Files:
    """The open files of one task."""

    def __init__(self, task: TaskWriter, query: str) -> None:
        self._task = task
        self._query = query
        self._name = f"part-{task.batch:08d}-{SystemEntropy().token(16).hex()}"
        self._count = 0
        self._open: dict[_Values, _OpenFile] = {}
        self._closed: list[WrittenFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        batch = batch.cast(self._task.schema)
        for values, part in split(batch, self._task.partition_by):
            if not self._task.keeps_partition_columns and self._task.partition_by:
                part = part.drop_columns(list(self._task.partition_by))
            self._file(values, part.schema).write(part)
            if self._open[values].size > _FILE_BYTES:
                self._close(values)

    def _file(self, values: _Values, schema: pa.Schema) -> _OpenFile:
        if values not in self._open:
            if len(self._open) >= _OPEN_MAX:
                self._close_all()
            name = f"{self._name}-{self._count:05d}.parquet"
            self._count += 1
            self._open[values] = _OpenFile(self._task.store, name, schema)
        return self._open[values]

    def _close(self, values: _Values) -> None:
        one = self._open.pop(values)
        one.close()
        named = dict(zip(self._task.partition_by, values, strict=True))
        place = self._task.store.place(one.name)
        self._closed.append(WrittenFile(place, one.size, one.rows, named, self._query))

    def _close_all(self) -> None:
        for values in list(self._open):
            self._close(values)

    def close(self) -> list[WrittenFile]:
        self._close_all()
        return self._closed

    def abandon(self) -> None:
        """Close what an error left open. The files belong to no transaction."""
        for one in self._open.values():
            with contextlib.suppress(OSError, pa.ArrowException):
                one.close()


class _OpenFile:
    """One Parquet file that is being written."""

    def __init__(self, store: FileStore, name: str, schema: pa.Schema) -> None:
        self.name = name
        self.rows = 0
        self.size = 0
        self._stack = contextlib.ExitStack()
        self._sink = self._stack.enter_context(store.create(name))
        self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd")

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)
        self.rows += batch.num_rows
        self.size = self._sink.tell()

    def close(self) -> None:
        try:
            self._writer.close()
            self.size = self._sink.tell()
        finally:
            self._stack.close()


def split(batch: pa.RecordBatch, columns: tuple[str, ...]) -> Iterator[tuple[_Values, pa.RecordBatch]]:
    """Yield the rows of each partition, in their order."""
    if not batch.num_rows:
        return
    if not columns:
        yield (), batch
        return
    keys = pa.Table.from_batches([batch]).select(list(columns))
    distinct = keys.group_by(list(columns)).aggregate([]).to_pylist()
    for one in distinct:
        mask = None
        for name in columns:
            column = batch.column(name)
            is_equal = pc.is_null(column) if one[name] is None else pc.equal(column, pa.scalar(one[name], column.type))
            is_equal = pc.fill_null(is_equal, False)
            mask = is_equal if mask is None else pc.and_(mask, is_equal)
        yield tuple(one[name] for name in columns), batch.filter(mask)
