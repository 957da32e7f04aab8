"""The writer of `df.writeStream.format("rocketmq")`; Spark makes a new one for each batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from aerobee.model.numbers import parse_int
from pyspark_rocketmq.sink.levels import BatchName, Level, level_of


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """Checks everything that can be wrong before a task starts. `overwrite` is the output mode "complete": all rows of
    the result are appended with each batch, as Kafka's sink does."""
    # Made twice for each batch: brokers are asked by the tasks alone.
    return StreamWriter(level_of(options, schema, probe=False))


class StreamWriter(DataSourceStreamArrowWriter):
    """Rows of one batch of one query."""

    def __init__(self, level: Level) -> None:
        self._level = level

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._level.write(_batch_of_task(), iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 (Spark's name)
        self._level.commit(messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 (Spark's name)
        self._level.abort(messages, batchId)


def _batch_of_task() -> BatchName:
    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    # Spark runs the jobs of a query in a group named after the run: another one each time that the query is started.
    run = context.getLocalProperty("spark.jobGroup.id") if context is not None else None
    if query is None or batch is None or run is None:
        raise RuntimeError("Spark names no query, batch or run to the task: is this pyspark 4.2 or newer?")
    return BatchName(query, parse_int(batch, 0), run)
