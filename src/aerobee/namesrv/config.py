"""The settings of a name server, under RocketMQ's keys.

Only settings marked `reloadable` may change over the wire (UPDATE_NAMESRV_CONFIG). They are switches and numbers, never
paths or addresses, since a caller could then write any file (CVE-2023-37582).
RocketMQ: NamesrvConfig, DefaultRequestProcessor.updateConfig (which has a deny-list instead).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aerobee.config.setting import INT_MAX, Settings, setting

# RocketMQ: NamesrvConfig.kvConfigPath.
KV_CONFIG_PATH: Final = "~/namesrv/kvConfig.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig(Settings):
    """Every setting of a name server."""

    listen_port: int = setting(
        9876, java="listenPort", minimum=0, maximum=65535, doc="Port to listen on; 0 takes a free port."
    )
    rocketmq_home: str = setting(
        "",
        java="rocketmqHome",
        env="ROCKETMQ_HOME",
        doc="RocketMQ's directory.",
        effect="No effect: nothing is read from there.",
    )
    kv_config_path: str = setting(
        "",
        java="kvConfigPath",
        doc="File of the key-value table, which also holds the order configuration of topics. Without this key, "
        f"`aerobee namesrv` uses `{KV_CONFIG_PATH}`, as Apache's does. An empty value keeps the table in memory only.",
    )
    config_store_path: str = setting(
        "",
        java="configStorePath",
        doc="File for the changes that are made over the wire. An empty value keeps them in memory only.",
    )
    product_env_name: str = setting(
        "center",
        java="productEnvName",
        doc="Environment of the cluster-test mode.",
        effect="No effect: there is no such mode.",
    )
    cluster_test: bool = setting(
        False,
        java="clusterTest",
        doc="Ask another environment for missing routes.",
        effect="No effect: there is no such mode.",
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
    scan_not_active_broker_interval_ms: int = setting(
        5_000,
        java="scanNotActiveBrokerInterval",
        minimum=100,
        maximum=INT_MAX,
        doc="Milliseconds between two searches for brokers whose heartbeat is overdue.",
    )
    un_register_broker_queue_capacity: int = setting(
        3_000,
        java="unRegisterBrokerQueueCapacity",
        minimum=1,
        doc="Unregistrations that may wait.",
        effect="No effect: a broker is removed at once.",
    )
    support_acting_master: bool = setting(
        False,
        java="supportActingMaster",
        reloadable=True,
        doc="Show the slave with the smallest id as the master of a group that has none.",
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
        doc="See needWaitForService. Brokers need this time to register after a restart.",
    )
    delete_topic_with_broker_registration: bool = setting(
        False,
        java="deleteTopicWithBrokerRegistration",
        reloadable=True,
        doc="Remove the topics of a broker that its registration no longer names.",
    )
    config_black_list: str = setting(
        "configBlackList;configStorePath;kvConfigPath",
        java="configBlackList",
        doc="Keys that may not change over the wire.",
        effect="No effect: only the settings marked **R** may change.",
    )
