"""The broker's settings: RocketMQ's keys, Apache's defaults, and the rules they turn into."""

import pytest

from aerobee.broker.config import BrokerConfig
from aerobee.broker.flowcontrol import Work, flow_limits
from aerobee.broker.pull import pull_rules
from aerobee.broker.topics import group_rules, topic_rules
from aerobee.config.apachekeys import APACHE_KEYS
from aerobee.config.loader import file_source, load
from aerobee.config.setting import settings_of
from aerobee.errors import ConfigError
from aerobee.store.config import StoreConfig


def test_every_key_is_apaches_or_said_to_be_our_own() -> None:
    for one in settings_of(BrokerConfig):
        assert (one.java in APACHE_KEYS) is not one.own, one.java


def test_the_shipped_broker_conf_loads_beside_the_stores_settings() -> None:
    text = b"""
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
sendMessageThreadPoolNums = 4
"""
    loaded = load((BrokerConfig, StoreConfig), file_source("broker.conf", text))
    config = loaded.get(BrokerConfig)
    assert (config.broker_name, config.listen_port) == ("broker-a", 10911)


def test_names_that_become_topics_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"brokerName: .*illegal characters"):
        BrokerConfig(broker_name="a b")
    with pytest.raises(ConfigError, match="needs a name"):
        BrokerConfig(cluster_name="")


def test_the_rules_follow_the_settings() -> None:
    config = BrokerConfig(
        broker_name="b",
        auto_create_topic_enable=False,
        wait_in_send_queue_ms=77,
        trace_topic_enable=True,
        auto_create_subscription_group=False,
        broker_permission=2,
    )
    topics = topic_rules(config)
    assert not topics.auto_create
    assert topics.trace_topic == "RMQ_SYS_TRACE_TOPIC"
    assert flow_limits(config, 1_000).wait_max_ms[Work.SEND] == 77
    assert not group_rules(config).auto_create
    assert pull_rules(config).permission == 2
    assert topic_rules(BrokerConfig()).trace_topic is None


def test_the_registration_period_is_brought_into_bounds_as_apache_does() -> None:
    assert BrokerConfig(register_interval_ms=1).register_interval_ms == 10_000
    assert BrokerConfig(register_interval_ms=120_000).register_interval_ms == 60_000
