"""What the service accepts: names, and each limit of a message. RocketMQ: GrpcValidator, SendMessageActivity."""

from __future__ import annotations

import re
from typing import Final

from aerobee.model import names
from aerobee.model.sysproperties import is_system_property
from aerobee.protocol.v2 import enums
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.values import PbDuration, PbMessage, PbResource, PbSystemProperties, PbTimestamp
from aerobee.proxy.status import RefusedCallError

BODY_MAX: Final = 4 << 20
PROPERTIES_MAX: Final = 128
PROPERTY_BYTES_MAX: Final = 16 << 10
GROUP_BYTES_MAX: Final = 64
MESSAGE_ID_BYTES_MAX: Final = 255
DELAY_MAX_MS: Final = 86_400_000
RECOVERY_MAX_S: Final = 3600
INVISIBLE_MIN_MS: Final = 10_000
INVISIBLE_MAX_MS: Final = 12 * 3_600_000
ENTRIES_MAX: Final = 1_000
# What users of lite topics are told, whatever they try.
NO_LITE_TOPICS: Final = "lite topics are not served: use a topic of its own, or a filter by tag or SQL92"

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LITE: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def topic_of(resource: PbResource | None) -> str:
    """Return the topic of a resource. Its namespace is not read, as in Apache's proxy."""
    name = "" if resource is None else resource.name
    problem = names.topic_problem(name)
    if problem is None and len(name) > names.TOPIC_LENGTH_MAX:
        problem = f"a topic has at most {names.TOPIC_LENGTH_MAX} characters"
    if problem is not None:
        raise RefusedCallError(Code.ILLEGAL_TOPIC, problem[:300])
    if names.is_system_topic(name):
        raise RefusedCallError(Code.ILLEGAL_TOPIC, f"topic {name} is one of RocketMQ's own")
    return name


def group_of(resource: PbResource | None) -> str:
    """Return the consumer group of a resource."""
    name = "" if resource is None else resource.name
    problem = names.group_problem(name)
    if problem is not None:
        raise RefusedCallError(Code.ILLEGAL_CONSUMER_GROUP, problem[:300])
    if name.startswith(names.SYSTEM_GROUP_PREFIX):
        raise RefusedCallError(Code.ILLEGAL_CONSUMER_GROUP, f"group {name} is one of RocketMQ's own")
    return name


def millis(duration: PbDuration | PbTimestamp | None) -> int:
    """Return a duration or a time in milliseconds."""
    return 0 if duration is None else duration.seconds * 1000 + duration.nanos // 1_000_000


