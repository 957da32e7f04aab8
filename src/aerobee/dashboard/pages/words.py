"""Cells that many pages show alike."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

from aerobee.admin.cluster import BrokerStatus
from aerobee.dashboard.blocks import Badge, Cell, PageLink, Several, Trend
from aerobee.dashboard.registry import PageView

TREND_LABEL: Final = "15\u00a0min"
_TREND_MS: Final = 15 * 60_000
_TREND_POINTS: Final = 40
_SUGGESTED: Final = 100


def topic_link(topic: str) -> PageLink:
    return PageLink(topic, f"/topics/{topic}")


def group_link(group: str) -> PageLink:
    return PageLink(group, f"/groups/{group}")


def broker_link(broker: str) -> PageLink:
    return PageLink(broker, f"/brokers/{broker}")


def topics_to_suggest(view: PageView) -> list[str]:
    """Return the names of topics that a browser offers to who types one, the busiest where there are many."""
    snapshot = view.data.snapshot
    names = [one.topic for one in snapshot.topics.values() if one.kind in ("normal", "dlq")]
    if len(names) <= _SUGGESTED:
        return sorted(names)
    numbers = snapshot.topic_numbers
    return heapq.nlargest(_SUGGESTED, names, lambda name: (numbers[name].in_s or 0.0) if name in numbers else 0.0)


def groups_to_suggest(view: PageView) -> list[str]:
    """Return the names of groups that a browser offers to who types one."""
    return [one.name for one in view.data.snapshot.groups.values() if not one.is_system][:_SUGGESTED]


def trend_of(view: PageView, series: str) -> Cell:
    """Return the last quarter of an hour of a series, nothing where there is not yet a line to draw."""
    _, (values,) = view.data.series.read([series], view.now_ms - _TREND_MS, _TREND_POINTS)
    known = tuple(one for one in values if one is not None)
    return Trend(known) if len(known) > 1 else None


def several(cells: list[Cell]) -> Cell:
    """Return cells beside each other, nothing where there are none."""
    return Several(tuple(cells)) if cells else None


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number with its word, such as 1 message and 2 messages."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def version_text(version: str) -> str:
    """Return 5.5.0 for V5_5_0, and other words as they are."""
    digits = version.removeprefix("V").replace("_", ".")
    return digits if digits.replace(".", "").isdigit() else version


_PERMS: Final = {"RW-": "read, write", "R--": "read", "-W-": "write", "---": "nothing"}


def allowed_text(perm: str) -> str:
    """Return what a topic's letters of permission allow."""
    return _PERMS.get(perm, perm)


def several_words(words: Sequence[str], most: int) -> str:
    """Return words beside each other, and how many more there are."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def state_of(broker: BrokerStatus) -> Cell:
    """Return in a word how a broker is."""
    if broker.problem is not None:
        return Badge("silent", "bad")
    if broker.fenced:
        return Badge("fenced: a sync failed", "bad")
    if broker.full:
        return Badge("full", "bad")
    if broker.drained:
        return Badge("drained: reads only", "warn")
    if broker.parts_failing or broker.set_aside or broker.entries_rejected:
        return Badge("has problems", "warn")
    return Badge("answers", "good")


def troubles_of(broker: BrokerStatus) -> list[str]:
    """Return sentences on what is wrong with a broker."""
    name = f"broker {broker.broker}" + (f" (replica {broker.broker_id})" if broker.broker_id else "")
    told = []
    if broker.fenced:
        told.append(f"{name} takes no messages until it is restarted: {broker.fenced}")
    if broker.full:
        told.append(f"{name} takes no messages: {broker.full}")
    if broker.drained:
        told.append(f"{name} takes no messages, because it is drained: {broker.drained}")
    if broker.parts_failing:
        told.append(f"{name}: these parts failed when they ran last: {', '.join(broker.parts_failing)}")
    if broker.set_aside:
        told.append(f"{name} has set {broker.set_aside} records of its log aside, which cannot be used")
    if broker.entries_rejected:
        told.append(f"{name} has rejected {broker.entries_rejected} entries of its state files")
    return told
