"""Ways to choose a queue: callables that get the writable queues of a topic and the message.

RocketMQ: SelectMessageQueueByHash, SelectMessageQueueByRandom, SelectMessageQueueByMachineRoom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from aerobee.hot.log.javahash import java_hash
from aerobee.model.message import Message
from aerobee.model.queue import MessageQueue
from aerobee.runtime.entropy import SystemEntropy
from aerobee.runtime.seams import Entropy

# The queues come in the order of broker name and queue id; the message is the one that will be sent.
Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]


def by_hash(key: str) -> Selector:
    """Return a selector that sends equal keys to one queue, the one that Java's SelectMessageQueueByHash chooses."""

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queues[hashed_index(key, len(queues))]

    return select


def hashed_index(key: str, count: int) -> int:
    """Return the queue number of a key. Java's remainder keeps the sign, which its selector then drops."""
    return abs(java_hash(key)) % count


class Random:
    """A selector of any queue, at random."""

    def __init__(self, entropy: Entropy | None = None) -> None:
        self._entropy = entropy or SystemEntropy()

    def __call__(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queues[self._entropy.below(len(queues))]


class RoundRobin:
    """A selector of the queues in turn. Unlike the default, it does not avoid a broker that failed."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        queue = queues[self._next % len(queues)]
        self._next += 1
        return queue


class MachineRoom:
    """A selector of the queues in the given machine rooms (brokers named `room@name`) in turn; of all where none is."""

    def __init__(self, rooms: Iterable[str]) -> None:
        self._rooms = frozenset(rooms)
        self._turn = RoundRobin()

    def __call__(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        near = [queue for queue in queues if queue.broker_name.partition("@")[0] in self._rooms]
        return self._turn(near or queues, message)
