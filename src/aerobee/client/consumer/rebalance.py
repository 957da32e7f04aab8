"""What a new sharing of queues changes for one member, and how long until the next look: machines.

RocketMQ: RebalanceImpl.rebalanceByTopic, updateProcessQueueTableInRebalance; RebalanceService.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from aerobee.client.consumer.allocation import Allocation
from aerobee.model.queue import MessageQueue

INTERVAL_S: Final = 20.0
# Until everything wanted is owned (a lock is held elsewhere, a topic is not there yet), the next look comes sooner.
_SOON_S: Final = 1.0
_LESS_SOON_S: Final = 5.0
_PATIENCE: Final = 10


@dataclass(frozen=True, slots=True)
class Change:
    """The difference between what is owned and what should be."""

    revoked: tuple[MessageQueue, ...]
    assigned: tuple[MessageQueue, ...]

    def __bool__(self) -> bool:
        return bool(self.revoked or self.assigned)


def share(
    strategy: Allocation, client_id: str, queues: Iterable[MessageQueue], clients: Sequence[str]
) -> list[MessageQueue]:
    """This member's queues. One that the broker does not list takes nothing: the others share without it."""
    all_queues = sorted(queues)
    all_clients = sorted(clients)
    if client_id not in all_clients or not all_queues:
        return []
    return strategy(client_id, all_queues, all_clients)


def difference(topic: str, owned: Iterable[MessageQueue], wanted: Iterable[MessageQueue]) -> Change:
    """For one topic, in a fixed order."""
    have = {queue for queue in owned if queue.topic == topic}
    want = set(wanted)
    return Change(tuple(sorted(have - want)), tuple(sorted(want - have)))


class RebalancePace:
    """How long to wait for the next look."""

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
        """Something changed: be quick again."""
        self._unbalanced = 0
