"""The requests that brokers send to a push consumer: tell its state, reset offsets, consume one message now.

RocketMQ: ClientRemotingProcessor, MQClientInstance.resetOffset, DefaultMQPushConsumerImpl.consumerRunningInfo.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from aerobee.client.consumer.push.engine import PushEngine
from aerobee.client.consumer.push.listener import HandlerOutcome, HandlerVerdict
from aerobee.client.consumer.push.queue import OrderedQueue, PushQueue
from aerobee.hot.log.record import decode_record
from aerobee.model.message import from_record
from aerobee.net.link import Link
from aerobee.protocol.bodies.heartbeat import CONSUME_PASSIVELY
from aerobee.protocol.bodies.offsets import GetConsumerStatusBody, ResetOffsetBody
from aerobee.protocol.bodies.running import (
    PROP_CONSUME_ORDERLY,
    PROP_CONSUME_TYPE,
    PROP_CONSUMER_START_TIMESTAMP,
    PROP_NAMESERVER_ADDR,
    PROP_THREADPOOL_CORE_SIZE,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ProcessQueueInfo,
)
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.group import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from aerobee.protocol.headers.offset import GetConsumerStatusRequestHeader, ResetOffsetRequestHeader
from aerobee.runtime.stacks import stacks
from aerobee.telemetry.stdlog import get_log

_log = get_log("client.push")

# RocketMQ: CMResult
_RESULTS = {
    HandlerVerdict.DONE: "CR_SUCCESS",
    HandlerVerdict.RETRY: "CR_LATER",
    HandlerVerdict.DEAD: "CR_LATER",
    HandlerVerdict.EXCEPTION: "CR_THROW_EXCEPTION",
    HandlerVerdict.WRONG_RETURN: "CR_RETURN_NULL",
}


class PushRequests:
    """The answers of one consumer."""

    def __init__(self, engine: PushEngine, started_ms: int) -> None:
        self._engine = engine
        self._started_ms = started_ms

    def register(self) -> None:
        core, group = self._engine.core, self._engine.settings.membership.group
        core.on_push(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, group, self._reset_offset)
        core.on_push(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, group, self._status)
        core.on_push(RequestCode.GET_CONSUMER_RUNNING_INFO, group, self._running_info)
        core.on_push(RequestCode.CONSUME_MESSAGE_DIRECTLY, group, self._consume_directly)

    def _reset_offset(self, link: Link, command: Command) -> Command | None:
        header = decode_header(ResetOffsetRequestHeader, command)
        table = ResetOffsetBody.decode(command.body).offset_table
        _log.info("the broker reset offsets", broker=link.address, topic=header.topic, queues=len(table))
        for queue, offset in table.items():
            if queue.topic == header.topic:
                self._engine.restart(queue, offset)
        return None

    def _status(self, link: Link, command: Command) -> Command:
        header = decode_header(GetConsumerStatusRequestHeader, command)
        offsets = self._engine.offsets.table.items()
        mine = {queue: offset for queue, offset in offsets.items() if queue.topic == header.topic}
        return response(command, ResponseCode.SUCCESS, body=GetConsumerStatusBody(mine).encode())

    def _running_info(self, link: Link, command: Command) -> Command:
        engine = self._engine
        core, settings = engine.core, engine.settings
        now_s = core.clock.monotonic()
        is_ordered = any(listener.ordered for listener in engine.listeners.values())
        properties = {
            "consumerGroup": settings.membership.group,
            "messageModel": settings.membership.message_model,
            "consumeFromWhere": settings.membership.consume_from_where,
            "pullBatchSize": str(settings.pull_batch_size),
            "pullThresholdForQueue": str(settings.limits.count),
            "consumeConcurrentlyMaxSpan": str(settings.limits.span),
            "maxReconsumeTimes": str(settings.max_reconsume_times),
            PROP_NAMESERVER_ADDR: ";".join(core.config.namesrv),
            PROP_CONSUME_TYPE: CONSUME_PASSIVELY,
            PROP_CONSUME_ORDERLY: "true" if is_ordered else "false",
            PROP_THREADPOOL_CORE_SIZE: str(settings.concurrency),
            PROP_CONSUMER_START_TIMESTAMP: str(self._started_ms),
        }
        info = ConsumerRunningInfo(
            properties,
            tuple(engine.member.subscriptions.values()),
            {name: self._queue_info(queue) for name, queue in engine.queues.items()},
            status_table={topic: counts.status(now_s) for topic, counts in engine.counts.items()},
            jstack=stacks() if decode_header(GetConsumerRunningInfoRequestHeader, command).jstack_enable else None,
        )
        return response(command, ResponseCode.SUCCESS, body=info.encode())

    def _queue_info(self, queue: PushQueue) -> ProcessQueueInfo:
        process = queue.process
        offset = self._engine.offsets.table.get(queue.queue)
        if process is None:
            return ProcessQueueInfo(commit_offset=-1 if offset is None else offset)
        now_s = self._engine.core.clock.monotonic()
        return ProcessQueueInfo(
            commit_offset=-1 if offset is None else offset,
            cached_msg_min_offset=process.first or 0,
            cached_msg_max_offset=process.last or 0,
            cached_msg_count=len(process),
            cached_msg_size_in_mib=process.size_bytes >> 20,
            locked=isinstance(queue, OrderedQueue) and process.holds_lock(now_s),
            droped=process.dropped,
            last_pull_timestamp=process.pulled_ms,
            last_consume_timestamp=process.consumed_ms,
        )

    def _consume_directly(self, link: Link, command: Command) -> Coroutine[Any, Any, Command | None]:
        return self._consume_now(command)

    async def _consume_now(self, command: Command) -> Command:
        engine = self._engine
        header = decode_header(ConsumeMessageDirectlyResultRequestHeader, command)
        message = engine.puller.restored(from_record(decode_record(command.body, 0), header.broker_name or ""))
        listener = engine.listener_of(message.topic)
        began_s = engine.core.clock.monotonic()
        outcome = HandlerOutcome.no_listener() if listener is None else await engine.call(listener, [message])
        result = ConsumeMessageDirectlyResult(
            order=listener is not None and listener.ordered,
            consume_result=_RESULTS[outcome.verdict],
            remark=outcome.reason or None,
            spent_time_mills=round((engine.core.clock.monotonic() - began_s) * 1000),
        )
        return response(command, ResponseCode.SUCCESS, body=result.encode())
