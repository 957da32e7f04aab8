"""The settings that change while a broker runs: only those declared `reloadable`, and all of a request or none.

They are an allow-list of switches and numbers. Paths, addresses and names never change over the wire: Apache's
deny-list let a caller write files of its choice (CVE-2023-33246). Changes hold until the broker stops; its file is the
operator's. RocketMQ: Configuration, AdminBrokerProcessor.updateBrokerConfig.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aerobee.broker.config import BrokerConfig
from aerobee.broker.flowcontrol import flow_limits
from aerobee.broker.state import BrokerState
from aerobee.broker.topics import group_rules, topic_rules
from aerobee.config.loader import Loaded
from aerobee.config.setting import settings_of
from aerobee.model.dataversion import DataVersion
from aerobee.store.config import StoreConfig

Changed = Callable[[BrokerConfig, StoreConfig], None]


class LiveSettings:
    """The settings in force. `changed` is called after the broker's shared state has taken new values."""

    def __init__(self, state: BrokerState, changed: Changed) -> None:
        self.version = DataVersion()
        self._state = state
        self._loaded = Loaded((state.config, state.store.config), (), {})
        self._changed = changed
        # Called with values that an administrator gave, after they are in force.
        self.told: Callable[[Mapping[str, str]], None] = lambda values: None

    def properties(self) -> dict[str, str]:
        """Every setting under RocketMQ's key; name and address as they came out."""
        state = self._state
        host, _, port = state.address.rpartition(":")
        found = {"brokerName": state.name, "brokerIP1": host, "listenPort": port}
        return dict(sorted({**self._loaded.properties(), **found}.items()))

    def fixed(self, keys: Mapping[str, str]) -> bool:
        """Tell whether some of the keys exist and may not change while the broker runs."""
        declared = [one for cls in (BrokerConfig, StoreConfig) for one in settings_of(cls)]
        return any(not one.reloadable and keys.keys() & {one.java, *one.aliases} for one in declared)

    def update(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """Take the values, or raise ConfigError and change nothing; what to warn of."""
        loaded = self._loaded.updated(values)
        config, store_config = loaded.get(BrokerConfig), loaded.get(StoreConfig)
        self._loaded = loaded
        self.version = self.version.next(self._state.clock.now_ms())
        apply_settings(self._state, config, store_config)
        self._changed(config, store_config)
        return loaded.warnings


def apply_settings(state: BrokerState, config: BrokerConfig, store_config: StoreConfig) -> None:
    """Give the new settings to everything that keeps a copy of one."""
    state.config = config
    state.store.reconfigure(store_config)
    state.catalog.topic_rules = topic_rules(config)
    state.catalog.group_rules = group_rules(config)
    state.clients.expiry_s = config.channel_expired_timeout_ms / 1000
    state.clients.notify = config.notify_consumer_ids_changed_enable
    state.offsets.server_side_reset = config.use_server_side_reset_offset
    state.puts.timeout_s = store_config.sync_flush_timeout_ms / 1000
    state.flow.limits = flow_limits(config, store_config.os_page_cache_busy_time_out_ms)
