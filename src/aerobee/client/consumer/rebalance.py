"""What a rebalance changes for one member, and when the next one is due: machines.

RocketMQ: RebalanceImpl.rebalanceByTopic, updateProcessQueueTableInRebalance; RebalanceService.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from aerobee.client.consumer.allocation import Allocation
from aerobee.model.queue import MessageQueue

INTERVAL_S: Final = 20.0
# While a wanted queue is not owned (it is locked elsewhere, or its topic does not exist yet), the next look is sooner.
_SOON_S: Final = 1.0
_LESS_SOON_S: Final = 5.0
_PATIENCE: Final = 10


@dataclass(frozen=True, slots=True)
class Change:
    """The difference between the queues that are owned and those that should be."""

    revoked: tuple[MessageQueue, ...]
    assigned: tuple[MessageQueue, ...]

    def __bool__(self) -> bool:
        return bool(self.revoked or self.assigned)


def share(
    strategy: Allocation, client_id: str, queues: Iterable[MessageQueue], clients: Sequence[str]
) -> list[MessageQueue]:
    """Return the queues of this member. One that the broker does not list gets none: the others share without it."""
    all_queues = sorted(queues)
    all_clients = sorted(clients)
    if client_id not in all_clients or not all_queues:
        return []
    return strategy(client_id, all_queues, all_clients)


def difference(topic: str, owned: Iterable[MessageQueue], wanted: Iterable[MessageQueue]) -> Change:
    """Return what changes for one topic, in a fixed order."""
    have = {queue for queue in owned if queue.topic == topic}
    want = set(wanted)
    return Change(tuple(sorted(have - want)), tuple(sorted(want - have)))


class RebalancePace:
    """The time until the next look at the share."""

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._unbalanced = 0

    def wait_s(self, balanced: bool) -> float:
        if balanced:
            self._unbalanced = 0
            return self._interval_s
        self._unbalanced += 1
        return min(self._interval_s, _SOON_S if self._unbalanced <= _PATIENCE else _LESS_SOON_S)

    def woken(self) -> None:
        """Look soon again, because something changed."""
        self._unbalanced = 0
