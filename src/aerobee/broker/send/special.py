"""Sends that the broker must act upon: retries, delays, times, transactions, priorities, compaction.

This is the long way of a send: from properties to the draft, perhaps under another topic. RocketMQ:
SendMessageProcessor.sendMessage, handleRetryAndDLQ; HookUtils.checkBeforePutMessage, checkInnerBatch,
handleScheduleMessage; TransactionalMessageBridge.putHalfMessage.
"""

from __future__ import annotations

from collections.abc import Callable

from aerobee.broker.config import BrokerConfig
from aerobee.broker.delay import Placing, handle_of
from aerobee.broker.log import Candidate, SendSettings, encode_stored
from aerobee.broker.membership import GroupLocks
from aerobee.broker.refusal import Refusal, see_faq
from aerobee.broker.retry import DLQ_QUEUE_NUMS, VERSION_WITH_OWN_LIMIT, retry_send_is_dead
from aerobee.broker.send.handler import PreparedSend, wants_wait
from aerobee.broker.topics import Catalog, ensure_topic, message_type
from aerobee.broker.transactions import prepare_half
from aerobee.hot.log.javahash import tags_code
from aerobee.hot.log.layout import MULTI_TAGS, TRANSACTION_MASK
from aerobee.hot.log.record import Draft
from aerobee.hot.wire.send import SendFields
from aerobee.model.names import HALF_TOPIC, RETRY_PREFIX, TIMER_TOPIC, dlq_topic, is_retry_topic
from aerobee.model.numbers import int_or
from aerobee.model.queue import MessageQueue
from aerobee.model.sysproperties import (
    DELAY,
    KEYS,
    PRIORITY,
    TAGS,
    UNIQ_KEY,
)
from aerobee.model.topic import MULTI_TAG, TopicConfig
from aerobee.net.channel import Channel
from aerobee.protocol.codes import ResponseCode
from aerobee.runtime.seams import Clock


class SpecialSends:
    """The sends that the broker must act upon: `special` of SendHandler."""

    def __init__(
        self,
        catalog: Catalog,
        locks: GroupLocks[MessageQueue],
        placing: Placing,
        broker_name: str,
        settings: SendSettings,
        config: Callable[[], BrokerConfig],
        clock: Clock,
    ) -> None:
        self._catalog = catalog
        self._locks = locks
        self._placing = placing
        self._broker_name = broker_name
        self._settings = settings
        self._config = config
        self._clock = clock

    def __call__(
        self,
        channel: Channel,
        fields: SendFields,
        config: TopicConfig,
        properties: dict[str, str],
        body: bytes,
        queue_id: int,
    ) -> PreparedSend | Refusal:
        topic = fields.topic
        dead = self._is_dead(fields)
        if isinstance(dead, Refusal):
            return dead
        if dead:
            topic, queue_id = dlq_topic(group_of_retry_topic(topic)), 0
            config = ensure_topic(self._catalog, topic, DLQ_QUEUE_NUMS)
            properties[DELAY] = "-1"
        queue_id = _by_priority(properties, config, queue_id)
        message = Candidate(fields.sys_flag, len(body), properties, fields.reconsume_times)
        sys_flag = fields.sys_flag | (MULTI_TAGS if config.topic_filter_type == MULTI_TAG else 0)
        stored_topic, stored_queue = topic, queue_id
        if message.is_half:
            refusal = self._rejects_halves()
            if refusal is not None:
                return refusal
            sys_flag = prepare_half(topic, queue_id, properties, sys_flag)
            stored_topic, stored_queue = HALF_TOPIC, 0
        else:
            if message.is_prepared:
                # An old client leaves the flag on a retry. No reader would see a prepared message.
                sys_flag &= ~TRANSACTION_MASK
            placed = self._placing(topic, queue_id, properties)
            if isinstance(placed, Refusal):
                return placed
            stored_topic, stored_queue = placed
        draft = Draft(
            stored_topic.encode(),
            stored_queue,
            fields.flag,
            sys_flag,
            fields.born_timestamp,
            channel.remote_host,
            self._settings.store_host,
            fields.reconsume_times,
            0,
            body,
            encode_stored(properties),
            tags_code(properties.get(TAGS, "")),
            properties.get(KEYS, ""),
            properties.get(UNIQ_KEY, ""),
        )
        handle = handle_of(properties, self._broker_name) if stored_topic == TIMER_TOPIC else ""
        return PreparedSend(draft, wants_wait(properties), queue_id, handle)

    def _is_dead(self, fields: SendFields) -> bool | Refusal:
        """Tell whether a retry that a client sends itself was tried often enough."""
        if not is_retry_topic(fields.topic):
            return False
        name = group_of_retry_topic(fields.topic)
        group = self._catalog.group(name)
        if group is None:
            remark = see_faq(f"subscription group not exist, {name} ")
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return retry_send_is_dead(
            fields.topic,
            fields.reconsume_times,
            None if fields.max_reconsume_times < 0 else fields.max_reconsume_times,
            # No client sends its own limit that is older than the version which brought the field.
            VERSION_WITH_OWN_LIMIT,
            group.retry_max_times,
            ordered=not self._locks.all_expired(name, self._clock.monotonic()),
        )

    def _rejects_halves(self) -> Refusal | None:
        config = self._config()
        if not config.reject_transaction_message:
            return None
        remark = f"the broker[{config.broker_ip1}] sending transaction message is forbidden"
        return Refusal(ResponseCode.NO_PERMISSION, remark)


def group_of_retry_topic(topic: str) -> str:
    """Return the group of `%RETRY%group` and of POP's `%RETRY%group+topic`. RocketMQ: KeyBuilder.parseGroup."""
    rest = topic.removeprefix(RETRY_PREFIX)
    group, plus, own_topic = rest.partition("+")
    return group if plus and own_topic and "+" not in own_topic else rest


def _by_priority(properties: dict[str, str], config: TopicConfig, queue_id: int) -> int:
    """Return the queue of a message. A priority is the number of its queue. Beside a delay, an order or a transaction
    it means nothing and is removed."""
    priority = int_or(properties.get(PRIORITY), None, 0)
    if priority is None:
        return queue_id
    if message_type(properties) != "PRIORITY":
        del properties[PRIORITY]
        return queue_id
    return max(0, min(priority, config.write_queue_nums - 1))
