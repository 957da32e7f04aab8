"""How a task reads: it pulls the stored records of queue ranges ahead of the decoding, and returns Arrow batches.

Aerobee's broker answers a bulk pull with megabytes of records. A broker that does not know it (Apache's) is remembered
and pulled as a consumer pulls. The next request leaves when the head of an answer is there, before its body is read, so
that the broker, the network and the decoding work at the same time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from aerobee.client.blocking import CONNECTIONS, BlockingClient, Call
from aerobee.errors import AerobeeError, TransportError
from aerobee.errors.codes import error_for
from aerobee.hot.log.lean import ALL_PARTS, BODY, PROPERTIES
from aerobee.model.numbers import int_or, parse_int
from aerobee.model.queue import MessageQueue
from aerobee.protocol.codes import PrivateRequestCode, RequestCode, ResponseCode
from aerobee.protocol.command import Command
from aerobee.protocol.headers.bulkpull import OFFSETS_ONLY, BulkPullRequestHeader
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.runtime.blocking import ahead, pause
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.process import keep_freed_memory
from aerobee.runtime.seams import Clock
from pyspark_rocketmq.columns import rows as r
from pyspark_rocketmq.columns import schema as c
from pyspark_rocketmq.columns.decode import cut
from pyspark_rocketmq.columns.places import place_batch
from pyspark_rocketmq.options import Endpoint
from pyspark_rocketmq.source.backfill import ArchivedPart, read_part
from pyspark_rocketmq.source.missing import MissingBrokerError, MissingPart
from pyspark_rocketmq.source.planning import QueueRange
from pyspark_rocketmq.source.settings import Filter

ANSWER_BYTES: Final = 4 << 20
# The same for answers without bodies, counted as they are stored.
LEAN_ANSWER_BYTES: Final = 8 << 20
# How many answers of a task are read and not decoded yet.
_DEPTH: Final = 2
_PULL_COUNT: Final = 1024
# The columns that need a body or properties. The flags say how the body is stored: without it they would be others.
_OF_BODY: Final = frozenset({c.BODY, c.SYS_FLAG})
_OF_PROPERTIES: Final = frozenset({c.KEYS, c.TAGS, c.MESSAGE_ID, c.PROPERTIES, c.SYSTEM_PROPERTIES})
# The columns that are known without a record, where the broker says which offsets have one.
_OF_PLACE: Final = frozenset({c.TOPIC, c.BROKER, c.QUEUE_ID, c.QUEUE_OFFSET})
_FLAG_SUBSCRIPTION: Final = 4
# The group under which Apache's own tools pull. Every broker has it.
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
# The remark where all messages of an answer were deleted while it was made. RocketMQ: GetMessageStatus.
_REMOVED: Final = "MESSAGE_WAS_REMOVING"
_RETRY_PAUSES_S: Final = (0.05, 0.2, 0.5, 1.0)

# Not below "aerobee", which logs nothing by default: these lines are for the log of the Spark application.
_log = logging.getLogger("pyspark_rocketmq")

# The addresses of brokers that do not know the bulk pull.
_PLAIN_ONLY: set[str] = set()


class DataLossError(AerobeeError):
    """Messages that should be read do not exist any more."""

    def __init__(self, what: str) -> None:
        super().__init__(
            what,
            hint="Set option failOnDataLoss=false to go on without them, or option archive if an archive holds them.",
        )


def tell_losses(losses: Sequence[str], *, fail: bool) -> None:
    """Raise where option failOnDataLoss asks for it, else log the losses."""
    if losses and fail:
        more = f" (and {len(losses) - 1} more)" if len(losses) > 1 else ""
        raise DataLossError(losses[0] + more)
    for loss in losses:
        _log.warning("data loss: %s", loss)


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """A range of a queue, and the address of the broker that serves it."""

    range: QueueRange
    address: str


@dataclass
class RangesPartition(InputPartition):
    """The ranges that one task reads. Spark pickles it, with the reader, and sends both to the task."""

    ranges: tuple[PlannedRange, ...]
    # What is read from archived files instead of brokers.
    archived: tuple[ArchivedPart, ...] = ()
    # Only messages that were stored in [from, before); None is no limit.
    stored_from_ms: int | None = None
    stored_before_ms: int | None = None

    def __post_init__(self) -> None:
        super().__init__(None)


@dataclass(frozen=True, slots=True)
class PullSettings:
    """The settings that all tasks of a read share."""

    endpoint: Endpoint
    filter: Filter
    fail_on_data_loss: bool
    columns: tuple[str, ...]
    group: str | None = None
    # What Aerobee's broker sends of each record, see `parts_of`.
    parts: int = ALL_PARTS


@dataclass(slots=True)
class RecordChunk:
    """Whole records of a range, as the broker stores them."""

    planned: PlannedRange
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class OffsetsChunk:
    """Messages of a range by their offsets alone: `count` of them, from `first` on."""

    planned: PlannedRange
    first: int
    count: int


def read_partition(settings: PullSettings, partition: RangesPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task's ranges."""
    keep_freed_memory()
    tags = tag_set(settings.filter)
    columns = settings.columns
    if tags is not None and c.TAGS not in columns:
        columns = (*columns, c.TAGS)
    for part in partition.archived:
        for batch in read_part(part, columns):
            if tags is None:
                yield batch
            else:
                yield from _with_tags(batch, tags, settings.columns)
    if not partition.ranges:
        return
    is_timed = partition.stored_from_ms is not None or partition.stored_before_ms is not None
    is_placed = needs_no_record(columns, settings.filter) and not is_timed
    settings = replace(settings, parts=OFFSETS_ONLY if is_placed else parts_of(columns))
    chunks = ahead(lambda: _chunks(settings, partition.ranges), _DEPTH, "rocketmq-pull")
    for chunk in chunks:
        if isinstance(chunk, OffsetsChunk):
            yield from _placed(chunk, columns)
            continue
        rows = wanted_rows(chunk.data, chunk.planned.range, partition)
        if not len(rows):
            continue
        for batch in cut(chunk.data, rows, columns, broker=chunk.planned.range.queue.broker_name):
            if tags is None:
                yield batch
            else:
                yield from _with_tags(batch, tags, settings.columns)


