"""What each request needs at a broker: the one table. A code without a row is refused.

The order is that of the numbers. RocketMQ: DefaultAuthorizationContextBuilder; where this table asks for more, Apache
lets any user pass.
"""

from __future__ import annotations

from typing import Final

from aerobee.access.bodyneeds import (
    ack_needs,
    assignment_needs,
    check_needs,
    group_list_needs,
    group_needs,
    heartbeat_needs,
    lite_control_needs,
    lock_needs,
    mode_needs,
    topic_list_needs,
)
from aerobee.access.policies import Action, ResourceKind
from aerobee.access.rows import (
    ANY_USER,
    CREATE,
    DELETE,
    GET,
    PUB,
    SUB,
    UPDATE,
    AccessRow,
    AccessWorld,
    Need,
    both,
    cluster,
    content,
    field,
    group,
    of_cluster,
    of_group,
    of_topic,
    reading,
    topic,
    where_given,
)
from aerobee.access.verdicts import Claim
from aerobee.model.ids import decode_offset_message_id
from aerobee.protocol.codes import PrivateRequestCode, RequestCode
from aerobee.protocol.command import Command
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.message import ViewMessageRequestHeader
from aerobee.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from aerobee.protocol.headers.transaction import EndTransactionRequestHeader

_REPLY_SUFFIX: Final = "_REPLY_TOPIC"


def send(name: str) -> AccessRow:
    """Return the row of a send whose topic is in this field."""
    return AccessRow(of_topic(name, PUB, retry=(SUB,)))


def _reply(name: str) -> AccessRow:
    def needs(command: Command, world: AccessWorld) -> list[Need]:
        wanted = field(command, name)
        return [] if wanted.endswith(_REPLY_SUFFIX) and "%" not in wanted else [topic(world, wanted, PUB)]

    return AccessRow(needs)


def _pull(command: Command, world: AccessWorld) -> list[Need]:
    return reading(world, field(command, "topic"), field(command, "consumerGroup"))


def _bulk_pull(command: Command, world: AccessWorld) -> list[Need]:
    named = field(command, "consumerGroup")
    return content(world, field(command, "topic"), SUB) + ([group(named, SUB)] if named else [])


def _offset(name: str) -> AccessRow:
    """Return the row of a question about the ends of a queue. With Sub alone a new group must find where to begin."""
    return AccessRow(of_topic(name, GET, SUB))


def _create_topic(command: Command, world: AccessWorld) -> list[Need]:
    return [topic_change(world, field(command, "topic"))]


def topic_change(world: AccessWorld, name: str) -> Need:
    """Return the need of making a topic, or of changing it if it exists."""
    return (Claim(ResourceKind.TOPIC, name, (CREATE, UPDATE) if world.has_topic(name) else (CREATE,)),)


def _viewed(command: Command) -> int:
    return decode_header(ViewMessageRequestHeader, command).offset


def _sent_back(command: Command) -> int:
    return decode_header(ConsumerSendMsgBackRequestHeader, command).offset


def _ended(command: Command) -> int:
    return decode_header(EndTransactionRequestHeader, command).commit_log_offset


def _message_id(command: Command) -> int:
    """Return the place in a message id that names one in the log."""
    return decode_offset_message_id(field(command, "msgId")).physical_offset


def _correction(command: Command, world: AccessWorld) -> list[Need]:
    groups = {field(command, "compareGroup"), *filter(None, field(command, "filterGroups").split(","))}
    return [topic(world, field(command, "topic"), GET, retry=(GET,)), *(group(one, GET) for one in sorted(groups))]


def _stats(command: Command, world: AccessWorld) -> list[Need]:
    named = [field(command, "topic"), *field(command, "topicList").replace(";", ",").split(",")]
    topics = [topic(world, one.strip(), GET, retry=(GET,)) for one in named if one.strip()]
    return [group(field(command, "consumerGroup"), GET), *topics]


def _clone(command: Command, world: AccessWorld) -> list[Need]:
    """Return what CLONE_GROUP_OFFSET needs. Without a topic it changes the offsets of every topic of the group."""
    # The handler takes the name without blanks, too.
    named = field(command, "topic").strip()
    return [
        group(field(command, "srcGroup"), GET),
        group(field(command, "destGroup"), UPDATE),
        topic(world, named, UPDATE, retry=(UPDATE,)) if named else cluster(world, UPDATE),
    ]


