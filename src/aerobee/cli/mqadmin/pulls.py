"""Pulls as mqadmin makes them: raw records of one queue, with the properties that Apache's pull consumer adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aerobee.cli.mqadmin.printed import moment_of
from aerobee.cli.mqadmin.tool import Tool
from aerobee.errors import InvalidArgumentError
from aerobee.errors.codes import error_for
from aerobee.hot.log.properties import decode_properties
from aerobee.hot.log.record import Record, decode_records
from aerobee.model.ids import offset_message_id
from aerobee.model.message import from_record
from aerobee.model.queue import MessageQueue
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from aerobee.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader

TOOLS_CONSUMER: Final = "TOOLS_CONSUMER"
FOUND: Final = "FOUND"
# What a pull without messages means. RocketMQ: MQClientAPIImpl.processPullResponse.
_EMPTY: Final = {
    ResponseCode.PULL_NOT_FOUND: "NO_NEW_MSG",
    ResponseCode.PULL_RETRY_IMMEDIATELY: "NO_MATCHED_MSG",
    ResponseCode.PULL_OFFSET_MOVED: "OFFSET_ILLEGAL",
}
# RocketMQ: PullSysFlag.FLAG_SUBSCRIPTION.
_WITH_SUBSCRIPTION: Final = 1 << 2


@dataclass(frozen=True, slots=True)
class Pulled:
    """One record with the properties that Apache's client holds of it."""

    record: Record
    properties: dict[str, str]

    @property
    def message_id(self) -> str:
        offset_id = offset_message_id(self.record.store_host, self.record.physical_offset)
        return self.properties.get("UNIQ_KEY") or offset_id

    @property
    def tags(self) -> str | None:
        return self.properties.get("TAGS")


@dataclass(frozen=True, slots=True)
class Pull:
    """The answer to one pull."""

    status: str
    next_offset: int
    found: tuple[Pulled, ...]


class Queues:
    """The queues of a topic, and what each of them holds."""

    def __init__(self, tool: Tool, group: str = TOOLS_CONSUMER) -> None:
        self._tool = tool
        self._group = group
        self._addresses: dict[str, str] = {}

    async def of(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic. RocketMQ: fetchSubscribeMessageQueues."""
        route = await self._tool.route(topic)
        self._addresses |= {one.broker_name: at for one in route.broker_datas if (at := one.address()) is not None}
        return [
            MessageQueue(topic, one.broker_name, number)
            for one in route.queue_datas
            if one.perm & 4 and one.broker_name in self._addresses
            for number in range(one.read_queue_nums)
        ]

    async def _address(self, queue: MessageQueue) -> str:
        if queue.broker_name not in self._addresses:
            await self.of(queue.topic)
        address = self._addresses.get(queue.broker_name)
        if address is None:
            raise InvalidArgumentError(f"The broker[{queue.broker_name}] not exist")
        return address

    async def first(self, queue: MessageQueue) -> int:
        header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
        answer = await self._tool.admin.ask(await self._address(queue), RequestCode.GET_MIN_OFFSET, header)
        return decode_header(GetMinOffsetResponseHeader, answer).offset

    async def end(self, queue: MessageQueue) -> int:
        header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
        answer = await self._tool.admin.ask(await self._address(queue), RequestCode.GET_MAX_OFFSET, header)
        return decode_header(GetMaxOffsetResponseHeader, answer).offset

    async def search(self, queue: MessageQueue, milliseconds: int) -> int:
        return await search_offset(self._tool, await self._address(queue), queue, milliseconds)

    async def span(self, queue: MessageQueue, begin: str, end: str) -> tuple[int, int]:
        """Return the first offset and the end of a queue, or those of two times where they are given."""
        first = await (self.search(queue, moment_of(begin)) if begin else self.first(queue))
        return first, await (self.search(queue, moment_of(end)) if end else self.end(queue))

    async def pull(self, queue: MessageQueue, offset: int, *, tags: str = "*", count: int = 32) -> Pull:
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=_WITH_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=tags,
            sub_version=0,
            expression_type="TAG",
            bname=queue.broker_name,
        )
        address = await self._address(queue)
        answer = await self._tool.admin.call(address, RequestCode.PULL_MESSAGE, header)
        if answer.code not in (ResponseCode.SUCCESS, *_EMPTY):
            raise error_for(answer.code, answer.remark or "", address)
        told = decode_header(PullMessageResponseHeader, answer)
        if answer.code in _EMPTY:
            return Pull(_EMPTY[answer.code], told.next_begin_offset, ())
        added = {"MIN_OFFSET": str(told.min_offset), "MAX_OFFSET": str(told.max_offset)}
        wanted = None if tags == "*" else {tag.strip() for tag in tags.split("||")}
        found = []
        for record in decode_records(answer.body):
            one = pulled(record, added)
            if wanted is None or one.tags in wanted:
                found.append(one)
        return Pull(FOUND, told.next_begin_offset, tuple(found))


async def search_offset(tool: Tool, address: str, queue: MessageQueue, milliseconds: int) -> int:
    header = SearchOffsetRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=milliseconds, bname=queue.broker_name or None
    )
    answer = await tool.admin.ask(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
    return decode_header(SearchOffsetResponseHeader, answer).offset


def pulled(record: Record, added: dict[str, str] | None = None) -> Pulled:
    """Return a record with its properties, and its body decompressed."""
    properties = {**decode_properties(record.properties), **(added or {})}
    message = from_record(record)
    record.body, record.sys_flag = message.body, message.sys_flag
    return Pulled(record, properties)
