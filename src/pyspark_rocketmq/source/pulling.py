"""Reading in a task: stored records of queue ranges, pulled ahead of the decoding, as Arrow batches.

Our brokers answer a bulk pull with megabytes of records; a broker that does not know it (Apache's) is remembered and
pulled as a consumer pulls. The next request leaves when the head of an answer is there, before its body is read, so
that the broker, the network and the decoding work at the same time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from aerobee.client.blocking import CONNECTIONS, Call
from aerobee.errors import AerobeeError, TransportError
from aerobee.errors.codes import error_for
from aerobee.model.numbers import parse_int
from aerobee.model.queue import MessageQueue
from aerobee.protocol.codes import PrivateRequestCode, RequestCode, ResponseCode
from aerobee.protocol.command import Command
from aerobee.protocol.headers.bulkpull import BulkPullRequestHeader
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.runtime.blocking import ahead, pause
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.process import keep_freed_memory
from aerobee.runtime.seams import Clock
from pyspark_rocketmq.columns import rows as r
from pyspark_rocketmq.columns.decode import cut
from pyspark_rocketmq.options import Endpoint
from pyspark_rocketmq.source.planning import QueueRange
from pyspark_rocketmq.source.settings import Filter

ANSWER_BYTES: Final = 4 << 20
# Answers read and not decoded yet, for each task.
_DEPTH: Final = 2
_PULL_COUNT: Final = 1024
_FLAG_SUBSCRIPTION: Final = 4
# The group under which Apache's own tools pull: it is there on every broker.
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
_RETRY_PAUSES_S: Final = (0.05, 0.2, 0.5, 1.0)

# Not below "aerobee", which is silent unless asked: this is for the log of the Spark application.
_log = logging.getLogger("pyspark_rocketmq")

# Addresses of brokers that do not know the bulk pull, in this process.
_PLAIN_ONLY: set[str] = set()


class DataLossError(AerobeeError):
    """Messages that should be read are gone."""

    def __init__(self, what: str) -> None:
        super().__init__(what, hint="Set option failOnDataLoss=false to go on without them.")


def tell_losses(losses: Sequence[str], *, fail: bool) -> None:
    """Raise where option failOnDataLoss asks for it, else say it in the log."""
    if losses and fail:
        more = f" (and {len(losses) - 1} more)" if len(losses) > 1 else ""
        raise DataLossError(losses[0] + more)
    for loss in losses:
        _log.warning("data loss: %s", loss)


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """A range and who serves it."""

    range: QueueRange
    address: str


@dataclass
class RangesPartition(InputPartition):
    """What one task reads. Everything it needs travels in it or in the pickled reader."""

    ranges: tuple[PlannedRange, ...]
    # Only messages stored in [low, high); None is open.
    stored_from_ms: int | None = None
    stored_before_ms: int | None = None

    def __post_init__(self) -> None:
        super().__init__(None)


@dataclass(frozen=True, slots=True)
class PullSettings:
    """What all tasks of a read share."""

    endpoint: Endpoint
    filter: Filter
    fail_on_data_loss: bool
    columns: tuple[str, ...]
    group: str | None = None


@dataclass(slots=True)
class RecordChunk:
    """Whole records of a range, as stored."""

    planned: PlannedRange
    data: bytes = field(repr=False)


def read_partition(settings: PullSettings, partition: RangesPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a task's ranges."""
    keep_freed_memory()
    chunks = ahead(lambda: _chunks(settings, partition.ranges), _DEPTH, "rocketmq-pull")
    for chunk in chunks:
        rows = wanted_rows(chunk.data, chunk.planned.range, partition)
        if len(rows):
            yield from cut(chunk.data, rows, settings.columns, broker=chunk.planned.range.queue.broker_name)


def wanted_rows(data: bytes, one: QueueRange, partition: RangesPartition) -> r.Ints:
    """The table of a chunk's records that belong to the range and to the time asked for."""
    rows, consumed, _ = r.scan(data)
    if consumed != len(data):
        raise AerobeeError(
            f"queue {one.queue.queue_id} of topic {one.queue.topic} on {one.queue.broker_name}: the broker's answer "
            f"is damaged at byte {consumed} of {len(data)}"
        )
    offsets = rows[:, r.QUEUE_OFFSET]
    mask = (offsets >= one.start) & (offsets < one.end)
    if partition.stored_from_ms is not None:
        mask &= rows[:, r.STORE_TIMESTAMP] >= partition.stored_from_ms
    if partition.stored_before_ms is not None:
        mask &= rows[:, r.STORE_TIMESTAMP] < partition.stored_before_ms
    return rows if mask.all() else rows[mask]


def _chunks(settings: PullSettings, ranges: Sequence[PlannedRange]) -> Iterator[RecordChunk]:
    for planned in ranges:
        yield from RangePull(settings, planned).chunks()


