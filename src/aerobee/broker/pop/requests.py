"""The requests by which consumers take messages and look whether there are any: 200050, 200052, 200054, 200055.

RocketMQ: PopMessageProcessor, PeekMessageProcessor, NotificationProcessor, PollingInfoProcessor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aerobee.broker.answers import answer_later, refuse_later
from aerobee.broker.config import BrokerConfig
from aerobee.broker.flowcontrol import FlowControl, Work
from aerobee.broker.membership import Clients, ConsumerFilters, parse_subscription
from aerobee.broker.pop.asked import PopRequest, PopResult
from aerobee.broker.pop.checks import INVISIBLE_MAX_MS, check_read
from aerobee.broker.pop.driver import Pop
from aerobee.broker.pop.strings import body_of, msg_offset_info, order_count_info, start_offset_info
from aerobee.broker.refusal import Refusal
from aerobee.errors import AerobeeError, InvalidArgumentError, StoreError
from aerobee.hot.wire.frame import CODEC_JSON, FRAME_LENGTH_MAX, LENGTH_SIZE
from aerobee.hot.wire.pop import PopAnswerForm
from aerobee.model.names import pop_retry_topic
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.net.turns import Sliced, Slices
from aerobee.protocol.codes import LANGUAGE, VERSION, RequestCode, ResponseCode
from aerobee.protocol.command import Command, response, too_large
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from aerobee.store.reads import GetMessageStatus, GetResult

# The remark of Apache's answers to which nobody gave one. RocketMQ: RemotingCommand.createResponseCommand.
UNSAID: Final = "not set any response code"
_EMPTY: Final = GetMessageStatus.NO_MESSAGE_IN_QUEUE.value
# A wait ends so long before its client would give up. RocketMQ: PopRequest.getExpired.
_EARLY_MS: Final = 50
# A client's clock that differs by more says nothing about when its request was made.
_SKEW_MAX_MS: Final = 1_000
# A client may ask for any time; beyond this its connection would be idle for longer than an idle connection lives.
_WAIT_MAX_MS: Final = 110_000
_MIN: Final = 0
# So many queues are looked at in one turn of the loop: a topic can have thousands.
_QUEUES_A_SLICE: Final = 256
# An attempt id is kept with every acknowledgement of its pop. Clients send 32 to 36 characters.
ATTEMPT_ID_MAX: Final = 256

_form: Final = PopAnswerForm(LANGUAGE, VERSION)
_NONE: Final = PopMessageResponseHeader(pop_time=0, invisible_time=0, revive_qid=0, rest_num=0)


class PopHandlers:
    """The handlers of requests that read."""

    def __init__(
        self,
        pop: Pop,
        clients: Clients,
        filters: ConsumerFilters,
        flow: FlowControl,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._pop = pop
        self._clients = clients
        self._filters = filters
        self._flow = flow
        self._config = config

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.POP_MESSAGE: self.pop,
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.NOTIFICATION: self.notification,
            RequestCode.POLLING_INFO: self.polling_info,
            RequestCode.POP_ROLLBACK: self.rollback,
        }

    # -- POP_MESSAGE

    def pop(self, channel: Channel, command: Command) -> Command | None:
        """Hand out messages, or hold the request until some come."""
        pop, header = self._pop, decode_header(PopMessageRequestHeader, command)
        busy = self._flow.busy(Work.PULL, channel.last_read_s)
        if busy is not None:
            return response(command, ResponseCode.SYSTEM_BUSY, remark=busy)
        found = check_read(
            self._config(), pop.catalog, header.topic, header.consumer_group, header.queue_id, channel.remote_address,
            what="pop", count=header.max_msg_nums,
        )  # fmt: skip
        if not isinstance(found, Refusal) and not 0 <= header.invisible_time <= INVISIBLE_MAX_MS:
            remark = f"invisibleTime {header.invisible_time} ms: 0 to {INVISIBLE_MAX_MS} are allowed"
            found = Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if not isinstance(found, Refusal) and len(header.attempt_id or "") > ATTEMPT_ID_MAX:
            remark = f"attemptId has {len(header.attempt_id or '')} characters: {ATTEMPT_ID_MAX} are allowed"
            found = Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if isinstance(found, Refusal):
            return response(command, found.code, _NONE, remark=found.remark)
        now_s = pop.clock.monotonic()

        def told(result: PopResult) -> None:
            self._answer(channel, command, header, result)

        asked = PopRequest(
            header.consumer_group,
            header.topic,
            told,
            max(-1, header.queue_id),
            header.max_msg_nums,
            header.invisible_time,
            from_start=header.init_mode == _MIN,
            in_order=header.order,
            attempt_id=header.attempt_id,
            wait_until_s=self.wait_until_s(header.poll_time, header.born_time, now_s),
            is_gone=lambda: channel.closed,
        )
        try:
            self.subscribe(asked, header.exp, header.exp_type, now_s)
        except InvalidArgumentError:
            remark = "parse the consumer's subscription failed"
            return response(command, ResponseCode.SUBSCRIPTION_PARSE_FAILED, _NONE, remark=remark)
        pop.receive(asked)
        return None

    def wait_until_s(self, poll_ms: int, born_ms: int, now_s: float) -> float:
        """Return until when a request waits: by its client's clock, unless that cannot be right."""
        if poll_ms <= 0:
            return 0.0
        wait_ms = min(poll_ms, _WAIT_MAX_MS)
        passed_ms = self._pop.clock.now_ms() - born_ms
        if 0 <= passed_ms <= _SKEW_MAX_MS:
            wait_ms -= passed_ms
        return now_s + (wait_ms - _EARLY_MS) / 1000

    def subscribe(self, asked: PopRequest, expression: str | None, kind: str | None, now_s: float) -> None:
        """Set the filter that a pop carries; raise InvalidArgumentError where it cannot be used.

        The group's subscription is noted, as a heartbeat would do it, also for the retry topic.
        """
        found = parse_subscription(asked.topic, expression if expression else "*", kind if expression else None)
        if not found.by_tags:
            self._filters.compile(found.expression, found.expression_type)
            asked.accept = self._filters.acceptor(found, asked.group, carried=True, support_retry=False)
        else:
            codes = found.tag_codes()
            asked.tags = None if codes is None else frozenset(codes)
        self._clients.compensate(asked.group, found, now_s)
        retries = parse_subscription(pop_retry_topic(asked.topic, asked.group), "*")
        self._clients.compensate(asked.group, retries, now_s)

    def _answer(self, channel: Channel, command: Command, header: PopMessageRequestHeader, result: PopResult) -> None:
        if channel.closed or command.is_oneway:
            return
        pop = self._pop
        if result.code not in (0, ResponseCode.POLLING_FULL, ResponseCode.POLLING_TIMEOUT):
            answer_later(channel, response(command, result.code, _NONE, remark=result.remark), command)
            return
        if not result.code and command.codec == CODEC_JSON and not header.order:
            self._answer_found(channel, command, header, result)
            return
        head = PopMessageResponseHeader(
            pop_time=result.pop_time,
            invisible_time=result.invisible_ms,
            revive_qid=result.revive_queue,
            rest_num=result.rest,
            start_offset_info=start_offset_info(result.batches),
            msg_offset_info=msg_offset_info(result.batches),
            order_count_info=order_count_info(result.batches) if header.order else None,
        )
        if result.code:
            answer_later(channel, response(command, result.code, head, remark=_EMPTY), command)
            return
        body = b"".join(body_of(result, header.topic, pop.broker_name))
        self._count(header, result)
        answer_later(channel, response(command, 0, head, body, remark="FOUND"), command)

    def _answer_found(
        self, channel: Channel, command: Command, header: PopMessageRequestHeader, result: PopResult
    ) -> None:
        """Answer with messages in the usual form, without a header as an object."""
        parts = body_of(result, header.topic, self._pop.broker_name)
        size = 0
        for part in parts:
            size += len(part)
        self._count(header, result)
        head = _form.found(
            command.opaque, result.pop_time, result.invisible_ms, result.revive_queue, result.rest,
            start_offset_info(result.batches), msg_offset_info(result.batches), size,
        )  # fmt: skip
        if len(head) - LENGTH_SIZE + size > FRAME_LENGTH_MAX:
            reason = f"a frame of {len(head) + size} bytes is too large"
            answer_later(channel, too_large(response(command), reason), command)
        else:
            channel.write(b"".join([head, *parts]))

    def _count(self, header: PopMessageRequestHeader, result: PopResult) -> None:
        stats, now_ms = self._pop.stats, self._pop.clock.now_ms()
        for batch in result.batches:
            size = 0
            for buffer in batch.buffers:
                size += len(buffer)
            stats.get(header.consumer_group, batch.topic, len(batch.offsets), size, now_ms)

    # -- PEEK_MESSAGE

    def peek(self, channel: Channel, command: Command) -> Command | None:
        """Show messages that could be popped, and take none."""
        pop, header = self._pop, decode_header(PeekMessageRequestHeader, command)
        found = check_read(
            self._config(), pop.catalog, header.topic, header.consumer_group, header.queue_id, channel.remote_address,
            what="peeking",
        )  # fmt: skip
        if isinstance(found, Refusal):
            return response(command, found.code, _NONE, remark=found.remark)
        first = pop.entropy.below(max(1, found.read_queue_nums))
        queues = [(first + number) % found.read_queue_nums for number in range(found.read_queue_nums)]
        places = [(header.topic, one) for one in (queues if header.queue_id < 0 else [header.queue_id])]
        retries = pop.catalog.find(pop_retry_topic(header.topic, header.consumer_group))
        if retries is not None:
            places += [(retries.topic_name, one) for one in range(retries.read_queue_nums)]
        _Peek(pop, channel, command, header, places).go_on()
        return None

    # -- NOTIFICATION, POLLING_INFO

    def notification(self, channel: Channel, command: Command) -> Command | Sliced:
        """Tell whether there are messages, now or when the first comes."""
        pop, header = self._pop, decode_header(NotificationRequestHeader, command)
        found = check_read(
            self._config(), pop.catalog, header.topic, header.consumer_group, header.queue_id, channel.remote_address,
            what="peeking",
        )  # fmt: skip
        if isinstance(found, Refusal):
            return response(command, found.code, NotificationResponseHeader(), remark=found.remark)
        until_s = self.wait_until_s(header.poll_time, header.born_time, pop.clock.monotonic())
        return Sliced(_Notice(pop, channel, command, header).look(until_s))

    def polling_info(self, channel: Channel, command: Command) -> Command:
        pop, header = self._pop, decode_header(PollingInfoRequestHeader, command)
        found = check_read(
            self._config(), pop.catalog, header.topic, header.consumer_group, header.queue_id, channel.remote_address,
            what="peeking",
        )  # fmt: skip
        if isinstance(found, Refusal):
            return response(command, found.code, PollingInfoResponseHeader(polling_num=0), remark=found.remark)
        count = pop.waits.count_of(header.topic, header.consumer_group, header.queue_id)
        return response(command, header=PollingInfoResponseHeader(polling_num=count), remark=UNSAID)

    @staticmethod
    def rollback(channel: Channel, command: Command) -> Command:
        """Answer that nothing is to do: there are no records in RocksDB that Apache's other engine would not see."""
        return response(command)


