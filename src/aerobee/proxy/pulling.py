"""PullMessage and the three calls of offsets. Apache's proxy answers them UNIMPLEMENTED."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aerobee.hot.log.layout import COMPRESSED
from aerobee.hot.log.record import decode_records
from aerobee.model.numbers import INT64_MAX, int_or
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.base import Header
from aerobee.protocol.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.protocol.v2 import enums
from aerobee.protocol.v2.calls import (
    PbGetOffsetRequest,
    PbGetOffsetResponse,
    PbPullMessageRequest,
    PbPullMessageResponse,
    PbQueryOffsetRequest,
    PbQueryOffsetResponse,
    PbUpdateOffsetRequest,
    PbUpdateOffsetResponse,
)
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.values import PbMessageQueue, PbStatus
from aerobee.proxy.backend import route_or_refuse
from aerobee.proxy.delivered import pb_message
from aerobee.proxy.receiving import ANSWER_BYTES_MAX, filter_of
from aerobee.proxy.rules import group_of, millis, topic_of
from aerobee.proxy.status import OK, RefusedCallError, code_of

if TYPE_CHECKING:
    from aerobee.proxy.service import Caller

_WAIT: Final = 2
_SUBSCRIBED: Final = 4
_POLL_MAX_MS: Final = 20_000


async def _queue(caller: Caller, queue: PbMessageQueue | None) -> tuple[str, str, int, str]:
    """Return topic, broker, number and address of a queue."""
    topic = topic_of(queue.topic if queue is not None else None)
    broker = queue.broker.name if queue is not None and queue.broker is not None else ""
    route = await route_or_refuse(caller.backend, topic)
    address = route.readable.get(broker)
    if queue is None or address is None:
        raise RefusedCallError(Code.BAD_REQUEST, f"broker {broker!r} has no topic {topic}, or is away")
    return topic, broker, queue.id, address


def _offset(offset: int) -> int:
    if not 0 <= offset <= INT64_MAX:
        raise RefusedCallError(Code.ILLEGAL_OFFSET, f"{offset} is no offset")
    return offset


async def pull_message(caller: Caller, request: PbPullMessageRequest) -> None:
    """Answer with a stream: a status, messages, and the offset to go on from."""
    group = group_of(request.group)
    topic, _, queue_id, address = await _queue(caller, request.message_queue)
    kind, text = filter_of(request.filter_expression)
    wait_ms = min(max(millis(request.long_polling_timeout), 0), _POLL_MAX_MS)
    header = PullMessageRequestHeader(
        consumer_group=group, topic=topic, queue_id=queue_id, queue_offset=_offset(request.offset),
        max_msg_nums=min(max(request.batch_size, 1), 32), sys_flag=_SUBSCRIBED | (_WAIT if wait_ms else 0),
        commit_offset=0, suspend_timeout_millis=wait_ms, subscription=text, sub_version=0,
        expression_type="SQL92" if kind == enums.SQL else "TAG",
    )  # fmt: skip
    answer = await caller.client.ask(address, RequestCode.PULL_MESSAGE, header, timeout_s=wait_ms / 1000 + 5.0)
    now_ms = caller.now_ms()
    if answer.code == ResponseCode.SUCCESS:
        caller.send(PbPullMessageResponse(status=OK))
        size = 0
        for record in decode_records(answer.body):
            if size >= ANSWER_BYTES_MAX:
                caller.send(PbPullMessageResponse(next_offset=record.queue_offset))
                caller.end()
                return
            message = pb_message(record, topic, group, None, now_ms)
            size += len(message.body)
            caller.send(PbPullMessageResponse(message=message))
            if record.sys_flag & COMPRESSED:
                await asyncio.sleep(0)
    elif answer.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY):
        caller.send(PbPullMessageResponse(status=PbStatus(Code.MESSAGE_NOT_FOUND, "no new message")))
    elif answer.code == ResponseCode.PULL_OFFSET_MOVED:
        caller.send(PbPullMessageResponse(status=PbStatus(Code.ILLEGAL_OFFSET, "the offset is outside the queue")))
    else:
        raise RefusedCallError(code_of(answer.code), answer.remark or "the broker refused the request")
    caller.send(PbPullMessageResponse(next_offset=int_or(answer.ext.get("nextBeginOffset"), request.offset)))
    caller.end()


async def _ask(caller: Caller, address: str, code: int, header: Header) -> int:
    answer = await caller.client.ask(address, code, header, timeout_s=caller.timeout_s())
    if answer.code != ResponseCode.SUCCESS:
        raise RefusedCallError(code_of(answer.code), answer.remark or "the broker refused the request")
    return int_or(answer.ext.get("offset"), 0)


async def update_offset(caller: Caller, request: PbUpdateOffsetRequest) -> PbUpdateOffsetResponse:
    """Set the offset of a group."""
    group = group_of(request.group)
    topic, _, queue_id, address = await _queue(caller, request.message_queue)
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=_offset(request.offset)
    )
    await _ask(caller, address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
    return PbUpdateOffsetResponse(OK)


async def get_offset(caller: Caller, request: PbGetOffsetRequest) -> PbGetOffsetResponse:
    """Return the offset of a group."""
    group = group_of(request.group)
    topic, _, queue_id, address = await _queue(caller, request.message_queue)
    header = QueryConsumerOffsetRequestHeader(consumer_group=group, topic=topic, queue_id=queue_id)
    return PbGetOffsetResponse(OK, await _ask(caller, address, RequestCode.QUERY_CONSUMER_OFFSET, header))


async def query_offset(caller: Caller, request: PbQueryOffsetRequest) -> PbQueryOffsetResponse:
    """Return where a queue begins, ends, or was at a time."""
    topic, _, queue_id, address = await _queue(caller, request.message_queue)
    if request.query_offset_policy == enums.BEGINNING:
        code: int = RequestCode.GET_MIN_OFFSET
        header: Header = GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id)
    elif request.query_offset_policy == enums.END:
        code, header = RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
    else:
        if request.timestamp is None:
            raise RefusedCallError(Code.BAD_REQUEST, "the policy TIMESTAMP needs a time")
        code, at_ms = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, millis(request.timestamp)
        if abs(at_ms) > INT64_MAX:
            raise RefusedCallError(Code.BAD_REQUEST, "this time is no time")
        header = SearchOffsetRequestHeader(topic=topic, queue_id=queue_id, timestamp=at_ms)
    return PbQueryOffsetResponse(OK, await _ask(caller, address, code, header))
