"""A replica of a group: the driver that joins store, coordinator, HA port and broker. It decides nothing itself."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.replication.coordinator import Coordinator
from aerobee.replication.duty import Duty
from aerobee.replication.identity import Prepared
from aerobee.replication.port import HaPort
from aerobee.replication.values import ReplicaStatus
from aerobee.runtime.seams import Clock, Disk, Entropy, Net
from aerobee.runtime.tasks import Tasks
from aerobee.store.messagestore import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """How a replica is set up. The times are those of the design and rarely need another value."""

    cluster: str
    group: str
    # Where clients and where other replicas reach this one: host:port.
    address: str
    ha_address: str
    # Changes with each start of the machine, so that a power cut is told from kill -9.
    boot_id: str
    min_in_sync: int = 1
    learner: bool = False
    # The lower, the rather it is elected, among replicas whose logs end at the same place.
    priority: int = 0
    release: str = ""
    # What all replicas of the group know, and nobody else. Empty: connections prove nothing.
    secret: bytes = b""
    keep_interval_s: float = 1.0
    lease_margin_s: float = 0.5
    # A follower does not stand within this time of an acknowledgement or of its start, unless the master is dead.
    promise_s: float = 1.5
    promise_margin_s: float = 0.2
    heartbeat_s: float = 0.5
    # A member of the set that says nothing or makes no progress this long is taken out; so is one that lags this long.
    silent_max_s: float = 2.0
    lag_max_s: float = 5.0
    # How long a switchover may hold up sends.
    switch_max_s: float = 0.5
    stop_max_s: float = 3.0
    frame_bytes: int = 1024 * 1024


class Replica:
    """One replica.

    Call `prepare` (identity.py), open the store with the `confirm_limit` that it returns, make the replica and start
    it. Stop it before the store is closed.
    """

    def __init__(  # noqa: PLR0913 - a driver is handed every seam
        self,
        settings: ReplicaSettings,
        prepared: Prepared,
        store: MessageStore,
        coordinator: Coordinator,
        disk: Disk,
        clock: Clock,
        entropy: Entropy,
        net: Net,
        *,
        duty: Duty,
        port: HaPort,
    ) -> None:
        self.settings = settings
        self._store = store

    async def start(self, tasks: Tasks) -> None:
        """Join the group and take part from now on. The HA port is started by its owner, before or after."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Leave in an orderly way: a master first hands over or resigns, a follower says that it goes."""
        raise NotImplementedError

    def attach(self, store: MessageStore) -> None:
        """Go on with another store of the same directory, opened with `confirm_limit` as the confirm limit."""
        raise NotImplementedError

    @property
    def confirm_limit(self) -> int:
        """Return how far the log is known to be confirmed."""
        raise NotImplementedError

    def status(self) -> ReplicaStatus:
        raise NotImplementedError

    def has_authority(self) -> bool:
        """Tell whether this replica leads and no other can have been elected. Ask before every side effect."""
        raise NotImplementedError

    async def switch_to(self, target: int) -> None:
        """Hand the role of master to another member of the in-sync set. Raise WithheldError if that cannot be done."""
        raise NotImplementedError

    def resign(self, reason: str) -> None:
        """Give up the role of master at once, because this replica cannot do its work any more."""
        raise NotImplementedError
