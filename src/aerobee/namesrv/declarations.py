"""The machine that remembers broker groups that are away: which topics they declared, until they return.

A route names only brokers that are there, so a reader of a topic cannot see that half of the topic is missing. This
table tells it. It is lost when the name server stops. Brokers keep what others declared, and tell a name server that
does not know it (`merge`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from aerobee.model.dataversion import DataVersion
from aerobee.protocol.bodies.declarations import GroupDeclaration, GroupNews, order_of

GROUPS_MAX = 1000
# The most topics of all groups together. The group that is away the longest is dropped first.
TOPICS_MAX = 300_000
# The most topics in one answer, so that an answer stays small. A broker asks again for the rest.
NEWS_TOPICS_MAX = 20_000


class Declarations:
    """The groups that are away, and those that were forgotten on purpose."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupDeclaration] = {}
        self._count = 0
        # Those that this name server saw leave, and that nobody forgot here since.
        self._seen: set[str] = set()

    def _put(self, one: GroupDeclaration) -> None:
        self._drop(one.broker_name)
        while self._groups and (len(self._groups) >= GROUPS_MAX or self._count + len(one.topics) > TOPICS_MAX):
            self._drop(next(iter(self._groups)))
        self._groups[one.broker_name] = one
        self._count += len(one.topics)

    def _drop(self, name: str) -> None:
        gone = self._groups.pop(name, None)
        self._count -= len(gone.topics) if gone is not None else 0
        self._seen.discard(name)

    def left(self, name: str, cluster: str, version: DataVersion, topics: Mapping[str, int]) -> None:
        """Remember a group whose last broker has left. A group that left while it was being read keeps the rest."""
        old = self._groups.get(name)
        merged = {**(old.topics if old is not None else {}), **topics}
        self._put(GroupDeclaration(name, cluster, version, False, merged))
        self._seen.add(name)

    def came(self, name: str) -> None:
        """Note that a group is back, and that all its topics are in the route table."""
        self._drop(name)

    def forget(self, name: str) -> bool:
        """Note that a group is gone for good. Return whether it was known."""
        known = self._groups.get(name)
        if known is None:
            return False
        self._put(GroupDeclaration(name, known.cluster, known.data_version, forgotten=True))
        return True

    def away(self, topic: str) -> Iterator[tuple[str, int]]:
        """Return the groups that declared a topic, each with the number of its read queues; 0 for forgotten groups."""
        for name, one in self._groups.items():
            if one.forgotten or topic in one.topics:
                yield name, one.topics.get(topic, 0)

    def topics(self) -> set[str]:
        """Return the topics that groups declared which are away."""
        return {topic for one in self._groups.values() for topic in one.topics}

    def known(self) -> Mapping[str, GroupDeclaration]:
        return self._groups

    def merge(self, told: GroupDeclaration) -> bool:
        """Take what a broker tells of a group that is not there, if it is news. Return whether it was.

        What a broker tells does not push out what this name server has seen itself. That a group is forgotten may be
        old news: it came back, and left again before that broker could learn it. A reader must wait for it then, and
        the brokers must learn it, so what was seen becomes the newer declaration.
        """
        held = self._groups.get(told.broker_name)
        if (
            held is not None
            and told.forgotten
            and told.data_version == held.data_version
            and held.broker_name in self._seen
        ):
            self._put(replace(held, data_version=replace(held.data_version, timestamp=held.data_version.timestamp + 1)))
            self._seen.add(told.broker_name)
            return False
        if held is None and len(self._groups) >= GROUPS_MAX:
            return False
        if (held is not None and held.order >= told.order) or self._count + len(told.topics) > TOPICS_MAX:
            return False
        self._put(told)
        return True


def compare(
    live: Mapping[str, GroupDeclaration], away: Mapping[str, GroupDeclaration], stamps: Mapping[str, str], but: str
) -> GroupNews:
    """Return what a broker does not know, and what it knows better. A group that is there is always right.

    `stamps` is what the broker `but` knows.
    """
    news: list[GroupDeclaration] = []
    room = NEWS_TOPICS_MAX
    mine = {**away, **live}
    for name, one in mine.items():
        if name == but or stamps.get(name) == one.stamp or room <= 0:
            continue
        theirs = order_of(stamps.get(name, ""))
        if name in live or theirs is None or theirs < one.order:
            news.append(one)
            room -= len(one.topics) + 1
    wanted = [
        name
        for name, stamp in stamps.items()
        if name not in live and name != but and (order := order_of(stamp)) is not None
        and (name not in away or away[name].order < order)
    ]  # fmt: skip
    return GroupNews(tuple(news), tuple(sorted(wanted)))
