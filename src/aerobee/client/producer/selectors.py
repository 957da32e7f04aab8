"""Ways to choose a queue: callables that get the topic's writable queues and the message.

RocketMQ: SelectMessageQueueByHash, SelectMessageQueueByRandom, SelectMessageQueueByMachineRoom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from aerobee.hot.log.javahash import java_hash
from aerobee.model.message import Message
from aerobee.model.queue import MessageQueue
from aerobee.runtime.entropy import SystemEntropy
from aerobee.runtime.seams import Entropy

# Queues in the order of their broker's name and id; the message as it will be sent.
Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]


def by_hash(key: str) -> Selector:
    """Equal keys go to one queue, the same that Java's SelectMessageQueueByHash chooses for that String."""

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queues[hashed_index(key, len(queues))]

    return select


def hashed_index(key: str, count: int) -> int:
    """Java's remainder keeps the sign, which the selector then drops."""
    return abs(java_hash(key)) % count


class Random:
    """Any queue."""

    def __init__(self, entropy: Entropy | None = None) -> None:
        self._entropy = entropy or SystemEntropy()

    def __call__(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queues[self._entropy.below(len(queues))]


class RoundRobin:
    """One after another, whatever happens to the sends: unlike the default, which avoids a broker that failed."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        queue = queues[self._next % len(queues)]
        self._next += 1
        return queue


class MachineRoom:
    """Round robin over brokers of the given rooms, whose names are `room@name`; over all where none is there."""

    def __init__(self, rooms: Iterable[str]) -> None:
        self._rooms = frozenset(rooms)
        self._turn = RoundRobin()

    def __call__(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        near = [queue for queue in queues if queue.broker_name.partition("@")[0] in self._rooms]
        return self._turn(near or queues, message)
