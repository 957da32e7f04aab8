"""The settings of a broker, under the keys and with the defaults of RocketMQ 5.5.0 (BrokerConfig, BrokerIdentity).

The loader knows Apache's other keys, which have no effect here: thread pools, RocksDB, metrics exporters. The delay
levels and everything on disk belong to the store's settings.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from aerobee.config.setting import LONG_MAX, Settings, setting
from aerobee.errors import InvalidArgumentError
from aerobee.model.names import topic_problem
from aerobee.model.quota import parse_quotas
from aerobee.model.topic import QUEUE_NUMS_MAX

# Defaults of the settings queueNumsMax, topicsMax and groupsMax; Apache has no bounds. A route lists queues by count,
# so the first bounds what clients loop over and what answers about a topic's queues cost. The whole table of topics, or
# of groups, is written with each one that is made.
QUEUE_NUMS_USUAL_MAX: Final = 8192
TOPICS_MAX: Final = 20_000
GROUPS_MAX: Final = 20_000


class RequestMode(enum.Enum):
    """How consumers that leave balancing to the broker consume. RocketMQ: MessageRequestMode."""

    PULL = "PULL"
    POP = "POP"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(Settings):
    """Every setting of a broker but the store's."""

    # Identity
    cluster_name: str = setting(
        "DefaultCluster", java="brokerClusterName", doc="The cluster that the broker belongs to."
    )
    broker_name: str = setting("", java="brokerName", doc="Name of the broker group; empty takes the host's name.")
    broker_id: int = setting(
        0, java="brokerId", maximum=LONG_MAX, doc="0 is the master; every other number is a slave (brokerRole=SLAVE)."
    )
    broker_ip1: str = setting(
        "", java="brokerIP1", doc="Address that clients are told; empty takes the host's first address."
    )
    broker_ip2: str = setting(
        "", java="brokerIP2", doc="Address that slaves are told; empty takes the one that clients are told."
    )
    listen_port: int = setting(
        10911,
        java="listenPort",
        maximum=65535,
        doc="Port to serve. The fast port, where clients' VIP channel leads, is two below: everything but pulls. "
        "0 takes a free pair.",
    )
    region_id: str = setting("DefaultRegion", java="regionId", doc="Region written into messages for tracing.")
    trace_on: bool = setting(True, java="traceOn", reloadable=True, doc="Tell clients to trace messages.")

    grpc_server_port: int = setting(
        -1,
        java="grpcServerPort",
        minimum=-1,
        maximum=65535,
        own=True,
        doc="Port of the gRPC service for RocketMQ's 5.x clients; 0 takes a free port, -1 none. "
        "Apache's proxy has this key in its own file, with the default 8081.",
    )

    # Name servers
    namesrv_addr: str = setting(
        "", java="namesrvAddr", env="NAMESRV_ADDR", doc="Name servers, separated by semicolons."
    )
    register_interval_ms: int = setting(
        30_000,
        java="registerNameServerPeriod",
        minimum=10_000,
        maximum=60_000,
        clamp=True,
        doc="Time between registrations; a value outside 10 to 60 s is brought into that range.",
    )
    register_timeout_ms: int = setting(
        24_000, java="registerBrokerTimeoutMills", minimum=1, doc="How long one name server may take to answer."
    )
    register_compressed: bool = setting(False, java="compressedRegister", doc="Compress the body of a registration.")
    register_always: bool = setting(
        True,
        java="forceRegister",
        effect="No effect: every round registers.",
        doc="Register even when no table changed.",
    )
    register_single_topic: bool = setting(
        False,
        java="enableSingleTopicRegister",
        effect="No effect: the whole table is registered.",
        doc="Register a new topic alone, not the whole table.",
    )

    # Topics and groups
    broker_permission: int = setting(
        6,
        java="brokerPermission",
        maximum=7,
        reloadable=True,
        doc="What clients may do: 4 read, 2 write, 6 both. Without 2 every send is refused.",
    )
    default_topic_queue_nums: int = setting(
        8,
        java="defaultTopicQueueNums",
        minimum=1,
        maximum=QUEUE_NUMS_MAX,
        reloadable=True,
        doc="Queues of a topic that a send creates.",
    )
    queue_nums_max: int = setting(
        QUEUE_NUMS_USUAL_MAX,
        java="queueNumsMax",
        minimum=1,
        maximum=QUEUE_NUMS_MAX,
        own=True,
        doc="The most queues that a topic, or the retry topic of a group, can have.",
    )
    topics_max: int = setting(
        TOPICS_MAX,
        java="topicsMax",
        minimum=100,
        own=True,
        doc="The most topics, including retry and dead-letter topics.",
    )
    groups_max: int = setting(GROUPS_MAX, java="groupsMax", minimum=100, own=True, doc="The most consumer groups.")
    auto_create_topic_enable: bool = setting(
        True, java="autoCreateTopicEnable", reloadable=True, doc="A send creates the topic that it names."
    )
    auto_create_subscription_group: bool = setting(
        True, java="autoCreateSubscriptionGroup", reloadable=True, doc="A consumer creates the group that it names."
    )
    enable_create_sys_group: bool = setting(
        True,
        java="enableCreateSysGroup",
        reloadable=True,
        doc="Groups with the system prefix are created on first use in any case.",
    )
    cluster_topic_enable: bool = setting(
        True, java="clusterTopicEnable", doc="The topic named as the cluster can be read and written."
    )
    broker_topic_enable: bool = setting(
        True, java="brokerTopicEnable", doc="The topic named as the broker can be read and written."
    )
    trace_topic_enable: bool = setting(False, java="traceTopicEnable", doc="Create the topic for message traces.")
    msg_trace_topic_name: str = setting(
        "RMQ_SYS_TRACE_TOPIC", java="msgTraceTopicName", doc="The name of the topic for message traces."
    )
    validate_system_topic_when_update_topic: bool = setting(
        True,
        java="validateSystemTopicWhenUpdateTopic",
        reloadable=True,
        doc="Refuse to change or delete system topics.",
    )
    enable_mixed_message_type: bool = setting(
        False, java="enableMixedMessageType", reloadable=True, doc="Allow the message type MIXED."
    )
    clear_retry_topic_when_delete_topic: bool = setting(
        True,
        java="clearRetryTopicWhenDeleteTopic",
        reloadable=True,
        doc="Deleting a topic deletes its POP retry topics.",
    )
    revive_queue_num: int = setting(
        8, java="reviveQueueNum", minimum=1, maximum=QUEUE_NUMS_MAX, doc="Queues of the revive topic."
    )
    reject_transaction_message: bool = setting(
        False, java="rejectTransactionMessage", reloadable=True, doc="Refuse transactions."
    )
    transaction_timeout_ms: int = setting(
        6_000,
        java="transactionTimeOut",
        reloadable=True,
        doc="The age at which the broker asks about a half message, unless the message names its own time.",
    )
    transaction_check_interval_ms: int = setting(
        30_000,
        java="transactionCheckInterval",
        minimum=100,
        reloadable=True,
        doc="Time between two questions about a half message.",
    )
    transaction_check_max: int = setting(
        15,
        java="transactionCheckMax",
        minimum=1,
        reloadable=True,
        doc="Questions about one half message at most; then it goes to TRANS_CHECK_MAX_TIME_TOPIC.",
    )
    recall_message_enable: bool = setting(
        False, java="recallMessageEnable", reloadable=True, doc="Timed messages can be recalled by their handle."
    )
    allow_recall_when_not_writable: bool = setting(
        True,
        java="allowRecallWhenBrokerNotWriteable",
        reloadable=True,
        doc="Messages can be recalled even while brokerPermission forbids sends.",
    )

    # Consumers
    long_polling_enable: bool = setting(
        True,
        java="longPollingEnable",
        reloadable=True,
        doc="Hold a pull that finds nothing as long as its client asks.",
    )
    short_polling_ms: int = setting(
        1_000,
        java="shortPollingTimeMills",
        reloadable=True,
        doc="How long to hold a pull that finds nothing when long polling is off.",
    )
    notify_consumer_ids_changed_enable: bool = setting(
        True,
        java="notifyConsumerIdsChangedEnable",
        reloadable=True,
        doc="Tell a group's members when one joins or leaves.",
    )
    channel_expired_timeout_ms: int = setting(
        120_000,
        java="channelExpiredTimeout",
        minimum=1_000,
        reloadable=True,
        doc="A client that sends no heartbeat for this long is disconnected.",
    )
    subscription_expired_timeout_ms: int = setting(
        600_000,
        java="subscriptionExpiredTimeout",
        minimum=1_000,
        doc="How long a subscription that is known only from pulls is kept.",
    )
    flush_consumer_offset_interval_ms: int = setting(
        5_000, java="flushConsumerOffsetInterval", minimum=100, doc="Time between saves of the consume offsets."
    )
    use_server_side_reset_offset: bool = setting(
        True,
        java="useServerSideResetOffset",
        reloadable=True,
        doc="A reset holds even while the client commits its old position.",
    )
    lite_pull_message_enable: bool = setting(
        True, java="litePullMessageEnable", reloadable=True, doc="Serve lite pull consumers."
    )
    reject_pull_consumer_enable: bool = setting(
        False, java="rejectPullConsumerEnable", reloadable=True, doc="Refuse pull consumers."
    )
    enable_property_filter: bool = setting(
        False, java="enablePropertyFilter", reloadable=True, doc="Serve SQL filters."
    )
    filter_support_retry: bool = setting(
        False,
        java="filterSupportRetry",
        reloadable=True,
        doc="A SQL filter on a retry topic is the filter of the topic a message came from.",
    )
    filter_data_clean_time_span_ms: int = setting(
        86_400_000,
        java="filterDataCleanTimeSpan",
        reloadable=True,
        doc="How long the filter of a group without members is kept.",
    )
    slave_read_enable: bool = setting(
        False, java="slaveReadEnable", reloadable=True, doc="Send readers that are far behind to a slave."
    )
    transfer_msg_by_heap: bool = setting(
        True,
        java="transferMsgByHeap",
        effect="No effect: the size of the messages decides.",
        doc="Copy messages into the answer of a pull.",
    )
    store_reply_message_enable: bool = setting(
        True, java="storeReplyMessageEnable", reloadable=True, doc="Store reply messages in the log as well."
    )

    default_message_request_mode: RequestMode = setting(
        RequestMode.PULL,
        java="defaultMessageRequestMode",
        reloadable=True,
        doc="How consumers that leave balancing to the broker consume, where SET_MESSAGE_REQUEST_MODE said nothing.",
    )
    default_pop_share_queue_num: int = setting(
        -1,
        java="defaultPopShareQueueNum",
        minimum=-1,
        reloadable=True,
        doc="With how many other members a member shares its queues by POP; 0 and less: all queues with all.",
    )

    priority_order_asc: bool = setting(
        True,
        java="priorityOrderAsc",
        reloadable=True,
        doc="A pop takes the queues of a topic from high numbers to low ones: with message.type=PRIORITY the highest "
        "queue comes first.",
    )
    pop_from_retry_probability: int = setting(
        20,
        java="popFromRetryProbability",
        minimum=0,
        maximum=100,
        reloadable=True,
        doc="How many of 100 pops ask the retry topic first. The others ask it last.",
    )
    # Apache's default is 0: a topic that is never empty then never gives a message again that was not acknowledged.
    pop_from_retry_probability_for_priority: int = setting(
        10,
        java="popFromRetryProbabilityForPriority",
        minimum=0,
        maximum=100,
        reloadable=True,
        doc="The same for pops that take the queues of a topic by priority. With 0, Apache's default, messages come "
        "again only when all queues are empty.",
    )

    # Overload
    broker_fast_failure_enable: bool = setting(
        True, java="brokerFastFailureEnable", reloadable=True, doc="Answer busy instead of queueing."
    )
    wait_in_send_queue_ms: int = setting(
        200,
        java="waitTimeMillsInSendQueue",
        minimum=1,
        reloadable=True,
        doc="A send that waited this long is answered busy.",
    )
    wait_in_pull_queue_ms: int = setting(
        5_000,
        java="waitTimeMillsInPullQueue",
        minimum=1,
        reloadable=True,
        doc="A pull that waited this long is answered busy.",
    )
    wait_in_lite_pull_queue_ms: int = setting(
        5_000,
        java="waitTimeMillsInLitePullQueue",
        minimum=1,
        reloadable=True,
        doc="A lite pull that waited this long is answered busy.",
    )
    wait_in_heartbeat_queue_ms: int = setting(
        31_000,
        java="waitTimeMillsInHeartbeatQueue",
        minimum=1,
        reloadable=True,
        doc="A heartbeat that waited this long is answered busy.",
    )
    wait_in_transaction_queue_ms: int = setting(
        3_000,
        java="waitTimeMillsInTransactionQueue",
        minimum=1,
        reloadable=True,
        doc="The end of a transaction that waited this long is answered busy.",
    )
    wait_in_ack_queue_ms: int = setting(
        3_000,
        java="waitTimeMillsInAckQueue",
        minimum=1,
        reloadable=True,
        doc="An acknowledgement that waited this long is answered busy.",
    )
    wait_in_admin_broker_queue_ms: int = setting(
        5_000,
        java="waitTimeMillsInAdminBrokerQueue",
        minimum=1,
        reloadable=True,
        doc="A request of an administrator that waited this long is answered busy.",
    )
    send_queue_capacity: int = setting(
        10_000,
        java="sendThreadPoolQueueCapacity",
        minimum=1,
        reloadable=True,
        doc="Sends that may wait for the disk or replicas at the same time.",
    )
    held_pulls_max: int = setting(
        100_000,
        java="heldPullsMax",
        minimum=1,
        own=True,
        doc="Pulls held at the same time, about 1 KB each; more are answered busy, and clients come again after a "
        "while. A pull with many tags counts as several.",
    )
    held_pulls_per_connection_max: int = setting(
        20_000,
        java="heldPullsPerConnectionMax",
        minimum=1,
        own=True,
        doc="Pulls of one connection that are held at the same time.",
    )

    quotas: str = setting(
        "",
        java="quotas",
        own=True,
        reloadable=True,
        doc="What users, addresses and topics may send a second: `user:NAME bytes=N messages=N; topic:* messages=N`. "
        "`aerobee quota` writes it.",
    )

    # Statistics
    enable_detail_stat: bool = setting(True, java="enableDetailStat", doc="Count by queue as well as by topic.")
    max_stats_idle_minutes: int = setting(
        -1,
        java="maxStatsIdleTimeInMinutes",
        minimum=-1,
        doc="Forget counters that did not change for this long; -1 keeps them.",
    )

    def relations(self) -> Iterable[str]:
        """Yield problems: names that become topics must be allowed as topics."""
        for key, name in (("brokerClusterName", self.cluster_name), ("brokerName", self.broker_name)):
            problem = topic_problem(name) if name else None
            if problem is not None:
                yield f"{key}: {problem}"
        if self.trace_topic_enable and topic_problem(self.msg_trace_topic_name) is not None:
            yield f"msgTraceTopicName: {topic_problem(self.msg_trace_topic_name)}"
        try:
            parse_quotas(self.quotas)
        except InvalidArgumentError as error:
            yield f"quotas: {error.message}"
        if not self.cluster_name:
            yield "brokerClusterName: a cluster needs a name"