def _recall(command: Command, world: AccessWorld) -> list[Need]:
    told = {field(command, "topic"), world.recalled_topic(field(command, "recallHandle")) or field(command, "topic")}
    return [topic(world, one, PUB) for one in sorted(told)]


def _batch(command: Command, world: AccessWorld) -> list[Need]:
    return [topic(world, one, PUB) for one in world.batch_topics(field(command, "queryId"))]


def _rows(command: Command, world: AccessWorld) -> list[Need]:
    return [topic(world, field(command, "topic"), PUB), *_batch(command, world)]


def _pair(*actions: Action) -> AccessRow:
    """Return the row of what concerns a group and a topic."""
    return AccessRow(both(of_group("group", *actions), of_topic("topic", *actions, retry=actions)))


_R: Final = RequestCode
_P: Final = PrivateRequestCode
_C_GET: Final = AccessRow(of_cluster(GET))
_C_UPDATE: Final = AccessRow(of_cluster(UPDATE), changes=True)
_SUPER: Final = AccessRow(super_only=True)
_POP: Final = AccessRow(_pull)

# Requests that this broker answers with a refusal of its own, or that it asks of clients: nothing is read or changed.
_ANSWERED_WITH_A_REFUSAL: Final = (
    _R.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, _R.EXPORT_ROCKSDB_CONFIG_TO_JSON, _R.ADD_BROKER, _R.REMOVE_BROKER,
    _R.CONTROLLER_ALTER_SYNC_STATE_SET, _R.CONTROLLER_REGISTER_BROKER, _R.UPDATE_CONTROLLER_CONFIG,
    _R.CONTROLLER_GET_NEXT_BROKER_ID, _R.CONTROLLER_APPLY_BROKER_ID,
)  # fmt: skip

