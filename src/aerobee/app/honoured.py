"""Settings of replication, which this version does not have. A broker that accepted them would break its promise."""

from __future__ import annotations

from aerobee.broker.config import BrokerConfig
from aerobee.config.setting import Settings, render, settings_of
from aerobee.errors import ConfigError
from aerobee.store.config import StoreConfig

# These settings promise that a second broker holds the same messages.
_REPLICAS = {
    BrokerConfig: ("broker_id",),
    StoreConfig: ("broker_role", "total_replicas", "in_sync_replicas", "min_in_sync_replicas"),
}


def require_honoured(*configs: Settings) -> None:
    """Raise a ConfigError that names every setting which asks for replicas."""
    problems = []
    for config in configs:
        for one in settings_of(type(config)):
            value = getattr(config, one.name)
            if one.name in _REPLICAS.get(type(config), ()) and value != one.default:
                problems.append(
                    f"{one.java}={render(value)} cannot be honoured: this version has no replication, so messages are "
                    f"held by one broker only. Remove the key (the default is {render(one.default)})"
                )
    if problems:
        raise ConfigError(problems)
