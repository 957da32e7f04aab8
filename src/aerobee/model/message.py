"""A message as users see it. Python, `--json` output, Spark columns and archives use the same names for its fields."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from aerobee.errors import InvalidArgumentError, RemoteProtocolError
from aerobee.hot.log.batch import decode_batch
from aerobee.hot.log.host import decode_host
from aerobee.hot.log.layout import COMPRESSED, INNER_BATCH, NEED_UNWRAP
from aerobee.hot.log.properties import decode_properties
from aerobee.hot.log.record import Record
from aerobee.model import sysproperties as names
from aerobee.model.compression import UNFOLDED_SIZE_MAX, DecompressionError, UnfoldedTooLargeError, decompress
from aerobee.model.ids import offset_message_id
from aerobee.model.offsets import PhysicalOffset, QueueOffset

_FIRST = QueueOffset(0)
_NOWHERE = PhysicalOffset(-1)
# The most messages of a batch that is kept as one record. RocketMQ counts them in a short.
INNER_COUNT_MAX = 32767
# What the compressed messages of one answer may become together; one alone may become UNFOLDED_SIZE_MAX.
_ANSWER_UNFOLDED_MAX = 16 << 20
_WRAPPED = INNER_BATCH | NEED_UNWRAP


class _Answerable:
    """The function that replies to a message. It is no field: it is not compared, shown, copied or pickled."""

    __slots__ = ("_replier",)


@dataclass(frozen=True, slots=True)
class Message(_Answerable):
    """A stored message. `properties` are the sender's own; `system_properties` are RocketMQ's.

    `message_id` is the sender's unique id where it gave one, else the offset id.
    """

    topic: str
    body: bytes
    broker: str = ""
    queue_id: int = 0
    queue_offset: QueueOffset = _FIRST
    message_id: str = ""
    keys: str = ""
    tags: str = ""
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    born_timestamp: int = 0
    store_timestamp: int = 0
    reconsume_times: int = 0
    commitlog_offset: PhysicalOffset = _NOWHERE
    born_host: str = ""
    store_host: str = ""
    sys_flag: int = 0
    system_properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    flag: int = 0
    offset_id: str = ""
    prepared_transaction_offset: int = 0

    @property
    def key_list(self) -> list[str]:
        """The single keys. `keys` joins them by blanks."""
        return [key for key in self.keys.split(" ") if key]

    def reply(self, body: bytes) -> Awaitable[object]:
        """Answer a request (`Producer.request`): `await message.reply(b"...")`.

        A plain `def` handler calls it without `await`; its thread waits for the answer. The message must be one that a
        consumer handed out.
        """
        replier: Callable[[Message, bytes], Awaitable[object]] | None = getattr(self, "_replier", None)
        if replier is None:
            raise InvalidArgumentError(f"message {self.message_id} did not come from a consumer: no way to reply")
        return replier(self, body)


def with_replier(message: Message, replier: Callable[[Message, bytes], Awaitable[object]]) -> Message:
    """Return the same message, which can be replied to from now on. A copy of it cannot."""
    object.__setattr__(message, "_replier", replier)
    return message


def from_record(record: Record, broker: str = "", *, unfold: bool = True, size_max: int = UNFOLDED_SIZE_MAX) -> Message:
    """Return a record's message. With `unfold` its body is decompressed and the flag of compression is cleared."""
    everything = decode_properties(record.properties)
    user, system = names.split_properties(everything)
    body = record.body
    sys_flag = record.sys_flag
    if unfold and sys_flag & COMPRESSED and body:
        body = decompress(body, sys_flag, size_max)
        # RocketMQ: MessageDecoder.decode clears the one flag and leaves the type bits.
        sys_flag &= ~COMPRESSED
    offset_id = offset_message_id(record.store_host, record.physical_offset)
    return Message(
        topic=record.topic.decode("utf-8", "replace"),
        body=body,
        broker=broker,
        queue_id=record.queue_id,
        queue_offset=QueueOffset(record.queue_offset),
        message_id=system.get(names.UNIQ_KEY) or offset_id,
        keys=system.get(names.KEYS, ""),
        tags=system.get(names.TAGS, ""),
        properties=user,
        born_timestamp=record.born_timestamp,
        store_timestamp=record.store_timestamp,
        reconsume_times=record.reconsume_times,
        commitlog_offset=PhysicalOffset(record.physical_offset),
        born_host=decode_host(record.born_host),
        store_host=decode_host(record.store_host),
        sys_flag=sys_flag,
        system_properties=system,
        flag=record.flag,
        offset_id=offset_id,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )


class NoRoomError(UnfoldedTooLargeError):
    """An answer has unfolded to so much that its next compressed message has to wait."""


class Unfolding:
    """Makes messages of the records of one answer, whose compressed bodies must not become gigabytes together.

    Without `unfold` bodies stay as they are stored, except those of batches, whose messages lie inside.
    """

    def __init__(self, *, unfold: bool = True) -> None:
        self._unfolds = unfold
        self._is_first = True
        self._room = _ANSWER_UNFOLDED_MAX

    def message(self, record: Record, broker: str = "") -> Message:
        """Return a record's message. Raise NoRoomError where it has to wait, never for the first compressed one; raise
        DecompressionError where its body is not what its flag says."""
        flag = record.sys_flag
        if not flag & COMPRESSED or not (self._unfolds or flag & _WRAPPED == _WRAPPED):
            return from_record(record, broker, unfold=False)
        is_first, self._is_first = self._is_first, False
        if not is_first and self._room <= 0:
            raise NoRoomError("the answer has unfolded to enough")
        try:
            message = from_record(record, broker, size_max=UNFOLDED_SIZE_MAX if is_first else self._room)
        except UnfoldedTooLargeError as error:
            if is_first:
                self._room = 0
                raise
            raise NoRoomError(error.message) from error
        except DecompressionError:
            # How much was made before the error showed is not known.
            self._room = 0
            raise
        self._room -= len(message.body)
        return message


def unfolded(message: Message) -> Message:
    """Return a message that was left as it is stored with its body decompressed. One that cannot be is returned as it
    is, and its flag still says that it is compressed."""
    if not message.sys_flag & COMPRESSED or not message.body:
        return message
    try:
        body = decompress(message.body, message.sys_flag)
    except DecompressionError:
        return message
    return replace(message, body=body, sys_flag=message.sys_flag & ~COMPRESSED)


def unwrap(message: Message, count_max: int = INNER_COUNT_MAX) -> list[Message]:
    """Return the messages of a batch that the broker keeps as one record; return any other message alone.

    A batch takes as many places of its queue as it has messages. `count_max` is the number of places up to the next
    record. Raise RemoteProtocolError for a batch that has more messages, or none.
    RocketMQ: MessageDecoder.decodeMessage(MessageExt, List), PullAPIWrapper.processPullResult.
    """
    if message.sys_flag & _WRAPPED != _WRAPPED:
        return [message]
    result: list[Message] = []
    for index, (flag, body, block) in enumerate(decode_batch(message.body, min(count_max, INNER_COUNT_MAX))):
        user, system = names.split_properties(decode_properties(block))
        result.append(
            replace(
                message,
                body=body,
                flag=flag,
                queue_offset=QueueOffset(message.queue_offset + index),
                message_id=system.get(names.UNIQ_KEY) or message.offset_id,
                keys=system.get(names.KEYS, ""),
                tags=system.get(names.TAGS, ""),
                properties=user,
                system_properties=system,
            )
        )
    if not result:
        raise RemoteProtocolError("a wrapped batch holds no message")
    return result
