"""BULK_PULL, a request of ours: the stored records of one queue, from an offset, several megabytes an answer.

It serves readers of whole queues (Spark, copies). It needs no group, keeps no subscription, commits and holds nothing,
and the bounds that the configuration sets for consumers do not apply. A queue beyond a topic's number of read queues
may be read too, so that what was written before a topic was shrunk is not out of reach. See docs/formats/private.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aerobee.broker.config import BrokerConfig
from aerobee.broker.flowcontrol import FlowControl, Work
from aerobee.broker.membership import Acceptor, ConsumerFilters, parse_subscription
from aerobee.broker.pull.rules import answer_code
from aerobee.broker.refusal import Refusal, filters_are_off, see_faq
from aerobee.broker.stats import BrokerStats
from aerobee.broker.topics import Catalog
from aerobee.errors import InvalidArgumentError, StoreError
from aerobee.hot.log.lean import ALL_PARTS, lean_records
from aerobee.model.topic import PERM_READ
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.protocol.codes import PrivateRequestCode, ResponseCode
from aerobee.protocol.command import Command, encode_head, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.bulkpull import OFFSETS_ONLY, BulkPullRequestHeader, BulkPullResponseHeader
from aerobee.runtime.process import keep_freed_memory
from aerobee.runtime.seams import Clock
from aerobee.store.messagestore import MessageStore
from aerobee.store.reads import GetMessageStatus, GetResult
from aerobee.store.runs import CountedRun, run_of

# One answer is made in one go in the loop's thread, and is one frame (of at most 16 MiB).
ANSWER_BYTES_MAX: Final = 8 << 20
ANSWER_COUNT_MAX: Final = 1 << 15
# Of an answer that only counts. It looks at 20 bytes for each message.
RUN_COUNT_MAX: Final = 1 << 16
_STATISTICS_GROUP: Final = "TOOLS_CONSUMER"


class BulkPullHandler:
    """Serves bulk pulls."""

    def __init__(
        self,
        store: MessageStore,
        catalog: Catalog,
        filters: ConsumerFilters,
        stats: BrokerStats,
        flow: FlowControl,
        config: Callable[[], BrokerConfig],
        clock: Clock,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._filters = filters
        self._stats = stats
        self._flow = flow
        self._config = config
        self._clock = clock
        self._is_asked = False

    def handlers(self) -> dict[int, Handler]:
        return {PrivateRequestCode.BULK_PULL: self.on_bulk_pull}

    def on_bulk_pull(self, channel: Channel, command: Command) -> Command | None:
        header = decode_header(BulkPullRequestHeader, command)
        if not self._is_asked:
            # Faulting in the memory of each answer again costs twice as much as reading and sending the records.
            keep_freed_memory()
            self._is_asked = True
        refusal = self._refusal(header)
        if refusal is not None:
            return response(command, refusal.code, remark=refusal.remark)
        try:
            tags, accept = self._filter(header)
        except InvalidArgumentError as error:
            remark = f"parse the consumer's subscription failed: {error.message}"
            return response(command, ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark=remark)
        if header.parts == OFFSETS_ONLY and tags is None and accept is None:
            count_max = max(1, min(header.end_offset - header.queue_offset, RUN_COUNT_MAX))
            run = run_of(self._store, header.topic.encode(), header.queue_id, header.queue_offset, count_max)
            if run is not None:
                return self._run_answer(command, run)
        self._read(channel, command, header, tags, accept)
        return None

    def _read(
        self,
        channel: Channel,
        command: Command,
        header: BulkPullRequestHeader,
        tags: frozenset[int] | None,
        accept: Callable[[bytes], bool] | None,
    ) -> None:
        """Read the records and answer, after a while if they are not in memory."""
        result = self._store.get_messages(
            header.topic.encode(),
            header.queue_id,
            header.queue_offset,
            max(1, min(header.end_offset - header.queue_offset, ANSWER_COUNT_MAX)),
            max(1, min(header.max_msg_bytes, ANSWER_BYTES_MAX)),
            tags,
            accept,
            bulk=True,
        )
        if result.status is not GetMessageStatus.COLD:
            self._answer(channel, command, header, result)
            return

        def fetched(outcome: GetResult | StoreError) -> None:
            if isinstance(outcome, GetResult) and outcome.removed and not channel.closed:
                # Retention deleted what was about to be read. A reader that got the rest would not notice. Read again:
                # the answer is now that the queue begins later.
                self._read(channel, command, header, tags, accept)
            else:
                self._fetched(channel, command, header, outcome)

        self._store.fetch(result, fetched)

    def _run_answer(self, command: Command, run: CountedRun) -> Command:
        """Return the answer that names the offsets of messages and holds none."""
        told = BulkPullResponseHeader(
            next_begin_offset=run.stop,
            min_offset=run.min_offset,
            max_offset=run.max_offset,
            first_offset=run.first,
            count=run.count,
            size=run.size,
        )
        return response(command, ResponseCode.SUCCESS, told, remark=GetMessageStatus.FOUND.value)

    def _refusal(self, header: BulkPullRequestHeader) -> Refusal | None:
        busy = self._flow.busy(Work.PULL, self._clock.monotonic())
        if busy is not None:
            return Refusal(ResponseCode.SYSTEM_BUSY, busy)
        config = self._config()
        if not config.broker_permission & PERM_READ:
            remark = f"the broker[{config.broker_ip1}] pulling message is forbidden"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        topic = self._catalog.find(header.topic)
        if topic is None:
            remark = see_faq(f"topic[{header.topic}] not exist, apply first please! ")
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.is_readable:
            return Refusal(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden")
        if header.generation is not None and header.generation != topic.generation:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] was deleted and created again")
        return None

    def _filter(self, header: BulkPullRequestHeader) -> tuple[frozenset[int] | None, Callable[[bytes], bool] | None]:
        """Return the filter of a pull: by the hash of tags, or by properties."""
        found = parse_subscription(header.topic, header.subscription, header.expression_type)
        if found.by_tags:
            codes = found.tag_codes()
            return (None if codes is None else frozenset(codes)), None
        if not self._config().enable_property_filter:
            raise InvalidArgumentError(filters_are_off(found.expression_type))
        return None, Acceptor(self._filters.compile(found.expression, found.expression_type))

    def _fetched(
        self, channel: Channel, command: Command, header: BulkPullRequestHeader, outcome: GetResult | StoreError
    ) -> None:
        if channel.closed:
            return
        if isinstance(outcome, StoreError):
            remark = f"the log cannot be read: {outcome.message}"
            channel.send(response(command, ResponseCode.SYSTEM_ERROR, remark=remark))
        else:
            self._answer(channel, command, header, outcome)

    def _answer(self, channel: Channel, command: Command, header: BulkPullRequestHeader, result: GetResult) -> None:
        status = result.status.value
        told = BulkPullResponseHeader(
            next_begin_offset=result.next_begin_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            damaged=result.damaged,
        )
        answer = response(command, answer_code(status, header.queue_offset), told, remark=status)
        if result.count:
            # An unknown group would be counted under its name for ever.
            known = self._catalog.group_table.get(header.consumer_group or "") is not None
            group = header.consumer_group if known and header.consumer_group else _STATISTICS_GROUP
            self._stats.get(group, header.topic, result.count, result.size, self._clock.now_ms())
        if header.parts is not None and (header.parts & ALL_PARTS) != ALL_PARTS:
            result.buffers = [lean_records(bytes(piece), header.parts) for piece in result.buffers]
            result.size = sum(map(len, result.buffers))
        for piece in result.answer(encode_head(answer, result.size)):
            channel.write(piece)
