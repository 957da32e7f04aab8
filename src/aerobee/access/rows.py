"""The words in which the table of rights is written: what a request needs, read from its fields or its body.

A topic named %RETRY%G is the group G; a POP retry topic is its group, too. %DLQ%G is the group G or a topic of that
name. RocketMQ: DefaultAuthorizationContextBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from aerobee.access.policies import Action, ResourceKind
from aerobee.access.verdicts import Claim
from aerobee.access.verdicts import Need as Need
from aerobee.model.names import DLQ_PREFIX, RETRY_PREFIX, is_send_forbidden
from aerobee.protocol.command import Command

ALL, PUB, SUB = Action.ALL, Action.PUB, Action.SUB
CREATE, UPDATE, DELETE = Action.CREATE, Action.UPDATE, Action.DELETE
GET, LIST = Action.GET, Action.LIST


class NameWorld(Protocol):
    """What a row asks of the server that depends on names alone."""

    @property
    def cluster(self) -> str:
        """Return what policies call this cluster."""

    def has_topic(self, name: str) -> bool: ...
    def has_group(self, name: str) -> bool: ...


class AccessWorld(NameWorld, Protocol):
    """What the rows ask of the server."""

    def topic_at(self, physical_offset: int, told: Callable[[str | None], None]) -> None:
        """Tell the topic of the message at an offset of the log, for a message that waits the one that it waits for.
        Tell None where there is no message."""

    def recalled_topic(self, handle: str) -> str | None:
        """Return the topic that a recall handle names, or None if it is no handle."""

    def described(self, command: Command) -> object:
        """Return what a request that changes something finds, for the audit log: plain JSON without secrets."""

    def batch_topics(self, query: str) -> Sequence[str]:
        """Return the topics of the rows that a query's batches hold."""


# Needs that are found in a body of any size: the generator yields between slices and returns them.
Slowly: TypeAlias = Generator[None, None, "list[Need]"]
Needs: TypeAlias = Callable[[Command, AccessWorld], "list[Need] | Slowly"]
# Where the message is that a request speaks of: an offset of the log, read from the same field as by the handler.
Place: TypeAlias = Callable[[Command], int]
# What is needed once the topic of that message is known.
NeedsOf: TypeAlias = Callable[[Command, AccessWorld, str], "list[Need]"]


@dataclass(frozen=True, slots=True)
class AccessRow:
    """What a request needs. `needs` is asked first, then what the message at `place` needs.

    `super_only` is asked of Super users alone. `filtered` shows only what the user may see (see `listings.py`).
    `changes` puts the request into the audit log, with what was there before and after. `shows_bodies` tells that
    messages are read by somebody who is no consumer. `own_queries` is about a batch that belongs to its first user.
    """

    needs: Needs | None = None
    place: Place | None = None
    of_message: NeedsOf | None = None
    super_only: bool = False
    filtered: bool = False
    changes: bool = False
    shows_bodies: bool = False
    own_queries: bool = False
    # A field: whoever it names needs nothing, because the request is about that user.
    own: str = ""


ANY_USER: Final = AccessRow()


def group_of_retry(topic: str, world: NameWorld) -> str:
    """Return the group of a retry topic. A POP retry topic is `%RETRY%G_T` or `%RETRY%G+T`: group and topic are ones
    that exist, and of several groups the one with the longest name counts."""
    rest = topic[len(RETRY_PREFIX) :]
    if world.has_group(rest):
        return rest
    if "+" in rest:
        # No name of a group or a topic has a plus.
        return rest.partition("+")[0]
    for place in range(len(rest) - 1, 0, -1):
        if rest[place] == "_" and world.has_group(rest[:place]) and world.has_topic(rest[place + 1 :]):
            return rest[:place]
    return rest


def topic(world: NameWorld, name: str, *actions: Action, retry: tuple[Action, ...] = ()) -> Need:
    """Return the need of a topic. `retry` is asked of the group where the topic is a retry topic; default Sub."""
    if name.startswith(RETRY_PREFIX):
        return (Claim(ResourceKind.GROUP, group_of_retry(name, world), retry or (SUB,)),)
    claim = Claim(ResourceKind.TOPIC, name, actions)
    if name.startswith(DLQ_PREFIX):
        return claim, Claim(ResourceKind.GROUP, name[len(DLQ_PREFIX) :], retry or (SUB,))
    return (claim,)


def group(name: str, *actions: Action) -> Need:
    """Return the need of a group; the name of a retry topic stands for its group, as in Apache."""
    bare = name[len(RETRY_PREFIX) :] if name.startswith(RETRY_PREFIX) else name
    return (Claim(ResourceKind.GROUP, bare, actions),)


def content(world: NameWorld, name: str, *actions: Action) -> list[Need]:
    """Return the needs of who is shown messages of a topic. The topics that only the broker writes hold messages of all
    topics, so that no right to a topic is enough for them."""
    if is_send_forbidden(name):
        return [(Claim(ResourceKind.TOPIC, name, ()),)]
    return [topic(world, name, *actions, retry=actions)]


def reading(world: NameWorld, name: str, consumer_group: str) -> list[Need]:
    """Return the needs of reading a topic as a group. A retry topic is read by its own group alone."""
    needs = [*content(world, name, SUB), group(consumer_group, SUB)]
    if name.startswith(RETRY_PREFIX):
        own = needs[-1][0].name
        if group_of_retry(name, world) != own:
            needs.append(())
    return needs


def cluster(world: NameWorld, *actions: Action) -> Need:
    """Return the need of the cluster."""
    return (Claim(ResourceKind.CLUSTER, world.cluster, actions),)


def field(command: Command, name: str) -> str:
    """Return a field, or an empty text, which no literal entry matches."""
    return command.ext.get(name, "")


def of_topic(name: str, *actions: Action, retry: tuple[Action, ...] = ()) -> Needs:
    """Return a row's needs: the actions on the topic in a field."""
    return lambda command, world: [topic(world, field(command, name), *actions, retry=retry or actions)]


def of_group(name: str, *actions: Action) -> Needs:
    """Return a row's needs: the actions on the group in a field."""
    return lambda command, world: [group(field(command, name), *actions)]


def of_cluster(*actions: Action) -> Needs:
    """Return a row's needs: the actions on the cluster."""
    return lambda command, world: [cluster(world, *actions)]


def both(*parts: Needs) -> Needs:
    """Return the needs of several parts, none of which reads a body."""

    def needs(command: Command, world: AccessWorld) -> list[Need]:
        found: list[Need] = []
        for part in parts:
            told = part(command, world)
            assert isinstance(told, list)
            found += told
        return found

    return needs


def where_given(name: str, part: Needs) -> Needs:
    """Return the needs of a part that counts only where a field is given."""
    return lambda command, world: part(command, world) if command.ext.get(name) else []
