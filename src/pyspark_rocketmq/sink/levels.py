"""The three levels of delivery behind one interface, so that batch and stream writers need not tell them apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from aerobee.errors import InvalidArgumentError
from aerobee.runtime.entropy import SystemEntropy
from aerobee.runtime.process import environment
from pyspark_rocketmq.sink.atleastonce import write_at_least_once
from pyspark_rocketmq.sink.layout import Layout, layout_of
from pyspark_rocketmq.sinkoptions import AT_LEAST_ONCE, SinkOptions, sink_options


class BatchName(NamedTuple):
    """What a replay has in common with its first try: query and batch. The run is another one each time the query (or
    the batch job) is started."""

    query: str
    batch: int
    run: str


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    rows: int
    name: BatchName
    # The upper levels: the epoch that the run has taken.
    epoch: int = 0
    # Exactly-once: the task's own id, and how many chunks of it each broker group holds.
    attempt: str = ""
    chunks: dict[str, int] = field(default_factory=dict)


class Level(Protocol):
    """One level; made on the driver, carried to tasks."""

    def job(self) -> BatchName: ...
    def write(self, name: BatchName, batches: Iterable[pa.RecordBatch]) -> Written: ...
    def commit(self, messages: Sequence[Written | None], batch: int) -> None: ...
    def abort(self, messages: Sequence[Written | None], batch: int) -> None: ...


class AtLeastOnce:
    """Rows are there when write() returns; a task or batch that is done again writes its rows again."""

    def __init__(self, options: SinkOptions, layout: Layout, job_id: str) -> None:
        self.options = options
        self.layout = layout
        self.job_id = job_id

    def job(self) -> BatchName:
        return BatchName(self.job_id, 0, "")

    def write(self, name: BatchName, batches: Iterable[pa.RecordBatch]) -> Written:
        return Written(write_at_least_once(self.options, self.layout, batches), name)

    def commit(self, messages: Sequence[Written | None], batch: int) -> None:
        """Nothing is left to be done."""

    def abort(self, messages: Sequence[Written | None], batch: int) -> None:
        """What was sent stays: at least once."""


def level_of(options: Mapping[str, str], schema: StructType, *, probe: bool = True) -> Level:
    """Options and columns checked; on the driver, which is the only one whose environment counts. `probe`: brokers too,
    which tasks do in any case before they write."""
    read = sink_options(options, environment())
    layout = layout_of(schema, read)
    job_id = read.job_id or f"~job-{SystemEntropy().token(8).hex()}"
    if read.guarantee == AT_LEAST_ONCE:
        return AtLeastOnce(read, layout, job_id)
    from pyspark_rocketmq.sink.marked import marked_level

    level = marked_level(read, layout, job_id)
    if probe:
        level.probe()
    return level


def refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise InvalidArgumentError(
            "mode overwrite: a topic is a log and cannot be overwritten", hint='use .mode("append")'
        )
