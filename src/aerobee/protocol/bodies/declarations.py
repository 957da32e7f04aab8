"""What name servers and brokers remember of broker groups: which topics a group declared, also while it is away.

These are bodies of our own requests (docs/formats/private.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from zlib import crc32

from aerobee.model.dataversion import INITIAL, DataVersion
from aerobee.model.numbers import INT64_MAX, int_or
from aerobee.protocol.bodies.base import Body

_STAMP_PARTS = 4


@dataclass(frozen=True, slots=True)
class GroupDeclaration(Body):
    """The readable topics of one broker group with their number of read queues, as the group last registered them.

    A forgotten group was removed on purpose. Its declaration has no topics, and nobody waits for it.
    """

    broker_name: str = ""
    cluster: str = ""
    data_version: DataVersion = INITIAL
    forgotten: bool = False
    topics: dict[str, int] = field(default_factory=dict)

    @property
    def stamp(self) -> str:
        """Return a text that differs where the declaration differs."""
        version = self.data_version
        return f"{version.state_version}.{version.timestamp}.{version.counter}.{1 if self.forgotten else 0}"

    @property
    def order(self) -> tuple[int, int, int, bool]:
        """Return what says which of two declarations of a group is newer. A store that was begun anew counts from 1."""
        version = self.data_version
        return version.state_version, version.timestamp, version.counter, self.forgotten


@dataclass(frozen=True, slots=True)
class KnownGroups(Body):
    """KNOWN_GROUPS: the stamps of the declarations that a broker knows, by broker group."""

    groups: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupNews(Body):
    """Answer to KNOWN_GROUPS: what the name server knows better, and the groups that it wants to be told of."""

    news: tuple[GroupDeclaration, ...] = ()
    wanted: tuple[str, ...] = ()


def digest_of(stamps: Iterable[tuple[str, str]]) -> str:
    """Return a text that is equal where two sides know the same groups with the same stamps."""
    return f"{crc32(repr(sorted(stamps)).encode('utf-8', 'replace')):08x}"


def order_of(stamp: str) -> tuple[int, ...] | None:
    """Return the order that a stamp stands for, or None where it is no stamp."""
    parts = [int_or(part, None, 0, INT64_MAX) for part in stamp.split(".")]
    order = tuple(part for part in parts if part is not None)
    return order if len(parts) == len(order) == _STAMP_PARTS else None
