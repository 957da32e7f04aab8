"""What each call of RocketMQ's gRPC service needs. A call without a row is refused.

The service decodes its messages itself, so a row is a function of names that it hands over, not of a `Command`. All
names of a call are given: each topic of a Send, each subscription of Settings. Names come without namespaces resolved:
as the policies write them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aerobee.access.rows import PUB, SUB, NameWorld, Need, group, reading, topic

# Calls that publish to each topic, that read a topic as a group, and that name a group alone.
PUBLISHING: Final = frozenset(("SendMessage", "RecallMessage", "EndTransaction"))
CONSUMING: Final = frozenset(
    (
        "ReceiveMessage", "AckMessage", "ForwardMessageToDeadLetterQueue", "QueryAssignment",
        "ChangeInvisibleDuration", "SyncLiteSubscription", "PullMessage", "UpdateOffset", "GetOffset",
    )
)  # fmt: skip
OF_A_GROUP: Final = frozenset(("Heartbeat", "NotifyClientTermination"))


def grpc_needs(
    call: str,
    world: NameWorld,
    *,
    topics: Iterable[str] = (),
    published: Iterable[str] = (),
    consumer_group: str | None = None,
) -> list[Need] | None:
    """Return what a call needs, or None for a call that has no row: it is refused.

    `topics` are those that are read, or written by a publishing call. `published` are topics that Telemetry's settings
    name for publishing.
    """
    # A call that names no topic where it must asks for one without a name, which no literal entry matches.
    named = list(topics)
    if call in PUBLISHING:
        return [topic(world, name, PUB) for name in named or [""]]
    if call in CONSUMING:
        return [need for name in named or [""] for need in reading(world, name, consumer_group or "")]
    if call in OF_A_GROUP:
        return [group(consumer_group, SUB)] if consumer_group else []
    if call == "QueryOffset":
        # It names no group: the request tells about the queue alone.
        return [topic(world, name, SUB) for name in named or [""]]
    if call == "QueryRoute":
        return [topic(world, name, PUB, SUB) for name in named or [""]]
    if call == "Telemetry":
        found = [topic(world, name, PUB) for name in published]
        if consumer_group:
            found.append(group(consumer_group, SUB))
        return found + [topic(world, name, SUB) for name in named]
    return None
