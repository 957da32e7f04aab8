"""A message that is ready to be sent: what the user gave, checked, with RocketMQ's own properties added.

RocketMQ: Validators.checkMessage, DefaultMQProducerImpl.sendKernelImpl, MessageBatch.generateFromList.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from aerobee.client.core import wrong_type
from aerobee.client.producer.sendoptions import SendOptions, check_send_options, seconds_of
from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.batch import encode_batch
from aerobee.hot.log.layout import PART_FIXED_SIZE, PROPERTIES_SIZE_MAX, TRANSACTION_PREPARED
from aerobee.hot.log.properties import decode_properties
from aerobee.model import sysproperties as names
from aerobee.model.compression import CompressionType, compress
from aerobee.model.message import Message
from aerobee.model.names import is_retry_topic
from aerobee.protocol.codes import RequestCode

# The ordinals of RocketMQ's MessageType, which traces carry.
NORMAL, HALF, COMMIT, DELAY, ORDER = range(5)
REPLY_FLAG: Final = "reply"  # RocketMQ: MixAll.REPLY_MESSAGE_FLAG

# Apache's broker has no limit. Aerobee's broker refuses more messages in one request.
BATCH_COUNT_MAX: Final = 10_000
# Bodies of this size are compressed in a thread. Compressing half of it takes about a millisecond of the loop.
COMPRESS_IN_THREAD_BYTES: Final = 64 << 10

Body = bytes | bytearray | memoryview


@dataclass(slots=True)
class SendRequest:
    """One request to send: a message, or a batch of them."""

    topic: str  # as on the wire
    user_topic: str
    body: bytes
    message_id: str
    properties: str
    body_size: int
    tags: str = ""
    keys: str = ""
    flag: int = 0
    sys_flag: int = 0
    code: int = RequestCode.SEND_MESSAGE_V2
    kind: int = NORMAL
    # The ids of a batch's messages.
    message_ids: tuple[str, ...] = ()
    # How to compress the body before it is sent.
    compression: Compression | None = None

    def as_message(self) -> Message:
        """Return the message that selectors and hooks see."""
        user, system = names.split_properties(decode_properties(self.properties.encode("utf-8", "replace")))
        return Message(
            self.user_topic,
            self.body,
            message_id=self.message_id,
            keys=self.keys,
            tags=self.tags,
            properties=user,
            system_properties=system,
            sys_flag=self.sys_flag,
            flag=self.flag,
        )


def checked_body(body: Body, size_max: int) -> bytes:
    """Return the body as bytes. Raise InvalidArgumentError for one that a broker does not take."""
    if type(body) is not bytes:
        if not isinstance(body, bytes | bytearray | memoryview):
            hint = "encode it: body.encode()" if isinstance(body, str) else None
            raise InvalidArgumentError(f"a body is bytes, not {type(body).__name__}", hint=hint)
        body = bytes(body)
    if not body:
        raise InvalidArgumentError("the body is empty, which RocketMQ refuses")
    if len(body) > size_max:
        raise InvalidArgumentError(
            f"a body of {len(body)} bytes is larger than max_message_size={size_max}",
            hint="send a reference to it, or raise the limit here and maxMessageSize at the broker",
        )
    return body


def joined_keys(keys: str | Sequence[str]) -> str:
    """Return the keys as one text, with blanks between them."""
    return keys if isinstance(keys, str) else " ".join(keys)


def properties_text(message_id: str, options: SendOptions, system: Mapping[str, str] | None = None) -> str:
    """Return the property block: unique id, tags, keys, RocketMQ's own properties, then the user's."""
    text = f"UNIQ_KEY\x01{message_id}\x02"
    if not options and not system:
        return text
    own: dict[str, str] = dict(system) if system else {}
    tags = options.get("tags")
    if tags:
        own[names.TAGS] = tags
    keys = options.get("keys")
    if keys:
        own[names.KEYS] = joined_keys(keys)
    sharding_key = options.get("sharding_key")
    if sharding_key:
        own[names.SHARDING_KEY] = sharding_key
    own.update(delay_properties(options))
    priority = options.get("priority")
    if priority is not None:
        own[names.PRIORITY] = str(priority)
    properties = options.get("properties")
    if properties:
        user = dict(properties)
        names.require_user_properties(user)
        own.update(user)
    for name, value in own.items():
        if "\x02" in value or ("\x01" in value and name in (names.TAGS, names.KEYS)):
            raise InvalidArgumentError(f"{name} holds a separator character (0x01 or 0x02)")
        text += f"{name}\x01{value}\x02"
    if len(text) * 4 > PROPERTIES_SIZE_MAX and len(text.encode("utf-8", "replace")) > PROPERTIES_SIZE_MAX:
        raise InvalidArgumentError(f"the properties take more than {PROPERTIES_SIZE_MAX} bytes")
    return text


def delay_properties(options: SendOptions) -> dict[str, str]:
    """Return the property that says when to deliver. At most one of the three options is given."""
    level, delay, deliver_at = options.get("delay_level"), options.get("delay"), options.get("deliver_at")
    if level:
        return {names.DELAY: str(level)}
    if delay:
        return {names.TIMER_DELAY_MS: str(round(seconds_of(delay) * 1000))}
    if deliver_at is not None:
        at_ms = round(deliver_at.timestamp() * 1000) if isinstance(deliver_at, datetime) else deliver_at
        return {names.TIMER_DELIVER_MS: str(at_ms)}
    return {}


@dataclass(frozen=True, slots=True)
class Compression:
    """How a producer compresses bodies of at least `over_bytes`, where that makes them smaller."""

    kind: CompressionType
    over_bytes: int
    level: int

    def is_wanted(self, body: bytes) -> bool:
        return len(body) >= self.over_bytes

    def apply(self, body: bytes) -> tuple[bytes, int]:
        """Return the body to send and its flag."""
        compressed = compress(body, self.kind, self.level)
        return (compressed, self.kind.flag) if len(compressed) < len(body) else (body, 0)


def prepared(out: SendRequest) -> SendRequest:
    """Turn a request into one for a half message, and return it."""
    out.sys_flag |= TRANSACTION_PREPARED
    out.kind = HALF
    return out


def message_options(message: Message) -> SendOptions:
    """Return the options in a Message. Of RocketMQ's own properties only the sharding key is sent again."""
    options = SendOptions()
    if message.tags:
        options["tags"] = message.tags
    if message.keys:
        options["keys"] = message.keys
    if message.properties:
        options["properties"] = message.properties
    if message.flag:
        options["flag"] = message.flag
    sharding_key = message.system_properties.get(names.SHARDING_KEY)
    if sharding_key:
        options["sharding_key"] = sharding_key
    if options:
        check_send_options("Message", options)
    return options


