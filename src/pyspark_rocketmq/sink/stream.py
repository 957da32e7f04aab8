"""The writer of `df.writeStream.format("rocketmq")`. Spark creates a new one for each batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from aerobee.model.numbers import parse_int
from pyspark_rocketmq.sink.levels import BatchName, Level, level_of
from pyspark_rocketmq.sinkoptions import require_no_job


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """Return the writer of a batch of a stream, after checking options and columns.

    `overwrite` is the output mode "complete": each batch appends all rows of the result, as Kafka's sink does.
    """
    require_no_job(options)
    # Spark creates this twice for each batch, so only tasks ask the brokers.
    return StreamWriter(level_of(options, schema, probe=False))


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of one batch of one query."""

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
    # Spark runs the jobs of a query in a job group named after the run. Each start of the query has another run.
    run = context.getLocalProperty("spark.jobGroup.id") if context is not None else None
    if query is None or batch is None or run is None:
        raise RuntimeError("Spark tells the task no query, batch or run: is this PySpark 4.2 or newer?")
    return BatchName(query, parse_int(batch, 0), run)
