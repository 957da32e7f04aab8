"""Cells that many pages show alike."""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.admin.cluster import BrokerStatus
from aerobee.dashboard.blocks import Badge, Cell, PageLink, Several

BACKLOG_WARNS = 10_000


def topic_link(topic: str) -> PageLink:
    return PageLink(topic, f"/topics/{topic}")


def group_link(group: str) -> PageLink:
    return PageLink(group, f"/groups/{group}")


def broker_link(broker: str) -> PageLink:
    return PageLink(broker, f"/brokers/{broker}")


def several(cells: list[Cell]) -> Cell:
    """Return cells beside each other, nothing where there are none."""
    return Several(tuple(cells)) if cells else None


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
    if broker.parts_failing:
        told.append(f"{name}: these parts failed when they ran last: {', '.join(broker.parts_failing)}")
    if broker.set_aside:
        told.append(f"{name} has set {broker.set_aside} records of its log aside, which cannot be used")
    if broker.entries_rejected:
        told.append(f"{name} has rejected {broker.entries_rejected} entries of its state files")
    return told
