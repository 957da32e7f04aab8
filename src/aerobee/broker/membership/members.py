"""Values of the client registry: a client, what its heartbeat says, a group with its members, and the
effects.

RocketMQ: ClientChannelInfo, ConsumerData, ConsumerGroupInfo.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from aerobee.broker.membership.subscriptions import Subscription

CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
BROADCASTING = "BROADCASTING"
CLUSTERING = "CLUSTERING"

# Clients from this protocol version on can be told to reset offsets. RocketMQ: MQVersion V3_0_7_SNAPSHOT.
RESET_VERSION_MIN = 28

# How much of a difference between members a log line shows.
_SHOWN_MAX = 10
_SHOWN_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Client:
    """One client as a heartbeat names it, on one channel."""

    channel: Hashable
    client_id: str
    language: str = "JAVA"
    version: int = 0
    address: str = ""
    # Who signed the heartbeat; '' where there are no users.
    user: str = ""


@dataclass(frozen=True, slots=True)
class GroupHeartbeat:
    """What a heartbeat says of one consumer group. RocketMQ: ConsumerData."""

    group: str
    consume_type: str = CONSUME_PASSIVELY
    message_model: str = CLUSTERING
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscriptions: tuple[Subscription, ...] = ()


@dataclass(frozen=True, slots=True)
class NotifyIdsChanged:
    """Send NOTIFY_CONSUMER_IDS_CHANGED for the group to each channel, one-way."""

    group: str
    channels: tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class CloseClient:
    """Close the connection: it sent no heartbeat in time."""

    channel: Hashable
    client_id: str
    group: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupGone:
    """The last member left: filters compiled for the group can go."""

    group: str


@dataclass(frozen=True, slots=True)
class SubscriptionConflict:
    """Warn: two members of a group subscribe differently. Expression None: not subscribed to the topic."""

    group: str
    client_id: str
    other_client_id: str
    differences: tuple[tuple[str, str | None, str | None], ...]

    def __str__(self) -> str:
        shown = "; ".join(
            f"topic {topic[:_SHOWN_LENGTH]}: {_shown(mine)} against {_shown(theirs)}"
            for topic, mine, theirs in self.differences[:_SHOWN_MAX]
        )
        if len(self.differences) > _SHOWN_MAX:
            shown += f"; and {len(self.differences) - _SHOWN_MAX} topics more"
        return (
            f"members of consumer group {self.group} subscribe differently: client {self.client_id} "
            f"and client {self.other_client_id}: {shown}. Messages will be skipped; give each its own group"
        )


Effect = NotifyIdsChanged | CloseClient | ConsumerGroupGone | SubscriptionConflict


@dataclass(slots=True)
class GroupClient:
    """A client in a group."""

    client: Client
    seen_s: float
    subscriptions: dict[str, Subscription] = field(default_factory=dict)


@dataclass(slots=True)
class ConsumerGroup:
    """A consumer group with members; the table is what the group subscribes to by its newest heartbeat."""

    name: str
    consume_type: str = CONSUME_PASSIVELY
    message_model: str = CLUSTERING
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    members: dict[Hashable, GroupClient] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    fingerprint: int = 0

    def client_ids(self) -> list[str]:
        """Return one client id for each channel."""
        return [member.client.client_id for member in self.members.values()]

    def changed(self) -> list[Effect]:
        """Tell every member, unless each of them consumes everything anyway."""
        if self.message_model == BROADCASTING or not self.members:
            return []
        return [NotifyIdsChanged(self.name, tuple(self.members))]


def differences_of(
    mine: Mapping[str, Subscription], theirs: Mapping[str, Subscription]
) -> list[tuple[str, str | None, str | None]]:
    """Return the topics that two members subscribe to differently, with both expressions."""
    found: list[tuple[str, str | None, str | None]] = []
    for topic in mine.keys() | theirs.keys():
        one, two = mine.get(topic), theirs.get(topic)
        if one is None or two is None or (one is not two and not one.same_as(two)):
            found.append((topic, one.expression if one else None, two.expression if two else None))
    return sorted(found, key=lambda difference: difference[0])


def _shown(expression: str | None) -> str:
    if expression is None:
        return "not subscribed"
    return expression if len(expression) <= _SHOWN_LENGTH else expression[:_SHOWN_LENGTH] + "..."
