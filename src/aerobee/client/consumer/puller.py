"""One pull: the broker that is asked, the request, and the answer as messages.

RocketMQ: PullAPIWrapper, MQClientAPIImpl.processPullResponse, PullSysFlag.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

from aerobee.client.core import ClientCore, without_namespace
from aerobee.errors import RemoteProtocolError, TransportError
from aerobee.errors.codes import error_for
from aerobee.hot.log.layout import COMPRESSED
from aerobee.hot.log.record import decode_records
from aerobee.model import sysproperties as names
from aerobee.model.compression import DecompressionError
from aerobee.model.message import Message, NoRoomError, Unfolding, from_record, unwrap
from aerobee.model.names import retry_topic
from aerobee.model.offsets import QueueOffset
from aerobee.model.queue import MessageQueue
from aerobee.model.route import MASTER_ID
from aerobee.protocol.bodies.heartbeat import SubscriptionData
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from aerobee.telemetry.stdlog import get_log

_SUSPEND: Final = 2
_SUBSCRIPTION: Final = 4
_LITE_PULL: Final = 16

# How long a broker holds a pull that finds nothing, and how long the client waits for its answer.
SUSPEND_S: Final = 15.0
TIMEOUT_S: Final = 30.0
PULL_BATCH_SIZE: Final = 32
_BYTES_MAX: Final = 2**31 - 1

_log = get_log("client.pulling")


class PullStatus(enum.Enum):
    """How a pull ended."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW_MESSAGE = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED_MESSAGE = ResponseCode.PULL_RETRY_IMMEDIATELY
    # The queue does not have this offset, or not any more. The broker says to go on at `next_offset`.
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


_STATUSES: Final = {status.value: status for status in PullStatus}


@dataclass(frozen=True, slots=True)
class PullResult:
    """The result of a pull. Every offset before `next_offset` is either here or was filtered out."""

    status: PullStatus
    messages: list[Message]
    next_offset: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOptions:
    """The options of a pull."""

    max_num: int = PULL_BATCH_SIZE
    suspend_s: float = SUSPEND_S
    timeout_s: float = TIMEOUT_S
    # Whether the pull carries the subscription. That of a push consumer is known from its heartbeats.
    lite: bool = False
    # Whether bodies are decompressed. Else they stay as they are stored, which the flags of the messages tell.
    unfold: bool = True


class Puller:
    """The pulls of one group."""

    def __init__(self, core: ClientCore, group: str, namespace: str = "") -> None:
        self._core = core
        self._group = group
        self._namespace = namespace
        # The broker id that the last answer suggested for the next pull.
        self._suggested: dict[MessageQueue, int] = {}

    async def pull(
        self, queue: MessageQueue, wanted: SubscriptionData, offset: int, options: PullOptions
    ) -> PullResult:
        """Pull messages of a queue. Raise TransportError or BrokerError."""
        core = self._core
        broker_id = self._suggested.get(queue, MASTER_ID)
        address = await core.address_of(queue, broker_id)
        header = self._header(queue, wanted, offset, options)
        code = RequestCode.LITE_PULL_MESSAGE if options.lite else RequestCode.PULL_MESSAGE
        try:
            answer = await core.call(address, code, header, timeout_s=options.timeout_s)
        except TransportError:
            self._suggested.pop(queue, None)
            raise
        status = _STATUSES.get(answer.code)
        if status is None:
            raise error_for(answer.code, answer.remark, address)
        found = decode_header(PullMessageResponseHeader, answer)
        self._suggested[queue] = found.suggest_which_broker_id
        messages: list[Message] = []
        next_offset = found.next_begin_offset
        if status is PullStatus.FOUND:
            delta = found.offset_delta or 0
            unfolding = Unfolding(unfold=options.unfold)
            messages, end = self._messages(answer.body, queue, wanted, delta, next_offset - delta, unfolding)
            next_offset = end + delta
        return PullResult(status, messages, next_offset, found.min_offset, found.max_offset)

    def _header(
        self, queue: MessageQueue, wanted: SubscriptionData, offset: int, options: PullOptions
    ) -> PullMessageRequestHeader:
        # A pull could carry the offset of the group (flag 1), as Java's does. The broker might then take it after a
        # later one that was committed, and the group would go back. So this client never does that.
        flags = _SUSPEND if options.suspend_s > 0 else 0
        if options.lite:
            flags |= _LITE_PULL | _SUBSCRIPTION
        return PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=options.max_num,
            sys_flag=flags,
            commit_offset=0,
            suspend_timeout_millis=round(options.suspend_s * 1000),
            subscription=wanted.sub_string if options.lite else None,
            sub_version=wanted.sub_version,
            max_msg_bytes=_BYTES_MAX,
            expression_type=wanted.expression_type,
            bname=queue.broker_name,
        )

    def _messages(
        self, body: bytes, queue: MessageQueue, wanted: SubscriptionData, delta: int, end: int, unfolding: Unfolding
    ) -> tuple[list[Message], int]:
        """Return the messages of an answer that reads on at `end`, and where to read on.

        That is before the end where the messages would unfold to too much at once: the others are pulled again.
        """
        tags = frozenset(wanted.tags_set)
        result: list[Message] = []
        records = decode_records(body)
        ends = [record.queue_offset for record in records[1:]] + [end]
        for record, next_offset in zip(records, ends, strict=True):
            try:
                # The call that is spared is 3 % of what a message costs here.
                if record.sys_flag & COMPRESSED:
                    message = unfolding.message(record, queue.broker_name)
                else:
                    message = from_record(record, queue.broker_name)
            except NoRoomError:
                return result, record.queue_offset
            except DecompressionError as error:
                # It is handed out as it is: stopping here would hold up the queue for ever.
                _log.error(
                    "a body could not be decompressed and is handed out as it is",
                    queue=queue,
                    offset=record.queue_offset,
                    reason=str(error),
                )
                message = from_record(record, queue.broker_name, unfold=False)
            if delta or message.queue_id != queue.queue_id:
                offset = QueueOffset(message.queue_offset + delta)
                message = replace(message, queue_id=queue.queue_id, queue_offset=offset)
            for one in _unwrapped(message, next_offset - record.queue_offset):
                # Brokers filter by the hash of the tag, which two tags may share.
                if not tags or one.tags in tags:
                    result.append(self.restored(one))
        return result, end

    def restored(self, message: Message) -> Message:
        """Return a message with the topic that users know: the original one of a retried message, without namespace."""
        topic = message.topic
        origin = message.system_properties.get(names.RETRY_TOPIC)
        if origin is not None and topic == retry_topic(self._group):
            topic = origin
        if self._namespace:
            topic = without_namespace(self._namespace, topic)
        return message if topic == message.topic else replace(message, topic=topic)

    def forget(self, queue: MessageQueue) -> None:
        """Forget a queue that is not pulled any more."""
        self._suggested.pop(queue, None)


def _unwrapped(message: Message, places: int) -> list[Message]:
    """Return the messages of a record that takes so many places of its queue.

    A record that claims to be a batch and does not fit its places is handed out as it is: stopping there would hold up
    the queue for ever, and believing it would skip the messages behind it.
    """
    try:
        return unwrap(message, places)
    except RemoteProtocolError as error:
        where = f"{message.broker}/{message.topic}/{message.queue_id}"
        _log.error(
            "an inner batch could not be unpacked and is handed out as it is",
            queue=where,
            offset=message.queue_offset,
            reason=str(error),
        )
        return [message]
