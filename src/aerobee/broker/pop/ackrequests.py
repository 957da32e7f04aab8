"""The requests by which consumers give messages back: 200051, 200151, 200053; and what is in flight (90030).

RocketMQ: AckMessageProcessor, ChangeInvisibleTimeProcessor.
"""

from __future__ import annotations

import json
from typing import Final

from aerobee.broker.answers import answer_later
from aerobee.broker.flowcontrol import FlowControl, Work
from aerobee.broker.pop.asked import Lease
from aerobee.broker.pop.checks import INVISIBLE_MAX_MS, check_queue
from aerobee.broker.pop.driver import Pop
from aerobee.broker.pop.records import ORDER_REVIVE_QUEUE, real_topic
from aerobee.broker.pop.requests import UNSAID
from aerobee.broker.pop.strings import parse_handle, runs_in
from aerobee.hot.wire.digits import whole_text
from aerobee.hot.wire.frame import CODEC_JSON
from aerobee.hot.wire.pop import PopAnswerForm
from aerobee.model.numbers import INT32_MAX, int_or
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.net.turns import Sliced, Slices
from aerobee.protocol.bodies.pop import BatchAck, BatchAckMessageRequestBody
from aerobee.protocol.codes import (
    LANGUAGE,
    TELL_HELD_FIELD,
    VERSION,
    PrivateRequestCode,
    RequestCode,
    ResponseCode,
)
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)

# The fields of an acknowledgement as clients write them.
_ACK_FIELDS: Final = 5
# So many messages are acknowledged by one request at most. A pop takes 32.
ACKS_MAX: Final = 32_768
# What one question about messages in flight tells of each queue, unless it asks for less, and of all queues together. A
# frame has room for that, and for so many queues.
_TOLD_MAX: Final = 1_000
_TOLD_IN_ALL: Final = 50_000
_QUEUES_TOLD_MAX: Final = 20_000

_NONE: Final = ChangeInvisibleTimeResponseHeader(pop_time=0, invisible_time=0, revive_qid=0)
_form: Final = PopAnswerForm(LANGUAGE, VERSION)


