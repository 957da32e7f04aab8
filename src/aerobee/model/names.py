"""The rules for names of topics and groups, and the names that RocketMQ keeps for itself.

RocketMQ: TopicValidator, Validators, MixAll, KeyBuilder.
"""

import re
from typing import Final

from aerobee.errors import InvalidArgumentError

TOPIC_LENGTH_MAX: Final = 127
GROUP_LENGTH_MAX: Final = 120
CLIENT_ID_LENGTH_MAX: Final = 1024
# The name of a retry or dead-letter topic is a prefix, a group and, for POP, a topic.
RETRY_TOPIC_LENGTH_MAX: Final = 255

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
# Aerobee's own topics. A broker keeps in them what it knows of the batches of sinks (docs/formats/private.md), the
# state of a replicated group (docs/formats/group-state.md), and what consumers by POP hold
# (docs/formats/pop-journal.md).
PRIVATE_TOPIC_PREFIX: Final = "rmq_sys_AEROBEE_"
BATCH_TOPIC: Final = PRIVATE_TOPIC_PREFIX + "BATCH"
STATE_TOPIC: Final = PRIVATE_TOPIC_PREFIX + "STATE"
POP_TOPIC: Final = PRIVATE_TOPIC_PREFIX + "POP"
# POP keeps its checkpoints and acknowledgements in these topics. RocketMQ: PopAckConstants.REVIVE_TOPIC.
REVIVE_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"

SYSTEM_TOPICS: Final = frozenset(
    (
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        "BenchmarkTest",
        HALF_TOPIC,
        TRACE_TOPIC,
        OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        "CHECKPOINT_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    )
)

# Only the broker itself writes these topics. Apache's broker, unlike this one, accepts sends to its timer topic.
SEND_FORBIDDEN_TOPICS: Final = frozenset(
    (
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        TIMER_TOPIC,
        BATCH_TOPIC,
        STATE_TOPIC,
        POP_TOPIC,
    )
)

_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_ALLOWED: Final = "^[%|a-zA-Z0-9_-]+$"


def topic_problem(topic: str) -> str | None:
    """Return why a broker refuses this topic, or None."""
    if not topic or topic.isspace():
        return "The specified topic is blank."
    if not _NAME.fullmatch(topic):
        return f"The specified topic: {topic}, contains illegal characters, allowing only {_ALLOWED}"
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        if len(topic) > RETRY_TOPIC_LENGTH_MAX:
            return (
                f"The specified topic is DLQ or Retry topic: {topic}, "
                f"and it's longer than topic max length: {RETRY_TOPIC_LENGTH_MAX}"
            )
    elif len(topic) > TOPIC_LENGTH_MAX:
        return f"The specified topic: {topic}, is longer than topic max length: {TOPIC_LENGTH_MAX}"
    return None


def stored_topic_problem(topic: str) -> str | None:
    """Return why no table may hold a topic of this name, or None.

    The names of POP's retry topics have a plus, which no client may use.
    """
    return topic_problem(topic.replace("+", "_") if topic.startswith(RETRY_PREFIX) else topic)


def group_problem(group: str) -> str | None:
    """Return why a broker refuses this group, or None."""
    if not group or group.isspace():
        return "The specified group is blank."
    if not _NAME.fullmatch(group):
        return f"The specified group: {group}, contains illegal characters, allowing only {_ALLOWED}"
    if len(group) > GROUP_LENGTH_MAX:
        return f"The specified group: {group}, is longer than group max length: {GROUP_LENGTH_MAX}"
    return None


def client_id_problem(client_id: str) -> str | None:
    """Return why a broker refuses this client id, or None. Apache's broker accepts ids of any length."""
    if len(client_id) > CLIENT_ID_LENGTH_MAX:
        return f"the client id has {len(client_id)} characters; at most {CLIENT_ID_LENGTH_MAX} are allowed"
    return None


def require_topic(topic: str) -> str:
    """Return the topic; raise InvalidArgumentError where its name is not allowed."""
    problem = topic_problem(topic)
    if problem is not None:
        raise InvalidArgumentError(problem)
    return topic


def require_group(group: str) -> str:
    """Return the group; raise InvalidArgumentError where its name is not allowed."""
    problem = group_problem(group)
    if problem is not None:
        raise InvalidArgumentError(problem)
    return group


def require_sendable(topic: str) -> str:
    """Return the topic; raise InvalidArgumentError where a client may not send to it."""
    require_topic(topic)
    if is_send_forbidden(topic):
        raise InvalidArgumentError(f"Sending message to topic[{topic}] is forbidden.")
    return topic


def is_send_forbidden(topic: str) -> bool:
    """Return whether only the broker itself writes the topic. RocketMQ: TopicValidator.isNotAllowedSendTopic."""
    return topic in SEND_FORBIDDEN_TOPICS or topic.startswith((REVIVE_TOPIC_PREFIX, PRIVATE_TOPIC_PREFIX))


def is_system_topic(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    return topic.startswith(DLQ_PREFIX)


def retry_topic(group: str) -> str:
    """Return the topic in which a group's failed messages wait for their next try."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the topic that takes the messages that a group failed to handle too often."""
    return DLQ_PREFIX + group


def pop_retry_topic(topic: str, group: str, version: int = 1) -> str:
    """Return POP's retry topic of a topic and a group. RocketMQ: KeyBuilder.buildPopRetryTopicV1, V2."""
    return f"{RETRY_PREFIX}{group}{'_' if version == 1 else '+'}{topic}"
