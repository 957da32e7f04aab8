"""Rules for topics: which exist from the start, which are made on first use, and what may be changed.

They are pure rules over `TopicConfig` values. The table itself, its file and its version are the store's
(`store/metadata`); the caller puts what these functions return into it and registers it with the name
servers.

RocketMQ: TopicConfigManager, AbstractSendMessageProcessor.msgCheck,
AdminBrokerProcessor.updateAndCreateTopic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aerobee.broker.config import QUEUE_NUMS_USUAL_MAX, TOPICS_MAX, BrokerConfig
from aerobee.broker.log import name_refusal
from aerobee.broker.refusal import Refusal, see_faq
from aerobee.broker.topics.attributes import (
    TOPIC_ATTRIBUTES,
    alter_attributes,
    value_problem,
)
from aerobee.errors import InvalidArgumentError
from aerobee.model.names import (
    AUTO_CREATE_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_HALF_TOPIC,
    REVIVE_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TIMER_TOPIC,
    is_retry_topic,
    is_system_topic,
    stored_topic_problem,
    topic_problem,
)
from aerobee.model.numbers import INT32_MAX, INT32_MIN
from aerobee.model.topic import (
    MULTI_TAG,
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    QUEUE_NUMS_MAX,
    SINGLE_TAG,
    TOPIC_UNIT,
    TOPIC_UNIT_SUB,
    TopicConfig,
)
from aerobee.protocol.codes import ResponseCode

READ_WRITE = PERM_READ | PERM_WRITE
SCHEDULE_QUEUES = 18


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What the rules need of the broker's configuration."""

    cluster: str
    broker: str
    auto_create: bool = True
    default_queue_nums: int = 8
    cluster_topic: bool = True
    broker_topic: bool = True
    trace_topic: str | None = None
    timer_topic: bool = True
    revive_queue_nums: int = 8
    mixed_message_type: bool = False
    guard_system_topics: bool = True
    writable: bool = True
    broker_ip: str = ""
    queue_nums_max: int = QUEUE_NUMS_USUAL_MAX
    topics_max: int = TOPICS_MAX

    def system_topics(self) -> list[TopicConfig]:
        """Return the topics that every broker has. RocketMQ: TopicConfigManager.init."""
        own = PERM_INHERIT | (READ_WRITE if self.broker_topic else 0)
        cluster = PERM_INHERIT | (READ_WRITE if self.cluster_topic else 0)
        topics = [_topic(SELF_TEST_TOPIC, 1)]
        if self.auto_create:
            topics.append(_topic(AUTO_CREATE_TOPIC, self.default_queue_nums, PERM_INHERIT | READ_WRITE))
        topics += [
            _topic("BenchmarkTest", 1024),
            _topic(self.cluster, 16, cluster),
            _topic(self.broker, 1, own),
            _topic(OFFSET_MOVED_TOPIC, 1),
            _topic(SCHEDULE_TOPIC, SCHEDULE_QUEUES),
        ]
        if self.trace_topic is not None:
            topics.append(_topic(self.trace_topic, 1))
        topics += [
            _topic(f"{self.cluster}_REPLY_TOPIC", 1),
            _topic(f"{REVIVE_TOPIC_PREFIX}{self.cluster}", self.revive_queue_nums),
            _topic(f"rmq_sys_SYNC_BROKER_MEMBER_{self.broker}", 1, PERM_INHERIT),
            _topic(HALF_TOPIC, 1),
            _topic(OP_HALF_TOPIC, 1),
            _topic("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", 1),
            _topic("RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", 1),
        ]
        if self.timer_topic:
            topics.append(_topic(TIMER_TOPIC, 1))
        return topics

    def is_system(self, topic: str) -> bool:
        """Tell whether a topic is the system's. RocketMQ: TopicValidator.isSystemTopic, and what a start adds to it."""
        own = (self.cluster, self.broker, self.trace_topic, f"{self.cluster}_REPLY_TOPIC")
        return is_system_topic(topic) or topic in own

    def check_send(self, topic: str) -> Refusal | None:
        """Return why nobody may send to the topic, by its name or because this broker takes no sends.

        Apache's broker without the right to write refuses ordered topics only. RocketMQ:
        AbstractSendMessageProcessor.msgCheck.
        """
        if not self.writable:
            return Refusal(ResponseCode.NO_PERMISSION, f"the broker[{self.broker_ip}] sending message is forbidden")
        return name_refusal(topic)

    def create_for_send(
        self,
        topic: str,
        table: Mapping[str, TopicConfig],
        *,
        default_topic: str,
        queue_nums: int,
        unit_mode: bool = False,
    ) -> TopicConfig | Refusal:
        """Return a topic that a send names and nobody made, by the sender's default topic, if that may be inherited.

        RocketMQ: createTopicInSendMessageMethod; for `%RETRY%` topics createTopicInSendMessageBackMethod.
        """
        sys_flag = 0
        if unit_mode:
            sys_flag = TOPIC_UNIT_SUB if is_retry_topic(topic) else TOPIC_UNIT
        model = table.get(default_topic)
        if model is not None and self._inheritable(model):
            nums = max(0, min(queue_nums, model.write_queue_nums))
            return TopicConfig(
                topic,
                nums,
                nums,
                model.perm & ~PERM_INHERIT,
                model.topic_filter_type,
                sys_flag,
            )
        if is_retry_topic(topic):
            return create_for_send_back(topic, 1, sys_flag)
        return Refusal(ResponseCode.TOPIC_NOT_EXIST, see_faq(f"topic[{topic}] not exist, apply first please!"))

    def change(self, wanted: TopicConfig, current: TopicConfig | None) -> TopicConfig | Refusal:
        """Return what an administrator's create or update makes. `wanted.attributes` holds changes (`+name`, `-name`).

        RocketMQ: AdminBrokerProcessor.updateAndCreateTopic, TopicConfigManager.updateTopicConfig.
        """
        refusal = self.check_change(wanted)
        if refusal is not None:
            return refusal
        try:
            attributes = alter_attributes(
                TOPIC_ATTRIBUTES, None if current is None else current.attributes, wanted.attributes
            )
        except InvalidArgumentError as error:
            return Refusal(ResponseCode.SYSTEM_ERROR, error.message)
        return replace(wanted, attributes=attributes)

    def check_change(self, wanted: TopicConfig) -> Refusal | None:
        """Return why a change is refused, by everything but the attributes themselves."""
        topic = wanted.topic_name
        problem = topic_problem(topic)
        if problem is None and self.guard_system_topics and self.is_system(topic):
            problem = f"The topic[{topic}] is conflict with system topic."
        if problem is None:
            problem = value_problem(wanted.attributes, mixed=self.mixed_message_type)
        if problem is None:
            for name, nums in (("read", wanted.read_queue_nums), ("write", wanted.write_queue_nums)):
                if not 0 <= nums <= self.queue_nums_max:
                    limit = f"0 to {self.queue_nums_max} (queueNumsMax)"
                    problem = f"{name} queue nums {nums} of topic[{topic}]: allowed are {limit}"
        if problem is None and not 0 <= wanted.perm < 8:
            problem = f"perm {wanted.perm} of topic[{topic}] is invalid"
        if problem is None and wanted.topic_filter_type not in (SINGLE_TAG, MULTI_TAG):
            problem = f"the filter type of topic[{topic}] is neither {SINGLE_TAG} nor {MULTI_TAG}"
        if problem is None and not INT32_MIN <= wanted.topic_sys_flag <= INT32_MAX:
            problem = f"the system flag of topic[{topic}] is no integer of 32 bits"
        if problem is not None:
            return Refusal(ResponseCode.INVALID_PARAMETER, problem)
        return None

    def check_delete(self, topic: str) -> Refusal | None:
        """Return why a topic may not be deleted. RocketMQ: AdminBrokerProcessor.deleteTopic."""
        if not topic.strip():
            return Refusal(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        # No such topic can exist, and its name would be part of a path.
        problem = stored_topic_problem(topic)
        if problem is not None:
            return Refusal(ResponseCode.INVALID_PARAMETER, problem)
        if self.guard_system_topics and self.is_system(topic):
            return Refusal(ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic.")
        return None

    def _inheritable(self, model: TopicConfig) -> bool:
        if model.topic_name == AUTO_CREATE_TOPIC and not self.auto_create:
            # The table may still hold the topic from a time when it was allowed.
            return False
        return model.perm & PERM_INHERIT != 0


def topic_rules(config: BrokerConfig) -> TopicRules:
    """Return the part of the configuration by which topics are made and changed."""
    return TopicRules(
        cluster=config.cluster_name,
        broker=config.broker_name,
        auto_create=config.auto_create_topic_enable,
        default_queue_nums=config.default_topic_queue_nums,
        cluster_topic=config.cluster_topic_enable,
        broker_topic=config.broker_topic_enable,
        trace_topic=config.msg_trace_topic_name if config.trace_topic_enable else None,
        revive_queue_nums=config.revive_queue_num,
        mixed_message_type=config.enable_mixed_message_type,
        guard_system_topics=config.validate_system_topic_when_update_topic,
        writable=config.broker_permission & PERM_WRITE != 0,
        broker_ip=config.broker_ip1,
        queue_nums_max=config.queue_nums_max,
        topics_max=config.topics_max,
    )


def create_for_send_back(topic: str, queue_nums: int, sys_flag: int = 0, *, order: bool = False) -> TopicConfig:
    """Return a retry or dead-letter topic. RocketMQ: createTopicInSendMessageBackMethod."""
    queue_nums = max(0, min(queue_nums, QUEUE_NUMS_MAX))
    return TopicConfig(topic, queue_nums, queue_nums, READ_WRITE, topic_sys_flag=sys_flag, order=order)


def _topic(name: str, queue_nums: int, perm: int = READ_WRITE) -> TopicConfig:
    return TopicConfig(name, queue_nums, queue_nums, perm)