def needs_no_record(columns: Sequence[str], wanted: Filter) -> bool:
    """Return whether the places of messages are all that is asked: a count needs no more."""
    return wanted.expression is None and _OF_PLACE.issuperset(columns)


def _placed(chunk: OffsetsChunk, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of messages whose offsets are all that is known of them."""
    one = chunk.planned.range
    first, stop = max(chunk.first, one.start), min(chunk.first + chunk.count, one.end)
    if first < stop:
        yield place_batch(one.queue, first, stop - first, columns)


def parts_of(columns: Sequence[str]) -> int:
    """Return which parts of a record these columns need beside its fixed fields."""
    body = BODY if _OF_BODY.intersection(columns) else 0
    return body | (PROPERTIES if _OF_PROPERTIES.intersection(columns) else 0)


def tag_set(wanted: Filter) -> pa.Array | None:
    """Return the tags that an expression of tags names, or None for another filter."""
    if wanted.kind != "TAG" or wanted.expression is None:
        return None
    return pa.array([tag.strip() for tag in wanted.expression.split("||") if tag.strip()], pa.string())


def _with_tags(batch: pa.RecordBatch, tags: pa.Array, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that have one of the tags. The broker compares only the hash of tags, as it does for consumers."""
    import pyarrow.compute as pc  # it takes a while, and most reads do not need it

    found = batch.filter(pc.is_in(batch.column(c.TAGS), value_set=tags)).select(list(columns))
    if found.num_rows:
        yield found


def wanted_rows(data: bytes, one: QueueRange, partition: RangesPartition) -> r.Ints:
    """Return the records of a chunk that belong to the range and to the time asked for, as a table of numbers."""
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


def _chunks(settings: PullSettings, ranges: Sequence[PlannedRange]) -> Iterator[RecordChunk | OffsetsChunk]:
    for planned in ranges:
        yield from RangePull(settings, planned).chunks()


class RangePull:
    """The pull of one range to its end. Where a connection breaks, it goes on over a new one."""

    def __init__(self, settings: PullSettings, planned: PlannedRange, clock: Clock | None = None) -> None:
        self._settings = settings
        self._config = settings.endpoint.client_config()
        self._planned = planned
        self._queue = planned.range.queue
        # The next offset to be read.
        self._at = planned.range.start
        self._clock = clock or SystemClock()
        self._tries = 0
        self._give_up_s = 0.0
        # Where the queue ended last, against what the master says.
        self._doubted = -1

    def chunks(self) -> Iterator[RecordChunk | OffsetsChunk]:
        """Yield every answer that holds or names messages."""
        end = self._planned.range.end
        while self._at < end:
            try:
                yield from self._connected()
            except TransportError as error:
                self._wait_or_raise(error)

    def _connected(self) -> Iterator[RecordChunk | OffsetsChunk]:
        connection = CONNECTIONS.take(self._planned.address, self._config)
        try:
            asked = self._at
            connection.post(self._call(asked))
            while True:
                answer, size = connection.read_head()
                if not answer.is_response:  # a request of the broker, such as the check of a transaction
                    connection.read_body(size)
                    connection.unanswered += 1
                    continue
                following = self._judge(answer, asked)
                if following is not None and following < self._planned.range.end:
                    connection.post(self._call(following))
                body = connection.read_body(size)
                if following is not None:
                    self._tries = 0
                if body:
                    yield RecordChunk(self._planned, body)
                elif "count" in answer.ext:
                    yield self._counted(answer, asked, following)
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
            max_msg_bytes=ANSWER_BYTES if self._settings.parts & BODY else LEAN_ANSWER_BYTES,
            subscription=wanted.expression, expression_type=wanted.kind,
            consumer_group=self._settings.group, bname=queue.broker_name, generation=self._planned.range.generation,
            parts=None if self._settings.parts == ALL_PARTS else self._settings.parts,
        )  # fmt: skip
        return Call(PrivateRequestCode.BULK_PULL, bulk)

    # -- answers

    def _judge(self, answer: Command, asked: int) -> int | None:
        """Return the offset to go on at after this answer, None to ask again for the same."""
        code = answer.code
        if code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and self._planned.address not in _PLAIN_ONLY:
            _PLAIN_ONLY.add(self._planned.address)
            return None
        following = parse_int(answer.ext.get("nextBeginOffset", str(asked)))
        if code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
            following = max(following, asked + 1)
            damaged = parse_int(answer.ext.get("damaged", "0"))
            if damaged:
                self._lost(f"has {damaged} damaged messages between {asked} and {following}")
            elif answer.remark == _REMOVED:
                self._lost(f"has no messages from {asked} to {following - 1} any more: they were just deleted")
            return following
        if code == ResponseCode.PULL_OFFSET_MOVED and following > asked:
            self._lost(f"begins at {following}: messages from {asked} on were deleted")
            return following
        if code in (ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_NOT_FOUND):
            if following > asked:
                self._lost(f"has no file that tells where its messages {asked} to {following - 1} are")
                return following
            return self._ended(asked, following)
        if code == ResponseCode.TOPIC_NOT_EXIST:
            self._lost(f"is gone, with its messages from {asked} on: {answer.remark}")
            return self._planned.range.end
        error = error_for(code, answer.remark or "", f"{self._queue.broker_name} ({self._planned.address})")
        if error.retriable and code in (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE):
            self._wait_or_raise(error)
            return None
        raise error

    def _counted(self, answer: Command, asked: int, following: int | None) -> OffsetsChunk:
        """Return the messages that an answer without records counts. They are those from `asked` to `following`."""
        first, count = int_or(answer.ext.get("firstOffset"), -1), int_or(answer.ext["count"], -1)
        if first != asked or count < 1 or first + count != following:
            raise AerobeeError(
                f"queue {self._queue.queue_id} of topic {self._queue.topic} on {self._queue.broker_name}: the broker "
                f"counts {count} messages at {first} up to {following}, and was asked for those at {asked}"
            )
        return OffsetsChunk(self._planned, first, count)

    def _ended(self, asked: int, end: int) -> int | None:
        """Return the end of the range, since the queue ends before it, or None to ask a broker that is not behind."""
        if self._is_behind(asked):
            self._wait_or_raise(TransportError("it is behind the master of its group", broker=self._planned.address))
            return None
        self._lost(f"ends at {end}: messages up to {self._planned.range.end - 1} are gone")
        return self._planned.range.end

    def _is_behind(self, asked: int) -> bool:
        """Tell whether the broker that was asked may only be behind: a replica that was away does not have yet what the
        master of its group has."""
        client, queue = BlockingClient(self._config), self._queue
        try:
            client.route(queue.topic)
            address = client.require_address(queue)
            end = client.end_offsets([queue])[queue]
        except TransportError:
            return True
        if end < self._planned.range.end:
            return False
        # It may have become the master since it was asked.
        is_first, self._doubted = self._doubted != asked, asked
        return is_first or address != self._planned.address

    def _lost(self, what: str) -> None:
        queue = self._queue
        text = f"queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name} {what}"
        if self._settings.fail_on_data_loss:
            raise DataLossError(text)
        _log.warning("data loss: %s", text)

    def _wait_or_raise(self, error: AerobeeError) -> None:
        """Wait before the next try while a broker is away. Raise after the time of option retryTimeoutMs."""
        now_s = self._clock.monotonic()
        if self._tries == 0:
            self._give_up_s = now_s + self._settings.endpoint.retry_timeout_ms / 1000
        if now_s >= self._give_up_s:
            if not isinstance(error, TransportError):
                raise error
            queue = self._queue
            reason = f"cannot be reached: {error.message}"
            raise MissingBrokerError([MissingPart(queue.topic, queue.broker_name, reason)]) from error
        pause(_RETRY_PAUSES_S[min(self._tries, len(_RETRY_PAUSES_S) - 1)])
        self._tries += 1
        self._find_again()

    def _find_again(self) -> None:
        """Ask where the broker group is now: another replica may have become its master."""
        client = BlockingClient(self._config)
        try:
            client.route(self._queue.topic)
        except AerobeeError:
            return  # the known address is tried again
        address = client.address_of(self._queue)
        if address is not None:
            self._planned = replace(self._planned, address=address)


def sample_mean_bytes(endpoint: Endpoint, queue: MessageQueue, address: str, offset: int) -> float | None:
    """Return the average size of the messages at an offset, None where none could be read."""
    settings = PullSettings(endpoint, Filter(), False, ())
    pull = RangePull(settings, PlannedRange(QueueRange(queue, offset, offset + 32), address))
    sizes: list[int] = []
    for chunk in pull.chunks():
        if not isinstance(chunk, RecordChunk):
            continue
        rows, consumed, _ = r.scan(chunk.data)
        if len(rows):
            sizes.append(consumed // len(rows))
        break
    return sizes[0] * 1.0 if sizes else None