def require_batch(messages: Sequence[Message]) -> str:
    """Return the topic of a batch. Raise InvalidArgumentError for messages that cannot be one batch."""
    if not messages:
        raise InvalidArgumentError("the batch is empty")
    for message in messages:
        if not isinstance(message, Message):
            raise wrong_type("one of a batch", "a Message", message, "Message(topic, body, tags=..., keys=...)")
    topic = messages[0].topic
    if is_retry_topic(topic):
        raise InvalidArgumentError("messages for a retry topic cannot be sent in a batch")
    other = next((message.topic for message in messages if message.topic != topic), None)
    if other is not None:
        raise InvalidArgumentError(f"a batch has one topic, not {topic!r} and {other!r}")
    return topic


def batch_part(message: Message, message_id: str, size_max: int) -> tuple[int, bytes, bytes]:
    """Return flag, body and properties of one message of a batch. Batches are not compressed, as in Java."""
    options = message_options(message)
    block = properties_text(message_id, options).encode("utf-8", "replace")
    return message.flag, checked_body(message.body, size_max), block


def batch_body(parts: list[tuple[int, bytes, bytes]]) -> bytes:
    return encode_batch(parts)


def batch_sizes(parts: Sequence[tuple[int, bytes, bytes]]) -> list[int]:
    return [PART_FIXED_SIZE + len(body) + len(block) for _, body, block in parts]
