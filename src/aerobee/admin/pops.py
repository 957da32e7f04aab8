"""Groups that pop: their mode, and what their members hold."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aerobee.admin.connection import AdminConnection, KnownBroker, from_each
from aerobee.admin.values import Value
from aerobee.errors import AerobeeError, InvalidArgumentError
from aerobee.errors.codes import RequestCodeNotSupportedError, TopicNotExistError
from aerobee.model.dialect import loads_object
from aerobee.model.fields import int_of, str_of
from aerobee.protocol.bodies.groups import SetMessageRequestModeRequestBody
from aerobee.protocol.codes import PrivateRequestCode, RequestCode
from aerobee.protocol.command import Command

MODES = ("pull", "pop")


@dataclass(frozen=True, slots=True)
class HeldMessage(Value):
    """A message that a member of a group holds. `visible_timestamp` is when others get it."""

    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    pop_timestamp: int
    visible_timestamp: int


@dataclass(frozen=True, slots=True)
class HeldQueue(Value):
    """What the members of a group hold of one queue. `messages` are the first of them."""

    topic: str
    group: str
    broker: str
    queue_id: int
    taken_offset: int
    safe_offset: int
    in_flight: int
    messages: tuple[HeldMessage, ...]


@dataclass(frozen=True, slots=True)
class InFlightListing(Value):
    """What the brokers say is in flight, and which did not say."""

    queues: tuple[HeldQueue, ...]
    problems: tuple[str, ...]

    @property
    def in_flight(self) -> int:
        return sum(queue.in_flight for queue in self.queues)


async def set_mode(
    admin: AdminConnection, group: str, topic: str, mode: str, *, share: int = 0, cluster: str | None = None
) -> tuple[str, ...]:
    """Let a group pull a topic, or pop it, on every broker that has the topic. Return the brokers' names.

    Members that leave balancing to the broker (Java: `setClientRebalance(false)`) follow within 20 seconds. With
    `share`, each member pops its own queues and those of so many other members; 0: all queues of all brokers.
    """
    if mode not in MODES:
        raise InvalidArgumentError(f"mode {mode!r}: {' and '.join(MODES)} are known")
    body = SetMessageRequestModeRequestBody(topic, group, mode.upper(), share).encode()

    async def tell(broker: KnownBroker) -> str | None:
        try:
            await admin.ask(broker.address, RequestCode.SET_MESSAGE_REQUEST_MODE, body=body)
        except TopicNotExistError:
            return None
        return broker.name

    told = await asyncio.gather(*(tell(one) for one in await admin.masters(cluster=cluster)))
    names = tuple(one for one in told if one is not None)
    if not names:
        raise TopicNotExistError(f"no broker has topic {topic}", hint="`aerobee topic list` lists the topics")
    return names


async def in_flight(
    admin: AdminConnection, *, group: str = "", topic: str = "", messages: int = 1000
) -> InFlightListing:
    """Return what members of groups hold, and until when. Only Aerobee's brokers know."""

    silent: list[str] = []

    async def ask(broker: KnownBroker) -> tuple[HeldQueue, ...]:
        wanted = {"consumerGroup": group, "topic": topic, "maxMsgNums": str(messages)}
        try:
            answer = await admin.ask(broker.address, PrivateRequestCode.POP_IN_FLIGHT, ext=wanted)
        except RequestCodeNotSupportedError:
            silent.append(f"broker {broker.name} does not tell what is in flight: it is not Aerobee's, or an older one")
            return ()
        queues, words = read_in_flight(answer, broker.name)
        silent.extend(words)
        return queues

    said, problems = await from_each(await admin.masters(with_away=True), ask)
    problems += silent
    queues = [queue for _, found in said for queue in found]
    queues.sort(key=lambda one: (one.group, one.topic, one.broker, one.queue_id))
    return InFlightListing(tuple(queues), tuple(problems))


def read_in_flight(answer: Command, broker: str) -> tuple[tuple[HeldQueue, ...], tuple[str, ...]]:
    """Return what a broker's answer says, and a sentence if it leaves queues out. Raise AerobeeError for one that
    cannot be read."""
    found = []
    said = loads_object(answer.body)
    for one in said.get("queues", ()):
        if not isinstance(one, dict):
            raise AerobeeError(f"broker {broker} tells what is in flight in words that this version does not know")
        topic, queue_id = str_of(one, "topic"), int_of(one, "queueId")
        held = tuple(
            HeldMessage(topic, broker, queue_id, *(whole for whole in triple if isinstance(whole, int)))
            for triple in one.get("messages", ())
            if isinstance(triple, list) and len(triple) == 3
        )
        found.append(
            HeldQueue(
                topic,
                str_of(one, "group"),
                broker,
                queue_id,
                int_of(one, "taken"),
                int_of(one, "safe"),
                int_of(one, "inFlight"),
                held,
            )
        )
    queues, held_there = int_of(said, "queuesLeftOut"), int_of(said, "inFlightLeftOut")
    if not queues:
        return tuple(found), ()
    words = f"broker {broker} left out {queues} queues with {held_there} messages in flight: name a topic or a group"
    return tuple(found), (words,)
