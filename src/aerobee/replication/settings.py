"""How a replica is set up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _unknown(path: str) -> int:
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStart:
    """What tells one start of a process from all others, and one directory from its copies."""

    # Changes with each start of the machine, so that a power cut is told from kill -9.
    boot_id: str = ""
    # Drawn for each start of a process; empty: copies of the directory are not looked for.
    start_id: str = ""
    # Returns what the disk numbers a directory by; 0 stands for not known.
    number_of: Callable[[str], int] = _unknown


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
    # Drawn for each start of a process; empty: copies of the directory are not looked for.
    start_id: str = ""
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
