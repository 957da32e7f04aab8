"""Which queues of a topic a consumer takes: six strategies, with the same results as Apache's.

A strategy is given to a consumer as `allocate=`, by name or as an object:

    PushConsumer("localhost:9876", group="billing", allocate=aerobee.AveragelyByCircle())

The default is `Averagely`. Every member of a group works out its share for itself from the same sorted lists. So a
strategy must be a pure function, and all members must use the same one, Java's included.
RocketMQ: AllocateMessageQueueStrategy.
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
    """A strategy. `queues` and `clients` are sorted; `client_id` is one of `clients`."""

    @property
    def name(self) -> str:
        """The name that brokers and Java clients use."""

    def __call__(
        self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]: ...


@dataclass(frozen=True, slots=True)
class Averagely:
    """The default: neighbouring queues, shared as evenly as possible. The first clients get the rest."""

    name: str = "AVG"

    def __call__(self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        index = clients.index(client_id)
        each, rest = divmod(len(queues), len(clients))
        start = index * each + min(index, rest)
        return list(queues[start : start + each + (index < rest)])


@dataclass(frozen=True, slots=True)
class AveragelyByCircle:
    """One queue to each client in turn (round robin), so that each client gets queues of every broker."""

    name: str = "AVG_BY_CIRCLE"

    def __call__(self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        return list(queues[clients.index(client_id) :: len(clients)])


@dataclass(frozen=True, slots=True)
class ByConfig:
    """The queues that are named, whatever others take. The retry topic, which nobody can name, is shared evenly."""

    queues: tuple[MessageQueue, ...]
    name: str = "CONFIG"

    def __call__(self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        topics = {queue.topic for queue in queues}
        if all(is_retry_topic(topic) for topic in topics):
            return AVERAGELY(client_id, queues, clients)
        return [queue for queue in self.queues if queue.topic in topics]


@dataclass(frozen=True, slots=True)
class ByMachineRoom:
    """Only queues of brokers in these machine rooms. The name of such a broker is `room@name`."""

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
    """The queues of a machine room for the clients of that room. All clients share those of a room without clients."""

    inner: Allocation
    broker_room: Callable[[MessageQueue], str]
    client_room: Callable[[str], str]

    @property
    def name(self) -> str:
        """The name, which contains that of the inner strategy."""
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
    """A ring of hashes: when a client comes or goes, few queues of the others move."""

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

# The strategies that need no settings, by the names that users give.
BY_NAME: Final[dict[str, Allocation]] = {
    "averagely": AVERAGELY,
    "averagely_by_circle": AVERAGELY_BY_CIRCLE,
    "consistent_hash": ConsistentHash(),
}


def parse_allocation(value: str | Allocation) -> Allocation:
    """Return a strategy that was given as an object or by name. Only those that need no settings have names."""
    if not isinstance(value, str):
        return value
    found = BY_NAME.get(value.lower())
    if found is None:
        raise InvalidArgumentError(f"allocate={value!r} is none of {', '.join(BY_NAME)}")
    return found
