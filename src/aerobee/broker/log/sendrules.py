"""The rules that every send obeys, whatever way it comes: one table, asked before the ways part.

A message that passes can be stored now and later: in the timer topic and out of it, as a half message and committed,
delayed, and sixteen times for a retry. What the broker adds to its properties on those ways is counted here
(`ADDED`), and that room is kept free from the start.

`RULES` checks a message (also a row of a batch, or of a sink's chunk: `row_refusal`); `name_refusal` and
`topic_refusal` check where it goes. The short way of a send asks none of them. It takes only messages that all of them
pass, which it knows by three numbers (`SHORT_PROPERTIES_MAX`, `SPECIAL_FLAGS`, the largest body) and by the settings of
the topic. RocketMQ: AbstractSendMessageProcessor.msgCheck, HookUtils.checkBeforePutMessage, checkInnerBatch;
MessageExtEncoder.encode; TopicValidator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from aerobee.broker.log.copies import delay_level
from aerobee.broker.refusal import Refusal
from aerobee.hot.log.layout import (
    BLANK_SIZE_MIN,
    FIXED_SIZE,
    INNER_BATCH,
    NEED_UNWRAP,
    PROPERTIES_SIZE_MAX,
    SEAL_SIZE,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    V6_HOST_EXTRA,
)
from aerobee.hot.log.properties import decode_properties
from aerobee.model import sysproperties as names
from aerobee.model.names import RETRY_PREFIX, is_send_forbidden, topic_problem
from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import ResponseCode
from aerobee.store.config import StoreConfig

# The attribute of a topic that says whether it is compacted.
CLEANUP_POLICY: Final = "cleanup.policy"
# Records of one batch at most: they are written in one go.
BATCH_COUNT_MAX: Final = 10_000

_NAME: Final = 255
_INT: Final = 11
_LONG: Final = 20
_MESSAGE_ID: Final = 56

# The properties that are added to a message after it was taken, with the longest value of each.
ADDED: Final[Mapping[str, int]] = {
    # when it is stored (the seal is counted apart)
    names.UNIQ_KEY: 32,
    names.CLUSTER: _NAME,
    # put away for later, and brought back
    names.REAL_TOPIC: _NAME,
    names.REAL_QUEUE_ID: _INT,
    names.DELAY: _INT,
    names.TIMER_OUT_MS: _LONG,
    names.TIMER_ENQUEUE_MS: _LONG,
    names.TIMER_DEQUEUE_MS: _LONG,
    names.TIMER_ROLL_TIMES: _LONG,
    names.TRANSACTION_CHECK_TIMES: _INT,
    # sent back by a consumer
    names.RETRY_TOPIC: _NAME,
    names.WAIT: 5,
    names.ORIGIN_MESSAGE_ID: _MESSAGE_ID,
    names.DLQ_ORIGIN_TOPIC: _NAME,
    names.DLQ_ORIGIN_MESSAGE_ID: _MESSAGE_ID,
    # by a client that sends a message for retry itself, with all the properties it got.
    # RocketMQ: DefaultMQPushConsumerImpl.sendMessageBackAsNormalMessage, PullAPIWrapper.processPullResult
    names.RECONSUME_TIME: _INT,
    names.MAX_RECONSUME_TIMES: _INT,
    names.MIN_OFFSET: _LONG,
    names.MAX_OFFSET: _LONG,
    names.CONSUME_START_TIME: _LONG,
}
# Name, value and two separators.
_RESERVED: Final[Mapping[str, int]] = {name: len(name) + size + 2 for name, size in ADDED.items()}
# A half message has its unique key a second time.
_TRANSACTION_ID_PAIR: Final = len(names.TRANSACTION_ID) + ADDED[names.UNIQ_KEY] + 2
# Bytes of a record's properties that its sender cannot use. The one byte is for a separator that a sender left out.
PROPERTIES_ROOM: Final = sum(_RESERVED.values()) + _TRANSACTION_ID_PAIR + SEAL_SIZE + 1
PROPERTIES_MAX: Final = PROPERTIES_SIZE_MAX - PROPERTIES_ROOM
# Any block up to this size passes, even if each byte of it is broken UTF-8 (one byte becomes three when it is stored
# again) and all of it is the unique key (which is kept twice).
SHORT_PROPERTIES_MAX: Final = PROPERTIES_MAX // 6
# The size of a record without its body, with the blank behind it.
_RECORD_ROOM: Final = FIXED_SIZE + 2 * V6_HOST_EXTRA + 1 + _NAME + PROPERTIES_SIZE_MAX + BLANK_SIZE_MIN
# Flags that no ordinary message has. A bit that Apache does not know is stored, as Apache stores it.
WRAPPED: Final = INNER_BATCH | NEED_UNWRAP
SPECIAL_FLAGS: Final = WRAPPED | TRANSACTION_PREPARED


@dataclass(frozen=True, slots=True)
class Candidate:
    """A message that is to be checked before it is stored."""

    sys_flag: int
    body_size: int
    properties: dict[str, str]
    reconsume_times: int = 0
    # The size of the properties as they came; only where they are stored as they came.
    block_size: int = 0

    @property
    def is_half(self) -> bool:
        """Whether it is the first half of a transaction."""
        return self.is_prepared and not (self.reconsume_times > 0 and delay_level(self.properties) > 0)

    @property
    def is_prepared(self) -> bool:
        """Whether it says so. Clients before 4.6.1 leave the property on retries, which are no halves."""
        return self.properties.get(names.TRANSACTION_PREPARED, "").lower() == "true"


def _illegal(body_size_max: int, reason: str) -> Refusal:
    """Return a refusal in Apache's words, which people search for, and ours."""
    remark = (
        "the message is illegal, maybe msg body or properties length not matched. "
        f"msg body length limit {body_size_max}B, msg properties length limit 32KB. {reason}"
    )
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)


