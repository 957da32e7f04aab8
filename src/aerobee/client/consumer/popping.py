"""POP as a client does it: it takes messages for a time, and gives them back by their handles.

RocketMQ: MQClientAPIImpl.popMessageAsync, processPopResponse, ackMessageAsync, batchAckMessageAsync,
changeInvisibleTimeAsync, ExtraInfoUtil.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from aerobee.client.core import ClientCore, without_namespace
from aerobee.errors import AerobeeError, RemoteProtocolError
from aerobee.errors.codes import error_for
from aerobee.hot.log.record import decode_records
from aerobee.model.compression import DecompressionError
from aerobee.model.message import Message, NoRoomError, Unfolding, from_record
from aerobee.model.names import is_retry_topic, pop_retry_topic
from aerobee.model.numbers import NumberError, parse_int
from aerobee.model.queue import MessageQueue
from aerobee.protocol.bodies.heartbeat import SubscriptionData
from aerobee.protocol.bodies.pop import BatchAck, BatchAckMessageRequestBody, bits_of
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from aerobee.telemetry.stdlog import get_log

BATCH_MAX: Final = 32
# How much longer than its wait a pop may take to be answered.
_ANSWER_S: Final = 10.0
# RocketMQ: ConsumeInitMode.
_FROM_START: Final = 0
_FROM_END: Final = 1
_NOTHING: Final = frozenset((ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL, ResponseCode.PULL_NOT_FOUND))
# Offsets of one entry of a batch acknowledgement lie this close together.
_SPAN_MAX: Final = 4_096
# When a message comes back that this answer had no room for.
_BACK_S: Final = 1.0

_log = get_log("client.pop")


@dataclass(slots=True)
class MessageLease:
    """What a consumer holds of a message. A change of its time can give it another handle."""

    broker: str
    # The topic that was read, under its name on the wire: for a retried message its retry topic.
    topic: str
    kind: str
    queue_id: int
    offset: int
    start: int
    pop_time: int
    invisible_ms: int
    revive_queue: int
    # When the broker gives the message to others, by this client's clock, in monotonic seconds.
    until_s: float
    acked: bool = False

    @property
    def handle(self) -> str:
        """Return the text that names the lease. RocketMQ: ExtraInfoUtil.buildExtraInfo."""
        return (
            f"{self.start} {self.pop_time} {self.invisible_ms} {self.revive_queue} {self.kind} {self.broker}"
            f" {self.queue_id} {self.offset}"
        )


@dataclass(frozen=True, slots=True)
class PoppedMessage(Message):
    """A message that was handed out for a time. Others get it when the time is over and nobody acknowledged it."""

    lease: MessageLease | None = field(default=None, compare=False, repr=False)

    @property
    def handle(self) -> str:
        """The text by which brokers know who holds the message."""
        assert self.lease is not None
        return self.lease.handle

    @property
    def delivery_attempt(self) -> int:
        """How often the message was handed out, with this time."""
        return self.reconsume_times + 1

    @property
    def invisible_until(self) -> float:
        """The time of the Unix epoch, in seconds, at which others get the message."""
        assert self.lease is not None
        return (self.lease.pop_time + self.lease.invisible_ms) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PopOptions:
    """What one pop asks for. Times are in seconds."""

    count: int = BATCH_MAX
    invisible_s: float = 60.0
    wait_s: float = 0.0
    in_order: bool = False
    attempt_id: str | None = None
    from_start: bool = False


_MESSAGE_FIELDS: Final = tuple(one.name for one in fields(Message))


class Popper:
    """The pops of one group."""

    def __init__(self, core: ClientCore, group: str, namespace: str = "") -> None:
        self._core = core
        self._group = group
        self._namespace = namespace
        # By broker and topic: how many messages the last answers had room for, where that was not all. Each one that is
        # given back is stored again by the broker.
        self._fitting: dict[tuple[str, str], int] = {}

    async def _address(self, broker: str, topic: str) -> str:
        return await self._core.address_of(MessageQueue(topic, broker, 0))

    async def pop(
        self, broker: str, queue_id: int, wanted: SubscriptionData, options: PopOptions
    ) -> list[PoppedMessage]:
        """Take messages of a topic from one broker; none where it has none in time. Raise where it refuses."""
        core = self._core
        address = await self._address(broker, wanted.topic)
        header = PopMessageRequestHeader(
            consumer_group=self._group,
            topic=wanted.topic,
            queue_id=queue_id,
            max_msg_nums=min(options.count, self._fitting.get((broker, wanted.topic), options.count)),
            invisible_time=round(options.invisible_s * 1000),
            poll_time=round(options.wait_s * 1000),
            born_time=core.clock.now_ms(),
            init_mode=_FROM_START if options.from_start else _FROM_END,
            exp_type=wanted.expression_type,
            exp=wanted.sub_string,
            order=options.in_order,
            attempt_id=options.attempt_id,
            bname=broker,
        )
        asked_s = core.clock.monotonic()
        answer = await core.call(address, RequestCode.POP_MESSAGE, header, timeout_s=options.wait_s + _ANSWER_S)
        if answer.code in _NOTHING:
            return []
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(answer.code, answer.remark, address)
        found = decode_header(PopMessageResponseHeader, answer)
        return self._messages(answer.body, broker, wanted, found, max(asked_s, core.clock.monotonic() - 1.0))

    def _messages(
        self, body: bytes, broker: str, wanted: SubscriptionData, head: PopMessageResponseHeader, began_s: float
    ) -> list[PoppedMessage]:
        starts = _starts(head.start_offset_info or "")
        tags = frozenset(wanted.tags_set)
        found: list[PoppedMessage] = []
        places = _places(head.msg_offset_info or "")
        unfolding, message = Unfolding(), None
        given_back = 0
        for place, record in enumerate(decode_records(body)):
            try:
                # Behind one that had no room all others wait, too: they keep their order.
                if place == 0 or message is not None:
                    message = unfolding.message(record, broker)
            except NoRoomError:
                message = None
            except DecompressionError as error:
                _log.error("a body could not be decompressed and is handed out as it is", reason=str(error))
                message = from_record(record, broker, unfold=False)
            if place >= len(places):
                raise RemoteProtocolError("the answer to a pop holds more messages than its header names")
            kind, queue_id, offset = places[place]
            topic = wanted.topic
            if kind in ("1", "2") and not is_retry_topic(topic):
                topic = pop_retry_topic(topic, self._group, parse_int(kind))
            lease = MessageLease(
                broker, topic, kind, queue_id, offset, starts.get((kind, queue_id), offset), head.pop_time,
                head.invisible_time, head.revive_qid, began_s + head.invisible_time / 1000,
            )  # fmt: skip
            if message is None:
                given_back += 1
                self._core.tasks.start(self._give_back(lease), name="give a message back")
                continue
            shown = without_namespace(self._namespace, wanted.topic) if self._namespace else wanted.topic
            values = {name: getattr(message, name) for name in _MESSAGE_FIELDS}
            popped = PoppedMessage(**{**values, "topic": shown}, lease=lease)
            # Brokers filter by the hash of the tag, which two tags may share.
            if tags and popped.tags not in tags:
                self._core.tasks.start(self._pass_over(lease), name="pass over a message")
            else:
                found.append(popped)
        self._fit((broker, wanted.topic), len(places), given_back)
        return found

    def _fit(self, source: tuple[str, str], count: int, given_back: int) -> None:
        """Ask for as many messages as an answer has room for, and for one more after each that had room for all."""
        if given_back:
            self._fitting[source] = count - given_back
        elif self._fitting.get(source, BATCH_MAX) < BATCH_MAX:
            self._fitting[source] += 1
        else:
            self._fitting.pop(source, None)

    async def _give_back(self, lease: MessageLease) -> None:
        try:
            await self.change(lease, _BACK_S, suspend=True)
        except AerobeeError as error:
            _log.debug("a message comes back when its time is over", reason=str(error))

    async def _pass_over(self, lease: MessageLease) -> None:
        try:
            await self.ack(lease)
        except AerobeeError as error:
            _log.debug("a message of another tag is not acknowledged", reason=str(error))

    async def ack(self, lease: MessageLease) -> None:
        """Acknowledge one message. On our broker an answer means that this survives a crash."""
        address = await self._address(lease.broker, lease.topic if lease.kind == "0" else self._plain(lease))
        header = AckMessageRequestHeader(
            consumer_group=self._group,
            topic=lease.topic,
            queue_id=lease.queue_id,
            extra_info=lease.handle,
            offset=lease.offset,
            bname=lease.broker,
        )
        await self._core.ask(address, RequestCode.ACK_MESSAGE, header)
        lease.acked = True

    def _plain(self, lease: MessageLease) -> str:
        return lease.topic.partition(self._group)[2][1:]

    async def ack_all(self, leases: Sequence[MessageLease]) -> None:
        """Acknowledge messages that one broker handed out, by one request."""
        by_pop: dict[tuple[str, int, int, int, int], list[MessageLease]] = {}
        for lease in sorted(leases, key=lambda one: (one.topic, one.queue_id, one.pop_time, one.offset)):
            # Apache finds the checkpoint of a pop by its start.
            key = (lease.topic, lease.queue_id, lease.pop_time, lease.start, (lease.offset - lease.start) // _SPAN_MAX)
            by_pop.setdefault(key, []).append(lease)
        entries = []
        for (_, queue_id, pop_time, start, _), group in by_pop.items():
            first = group[0]
            plain = first.topic if first.kind == "0" else self._plain(first)
            # Every offset counts from the start of its pop.
            entries.append(
                BatchAck(
                    self._group,
                    plain,
                    first.kind,
                    start,
                    queue_id,
                    first.revive_queue,
                    pop_time,
                    first.invisible_ms,
                    bits_of(start, [one.offset for one in group]),
                )
            )
        lease = leases[0]
        address = await self._address(lease.broker, lease.topic if lease.kind == "0" else self._plain(lease))
        body = BatchAckMessageRequestBody(lease.broker, tuple(entries)).encode()
        await self._core.ask(address, RequestCode.BATCH_ACK_MESSAGE, None, body)
        for one in leases:
            one.acked = True

    async def change(self, lease: MessageLease, invisible_s: float, *, suspend: bool = False) -> None:
        """Hide a message for another time from now on; its lease has the new time then, and the new handle."""
        address = await self._address(lease.broker, lease.topic if lease.kind == "0" else self._plain(lease))
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=self._group,
            topic=lease.topic,
            queue_id=lease.queue_id,
            extra_info=lease.handle,
            offset=lease.offset,
            invisible_time=round(invisible_s * 1000),
            suspend=suspend,
            bname=lease.broker,
        )
        asked_s = self._core.clock.monotonic()
        answer = await self._core.ask(address, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        head = decode_header(ChangeInvisibleTimeResponseHeader, answer)
        # RocketMQ: the handle of a changed message names the message itself as the start of its pop.
        if head.pop_time != lease.pop_time:
            lease.start = lease.offset
        lease.pop_time, lease.invisible_ms, lease.revive_queue = head.pop_time, head.invisible_time, head.revive_qid
        lease.until_s = asked_s + invisible_s


def _starts(text: str) -> Mapping[tuple[str, int], int]:
    return {(kind, queue): first for kind, queue, first in _triples(text)}


def _places(text: str) -> list[tuple[str, int, int]]:
    found = []
    for part in filter(None, text.split(";")):
        kind, queue, offsets = _parts(part)
        found += [(kind, _number(queue), _number(offset)) for offset in offsets.split(",")]
    return found


def _triples(text: str) -> list[tuple[str, int, int]]:
    return [(kind, _number(queue), _number(first)) for kind, queue, first in map(_parts, filter(None, text.split(";")))]


def _parts(part: str) -> list[str]:
    parts = part.split(" ")
    if len(parts) != 3:
        raise RemoteProtocolError(f"the answer to a pop names {part[:80]!r}, which is not three parts")
    return parts


def _number(text: str) -> int:
    try:
        return parse_int(text, 0)
    except NumberError as error:
        raise RemoteProtocolError(f"the answer to a pop: {error}") from None
