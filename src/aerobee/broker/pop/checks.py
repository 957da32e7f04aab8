"""What is asked before a pop is served, in Apache's order and with its words.

RocketMQ: PopMessageProcessor, NotificationProcessor, PollingInfoProcessor, PeekMessageProcessor.
"""

from __future__ import annotations

from typing import Final

from aerobee.broker.config import BrokerConfig
from aerobee.broker.refusal import Refusal, see_faq
from aerobee.broker.topics import Catalog, not_there
from aerobee.model.topic import PERM_READ, TopicConfig
from aerobee.protocol.codes import ResponseCode

# RocketMQ: PopMessageProcessor refuses more.
COUNT_MAX: Final = 32
# RocketMQ: MessageStoreConfig.timerMaxDelaySec. Beyond it Apache's checkpoint is refused by its own timers for ever.
INVISIBLE_MAX_MS: Final = 3 * 24 * 3_600_000


def check_read(
    config: BrokerConfig,
    catalog: Catalog,
    topic: str,
    group: str,
    queue_id: int,
    address: str,
    *,
    what: str,
    count: int | None = None,
) -> TopicConfig | Refusal:
    """Return the topic, or why it cannot be read. `what` is Apache's word for the request."""
    if not config.broker_permission & PERM_READ:
        return Refusal(ResponseCode.NO_PERMISSION, f"the broker[{config.broker_ip1}] {what} message is forbidden")
    if count is not None and not 0 < count <= COUNT_MAX:
        remark = f"the broker[{config.broker_ip1}] pop message's num is greater than {COUNT_MAX}"
        if count <= 0:
            remark = f"the broker[{config.broker_ip1}] pop message's num is {count}, and must be 1 to {COUNT_MAX}"
        return Refusal(ResponseCode.INVALID_PARAMETER, remark)
    found = catalog.find(topic)
    if found is None:
        return Refusal(ResponseCode.TOPIC_NOT_EXIST, see_faq(f"topic[{topic}] not exist, apply first please! "))
    if not found.perm & PERM_READ:
        return Refusal(ResponseCode.NO_PERMISSION, f"the topic[{topic}] peeking message is forbidden")
    if queue_id >= found.read_queue_nums:
        return Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{found.read_queue_nums}] "
            f"consumer:[{address}]",
        )
    members = catalog.group(group)
    if members is None:
        return not_there(group)
    if not members.consume_enable:
        return Refusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
    return found


def check_queue(catalog: Catalog, topic: str, queue_id: int, address: str) -> Refusal | None:
    """Return why a queue cannot be acknowledged. RocketMQ: AckMessageProcessor, ChangeInvisibleTimeProcessor."""
    found = catalog.find(topic)
    if found is None:
        return Refusal(ResponseCode.TOPIC_NOT_EXIST, see_faq(f"topic[{topic}] not exist, apply first please! "))
    if not 0 <= queue_id < found.read_queue_nums:
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{found.read_queue_nums}] "
            f"consumer:[{address}]",
        )
    return None
