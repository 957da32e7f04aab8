"""Rules for pulls: what is checked before the queue is read, and what its result is answered with.

RocketMQ: PullMessageProcessor.processRequest, composeResponseHeader; DefaultPullMessageResultHandler.handle.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from aerobee.broker.config import BrokerConfig
from aerobee.broker.membership import (
    BROADCASTING,
    CONSUME_ACTIVELY,
    Clients,
    ConsumerFilters,
    Subscription,
    parse_subscription,
)
from aerobee.broker.refusal import Refusal, filters_are_off, see_faq
from aerobee.broker.topics import not_there
from aerobee.errors import InvalidArgumentError
from aerobee.hot.wire.pull import PullFields
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.topic import PERM_READ, TopicConfig
from aerobee.protocol.codes import ResponseCode
from aerobee.store.reads import GetMessageStatus

# Bits of a pull's sysFlag. RocketMQ: PullSysFlag.
FLAG_COMMIT_OFFSET = 1
FLAG_SUSPEND = 2
FLAG_SUBSCRIPTION = 4

# RocketMQ: ForbiddenType.
BROKER_FORBIDDEN = 1
GROUP_FORBIDDEN = 2
TOPIC_FORBIDDEN = 3
BROADCASTING_FORBIDDEN = 4
SUBSCRIPTION_FORBIDDEN = 5

# The code by the status of a read, which is the remark of the answer.
_CODES = {
    status.value: code
    for status, code in (
        (GetMessageStatus.FOUND, ResponseCode.SUCCESS),
        (GetMessageStatus.MESSAGE_WAS_REMOVING, ResponseCode.PULL_RETRY_IMMEDIATELY),
        (GetMessageStatus.NO_MATCHED_MESSAGE, ResponseCode.PULL_RETRY_IMMEDIATELY),
        (GetMessageStatus.OFFSET_FOUND_NULL, ResponseCode.PULL_NOT_FOUND),
        (GetMessageStatus.OFFSET_OVERFLOW_ONE, ResponseCode.PULL_NOT_FOUND),
        (GetMessageStatus.OFFSET_OVERFLOW_BADLY, ResponseCode.PULL_OFFSET_MOVED),
        (GetMessageStatus.OFFSET_RESET, ResponseCode.PULL_OFFSET_MOVED),
        (GetMessageStatus.OFFSET_TOO_SMALL, ResponseCode.PULL_OFFSET_MOVED),
    )
}
_NOTHING_THERE = (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE.value, GetMessageStatus.NO_MESSAGE_IN_QUEUE.value)


@dataclass(frozen=True, slots=True)
class PullRules:
    """What the checks need of the broker's configuration."""

    broker_ip: str
    permission: int = 6
    lite_pull: bool = True
    property_filter: bool = False
    filter_support_retry: bool = False
    reject_pull_consumer: bool = False
    slave_read: bool = False
    long_polling: bool = True
    short_polling_ms: int = 1000
    # 0 is the master.
    broker_id: int = 0


def pull_rules(config: BrokerConfig) -> PullRules:
    """Return the part of the configuration by which pulls are checked."""
    return PullRules(
        broker_ip=config.broker_ip1,
        permission=config.broker_permission,
        lite_pull=config.lite_pull_message_enable,
        property_filter=config.enable_property_filter,
        filter_support_retry=config.filter_support_retry,
        reject_pull_consumer=config.reject_pull_consumer_enable,
        slave_read=config.slave_read_enable,
        long_polling=config.long_polling_enable,
        short_polling_ms=config.short_polling_ms,
        broker_id=config.broker_id,
    )


class PullContext:
    """What the broker knows when a pull comes. It is no dataclass, because the __init__ of one is not compiled."""

    def __init__(
        self,
        group: SubscriptionGroupConfig | None,
        topic: TopicConfig | None,
        clients: Clients,
        channel: Hashable,
        address: str,
        forbidden: bool = False,
        lite: bool = False,
        filters: ConsumerFilters | None = None,
    ) -> None:
        self.group = group
        self.topic = topic
        self.clients = clients
        self.channel = channel
        self.address = address
        self.forbidden = forbidden
        self.lite = lite
        self.filters = filters


def check_pull(rules: PullRules, header: PullFields, context: PullContext, now_s: float) -> Subscription | Refusal:
    """Check a pull in Apache's order. Return the subscription that it is read with, or why it is refused."""
    refusal = _check_permissions(rules, header, context)
    if refusal is not None:
        return refusal
    if header.sys_flag & FLAG_SUBSCRIPTION:
        found = _carried_subscription(header, context, now_s)
    else:
        found = _known_subscription(header, context)
    if isinstance(found, Refusal):
        return found
    if not found.by_tags and not rules.property_filter:
        return Refusal(ResponseCode.SYSTEM_ERROR, filters_are_off(found.expression_type))
    if rules.reject_pull_consumer and _is_unknown_puller(header, context):
        return Refusal(
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            see_faq("the consumer's group info not exist, or the pull consumer is rejected by server."),
        )
    return found


def answer_code(status: str, queue_offset: int) -> int:
    """Return the code of an answer. RocketMQ: PullMessageProcessor.composeResponseHeader."""
    if status in _NOTHING_THERE:
        return ResponseCode.PULL_NOT_FOUND if queue_offset == 0 else ResponseCode.PULL_OFFSET_MOVED
    return _CODES[status]


