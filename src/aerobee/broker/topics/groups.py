"""Rules for consumer groups: which exist from the start, which are made on first use, what may be changed, and
which topics a group may not read.

They are pure rules over `SubscriptionGroupConfig` values; the table is the store's (`store/metadata`). RocketMQ:
SubscriptionGroupManager, AdminBrokerProcessor.updateAndCreateSubscriptionGroup.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aerobee.broker.config import GROUPS_MAX, BrokerConfig
from aerobee.broker.refusal import Refusal, see_faq
from aerobee.broker.topics.attributes import GROUP_ATTRIBUTES, alter_attributes
from aerobee.errors import InvalidArgumentError
from aerobee.model.dialect import dumps
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.names import SYSTEM_GROUP_PREFIX, group_problem, stored_topic_problem
from aerobee.model.numbers import INT32_MAX, INT32_MIN
from aerobee.model.topic import QUEUE_NUMS_MAX
from aerobee.protocol.codes import ResponseCode

TOOLS_GROUP = "TOOLS_CONSUMER"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
SYSTEM_GROUPS = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)

# The bit of a forbidden table that stands for reading. RocketMQ: PermName.INDEX_PERM_READ.
FORBID_READ_BIT = 2

# Bounds of what one group may add to a file that is written as a whole. Apache has none.
SETTINGS_BYTES_MAX = 65_536
FORBIDDEN_TOPICS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class GroupRules:
    """What the rules need of the broker's configuration."""

    auto_create: bool = True
    auto_create_system: bool = True
    groups_max: int = GROUPS_MAX

    def find(self, group: str, table: Mapping[str, SubscriptionGroupConfig]) -> SubscriptionGroupConfig | None:
        """Return the group as it is, or a new one where the rules allow it; None where they do not.

        RocketMQ: SubscriptionGroupManager.findSubscriptionGroupConfig.
        """
        found = table.get(group)
        if found is not None:
            return found
        system = self.auto_create_system and group.startswith(SYSTEM_GROUP_PREFIX)
        if not (self.auto_create or system) or group_problem(group) is not None:
            return None
        return SubscriptionGroupConfig(group)


def group_rules(config: BrokerConfig) -> GroupRules:
    """Return the part of the configuration by which groups are made."""
    return GroupRules(config.auto_create_subscription_group, config.enable_create_sys_group, config.groups_max)


def system_groups() -> list[SubscriptionGroupConfig]:
    """Return the groups that every broker has. RocketMQ: SubscriptionGroupManager.init."""
    return [SubscriptionGroupConfig(name) for name in SYSTEM_GROUPS]


def change(
    wanted: SubscriptionGroupConfig, current: SubscriptionGroupConfig | None, queue_nums_max: int = QUEUE_NUMS_MAX
) -> SubscriptionGroupConfig | Refusal:
    """Return what an administrator's create or update makes; `wanted.attributes` holds changes (`+`, `-`)."""
    problem = group_problem(wanted.group_name) or settings_problem(wanted)
    if problem is None and wanted.retry_queue_nums > queue_nums_max:
        nums, group = wanted.retry_queue_nums, wanted.group_name
        problem = f"retryQueueNums {nums} of group[{group}]: {queue_nums_max} are the most (queueNumsMax)"
    if problem is not None:
        return Refusal(ResponseCode.INVALID_PARAMETER, problem)
    try:
        attributes = alter_attributes(
            GROUP_ATTRIBUTES, None if current is None else current.attributes, wanted.attributes
        )
    except InvalidArgumentError as error:
        return Refusal(ResponseCode.SYSTEM_ERROR, error.message)
    return replace(wanted, attributes=attributes)


def settings_problem(wanted: SubscriptionGroupConfig) -> str | None:
    """Return why these settings are not kept, or None. Every save writes them and every start reads them."""
    group = wanted.group_name
    if not 0 <= wanted.retry_queue_nums <= QUEUE_NUMS_MAX:
        return f"retryQueueNums {wanted.retry_queue_nums} of group[{group}]: allowed are 0 to {QUEUE_NUMS_MAX}"
    numbers = (wanted.retry_max_times, wanted.group_sys_flag, wanted.consume_timeout_minute)
    if any(not INT32_MIN <= number <= INT32_MAX for number in numbers):
        return f"a number among the settings of group[{group}] is no integer of 32 bits"
    size = len(dumps(wanted.to_json()))
    if size > SETTINGS_BYTES_MAX:
        return f"the settings of group[{group}] take {size} bytes: at most {SETTINGS_BYTES_MAX} are kept"
    return None


def forbidden_problem(group: str, topic: str, count: int) -> str | None:
    """Return why a topic cannot be forbidden to a group, or None. `count` is how many topics it has then."""
    problem = group_problem(group) or stored_topic_problem(topic)
    if problem is None and count > FORBIDDEN_TOPICS_MAX:
        problem = f"group[{group}] has {FORBIDDEN_TOPICS_MAX} forbidden topics already"
    return problem


def not_there(group: str) -> Refusal:
    """Return the refusal for a group that does not exist and is not made by itself."""
    return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, see_faq(f"subscription group [{group}] does not exist, "))


def is_forbidden(forbidden: Mapping[str, Mapping[str, int]], group: str, topic: str) -> bool:
    """Tell whether the group may not read the topic. RocketMQ: SubscriptionGroupManager.getForbidden."""
    bits = forbidden.get(group, {}).get(topic, 0)
    return bits > 0 and bits & (1 << FORBID_READ_BIT) != 0


def with_forbidden(topics: Mapping[str, int], topic: str, bit: int, *, forbid: bool) -> dict[str, int]:
    """Return one group's topics with one bit set or cleared. A topic without bits is left out.

    Apache drops the whole group when one topic's bits become 0; here only that topic goes. RocketMQ:
    SubscriptionGroupManager.updateForbidden.
    """
    bits = max(0, topics.get(topic, 0))
    bits = bits | (1 << bit) if forbid else bits & ~(1 << bit)
    others = {name: other for name, other in topics.items() if name != topic}
    return {**others, topic: bits} if bits else others