BROKER_ROWS: Final[dict[int, AccessRow]] = {
    _R.SEND_MESSAGE: send("topic"),
    _R.PULL_MESSAGE: AccessRow(_pull),
    _R.QUERY_MESSAGE: AccessRow(
        lambda command, world: content(world, field(command, "topic"), SUB, GET), shows_bodies=True
    ),
    _R.QUERY_CONSUMER_OFFSET: AccessRow(both(of_topic("topic", SUB, GET), of_group("consumerGroup", SUB, GET))),
    _R.UPDATE_CONSUMER_OFFSET: AccessRow(both(of_topic("topic", SUB, UPDATE), of_group("consumerGroup", SUB, UPDATE))),
    _R.UPDATE_AND_CREATE_TOPIC: AccessRow(_create_topic, changes=True),
    _R.UPDATE_AND_CREATE_TOPIC_LIST: AccessRow(topic_list_needs, changes=True),
    _R.GET_ALL_TOPIC_CONFIG: AccessRow(filtered=True),
    _R.UPDATE_BROKER_CONFIG: _C_UPDATE,
    _R.GET_BROKER_CONFIG: _C_GET,
    _R.GET_BROKER_RUNTIME_INFO: _C_GET,
    _R.SEARCH_OFFSET_BY_TIMESTAMP: _offset("topic"),
    _R.GET_MAX_OFFSET: _offset("topic"),
    _R.GET_MIN_OFFSET: _offset("topic"),
    _R.GET_EARLIEST_MSG_STORETIME: _offset("topic"),
    _R.VIEW_MESSAGE_BY_ID: AccessRow(
        place=_viewed,
        of_message=lambda command, world, found: content(world, found, SUB, GET),
        shows_bodies=True,
    ),
    _R.HEART_BEAT: AccessRow(heartbeat_needs),
    _R.UNREGISTER_CLIENT: AccessRow(where_given("consumerGroup", of_group("consumerGroup", SUB))),
    _R.CONSUMER_SEND_MSG_BACK: AccessRow(
        both(of_group("group", SUB), where_given("originTopic", of_topic("originTopic", SUB))),
        place=_sent_back,
        of_message=lambda command, world, found: content(world, found, SUB),
    ),
    # The field `topic` decides nothing: after a check-back Java's clients send the topic of half messages there.
    _R.END_TRANSACTION: AccessRow(
        place=_ended,
        of_message=lambda command, world, found: [topic(world, found, PUB)],
    ),
    _R.GET_CONSUMER_LIST_BY_GROUP: AccessRow(of_group("consumerGroup", SUB, GET)),
    _R.LOCK_BATCH_MQ: AccessRow(lock_needs),
    _R.UNLOCK_BATCH_MQ: AccessRow(lock_needs),
    _R.GET_ALL_CONSUMER_OFFSET: _C_GET,
    _R.GET_ALL_DELAY_OFFSET: _C_GET,
    _R.CHECK_CLIENT_CONFIG: AccessRow(check_needs),
    _R.GET_TIMER_CHECK_POINT: _C_GET,
    _R.GET_TIMER_METRICS: _C_GET,
    _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: AccessRow(group_needs, changes=True),
    _R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: AccessRow(filtered=True),
    _R.GET_TOPIC_STATS_INFO: _offset("topic"),
    _R.GET_CONSUMER_CONNECTION_LIST: AccessRow(of_group("consumerGroup", GET)),
    _R.GET_PRODUCER_CONNECTION_LIST: _C_GET,
    _R.DELETE_SUBSCRIPTIONGROUP: AccessRow(of_group("groupName", DELETE), changes=True),
    _R.GET_CONSUME_STATS: AccessRow(_stats),
    _R.DELETE_TOPIC_IN_BROKER: AccessRow(of_topic("topic", DELETE), changes=True),
    _R.INVOKE_BROKER_TO_RESET_OFFSET: AccessRow(_pair(UPDATE).needs, changes=True),
    _R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _pair(GET),
    _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: AccessRow(group_list_needs, changes=True),
    _R.QUERY_TOPIC_CONSUME_BY_WHO: _offset("topic"),
    _R.QUERY_CONSUME_TIME_SPAN: _pair(GET),
    _R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _C_GET,
    _R.CLEAN_EXPIRED_CONSUMEQUEUE: _C_UPDATE,
    _R.GET_CONSUMER_RUNNING_INFO: AccessRow(of_group("consumerGroup", GET)),
    _R.QUERY_CORRECTION_OFFSET: AccessRow(_correction),
    _R.CONSUME_MESSAGE_DIRECTLY: AccessRow(
        both(of_group("consumerGroup", UPDATE), where_given("topic", of_topic("topic", SUB))),
        place=_message_id,
        of_message=lambda command, world, found: content(world, found, SUB),
        changes=True,
        shows_bodies=True,
    ),
    _R.SEND_MESSAGE_V2: send("b"),
    _R.CLONE_GROUP_OFFSET: AccessRow(_clone, changes=True),
    _R.VIEW_BROKER_STATS_DATA: _C_GET,
    _R.CLEAN_UNUSED_TOPIC: _C_UPDATE,
    _R.GET_BROKER_CONSUME_STATS: _C_GET,
    _R.SEND_BATCH_MESSAGE: send("b"),
    _R.QUERY_CONSUME_QUEUE: AccessRow(
        both(of_topic("topic", GET), where_given("consumerGroup", of_group("consumerGroup", GET)))
    ),
    _R.RESUME_CHECK_HALF_MESSAGE: AccessRow(
        where_given("topic", of_topic("topic", UPDATE)),
        place=_message_id,
        of_message=lambda command, world, found: [topic(world, found, UPDATE)],
        changes=True,
    ),
    _R.SEND_REPLY_MESSAGE: _reply("topic"),
    _R.SEND_REPLY_MESSAGE_V2: _reply("b"),
    _R.GET_ALL_PRODUCER_INFO: _C_GET,
    _R.DELETE_EXPIRED_COMMITLOG: _C_UPDATE,
    _R.QUERY_TOPICS_BY_CONSUMER: AccessRow(of_group("group", GET)),
    _R.QUERY_SUBSCRIPTION_BY_CONSUMER: AccessRow(
        both(of_group("group", GET), where_given("topic", of_topic("topic", GET)))
    ),
    _R.GET_TOPIC_CONFIG: _offset("topic"),
    _R.GET_SUBSCRIPTIONGROUP_CONFIG: AccessRow(of_group("group", GET)),
    _R.UPDATE_AND_GET_GROUP_FORBIDDEN: AccessRow(_pair(UPDATE).needs, changes=True),
    _R.LITE_PULL_MESSAGE: AccessRow(_pull),
    _R.RECALL_MESSAGE: AccessRow(_recall),
    _R.QUERY_ASSIGNMENT: AccessRow(assignment_needs),
    _R.SET_MESSAGE_REQUEST_MODE: AccessRow(mode_needs, changes=True),
    _R.GET_ALL_MESSAGE_REQUEST_MODE: _C_GET,
    _R.UPDATE_AND_CREATE_STATIC_TOPIC: AccessRow(both(_create_topic, of_cluster(UPDATE))),
    _R.NOTIFY_MIN_BROKER_ID_CHANGE: _SUPER,
    _R.EXCHANGE_BROKER_HA_INFO: _SUPER,
    _R.GET_BROKER_HA_STATUS: _C_GET,
    _R.RESET_MASTER_FLUSH_OFFSET: _SUPER,
    _R.CONTROLLER_ELECT_MASTER: _C_UPDATE,
    _R.CONTROLLER_GET_REPLICA_INFO: _C_GET,
    _R.CONTROLLER_GET_METADATA_INFO: _C_GET,
    _R.CONTROLLER_GET_SYNC_STATE_DATA: _C_GET,
    _R.GET_BROKER_EPOCH_CACHE: _C_GET,
    _R.NOTIFY_BROKER_ROLE_CHANGED: _SUPER,
    _R.GET_CONTROLLER_CONFIG: _C_GET,
    _R.CLEAN_BROKER_DATA: _C_UPDATE,
    _R.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: _C_UPDATE,
    _R.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: _C_UPDATE,
    _R.GET_COLD_DATA_FLOW_CTR_INFO: _C_GET,
    _R.SET_COMMITLOG_READ_MODE: _C_UPDATE,
    _R.SWITCH_TIMER_ENGINE: _C_UPDATE,
    _R.POP_MESSAGE: _POP,
    _R.ACK_MESSAGE: _POP,
    _R.PEEK_MESSAGE: _POP,
    _R.CHANGE_MESSAGE_INVISIBLETIME: _POP,
    _R.NOTIFICATION: _POP,
    _R.POLLING_INFO: AccessRow(both(of_group("consumerGroup", GET), of_topic("topic", GET, retry=(GET,)))),
    _R.POP_ROLLBACK: _C_UPDATE,
    _R.POP_LITE_MESSAGE: _POP,
    _R.LITE_SUBSCRIPTION_CTL: AccessRow(lite_control_needs),
    _R.GET_BROKER_LITE_INFO: _C_GET,
    _R.GET_PARENT_TOPIC_INFO: AccessRow(of_topic("topic", GET)),
    _R.GET_LITE_TOPIC_INFO: AccessRow(of_topic("parentTopic", GET)),
    _R.GET_LITE_CLIENT_INFO: AccessRow(both(of_topic("parentTopic", GET), of_group("group", GET))),
    _R.GET_LITE_GROUP_INFO: AccessRow(of_group("group", GET)),
    _R.TRIGGER_LITE_DISPATCH: AccessRow(of_group("group", UPDATE), changes=True),
    _R.BATCH_ACK_MESSAGE: AccessRow(ack_needs),
    _P.BULK_PULL: AccessRow(_bulk_pull),
    _P.BATCH_STATUS: AccessRow(_batch, own_queries=True),
    _P.BATCH_ROWS: AccessRow(_rows, own_queries=True),
    _P.BATCH_END: AccessRow(_batch, own_queries=True),
    _P.BATCH_BEGIN: AccessRow(_batch, own_queries=True),
    _P.REPLICA_STATUS: _C_GET,
    _P.REPLICA_FORCE: _C_UPDATE,
    _P.POP_IN_FLIGHT: _C_GET,
    **dict.fromkeys(_ANSWERED_WITH_A_REFUSAL, ANY_USER),
}
