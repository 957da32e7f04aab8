"""The names of RocketMQ's own message properties, which a sender may not use.

RocketMQ: MessageConst, STRING_HASH_SET.
"""

from typing import Final

from aerobee.errors import InvalidArgumentError

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
BUYER_ID: Final = "BUYER_ID"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
TRANSFER_FLAG: Final = "TRANSFER_FLAG"
CORRECTION_FLAG: Final = "CORRECTION_FLAG"
MQ2_FLAG: Final = "MQ2_FLAG"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MSG_REGION: Final = "MSG_REGION"
TRACE_SWITCH: Final = "TRACE_ON"
UNIQ_KEY: Final = "UNIQ_KEY"
TRANS_OFFSET: Final = "TRANS_OFFSET"
EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
DUP_INFO: Final = "DUP_INFO"
CHECK_IMMUNITY_TIME: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
INSTANCE_ID: Final = "INSTANCE_ID"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
ARRIVE_TIME: Final = "ARRIVE_TIME"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
CLUSTER: Final = "CLUSTER"
MESSAGE_TYPE: Final = "MSG_TYPE"
POP_CK: Final = "POP_CK"
POP_CK_OFFSET: Final = "POP_CK_OFFSET"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
SHARDING_KEY: Final = "__SHARDINGKEY"
LITE_TOPIC: Final = "__LITE_TOPIC"
FORWARD_QUEUE_ID: Final = "PROPERTY_FORWARD_QUEUE_ID"
REDIRECT: Final = "REDIRECT"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
TIMER_ROLL_LABEL: Final = "TIMER_ROLL_LABEL"
TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
TIMER_ENGINE_TYPE: Final = "E_T"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
CRC32: Final = "__CRC32#"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"

TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."
# This prefix is Aerobee's own (docs/formats/private.md).
PRIVATE_PREFIX: Final = "__AEROBEE_"

# Apache's clients refuse these names as user properties (STRING_HASH_SET).
_REFUSED_BY_APACHE: Final = frozenset(
    (
        TRACE_SWITCH, MSG_REGION, KEYS, TAGS, WAIT, DELAY, RETRY_TOPIC, ORIGIN_GROUP, REAL_TOPIC,
        REAL_QUEUE_ID, TRANSACTION_PREPARED, PRODUCER_GROUP, MIN_OFFSET, MAX_OFFSET, BUYER_ID,
        ORIGIN_MESSAGE_ID, TRANSFER_FLAG, CORRECTION_FLAG, MQ2_FLAG, RECONSUME_TIME, UNIQ_KEY,
        MAX_RECONSUME_TIMES, CONSUME_START_TIME, POP_CK, POP_CK_OFFSET, FIRST_POP_TIME,
        TRANSACTION_PREPARED_QUEUE_OFFSET, DUP_INFO, EXTEND_UNIQ_INFO, INSTANCE_ID, CORRELATION_ID,
        REPLY_TO_CLIENT, TTL, ARRIVE_TIME, PUSH_REPLY_TIME, CLUSTER, MESSAGE_TYPE,
        INNER_MULTI_QUEUE_OFFSET, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS, TIMER_ENQUEUE_MS,
        TIMER_DEQUEUE_MS, TIMER_ROLL_TIMES, TIMER_OUT_MS, TIMER_DEL_UNIQKEY, TIMER_DELAY_LEVEL, BORN_HOST,
        BORN_TIMESTAMP, DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID, CRC32, PRIORITY, LITE_TOPIC,
    )
)  # fmt: skip
# Apache's code uses these names too, but its clients do not refuse them.
_USED_BY_APACHE: Final = frozenset(
    (
        TRANS_OFFSET, INNER_NUM, INNER_BASE, CHECK_IMMUNITY_TIME, TRANSACTION_ID, TRANSACTION_CHECK_TIMES,
        SHARDING_KEY, FORWARD_QUEUE_ID, REDIRECT, INNER_MULTI_DISPATCH, TRACE_CONTEXT, TIMER_ROLL_LABEL,
        TIMER_ENGINE_TYPE,
    )
)  # fmt: skip

RESERVED: Final = _REFUSED_BY_APACHE | _USED_BY_APACHE


def is_system_property(name: str) -> bool:
    """Return whether RocketMQ itself gives this property its meaning."""
    return name in RESERVED or name.startswith((TRANSIENT_PREFIX, PRIVATE_PREFIX))


def require_user_properties(properties: dict[str, str]) -> None:
    """Raise InvalidArgumentError for a name of RocketMQ's, or a pair that would not come back as it was sent."""
    for name, value in properties.items():
        if is_system_property(name):
            raise InvalidArgumentError(f"property {name!r} is RocketMQ's own; it has an argument of its own")
        if not name or not value:
            raise InvalidArgumentError(f"property {name!r}: RocketMQ drops a property without a name or a value")
        if "\x01" in name or "\x02" in name or "\x02" in value:
            raise InvalidArgumentError(f"property {name!r} holds a separator character (0x01 or 0x02)")


def split_properties(all_properties: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the user's properties and RocketMQ's own."""
    user: dict[str, str] = {}
    system: dict[str, str] = {}
    for name, value in all_properties.items():
        if is_system_property(name):
            system[name] = value
        else:
            user[name] = value
    return user, system
