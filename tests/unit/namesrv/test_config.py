from __future__ import annotations

import pytest

from aerobee.config.loader import file_source, load
from aerobee.errors import ConfigError
from aerobee.namesrv.config import NamesrvConfig

APACHE_CONF = b"""# as found beside Apache's name server
listenPort=9877
rocketmqHome=/opt/rocketmq
kvConfigPath = /var/lib/namesrv/kvConfig.json
supportActingMaster=true
defaultThreadPoolNums=32
serverWorkerThreads=8
"""


def test_apaches_file_loads() -> None:
    loaded = load([NamesrvConfig], file_source("namesrv.conf", APACHE_CONF))
    config = loaded.get(NamesrvConfig)
    assert (config.listen_port, config.support_acting_master) == (9877, True)
    assert config.kv_config_path == "/var/lib/namesrv/kvConfig.json"
    assert [warning.split(" has no effect")[0] for warning in loaded.warnings[1:]] == [
        "namesrv.conf: defaultThreadPoolNums",
        "namesrv.conf: serverWorkerThreads",
    ]
    assert loaded.warnings[0].startswith("rocketmqHome: No effect")


def test_a_key_nobody_knows_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="supportActingMaster"):
        load([NamesrvConfig], file_source("namesrv.conf", b"suportActingMaster=true"))


def test_apaches_defaults() -> None:
    config = NamesrvConfig()
    assert config.scan_not_active_broker_interval_ms == 5_000
    assert config.wait_for_service_s == 45
    assert config.enable_topic_list and config.enable_all_topic_list
    assert config.return_order_topic_config_to_broker
    assert not config.order_message_enable and not config.support_acting_master
    assert not config.notify_min_broker_id_changed and not config.need_wait_for_service