# A rule takes a message and the largest body that is allowed.
Rule = Callable[[Candidate, int], Refusal | None]


def _flags(message: Candidate, body_size_max: int) -> Refusal | None:
    """Refuse a batch that its sender has wrapped: it would be taken for as many messages as it claims to hold."""
    if message.sys_flag & WRAPPED:
        return _illegal(
            body_size_max, f"sysFlag {message.sys_flag} says inner batch (0x40, 0x80), which no sender may say."
        )
    if message.sys_flag & TRANSACTION_MASK not in (0, TRANSACTION_COMMIT) and not message.is_prepared:
        return _illegal(
            body_size_max,
            f"sysFlag {message.sys_flag} says prepared or rolled back, the property {names.TRANSACTION_PREPARED} says "
            "no transaction: no reader would ever see the message.",
        )
    return None


def _body(message: Candidate, body_size_max: int) -> Refusal | None:
    if message.body_size <= 0:
        return _illegal(body_size_max, "The body is empty.")
    if message.body_size > body_size_max:
        return _illegal(body_size_max, f"The body has {message.body_size} bytes (maxMessageSize).")
    return None


def _properties(message: Candidate, body_size_max: int) -> Refusal | None:
    size = properties_size(message.properties)
    if size > PROPERTIES_MAX or message.block_size > PROPERTIES_SIZE_MAX:
        return _illegal(
            body_size_max,
            f"The sender's properties take {max(size, message.block_size)} bytes; at most {PROPERTIES_MAX} leave room "
            "for what the broker adds until the message is delivered. Put large values into the body.",
        )
    return None


def _inner_count(message: Candidate, body_size_max: int) -> Refusal | None:
    if names.INNER_NUM in message.properties:
        return _illegal(body_size_max, f"The property {names.INNER_NUM} is an inner batch's, which no sender may say.")
    return None


