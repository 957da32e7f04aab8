"""The writer of `df.write.format("rocketmq")`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_rocketmq.sink.levels import Level, level_of, refuse_overwrite


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """Return the writer of a batch write, after checking options and columns."""
    refuse_overwrite(overwrite)
    return BatchWriter(level_of(options, schema))


class BatchWriter(DataSourceArrowWriter):
    """The writer of one job. Its rows are one batch, with the number 0 of the job's id."""

    def __init__(self, level: Level) -> None:
        self._level = level

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._level.write(self._level.job(), iterator)

    def commit(self, messages: list[Any]) -> None:
        self._level.commit(messages, 0)

    def abort(self, messages: list[Any]) -> None:
        self._level.abort(messages, 0)
