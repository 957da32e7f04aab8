"""Settings of replication that this broker cannot keep. A broker that accepted them would break its promise."""

from __future__ import annotations

from collections.abc import Iterator

from aerobee.broker.config import BrokerConfig
from aerobee.errors import ConfigError
from aerobee.store.config import BrokerRole, StoreConfig


def require_honoured(config: BrokerConfig, store_config: StoreConfig, *, coordinated: bool = False) -> None:
    """Raise a ConfigError that names every setting whose promise would not be kept."""
    problems = list(_of_a_group(config, store_config) if coordinated else _of_a_static_role(config, store_config))
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


def _of_a_static_role(config: BrokerConfig, store_config: StoreConfig) -> Iterator[str]:
    """Yield what a master or a slave that the operator chose cannot keep."""
    role = store_config.broker_role
    if role is BrokerRole.SLAVE and config.broker_id == 0:
        yield "brokerRole=SLAVE needs a brokerId above 0: 0 is the master"
    if role is not BrokerRole.SLAVE and config.broker_id != 0:
        yield f"brokerId={config.broker_id} needs brokerRole=SLAVE: only 0 is a master"
    if role is BrokerRole.ASYNC_MASTER and store_config.in_sync_replicas > 1:
        yield (
            f"inSyncReplicas={store_config.in_sync_replicas} cannot be honoured with brokerRole=ASYNC_MASTER, which "
            "waits for no slave. Set brokerRole=SYNC_MASTER"
        )
    if store_config.min_in_sync_replicas > 1:
        yield (
            f"minInSyncReplicas={store_config.min_in_sync_replicas} cannot be honoured without coordinatorAddr: with "
            "static roles nothing counts which slaves are in sync. Set inSyncReplicas and brokerRole=SYNC_MASTER"
        )