def _lite_topic(message: Candidate, body_size_max: int) -> Refusal | None:
    """Refuse lite topics: without a queue of its own no lite consumer would ever see the message."""
    if names.LITE_TOPIC in message.properties:
        return Refusal(ResponseCode.SYSTEM_ERROR, "lite topics are not served by this broker")
    return None


# The sender hears the first rule that objects.
RULES: Final[tuple[Rule, ...]] = (_flags, _body, _properties, _inner_count, _lite_topic)


def message_refusal(message: Candidate, body_size_max: int) -> Refusal | None:
    """Return why a message cannot be taken, whichever topic it is for; None where it can."""
    for rule in RULES:
        refusal = rule(message, body_size_max)
        if refusal is not None:
            return refusal
    return None


def row_refusal(block: bytes, body_size: int, body_size_max: int, sys_flag: int = 0) -> Refusal | None:
    """Return why one row of a batch cannot be taken: `block` is its properties as they came.

    Ask `Catalog.for_send` about its topic and queue before (a queue below 0 means "any" to it), and `key_refusal` about
    a compacted topic. A row that passes can be stored at any time later, with everything the broker adds.
    """
    properties = decode_properties(block)
    return message_refusal(Candidate(sys_flag, body_size, properties, block_size=len(block)), body_size_max)


def name_refusal(topic: str) -> Refusal | None:
    """Return why no client may send to a topic of that name."""
    problem = topic_problem(topic)
    if problem is not None:
        return Refusal(ResponseCode.INVALID_PARAMETER, problem)
    if is_send_forbidden(topic):
        return Refusal(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
    return None


def topic_refusal(config: TopicConfig, queue_id: int, producer: str = "") -> Refusal | None:
    """Return why a send may not name that queue of a topic (a negative id: any).

    Apache's broker takes sends for a topic without the right to write, from clients that still have the old route.
    """
    topic = config.topic_name
    if not config.is_writable:
        return Refusal(ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")
    queues = max(config.write_queue_nums, config.read_queue_nums)
    if queue_id >= queues or (queue_id < 0 and config.write_queue_nums <= 0):
        return Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{queue_id}] is illegal, topic[{topic}] has "
            f"{config.write_queue_nums} write and {config.read_queue_nums} read queues. Producer: {producer}",
        )
    return None


def key_refusal(config: TopicConfig, keys: str) -> Refusal | None:
    """Return why a compacted topic does not take a message: it keeps the last one of each key."""
    if config.attributes.get(CLEANUP_POLICY) == "COMPACTION" and not keys.strip():
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")
    return None


def batch_refusal(topic: str, count: int, body_size_max: int) -> Refusal | None:
    """Return why a batch of so many messages is not taken, whatever they are."""
    if topic.startswith(RETRY_PREFIX):
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {topic}")
    if count <= 0:
        return _illegal(body_size_max, "The batch is empty.")
    if count > BATCH_COUNT_MAX:
        return _illegal(body_size_max, f"The batch holds more than {BATCH_COUNT_MAX} messages.")
    return None


def largest_body(message_size_max: int, segment_size: int) -> int:
    """Return the largest body that is taken: a record lies in one segment, also when all has been added to it."""
    return min(message_size_max, max(segment_size // 2, segment_size - _RECORD_ROOM))


def properties_size(properties: Mapping[str, str]) -> int:
    """Return how many bytes of `PROPERTIES_MAX` the properties of a message take.

    The broker keeps room for what it always adds. Such a property counts only with the bytes beyond that room.
    """
    unique = properties.get(names.UNIQ_KEY, "").encode("utf-8", "replace")
    size = max(0, len(unique) - ADDED[names.UNIQ_KEY])
    for name, value in properties.items():
        pair = len(name.encode("utf-8", "replace")) + len(value.encode("utf-8", "replace")) + 2
        size += max(0, pair - _RESERVED.get(name, 0))
    return size


def body_size_max(config: StoreConfig) -> int:
    """Return the largest body that a store with these settings takes."""
    return largest_body(config.max_message_size, config.mapped_file_size_commit_log)
