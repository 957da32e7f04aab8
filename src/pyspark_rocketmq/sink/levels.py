"""The three delivery guarantees behind one interface, which batch and stream writers use."""

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
from pyspark_rocketmq.sink.client import SinkClient
from pyspark_rocketmq.sink.layout import Layout, layout_of
from pyspark_rocketmq.sinkoptions import AT_LEAST_ONCE, SinkOptions, sink_options


class BatchName(NamedTuple):
    """The name of a batch. A replay has the same query and batch. Each start of the query or job has another run."""

    query: str
    batch: int
    run: str


@dataclass
class Written(WriterCommitMessage):
    """The message of a task to the driver."""

    rows: int
    name: BatchName
    # For the upper levels: the epoch of the run.
    epoch: int = 0
    # For exactly-once: the attempt, and how many chunks of it each broker group has.
    attempt: str = ""
    chunks: dict[str, int] = field(default_factory=dict)
    # Rows that the task received and did not write, because the batch was committed before.
    dropped: int = 0


class Level(Protocol):
    """One delivery guarantee. It is created on the driver and sent to tasks."""

    def job(self) -> BatchName: ...
    def write(self, name: BatchName, batches: Iterable[pa.RecordBatch]) -> Written: ...
    def commit(self, messages: Sequence[Written | None], batch: int) -> None: ...
    def abort(self, messages: Sequence[Written | None], batch: int) -> None: ...


class AtLeastOnce:
    """Rows are stored when write() returns. A task or batch that is run again writes its rows again."""

    def __init__(self, options: SinkOptions, layout: Layout, job_id: str) -> None:
        self.options = options
        self.layout = layout
        self.job_id = job_id

    def job(self) -> BatchName:
        return BatchName(self.job_id, 0, "")

    def write(self, name: BatchName, batches: Iterable[pa.RecordBatch]) -> Written:
        return Written(write_at_least_once(self.options, self.layout, batches), name)

    def commit(self, messages: Sequence[Written | None], batch: int) -> None:
        """Do nothing: the rows are stored already."""

    def abort(self, messages: Sequence[Written | None], batch: int) -> None:
        """Do nothing: rows that were sent stay."""


def level_of(options: Mapping[str, str], schema: StructType, *, probe: bool = True) -> Level:
    """Return the level of a write after checking options and columns.

    Only the driver calls this, and its environment counts. `probe` checks the brokers too. Tasks do this in any case
    before they write.
    """
    read = sink_options(options, environment())
    if read.body is None:
        return _level(read, schema, probe)
    from pyspark_rocketmq.sink.typed import EncodingLevel, body_writer

    schema, bodies = body_writer(read, read.body, schema)
    return EncodingLevel(_level(read, schema, probe), bodies)


def _level(read: SinkOptions, schema: StructType, probe: bool) -> Level:
    layout = layout_of(schema, read)
    job_id = read.job_id or f"~job-{SystemEntropy().token(8).hex()}"
    if probe and read.topic is not None:
        with SinkClient(read) as client:
            client.publish(read.topic)
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