class RangePull:
    """One range, pulled to its end, over a new connection where one breaks."""

    def __init__(self, settings: PullSettings, planned: PlannedRange, clock: Clock | None = None) -> None:
        self._settings = settings
        self._config = settings.endpoint.client_config()
        self._planned = planned
        self._queue = planned.range.queue
        # The next offset to be read, and the one asked for before its predecessor was read.
        self._at = planned.range.start
        self._clock = clock or SystemClock()
        self._tries = 0
        self._give_up_s = 0.0

    def chunks(self) -> Iterator[RecordChunk]:
        """Every answer that holds records."""
        end = self._planned.range.end
        while self._at < end:
            try:
                yield from self._connected()
            except TransportError as error:
                self._wait_or_raise(error)

    def _connected(self) -> Iterator[RecordChunk]:
        connection = CONNECTIONS.take(self._planned.address, self._config)
        try:
            asked = self._at
            connection.post(self._call(asked))
            while True:
                answer, size = connection.read_head()
                if not answer.is_response:  # the broker's own request, e.g. a check of a producer's
                    connection.read_body(size)
                    connection.unanswered += 1
                    continue
                following = self._judge(answer, asked)
                if following is not None and following < self._planned.range.end:
                    connection.post(self._call(following))
                body = connection.read_body(size)
                self._tries = 0
                if body:
                    yield RecordChunk(self._planned, body)
                if following is None:
                    return
                self._at = asked = following
                if following >= self._planned.range.end:
                    return
        finally:
            CONNECTIONS.give(connection)

    # -- requests

    def _call(self, offset: int) -> Call:
        queue, wanted = self._queue, self._settings.filter
        if self._planned.address in _PLAIN_ONLY:
            header = PullMessageRequestHeader(
                consumer_group=TOOLS_GROUP, topic=queue.topic, queue_id=queue.queue_id, queue_offset=offset,
                max_msg_nums=min(_PULL_COUNT, self._planned.range.end - offset), sys_flag=_FLAG_SUBSCRIPTION,
                commit_offset=0, suspend_timeout_millis=0, subscription=wanted.expression or "*", sub_version=0,
                expression_type=wanted.kind or "TAG", max_msg_bytes=ANSWER_BYTES, bname=queue.broker_name,
            )  # fmt: skip
            return Call(RequestCode.PULL_MESSAGE, header)
        bulk = BulkPullRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, queue_offset=offset, end_offset=self._planned.range.end,
            max_msg_bytes=ANSWER_BYTES, subscription=wanted.expression, expression_type=wanted.kind,
            consumer_group=self._settings.group, bname=queue.broker_name,
        )  # fmt: skip
        return Call(PrivateRequestCode.BULK_PULL, bulk)

    # -- answers

    def _judge(self, answer: Command, asked: int) -> int | None:
        """Where to go on after this answer; None to ask again from where we are."""
        code = answer.code
        if code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and self._planned.address not in _PLAIN_ONLY:
            _PLAIN_ONLY.add(self._planned.address)
            return None
        following = parse_int(answer.ext.get("nextBeginOffset", str(asked)))
        if code == ResponseCode.SUCCESS:
            damaged = parse_int(answer.ext.get("damaged", "0"))
            if damaged:
                self._lost(f"has {damaged} damaged messages between {asked} and {following}")
            return max(following, asked + 1)
        if code == ResponseCode.PULL_RETRY_IMMEDIATELY:  # nothing that the filter takes, or all just deleted
            return max(following, asked + 1)
        if code == ResponseCode.PULL_OFFSET_MOVED and following > asked:
            self._lost(f"begins at {following}: messages from {asked} on were deleted")
            return following
        if code in (ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_NOT_FOUND):
            if following > asked:  # a hole at the end of a file of the queue
                return following
            self._lost(f"ends at {following}: messages up to {self._planned.range.end - 1} are gone")
            return self._planned.range.end
        error = error_for(code, answer.remark or "", f"{self._queue.broker_name} ({self._planned.address})")
        if error.retriable and code in (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE):
            self._wait_or_raise(error)
            return None
        raise error

    def _lost(self, what: str) -> None:
        queue = self._queue
        text = f"queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name} {what}"
        if self._settings.fail_on_data_loss:
            raise DataLossError(text)
        _log.warning("data loss: %s", text)

    def _wait_or_raise(self, error: AerobeeError) -> None:
        """A broker may be away for a while: wait a little, and in all no longer than option retryTimeoutMs."""
        now_s = self._clock.monotonic()
        if self._tries == 0:
            self._give_up_s = now_s + self._settings.endpoint.retry_timeout_ms / 1000
        if now_s >= self._give_up_s:
            raise error
        pause(_RETRY_PAUSES_S[min(self._tries, len(_RETRY_PAUSES_S) - 1)])
        self._tries += 1


def sample_mean_bytes(endpoint: Endpoint, queue: MessageQueue, address: str, offset: int) -> float | None:
    """What messages at an offset weigh on average; None where none could be read."""
    settings = PullSettings(endpoint, Filter(), False, ())
    pull = RangePull(settings, PlannedRange(QueueRange(queue, offset, offset + 32), address))
    sizes: list[int] = []
    for chunk in pull.chunks():
        rows, consumed, _ = r.scan(chunk.data)
        if len(rows):
            sizes.append(consumed // len(rows))
        break
    return sizes[0] * 1.0 if sizes else None
