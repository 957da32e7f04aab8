"""The name server's settings, under RocketMQ's keys.

Only settings marked `reloadable` may be changed over the wire (UPDATE_NAMESRV_CONFIG): an allow-list of
switches and numbers. Paths and addresses never are: writing a file of the caller's choice was CVE-2023-37582.
RocketMQ: NamesrvConfig, DefaultRequestProcessor.updateConfig (which keeps a deny-list).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aerobee.config.setting import INT_MAX, Settings, setting

# Threads do the queueing in Apache; one loop serves every request here.
_NO_POOL = "requests are answered by one event loop, there is no pool to size"


# RocketMQ: NamesrvConfig.kvConfigPath.
KV_CONFIG_PATH: Final = "~/namesrv/kvConfig.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig(Settings):
    """What a name server may be told."""

    listen_port: int = setting(
        9876, java="listenPort", minimum=0, maximum=65535, doc="Port to serve; 0 takes a free one."
    )
    rocketmq_home: str = setting(
        "",
        java="rocketmqHome",
        env="ROCKETMQ_HOME",
        doc="RocketMQ's directory.",
        effect="nothing is read from there",
    )
    kv_config_path: str = setting(
        "",
        java="kvConfigPath",
        doc="File of the key-value table, which holds the order of topics too. `aerobee namesrv` keeps it in "
        f"`{KV_CONFIG_PATH}` where nothing is said, as Apache's does; an empty value keeps it in memory only.",
    )
    config_store_path: str = setting(
        "",
        java="configStorePath",
        doc="File that changes made over the wire are written to; empty keeps them in memory only.",
    )
    product_env_name: str = setting(
        "center",
        java="productEnvName",
        doc="Environment of the cluster-test mode.",
        effect="there is no such mode",
    )
    cluster_test: bool = setting(
        False,
        java="clusterTest",
        doc="Ask another environment for missing routes.",
        effect="there is no such mode",
    )
    order_message_enable: bool = setting(
        False,
        java="orderMessageEnable",
        reloadable=True,
        doc="Add a topic's order configuration to its route.",
    )
    return_order_topic_config_to_broker: bool = setting(
        True,
        java="returnOrderTopicConfigToBroker",
        reloadable=True,
        doc="Answer a registering broker with the order configuration of all topics.",
    )
    client_request_thread_pool_nums: int = setting(
        8, java="clientRequestThreadPoolNums", minimum=1, doc="Threads for route requests.", effect=_NO_POOL
    )
    default_thread_pool_nums: int = setting(
        16, java="defaultThreadPoolNums", minimum=1, doc="Threads for other requests.", effect=_NO_POOL
    )
    client_request_thread_pool_queue_capacity: int = setting(
        50_000,
        java="clientRequestThreadPoolQueueCapacity",
        minimum=1,
        doc="Waiting route requests.",
        effect=_NO_POOL,
    )
    default_thread_pool_queue_capacity: int = setting(
        10_000,
        java="defaultThreadPoolQueueCapacity",
        minimum=1,
        doc="Waiting other requests.",
        effect=_NO_POOL,
    )
    scan_not_active_broker_interval_ms: int = setting(
        5_000,
        java="scanNotActiveBrokerInterval",
        minimum=100,
        maximum=INT_MAX,
        doc="Time between two looks for brokers whose heartbeat is overdue.",
    )
    un_register_broker_queue_capacity: int = setting(
        3_000,
        java="unRegisterBrokerQueueCapacity",
        minimum=1,
        doc="Waiting unregistrations.",
        effect="a broker is taken out at once",
    )
    support_acting_master: bool = setting(
        False,
        java="supportActingMaster",
        reloadable=True,
        doc="Show the slave with the smallest id as master while a group has none.",
    )
    enable_all_topic_list: bool = setting(
        True, java="enableAllTopicList", reloadable=True, doc="Answer requests for the list of all topics."
    )
    enable_topic_list: bool = setting(
        True,
        java="enableTopicList",
        reloadable=True,
        doc="Answer requests for topics by cluster and unit topics.",
    )
    notify_min_broker_id_changed: bool = setting(
        False,
        java="notifyMinBrokerIdChanged",
        reloadable=True,
        doc="Tell the members of a group when its smallest broker id changes.",
    )
    enable_controller_in_namesrv: bool = setting(
        False, java="enableControllerInNamesrv", doc="Run a controller too.", effect="there is no controller"
    )
    need_wait_for_service: bool = setting(
        False,
        java="needWaitForService",
        reloadable=True,
        doc="Refuse route requests until waitSecondsForService have passed since the start.",
    )
    wait_for_service_s: int = setting(
        45,
        java="waitSecondsForService",
        minimum=0,
        maximum=INT_MAX,
        reloadable=True,
        doc="See needWaitForService; the time brokers need to register after a restart.",
    )
    delete_topic_with_broker_registration: bool = setting(
        False,
        java="deleteTopicWithBrokerRegistration",
        reloadable=True,
        doc="Forget a broker's topics that its registration no longer names.",
    )
    config_black_list: str = setting(
        "configBlackList;configStorePath;kvConfigPath",
        java="configBlackList",
        doc="Keys that may not change over the wire.",
        effect="an allow-list is used instead",
    )