class _Peek:
    """One request that looks, queue after queue."""

    def __init__(
        self,
        pop: Pop,
        channel: Channel,
        command: Command,
        header: PeekMessageRequestHeader,
        places: list[tuple[str, int]],
    ) -> None:
        self._pop = pop
        self._channel = channel
        self._command = command
        self._group = header.consumer_group
        self._room = min(max(header.max_msg_nums, 0), 32)
        self._places = places[::-1]
        self._rest = 0
        self._buffers: list[bytes | memoryview] = []
        self._count = 0

    def go_on(self) -> None:
        for _ in range(_QUEUES_A_SLICE):
            if not self._places:
                self._finish()
                return
            topic, queue_id = self._places.pop()
            store = self._pop.store
            offset = self._pop.offsets.query(self._group, topic, queue_id)
            offset = max(offset, store.min_offset(topic.encode(), queue_id))
            self._rest += max(0, store.max_offset(topic.encode(), queue_id) - offset)
            if self._count >= self._room:
                continue
            size_max = store.config.max_transfer_bytes_on_message_in_memory
            result = store.get_messages(topic.encode(), queue_id, offset, self._room - self._count, size_max)
            if result.status is GetMessageStatus.COLD:
                store.fetch(result, self._fetched)
                return
            self._took(result)
        asyncio.get_running_loop().call_soon(self._go_on_later)

    def _go_on_later(self) -> None:
        try:
            self.go_on()
        except AerobeeError as error:
            refuse_later(self._channel, self._command, ResponseCode.SYSTEM_ERROR, error.message)

    def _finish(self) -> None:
        found = bool(self._count)
        header = replace_rest(self._rest)
        answer = response(
            self._command, 0 if found else ResponseCode.PULL_NOT_FOUND, header, b"".join(self._buffers),
            remark="FOUND" if found else _EMPTY,
        )  # fmt: skip
        answer_later(self._channel, answer, self._command)

    def _fetched(self, outcome: GetResult | StoreError) -> None:
        if isinstance(outcome, StoreError):
            refuse_later(self._channel, self._command, ResponseCode.SYSTEM_ERROR, outcome.message)
            return
        self._took(outcome)
        self.go_on()

    def _took(self, result: GetResult) -> None:
        if result.status is GetMessageStatus.FOUND:
            self._count += result.count
            self._rest -= result.count
            self._buffers += result.buffers