class AckHandlers:
    """The handlers of requests that give back."""

    def __init__(self, pop: Pop, flow: FlowControl) -> None:
        self._pop = pop
        self._flow = flow
        # What one answer about messages in flight has room for.
        self.messages_told: int = _TOLD_IN_ALL
        self.queues_told: int = _QUEUES_TOLD_MAX

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.batch_ack,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change,
            PrivateRequestCode.POP_IN_FLIGHT: self.in_flight,
        }

    def ack(self, channel: Channel, command: Command) -> Command | None:
        """Acknowledge one message. The answer waits until that is stored."""
        ext = command.ext
        group, topic, extra_info = ext.get("consumerGroup"), ext.get("topic"), ext.get("extraInfo")
        queue_id, offset = whole_text(ext.get("queueId", "")), whole_text(ext.get("offset", ""))
        if (
            len(ext) != _ACK_FIELDS or group is None or topic is None or extra_info is None or offset < 0
            or not 0 <= queue_id <= INT32_MAX
        ):  # fmt: skip
            # Not the five fields that clients write, or numbers that are not plain.
            header = decode_header(AckMessageRequestHeader, command)
            group, topic, extra_info = header.consumer_group, header.topic, header.extra_info
            queue_id, offset = header.queue_id, header.offset
        busy = self._flow.busy(Work.ACK, channel.last_read_s)
        if busy is not None:
            return response(command, ResponseCode.SYSTEM_BUSY, remark=busy)
        pop = self._pop
        refusal = check_queue(pop.catalog, topic, queue_id, channel.remote_address)
        if refusal is not None:
            return response(command, refusal.code, remark=refusal.remark)
        name = topic.encode()
        low, high = pop.store.min_offset(name, queue_id), pop.store.max_offset(name, queue_id)
        if not low <= offset <= high:
            # As at Apache's broker the end itself passes. It has no effect: nobody can hold what is not stored yet.
            remark = f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{low}~{high}"
            return response(command, ResponseCode.NO_MESSAGE, remark=remark)
        handle = parse_handle(extra_info)
        lease = Lease(group, topic, queue_id, offset, handle.pop_time, handle.in_order, handle.until_ms)
        told: dict[str, str] | None = None
        if TELL_HELD_FIELD in command.ext:
            told = {TELL_HELD_FIELD: "true" if pop.is_held(lease) else "false"}
        pop.ack(lease, lambda code, remark: self._acked(channel, command, code, remark, told))
        return None

    @staticmethod
    def _acked(channel: Channel, command: Command, code: int, remark: str, told: dict[str, str] | None = None) -> None:
        if code or remark or told or command.codec != CODEC_JSON:
            answer_later(channel, response(command, code, remark=remark or None, ext=told), command)
        elif not command.is_oneway:
            channel.write(_form.done(command.opaque))

    def batch_ack(self, channel: Channel, command: Command) -> Command | None:
        """Acknowledge messages of several pops with one answer. What is of no topic or queue here is passed over."""
        busy = self._flow.busy(Work.ACK, channel.last_read_s)
        if busy is not None:
            return response(command, ResponseCode.SYSTEM_BUSY, remark=busy)
        body = BatchAckMessageRequestBody.decode(command.body) if command.body else BatchAckMessageRequestBody()
        if not body.acks:
            return response(command, ResponseCode.NO_MESSAGE)
        leases: list[Lease] = []
        count = 0
        for one in body.acks:
            bits = one.set_bits()
            if not bits:
                continue
            count += int.from_bytes(bits, "big").bit_count()
            if count > ACKS_MAX:
                remark = f"more than {ACKS_MAX} messages are acknowledged by one request: send less at a time"
                return response(command, ResponseCode.MESSAGE_ILLEGAL, remark=remark)
            self._add_leases(leases, one, bits)
        self._pop.ack_all(leases, lambda code, remark: self._acked(channel, command, code, remark))
        return None

    def _add_leases(self, leases: list[Lease], one: BatchAck, bits: bytes) -> None:
        """Add a lease for each run of messages that an entry names and that are there."""
        pop, group, queue_id, pop_time = self._pop, one.consumer_group, one.queue_id, one.pop_time
        topic = real_topic(one.topic, group, int_or(one.retry, 0, 0, 2))
        if check_queue(pop.catalog, topic, queue_id, "") is not None:
            return
        name = topic.encode()
        low, high = pop.store.min_offset(name, queue_id), pop.store.max_offset(name, queue_id)
        in_order, until_ms = one.revive_queue_id == ORDER_REVIVE_QUEUE, pop_time + one.invisible_time
        for offset, count in runs_in(bits, one.start_offset):
            first, end = max(offset, low), min(offset + count, high)
            if first < end:
                leases.append(Lease(group, topic, queue_id, first, pop_time, in_order, until_ms, end - first))

    def change(self, channel: Channel, command: Command) -> Command | None:
        """Hide a message for another time. Its handle does not change, and goes on to be good."""
        header = decode_header(ChangeInvisibleTimeRequestHeader, command)
        busy = self._flow.busy(Work.ACK, channel.last_read_s)
        if busy is not None:
            return response(command, ResponseCode.SYSTEM_BUSY, remark=busy)
        pop = self._pop
        refusal = check_queue(pop.catalog, header.topic, header.queue_id, channel.remote_address)
        if refusal is not None:
            return response(command, refusal.code, _NONE, remark=refusal.remark)
        name = header.topic.encode()
        low, high = pop.store.min_offset(name, header.queue_id), pop.store.max_offset(name, header.queue_id)
        if not low <= header.offset < high:
            return response(command, ResponseCode.NO_MESSAGE, _NONE, remark=UNSAID)
        if not 0 <= header.invisible_time <= INVISIBLE_MAX_MS:
            remark = f"invisibleTime {header.invisible_time} ms: 0 to {INVISIBLE_MAX_MS} are allowed"
            return response(command, ResponseCode.INVALID_PARAMETER, _NONE, remark=remark)
        handle = parse_handle(header.extra_info)
        lease = Lease(
            header.consumer_group, header.topic, header.queue_id, header.offset, handle.pop_time, handle.in_order,
            handle.until_ms,
        )  # fmt: skip

        def told(code: int, deadline: int) -> None:
            invisible = header.invisible_time if deadline < 0 else deadline - handle.pop_time
            head = ChangeInvisibleTimeResponseHeader(
                pop_time=handle.pop_time, invisible_time=invisible, revive_qid=handle.revive_queue
            )
            answer_later(channel, response(command, code, head, remark=UNSAID), command)

        pop.change(lease, header.invisible_time, told, suspend=header.suspend)
        return None

    def in_flight(self, channel: Channel, command: Command) -> Sliced:
        """Tell what consumers hold, and until when: of a group, of a topic, or of all (docs/formats/private.md)."""
        return Sliced(self._tell(command))

    def _tell(self, command: Command) -> Slices:
        ext = command.ext
        each = int_or(ext.get("maxMsgNums"), _TOLD_MAX, 0, _TOLD_MAX)
        room = self.messages_told
        rows: list[str] = []
        queues_left = left = 0
        for one in self._pop.in_flight(ext.get("consumerGroup") or None, ext.get("topic") or None, each):
            if len(rows) >= self.queues_told:
                queues_left += 1
                left += one.count
            else:
                messages = one.messages[:room]
                room -= len(messages)
                row = {
                    "topic": one.topic, "group": one.group, "queueId": one.queue_id, "taken": one.taken,
                    "safe": one.safe, "inFlight": one.count, "messages": messages,
                }  # fmt: skip
                rows.append(json.dumps(row, separators=(",", ":")))
            yield
        more = f',"queuesLeftOut":{queues_left},"inFlightLeftOut":{left}' if queues_left else ""
        return response(command, body=f'{{"queues":[{",".join(rows)}]{more}}}'.encode())
