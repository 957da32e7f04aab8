"""Settings of replication that this broker cannot keep. A broker that accepted them would break its promise."""

from __future__ import annotations

from collections.abc import Iterator

from aerobee.broker.config import BrokerConfig
from aerobee.config.setting import Settings, render, settings_of
from aerobee.errors import ConfigError
from aerobee.store.config import BrokerRole, StoreConfig

# These settings promise that a second broker holds the same messages.
_REPLICAS = {
    BrokerConfig: ("broker_id",),
    StoreConfig: ("broker_role", "total_replicas", "in_sync_replicas", "min_in_sync_replicas"),
}


def require_honoured(config: BrokerConfig, store_config: StoreConfig, *, coordinated: bool = False) -> None:
    """Raise a ConfigError that names every setting whose promise would not be kept."""
    problems = list(_of_a_group(config, store_config) if coordinated else _alone(config, store_config))
    if problems:
        raise ConfigError(problems)


def _of_a_group(config: BrokerConfig, store_config: StoreConfig) -> Iterator[str]:
    """Yield what a group with a coordinator cannot keep."""
    if config.broker_id != 0:
        yield (
            f"brokerId={config.broker_id} cannot be honoured with coordinatorAddr: the group gives each replica its "
            "id, and the master is whoever was elected. Remove the key"
        )
    if store_config.broker_role is BrokerRole.SLAVE:
        yield (
            "brokerRole=SLAVE cannot be honoured with coordinatorAddr: any replica may be elected. Set SYNC_MASTER or "
            "ASYNC_MASTER, the same for all replicas of the group"
        )
    if store_config.in_sync_replicas > store_config.min_in_sync_replicas:
        yield (
            f"inSyncReplicas={store_config.in_sync_replicas} cannot be honoured with coordinatorAddr: a message is "
            "acknowledged when every replica in sync has it, and minInSyncReplicas is how many there must be. Set "
            f"minInSyncReplicas={store_config.in_sync_replicas}"
        )


def _alone(*configs: Settings) -> Iterator[str]:
    for config in configs:
        for one in settings_of(type(config)):
            value = getattr(config, one.name)
            if one.name in _REPLICAS.get(type(config), ()) and value != one.default:
                yield (
                    f"{one.java}={render(value)} cannot be honoured: this version has no replication, so messages are "
                    f"held by one broker only. Remove the key (the default is {render(one.default)})"
                )