class _Notice:
    """One request that waits for a sign of messages."""

    def __init__(self, pop: Pop, channel: Channel, command: Command, header: NotificationRequestHeader) -> None:
        self._pop = pop
        self._channel = channel
        self._command = command
        self._header = header
        self._retry_topics = [pop_retry_topic(header.topic, header.consumer_group, version) for version in (1, 2)]
        self._is_held = self._is_over = False

    def look(self, until_s: float) -> Slices:
        """Return the answer, or None where it waits for messages."""
        pop, header, looked = self._pop, self._header, 0
        found = pop.catalog.find(header.topic)
        if found is not None and found.read_queue_nums > _QUEUES_A_SLICE and until_s > pop.clock.monotonic():
            # What comes to a queue that was looked at before is told meanwhile.
            self._is_held = self._hold(until_s)
        for topic in (header.topic, *self._retry_topics):
            config = pop.catalog.find(topic)
            if config is None:
                continue
            one = topic == header.topic and header.queue_id >= 0
            for queue_id in [header.queue_id] if one else range(config.read_queue_nums):
                looked += 1
                if not looked % _QUEUES_A_SLICE:
                    yield
                if header.order and pop.orders.is_locked(header.consumer_group, topic, queue_id, header.attempt_id):
                    continue
                offset = pop.offsets.query(header.consumer_group, topic, queue_id)
                name = topic.encode()
                if pop.store.max_offset(name, queue_id) > max(offset, pop.store.min_offset(name, queue_id)):
                    return self._found()
                if pop.has_returned(header.consumer_group, topic, queue_id):
                    return self._found()
        if self._is_held or self._is_over:
            return None
        if until_s <= pop.clock.monotonic():
            return self.answer()
        return None if self._hold(until_s) else self.answer(full=True)

    def _found(self) -> Command | None:
        if self._is_over:
            return None
        self._is_over = True
        return self.answer(has_messages=True)

    def _hold(self, until_s: float) -> bool:
        header = self._header
        return self._pop.waits.hold(
            self, header.topic, header.consumer_group, max(-1, header.queue_id), self._retry_topics, None, until_s
        )

    def is_gone(self) -> bool:
        return self._is_over or self._channel.closed

    def wake(self) -> None:
        """Answer that there is something."""
        self._is_over = True
        answer_later(self._channel, self.answer(has_messages=True), self._command)

    def expire(self) -> None:
        if not self._is_over:
            self._is_over = True
            answer_later(self._channel, self.answer(), self._command)

    def answer(self, *, has_messages: bool = False, full: bool = False) -> Command:
        header = NotificationResponseHeader(has_msg=has_messages, polling_full=full)
        return response(self._command, header=header, remark=UNSAID)


def replace_rest(rest: int) -> PopMessageResponseHeader:
    """Return a header in which only what is left is filled."""
    return PopMessageResponseHeader(pop_time=0, invisible_time=0, revive_qid=0, rest_num=rest)
