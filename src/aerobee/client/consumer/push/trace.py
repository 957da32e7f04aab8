"""The message trace around the calls of handlers. RocketMQ: ConsumeMessageTraceHookImpl."""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.client.consumer.push.listener import HandlerOutcome
from aerobee.client.core import ClientCore
from aerobee.client.producer import TraceDispatcher, encode_sub_after, encode_sub_before
from aerobee.model import sysproperties as names
from aerobee.model.message import Message


class ConsumerTrace:
    """The trace records of one consumer."""

    def __init__(self, core: ClientCore, group: str, topic: str) -> None:
        self._core = core
        self._group = group
        self._dispatcher = TraceDispatcher(core, group, "CONSUME", topic)

    def before(self, messages: Sequence[Message]) -> tuple[str, list[Message]]:
        """Record that a handler is called. Return the request id, and the messages that are traced by their broker."""
        traced = [m for m in messages if m.system_properties.get(names.TRACE_SWITCH) != "false"]
        request_id = self._core.unique_ids.next(self._core.clock.now_ms())
        if traced:
            region = traced[0].system_properties.get(names.MSG_REGION, "DefaultRegion")
            rows = [(m.message_id, m.reconsume_times, m.keys) for m in traced]
            now_ms = self._core.clock.now_ms()
            self._dispatcher.append(encode_sub_before(self._group, request_id, region, rows, now_ms))
        return request_id, traced

    def after(self, request_id: str, traced: list[Message], outcome: HandlerOutcome, cost_ms: int) -> None:
        """Record that the handler has answered."""
        if not traced:
            return
        record = encode_sub_after(
            self._group,
            request_id,
            [(m.message_id, m.keys) for m in traced],
            cost_ms=cost_ms // len(traced),
            success=outcome.done,
            context_code=outcome.trace_code,
            now_ms=self._core.clock.now_ms(),
        )
        self._dispatcher.append(record)

    async def close(self) -> None:
        await self._dispatcher.close()