def duration_of(milliseconds: int) -> PbDuration:
    """Return milliseconds as a duration."""
    return PbDuration(milliseconds // 1000, milliseconds % 1000 * 1_000_000)


def timestamp_of(milliseconds: int) -> PbTimestamp:
    """Return milliseconds as a time."""
    return PbTimestamp(milliseconds // 1000, milliseconds % 1000 * 1_000_000)


def invisible_ms(duration: PbDuration | None, *, low: int = INVISIBLE_MIN_MS) -> int:
    """Return how long a message is to be invisible."""
    value = millis(duration)
    if not low <= value <= INVISIBLE_MAX_MS:
        raise RefusedCallError(
            Code.ILLEGAL_INVISIBLE_TIME, f"an invisible time is from {low} to {INVISIBLE_MAX_MS} ms, not {value}"
        )
    return value


def check_message(message: PbMessage, now_ms: int) -> PbSystemProperties:
    """Raise RefusedCallError for the first rule that a message to be sent breaks; return its system properties."""
    system = message.system_properties or PbSystemProperties()
    if not message.body:
        raise RefusedCallError(Code.MESSAGE_BODY_EMPTY, "a message has a body")
    if len(message.body) > BODY_MAX:
        raise RefusedCallError(Code.MESSAGE_BODY_TOO_LARGE, f"a body has at most {BODY_MAX} bytes")
    _check_properties(message.user_properties, system)
    unique = system.message_id
    if not unique.strip() or len(unique.encode()) > MESSAGE_ID_BYTES_MAX or _CONTROL.search(unique):
        raise RefusedCallError(
            Code.ILLEGAL_MESSAGE_ID,
            f"a message has an id of at most {MESSAGE_ID_BYTES_MAX} bytes and without control characters",
        )
    recovery_s = millis(system.orphaned_transaction_recovery_duration) / 1000
    if recovery_s > RECOVERY_MAX_S:
        raise RefusedCallError(Code.BAD_REQUEST, f"a transaction is asked about after {RECOVERY_MAX_S} s at the latest")
    if system.delivery_timestamp is not None and millis(system.delivery_timestamp) > now_ms + DELAY_MAX_MS:
        raise RefusedCallError(Code.ILLEGAL_DELIVERY_TIME, f"a delivery is at most {DELAY_MAX_MS} ms ahead")
    _check_group(system)
    if system.lite_topic is not None and not _LITE.fullmatch(system.lite_topic):
        raise RefusedCallError(Code.ILLEGAL_LITE_TOPIC, "a lite topic has 1 to 64 characters of a-zA-Z0-9_-")
    return system


def _check_properties(user: dict[str, str], system: PbSystemProperties) -> None:
    if len(user) > PROPERTIES_MAX:
        raise RefusedCallError(Code.MESSAGE_PROPERTIES_TOO_LARGE, f"a message has at most {PROPERTIES_MAX} properties")
    size = 0
    for name, value in user.items():
        if not name.strip() or is_system_property(name) or _CONTROL.search(name) or _CONTROL.search(value):
            raise RefusedCallError(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"property {name[:100]!r}: the name is empty or RocketMQ's own, or there are control characters",
            )
        size += len(name.encode()) + len(value.encode())
    tag = system.tag
    if tag is not None:
        if not tag.strip() or "|" in tag or _CONTROL.search(tag):
            raise RefusedCallError(Code.ILLEGAL_MESSAGE_TAG, "a tag is not blank and has no '|' or control character")
        size += len(tag.encode())
    for key in system.keys:
        if not key.strip() or _CONTROL.search(key):
            raise RefusedCallError(Code.ILLEGAL_MESSAGE_KEY, "a key is not blank and has no control character")
        size += len(key.encode())
    for name, text in (("trace context", system.trace_context or ""), ("born host", system.born_host)):
        if _CONTROL.search(text):
            raise RefusedCallError(Code.BAD_REQUEST, f"there are control characters in the {name}")
        size += len(text.encode())
    if size > PROPERTY_BYTES_MAX:
        raise RefusedCallError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE, f"properties, tag and keys have at most {PROPERTY_BYTES_MAX} bytes"
        )


def _check_group(system: PbSystemProperties) -> None:
    group = system.message_group
    if group is None:
        return
    if not group.strip() or len(group.encode()) >= GROUP_BYTES_MAX or _CONTROL.search(group):
        raise RefusedCallError(
            Code.ILLEGAL_MESSAGE_GROUP,
            f"a message group is not blank, has less than {GROUP_BYTES_MAX} bytes and no control character",
        )


TYPE_NAMES: Final = {
    enums.NORMAL: "NORMAL", enums.FIFO: "FIFO", enums.DELAY: "DELAY", enums.TRANSACTION: "TRANSACTION",
    enums.LITE: "LITE", enums.PRIORITY: "PRIORITY",
}  # fmt: skip


def type_of(system: PbSystemProperties) -> int:
    """Return what a message is, by its fields: the type that it names decides transactions only."""
    if system.message_type == enums.TRANSACTION:
        return enums.TRANSACTION
    if system.delivery_timestamp is not None:
        return enums.DELAY
    if system.message_group is not None:
        return enums.FIFO
    if system.priority is not None:
        return enums.PRIORITY
    return enums.LITE if system.lite_topic is not None else enums.NORMAL


def accepted_types(declared: str) -> list[int]:
    """Return the types that a topic takes. RocketMQ: GrpcConverter.buildMessageType; MIXED takes four."""
    if declared == "MIXED":
        return [enums.NORMAL, enums.FIFO, enums.DELAY, enums.TRANSACTION]
    return [number for number, name in TYPE_NAMES.items() if name == declared] or [enums.NORMAL]
