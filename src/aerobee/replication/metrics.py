"""The metrics of a replica as text: who leads, how large the in-sync set is, and how far everyone has come.

Every replica tells what it sees itself. Those that only a master knows (the lag of each follower) are told by it alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from aerobee.replication.values import ReplicaRole, ReplicaStatus
from aerobee.telemetry.metrics import family


def replica_families(status: ReplicaStatus, members: int, base: str) -> Iterator[str]:
    """Yield the families of a replica. `members` of its group count for the set; `base` are the labels of all."""
    labels, state = f'{base},replica="{status.id}"', status.state
    for name, words, value in (
        ("leads", "1 while this replica is the master of its group", 1 if status.role is ReplicaRole.LEADER else 0),
        ("epoch", "Epoch of the group", status.epoch),
        ("members", "Replicas of the group that can be in the in-sync set", members),
        ("in_sync", "Replicas in the in-sync set", len(state.in_sync)),
        ("in_sync_least", "Replicas that must be in the in-sync set for sends", state.min_in_sync),
        ("unconfirmed_bytes", "Log of this replica that is not confirmed", max(0, status.log_end - status.confirmed)),
    ):
        yield from family(f"aerobee_replica_{name}", "gauge", words, [(labels, value)])
    for name, words, value in (
        ("elections", "Elections of this replica since its process started", status.elections),
        ("set_changes", "Changes of the in-sync set by this replica since its process started", status.set_changes),
    ):
        yield from family(f"aerobee_replica_{name}_total", "counter", words, [(labels, value)])
    yield from family(
        "aerobee_replica_lag_bytes", "gauge", "Log that a follower of this master has not acknowledged",
        ((f'{labels},follower="{one.id}"', one.lag_bytes) for one in status.followers),
    )  # fmt: skip
