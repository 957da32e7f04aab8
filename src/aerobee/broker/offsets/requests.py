"""Requests about offsets: of groups, and of queues (minimum, maximum, earliest time, search by time).

RocketMQ: ConsumerManageProcessor, AdminBrokerProcessor (getMaxOffset, getMinOffset, searchOffsetByTimestamp,
getEarliestMsgStoretime, queryCorrectionOffset).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aerobee.broker.answers import answer_later, refuse_later
from aerobee.broker.offsets.rules import ConsumerOffsets
from aerobee.broker.refusal import Refusal
from aerobee.broker.topics import Catalog
from aerobee.errors import StoreError
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.protocol.bodies.offsets import QueryCorrectionOffsetBody
from aerobee.protocol.codes import GENERATION_FIELD, NO_TOPIC_FIELD, RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import Header, decode_header
from aerobee.protocol.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    QueryCorrectionOffsetHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from aerobee.runtime.seams import Clock
from aerobee.store.lookup import Boundary
from aerobee.store.messagestore import MessageStore
from aerobee.store.steps import Steps
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

_LONG_MAX: Final = (1 << 63) - 1


class OffsetHandlers:
    """Answers about offsets. Searches that must read the log are answered when it was read."""

    def __init__(self, store: MessageStore, catalog: Catalog, offsets: ConsumerOffsets, clock: Clock) -> None:
        self._store = store
        self._catalog = catalog
        self._offsets = offsets
        self._warn = RateLimitedLog(get_log("broker.offsets"), clock)

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_CONSUMER_OFFSET: self.commit,
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest,
            RequestCode.QUERY_CORRECTION_OFFSET: self.correction,
        }

    # -- of groups

    def commit(self, channel: Channel, command: Command) -> Command:
        header = decode_header(UpdateConsumerOffsetRequestHeader, command)
        group, topic = header.consumer_group, header.topic
        if self._catalog.group_table.get(group) is None:
            remark = f"Group {group} not exist!"
            return response(command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark)
        if self._catalog.find(topic) is None:
            return response(command, ResponseCode.TOPIC_NOT_EXIST, remark=f"Topic {topic} not exist!")
        if not self._is_queue(topic, header.queue_id):
            remark = f"queueId[{header.queue_id}] is illegal, topic[{topic}] has no such queue"
            return response(command, ResponseCode.INVALID_PARAMETER, remark=remark)
        committed = self._offsets.commit(group, topic, header.queue_id, header.commit_offset)
        if not committed.stored:
            return response(command, remark="Offset has been previously reset")
        if committed.went_back_from is not None:
            self._warn.warning(
                f"{topic}@{group}",
                "a consume offset went back",
                group=group,
                topic=topic,
                queue=header.queue_id,
                offset=header.commit_offset,
                before=committed.went_back_from,
                peer=channel.remote_address,
            )
        return response(command)

    def _is_queue(self, topic: str, queue_id: int) -> bool:
        """Tell whether a topic has or had the queue. Offsets of any other would stay in the table for ever."""
        config = self._catalog.find(topic)
        if config is not None and 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums):
            return True
        return self._store.queues.find(topic.encode(), queue_id) is not None

    def query(self, channel: Channel, command: Command) -> Command:
        header = decode_header(QueryConsumerOffsetRequestHeader, command)
        topic, queue_id = header.topic.encode(), header.queue_id
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        found = self._offsets.answer_query(
            header.consumer_group,
            header.topic,
            queue_id,
            set_zero_if_not_found=header.set_zero_if_not_found,
            min_offset=low,
            first_in_memory=lambda: self._first_is_hot(topic, queue_id),
            empty_at=high if low == high and self._has_queue(header.topic, queue_id) else None,
        )
        if isinstance(found, Refusal):
            return response(command, found.code, remark=found.remark)
        return response(command, header=QueryConsumerOffsetResponseHeader(offset=found))

    def _has_queue(self, topic: str, queue_id: int) -> bool:
        config = self._catalog.find(topic)
        return config is not None and 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums)

    def _first_is_hot(self, topic: bytes, queue_id: int) -> bool:
        """Tell whether the queue's first message is in the hot part of the log. RocketMQ: checkInMemByConsumeOffset."""
        queue = self._store.queues.find(topic, queue_id)
        unit = None if queue is None else queue.unit(0)
        return unit is not None and self._store.log_end - unit[0] <= self._store.reads.hot_bytes

    def correction(self, channel: Channel, command: Command) -> Command:
        """Answer with the lowest offset of all groups, or the highest number where the compared group is behind."""
        header = decode_header(QueryCorrectionOffsetHeader, command)
        excluded = [one for one in (header.filter_groups or "").split(",") if one]
        topic = header.topic.encode()
        lowest = self._offsets.min_of_all_groups(
            header.topic, lambda queue_id: self._store.min_offset(topic, queue_id), excluded
        )
        for queue_id, offset in self._offsets.of(header.compare_group, header.topic).items():
            # Apache fails where only the compared group has an offset.
            if lowest.get(queue_id, offset) > offset:
                lowest[queue_id] = _LONG_MAX
        return response(command, body=QueryCorrectionOffsetBody(lowest).encode())

    # -- of queues

    def max_offset(self, channel: Channel, command: Command) -> Command:
        header = decode_header(GetMaxOffsetRequestHeader, command)
        offset = self._store.max_offset(header.topic.encode(), header.queue_id)
        return response(
            command, header=GetMaxOffsetResponseHeader(offset=offset), ext=self._told(command, header.topic)
        )

    def min_offset(self, channel: Channel, command: Command) -> Command:
        header = decode_header(GetMinOffsetRequestHeader, command)
        offset = self._store.min_offset(header.topic.encode(), header.queue_id)
        return response(
            command, header=GetMinOffsetResponseHeader(offset=offset), ext=self._told(command, header.topic)
        )

    def _told(self, command: Command, name: str) -> dict[str, str] | None:
        """Return what a reader of whole topics asks beside an offset: the generation of the topic, or that it is gone.

        A queue of no topic has no messages, so without this its bounds would be those of an empty queue.
        """
        if GENERATION_FIELD not in command.ext:
            return None
        topic = self._catalog.find(name)
        return {NO_TOPIC_FIELD: "true"} if topic is None else {GENERATION_FIELD: topic.generation}

    def search(self, channel: Channel, command: Command) -> None:
        header = decode_header(SearchOffsetRequestHeader, command)
        # RocketMQ: BoundaryType.getType, which takes everything else for LOWER.
        upper = (header.boundary_type or "").lower() == "upper"
        boundary = Boundary.UPPER if upper else Boundary.LOWER
        steps = self._store.offset_by_time(header.topic.encode(), header.queue_id, header.timestamp, boundary)
        self._read(channel, command, steps, lambda offset: SearchOffsetResponseHeader(offset=offset))

    def earliest(self, channel: Channel, command: Command) -> None:
        header = decode_header(GetEarliestMsgStoretimeRequestHeader, command)
        steps = self._store.earliest_time(header.topic.encode(), header.queue_id)
        self._read(channel, command, steps, lambda at: GetEarliestMsgStoretimeResponseHeader(timestamp=at))

    def _read(self, channel: Channel, command: Command, steps: Steps[int], header_of: Callable[[int], Header]) -> None:
        def done(found: int | StoreError) -> None:
            if isinstance(found, StoreError):
                refuse_later(channel, command, ResponseCode.SYSTEM_ERROR, found.message)
            else:
                answer_later(channel, response(command, header=header_of(found)), command)

        self._store.run(steps, done)
