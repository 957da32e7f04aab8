"""CONSUMER_SEND_MSG_BACK: a message that could not be consumed goes to its group's retries, or its dead letters.

The record is read where it lies, put away for its delay, and the answer leaves when the copy is stored. RocketMQ:
AbstractSendMessageProcessor.consumerSendMsgBack.
"""

from __future__ import annotations

from aerobee.broker.answers import answer_later, refuse_later
from aerobee.broker.delay import DelayLevels
from aerobee.broker.log import STORED, Puts, SendSettings
from aerobee.broker.refusal import Refusal, see_faq
from aerobee.broker.retry.rules import RetryPlan, SendBackRequest, send_back
from aerobee.broker.stats import BrokerStats
from aerobee.broker.topics import Catalog, ensure_topic
from aerobee.errors import AerobeeError, StoreError
from aerobee.hot.log.record import decode_record
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.ids import offset_message_id
from aerobee.model.names import TRANS_CHECK_MAX_TIME_TOPIC, is_send_forbidden, retry_topic
from aerobee.model.topic import TOPIC_UNIT_SUB
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from aerobee.runtime.seams import Clock, Entropy
from aerobee.store.messagestore import MessageStore
from aerobee.store.sent import sent_at
from aerobee.telemetry.stdlog import get_log

_log = get_log("broker.dlq")


class SendBackHandler:
    """The handler of CONSUMER_SEND_MSG_BACK."""

    def __init__(
        self,
        store: MessageStore,
        catalog: Catalog,
        puts: Puts,
        stats: BrokerStats,
        levels: DelayLevels,
        settings: SendSettings,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._puts = puts
        self._stats = stats
        self._levels = levels
        self._settings = settings
        self._clock = clock
        self._entropy = entropy

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(self, channel: Channel, command: Command) -> Command | None:
        header = decode_header(ConsumerSendMsgBackRequestHeader, command)
        group = self._check(header)
        if isinstance(group, Refusal):
            return response(command, group.code, remark=group.remark)
        if group.retry_queue_nums <= 0:
            return response(command)
        asked = SendBackRequest(
            header.group,
            header.delay_level,
            header.max_reconsume_times,
            header.unit_mode,
            command.version,
            group.retry_max_times,
            group.retry_queue_nums,
        )
        self._store.run(
            sent_at(self._store, header.offset),
            lambda record: self._found(channel, command, asked, record, header.offset),
        )
        return None

    def _check(self, header: ConsumerSendMsgBackRequestHeader) -> SubscriptionGroupConfig | Refusal:
        """Return the group, or why it may not send back."""
        group = self._catalog.group(header.group)
        if group is None:
            remark = see_faq(f"subscription group not exist, {header.group} ")
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not self._settings.writable:
            return Refusal(ResponseCode.NO_PERMISSION, "the broker sending message is forbidden")
        if group.retry_queue_nums > 0:
            topic = retry_topic(header.group)
            flag = TOPIC_UNIT_SUB if header.unit_mode else 0
            if not ensure_topic(self._catalog, topic, group.retry_queue_nums, flag).is_writable:
                return Refusal(ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")
        return group

    def _found(
        self, channel: Channel, command: Command, asked: SendBackRequest, data: bytes | StoreError | None, offset: int
    ) -> None:
        if not isinstance(data, bytes):
            remark = f"look message by offset failed, {offset}"
            refuse_later(channel, command, ResponseCode.SYSTEM_ERROR, remark)
            return
        record = decode_record(data, 0)
        topic = record.topic.decode("utf-8", "replace")
        if is_send_forbidden(topic) and topic != TRANS_CHECK_MAX_TIME_TOPIC:
            # No consumer can have got it: a half message, or one that waits for its time.
            remark = f"a message of topic[{topic}] cannot be sent back"
            refuse_later(channel, command, ResponseCode.NO_PERMISSION, remark)
            return
        try:
            plan = send_back(
                record,
                offset_message_id(record.store_host, record.physical_offset),
                asked,
                self._levels,
                store_host=self._settings.store_host,
                random_queue=self._entropy.below(1 << 30),
            )
        except AerobeeError as error:
            refuse_later(channel, command, ResponseCode.SYSTEM_ERROR, error.message)
            return
        assert plan is not None, "a group without retry queues was answered before"
        ensure_topic(self._catalog, plan.topic, plan.queue_nums, plan.topic_sys_flag)

        def done(code: int, remark: str) -> None:
            if code not in STORED:
                refuse_later(channel, command, ResponseCode.SYSTEM_ERROR, remark)
                return
            self._count(asked.group, plan)
            answer_later(channel, response(command), command)

        # Apache does not wait for the flush here. The consumer moves on when it is answered, so nothing else keeps the
        # message: it is answered by the level of durability in force.
        # A dead letter's topic is new here: who sees the message must find its route too, as with Apache, whose
        # broker registers first. RocketMQ: TopicConfigManager.createTopicInSendMessageBackMethod.
        self._catalog.when_registered(lambda: self._puts.put([plan.draft], done))

    def _count(self, group: str, plan: RetryPlan) -> None:
        self._stats.send_back(group, plan.back_topic, self._clock.now_ms(), dead_letter=plan.dead_letter)
        if plan.dead_letter:
            _log.info("a message became a dead letter", topic=plan.back_topic, group=group, key=plan.draft.uniq_key)
