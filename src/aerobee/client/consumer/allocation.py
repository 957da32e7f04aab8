"""Which queues of a topic a consumer takes: the six strategies, with the results of Apache's.

Every member of a group works this out for itself from the same sorted lists, so a strategy must be a pure function and
the same in all of them, Java's included. RocketMQ: AllocateMessageQueueStrategy.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from aerobee.errors import InvalidArgumentError
from aerobee.model.names import is_retry_topic
from aerobee.model.queue import MessageQueue


class Allocation(Protocol):
    """`queues` and `clients` are sorted; `client_id` is one of `clients`."""

    @property
    def name(self) -> str:
        """As brokers and Java clients call it."""

    def __call__(
        self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]: ...


@dataclass(frozen=True, slots=True)
class Averagely:
    """Neighbouring queues, as evenly as possible; the first clients get the rest. The default."""

    name: str = "AVG"

    def __call__(self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        index = clients.index(client_id)
        each, rest = divmod(len(queues), len(clients))
        start = index * each + min(index, rest)
        return list(queues[start : start + each + (index < rest)])


@dataclass(frozen=True, slots=True)
class AveragelyByCircle:
    """Like cards: one queue to each client in turn, so that each gets queues of every broker."""

    name: str = "AVG_BY_CIRCLE"

    def __call__(self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        return list(queues[clients.index(client_id) :: len(clients)])


@dataclass(frozen=True, slots=True)
class ByConfig:
    """The queues named, whoever else is there; the group's retries, which nobody can name, are shared evenly."""

    queues: tuple[MessageQueue, ...]
    name: str = "CONFIG"

    def __call__(self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        topics = {queue.topic for queue in queues}
        if all(is_retry_topic(topic) for topic in topics):
            return AVERAGELY(client_id, queues, clients)
        return [queue for queue in self.queues if queue.topic in topics]


@dataclass(frozen=True, slots=True)
class ByMachineRoom:
    """Only queues of brokers in these rooms: a broker's name is `room@name`."""

    rooms: frozenset[str]
    name: str = "MACHINE_ROOM"

    def __call__(self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        near = [queue for queue in queues if self._is_near(queue)]
        index = clients.index(client_id)
        each, rest = divmod(len(near), len(clients))
        result = near[each * index : each * (index + 1)]
        if index < rest:
            result.append(near[index + each * len(clients)])
        return result

    def _is_near(self, queue: MessageQueue) -> bool:
        parts = queue.broker_name.split("@")
        return len(parts) == 2 and parts[0] in self.rooms


@dataclass(frozen=True, slots=True)
class MachineRoomNearby:
    """Queues of a room go to the clients of that room; those of a room without clients are shared by all."""

    inner: Allocation
    broker_room: Callable[[MessageQueue], str]
    client_room: Callable[[str], str]

    @property
    def name(self) -> str:
        """With the name of the strategy inside."""
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def __call__(self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        queues_in: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_in.setdefault(_room(self.broker_room(queue), queue), []).append(queue)
        clients_in: dict[str, list[str]] = {}
        for client in clients:
            clients_in.setdefault(_room(self.client_room(client), client), []).append(client)
        own = self.client_room(client_id)
        result: list[MessageQueue] = []
        if own in queues_in:
            result += self.inner(client_id, queues_in.pop(own), clients_in[own])
        for room in sorted(queues_in):
            if room not in clients_in:
                result += self.inner(client_id, queues_in[room], clients)
        return result


def _room(room: str, of: object) -> str:
    if not room:
        raise InvalidArgumentError(f"no machine room is known for {of}")
    return room


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """By a ring of hashes: a client that comes or goes moves few queues of the others."""

    virtual_nodes: int = 10
    name: str = "CONSISTENT_HASH"

    def __call__(self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        ring = {_ring_hash(f"{client}-{i}"): client for client in clients for i in range(self.virtual_nodes)}
        marks = sorted(ring)
        if not marks:
            return []
        result: list[MessageQueue] = []
        for queue in queues:
            # RocketMQ: MessageQueue.toString
            text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            mark = marks[bisect_left(marks, _ring_hash(text)) % len(marks)]
            if ring[mark] == client_id:
                result.append(queue)
        return result


def _ring_hash(key: str) -> int:
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


AVERAGELY: Final = Averagely()
AVERAGELY_BY_CIRCLE: Final = AveragelyByCircle()

# Those that need no settings, by the names users may write.
BY_NAME: Final[dict[str, Allocation]] = {
    "averagely": AVERAGELY,
    "averagely_by_circle": AVERAGELY_BY_CIRCLE,
    "consistent_hash": ConsistentHash(),
}


def parse_allocation(value: str | Allocation) -> Allocation:
    """A strategy, or the name of one that needs no settings."""
    if not isinstance(value, str):
        return value
    found = BY_NAME.get(value.lower())
    if found is None:
        raise InvalidArgumentError(f"allocate={value!r} is none of {', '.join(BY_NAME)}")
    return found