def suggested_broker(rules: PullRules, group: SubscriptionGroupConfig, *, far_behind: bool, master_alive: bool) -> int:
    """Return the broker of the group to pull from next: the master, unless slaves may be read and the reader is far
    behind. RocketMQ: composeResponseHeader.
    """
    suggested = 0
    if rules.slave_read:
        suggested = group.which_broker_when_consume_slowly if far_behind else group.broker_id
    if rules.broker_id != 0 and not far_behind and master_alive:
        suggested = 0
    return suggested


def suspend_ms(rules: PullRules, code: int, header: PullFields, *, may_suspend: bool) -> int:
    """Return how long to hold the pull; 0 to answer now. `may_suspend` is False for one woken from a hold."""
    if code != ResponseCode.PULL_NOT_FOUND or not may_suspend or not header.sys_flag & FLAG_SUSPEND:
        return 0
    return max(0, header.suspend_timeout_millis) if rules.long_polling else rules.short_polling_ms


def commits_offset(header: PullFields, *, may_suspend: bool) -> bool:
    """Tell whether the pull's commitOffset is stored: once, when it comes, not again when it is woken.

    RocketMQ: PullMessageProcessor.tryCommitOffset.
    """
    return may_suspend and bool(header.sys_flag & FLAG_COMMIT_OFFSET)


def _check_permissions(rules: PullRules, header: PullFields, context: PullContext) -> Refusal | None:
    no = ResponseCode.NO_PERMISSION
    topic, group = context.topic, context.group
    if not rules.permission & PERM_READ:
        return Refusal(no, f"the broker[{rules.broker_ip}] pulling message is forbidden", BROKER_FORBIDDEN)
    if context.lite and not rules.lite_pull:
        remark = f"the broker[{rules.broker_ip}] for lite pull consumer is forbidden"
        return Refusal(no, remark, BROKER_FORBIDDEN)
    if group is None:
        return not_there(header.consumer_group)
    if not group.consume_enable:
        return Refusal(no, f"subscription group no permission, {header.consumer_group}", GROUP_FORBIDDEN)
    if topic is None:
        remark = see_faq(f"topic[{header.topic}] not exist, apply first please! ")
        return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
    if not topic.perm & PERM_READ:
        return Refusal(no, f"the topic[{header.topic}] pulling message is forbidden", TOPIC_FORBIDDEN)
    if not 0 <= header.queue_id < topic.read_queue_nums:
        return Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{context.address}]",
        )
    return None


def _carried_subscription(header: PullFields, context: PullContext, now_s: float) -> Subscription | Refusal:
    try:
        found = parse_subscription(header.topic, header.subscription, header.expression_type, header.sub_version)
        if not found.by_tags and context.filters is not None:
            # Apache serves everything to a pull whose filter it cannot compile.
            context.filters.compile(found.expression, found.expression_type)
    except InvalidArgumentError as error:
        remark = f"parse the consumer's subscription failed: {error.message}"
        return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)
    context.clients.compensate(header.consumer_group, found, now_s)
    return found


def _known_subscription(header: PullFields, context: PullContext) -> Subscription | Refusal:
    name, topic = header.consumer_group, header.topic
    members = context.clients.group(name)
    if members is None:
        remark = see_faq("the consumer's group info not exist")
        return Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
    group = context.group
    if group is not None and not group.consume_broadcast_enable and members.message_model == BROADCASTING:
        return Refusal(
            ResponseCode.NO_PERMISSION,
            f"the consumer group[{name}] can not consume by broadcast way",
            BROADCASTING_FORBIDDEN,
        )
    if context.forbidden:
        return Refusal(
            ResponseCode.NO_PERMISSION,
            f"the consumer group[{name}] is forbidden for topic[{topic}]",
            SUBSCRIPTION_FORBIDDEN,
        )
    found = members.subscriptions.get(topic)
    if found is None:
        remark = see_faq("the consumer's subscription not exist")
        return Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
    if found.version < header.sub_version:
        return Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
    if not found.by_tags and context.filters is not None:
        return _check_filter(context.filters, header) or found
    return found


def _check_filter(filters: ConsumerFilters, header: PullFields) -> Refusal | None:
    data = filters.get(header.topic, header.consumer_group)
    if data is None:
        remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
        return Refusal(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
    if data.client_version < header.sub_version:
        remark = "the consumer's consumer filter data not latest"
        return Refusal(ResponseCode.FILTER_DATA_NOT_LATEST, remark)
    return None


def _is_unknown_puller(header: PullFields, context: PullContext) -> bool:
    members = context.clients.group(header.consumer_group)
    if members is not None and members.consume_type != CONSUME_ACTIVELY:
        return False
    known = members is not None and context.channel in members.members
    return not known and header.consumer_group not in _PULLING_GROUPS


# RocketMQ: MixAll.isSysConsumerGroupPullMessage.
_PULLING_GROUPS = frozenset(
    (
        "DEFAULT_CONSUMER", "TOOLS_CONSUMER", "SCHEDULE_CONSUMER", "FILTERSRV_CONSUMER", "__MONITOR_CONSUMER",
        "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PULL", "CID_RMQ_SYS_TRANS",
    )
)  # fmt: skip
