"""The rules of retries: a message that could not be consumed goes to the retry topic, at last to the dead letters.

Pure functions make a plan from the stored record and the request. Level = 3 + times consumed, so 16 retries come after
10 s, 30 s, 1 m ... 2 h; the 17th send-back makes a dead letter. A negative level is a dead letter at once.

RocketMQ: AbstractSendMessageProcessor.consumerSendMsgBack, SendMessageProcessor.handleRetryAndDLQ.
"""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.broker.delay import DelayLevels, put_away
from aerobee.broker.log import WRAPPED, copy_of, encode_stored
from aerobee.hot.log.properties import decode_properties
from aerobee.hot.log.record import Draft, Record
from aerobee.model.names import dlq_topic, is_retry_topic, retry_topic
from aerobee.model.numbers import INT32_MAX
from aerobee.model.sysproperties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    WAIT,
)
from aerobee.model.topic import TOPIC_UNIT_SUB

DLQ_QUEUE_NUMS = 1
FIRST_LEVEL = 3
# Clients from this protocol version on may send their own limit. RocketMQ: MQVersion V3_4_9.
VERSION_WITH_OWN_LIMIT = 121


@dataclass(frozen=True, slots=True)
class SendBackRequest:
    """CONSUMER_SEND_MSG_BACK, with what the group's settings say."""

    group: str
    delay_level: int
    max_reconsume_times: int | None
    unit_mode: bool
    client_version: int
    retry_max_times: int
    retry_queue_nums: int

    def times_max(self) -> int:
        """Return the limit in force: the client's own where its version may send one, else the group's."""
        if self.max_reconsume_times is not None and self.client_version >= VERSION_WITH_OWN_LIMIT:
            return self.max_reconsume_times
        return self.retry_max_times


@dataclass(frozen=True, slots=True)
class RetryPlan:
    """What to store. The topic is made first if missing, with these queues and this flag."""

    topic: str
    queue_nums: int
    topic_sys_flag: int
    dead_letter: bool
    back_topic: str
    draft: Draft


def is_dead(reconsume_times: int, asked: SendBackRequest) -> bool:
    """Tell whether the message was tried often enough."""
    return reconsume_times >= asked.times_max() or asked.delay_level < 0


def send_back(
    record: Record,
    message_id: str,
    asked: SendBackRequest,
    levels: DelayLevels,
    *,
    store_host: bytes,
    random_queue: int,
) -> RetryPlan | None:
    """Return the plan for one message; None where the group keeps no retries (retryQueueNums 0: answer success).

    `message_id` is the record's own (offset) id; `random_queue` any number, taken modulo the queues.
    """
    if asked.retry_queue_nums <= 0:
        return None
    # A sender may say any number, and the copy's number is one more.
    times = max(0, min(record.reconsume_times, INT32_MAX - 1))
    dead = is_dead(times, asked)
    properties = decode_properties(record.properties)
    own_topic = record.topic.decode("utf-8", "replace")
    back_topic = properties.setdefault(RETRY_TOPIC, own_topic)
    properties[WAIT] = "false"
    properties[DELAY] = "0" if dead else str(asked.delay_level or FIRST_LEVEL + times)
    if not properties.get(ORIGIN_MESSAGE_ID, "").strip():
        properties[ORIGIN_MESSAGE_ID] = message_id
    topic = dlq_topic(asked.group) if dead else retry_topic(asked.group)
    queue_nums = DLQ_QUEUE_NUMS if dead else asked.retry_queue_nums
    stored_topic, stored_queue = put_away(topic, random_queue % queue_nums, properties, levels)
    draft = copy_of(record, stored_topic, stored_queue, properties, encode_stored(properties))
    draft.store_host = store_host
    draft.reconsume_times = times + 1
    draft.sys_flag &= ~WRAPPED
    unit = TOPIC_UNIT_SUB if asked.unit_mode and not dead else 0
    return RetryPlan(topic, queue_nums, unit, dead, back_topic, draft)


def retry_send_is_dead(
    topic: str,
    reconsume_times: int | None,
    max_reconsume_times: int | None,
    client_version: int,
    group_retry_max_times: int,
    *,
    ordered: bool,
) -> bool:
    """Tell whether an ordinary send to `%RETRY%group` must go to the group's dead letters instead.

    Clients send retries themselves when the send-back fails. An ordered group (somebody holds a queue lock)
    has already retried in place. The caller sets DELAY to -1 and stores under `dlq_topic`, queue 0. RocketMQ:
    SendMessageProcessor.handleRetryAndDLQ.
    """
    if not is_retry_topic(topic):
        return False
    limit = group_retry_max_times
    if max_reconsume_times is not None and client_version >= VERSION_WITH_OWN_LIMIT:
        limit = max_reconsume_times
    return ordered or (reconsume_times or 0) > limit
