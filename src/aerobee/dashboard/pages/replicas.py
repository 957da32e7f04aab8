"""Replicated broker groups: roles, the set in sync, lags, epochs; and the switch of the master."""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.admin.replicas import GroupReplicas, ReplicaView, replicated_groups, switch_master
from aerobee.dashboard.blocks import Badge, Block, Cell, Facts, Mono, Note, PageLink, Size, WebPage
from aerobee.dashboard.pages.words import broker_link
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.registry import ActionOutcome, ActionPlan, FormField, PageView, action, page
from aerobee.dashboard.security import Role
from aerobee.errors import InvalidArgumentError
from aerobee.model.numbers import int_or

_TONES = {"leader": "good", "follower": "calm", "away": "bad"}


@page("/replicas", title="Replicas", menu="Replicas")
async def replicas(view: PageView) -> WebPage:
    groups = await replicated_groups(view.admin)
    listing: Listing[GroupReplicas] = Listing(
        "groups",
        "Replicated groups",
        [
            Column("group", "Group", lambda one: PageLink(one.group, f"/replicas/{one.group}"), lambda one: one.group),
            Column("state", "State", _state, lambda one: one.is_sound),
            Column("master", "Master", lambda one: _called(one.master), lambda one: one.master),
            Column("epoch", "Epoch", lambda one: one.epoch, lambda one: one.epoch, right=True),
            Column("insync", "In sync", lambda one: f"{len(one.in_sync)} of {len(one.replicas)}",
                   lambda one: len(one.in_sync)),
            Column("least", "Least for a send", lambda one: one.min_in_sync, right=True),
            Column("lag", "Largest lag", lambda one: Size(max((row.lag_bytes for row in one.replicas), default=0)),
                   lambda one: max((row.lag_bytes for row in one.replicas), default=0), right=True, falls=True),
            Column("elections", "Elections", lambda one: one.elections, lambda one: one.elections, right=True,
                   falls=True),
        ],
        "No group of this cluster has replicas that elect a master. `aerobee up --replicas 3` starts such a group.",
        sort="group",
    )  # fmt: skip
    snapshot = view.data.snapshot
    return WebPage("Replicas", [table_of(groups, listing, view.query)], snapshot.problems, refresh_s=5)


def _called(replica: int | None) -> Cell:
    return Badge("none", "bad") if replica is None else f"replica {replica}"


def _state(one: GroupReplicas) -> Cell:
    if one.master is None:
        return Badge("no master", "bad")
    if not one.is_sound:
        return Badge("too few in sync: takes no messages", "bad")
    if len(one.in_sync) < len([row for row in one.replicas if not row.learner]):
        return Badge("takes messages, a replica is behind", "warn")
    return Badge("sound", "good")


_REPLICAS: Listing[ReplicaView] = Listing(
    "replicas",
    "Replicas",
    [
        Column("replica", "Replica", lambda one: one.replica, lambda one: one.replica, right=True),
        Column("role", "Role", lambda one: Badge(one.role, _TONES.get(one.role, "warn"))),
        Column("insync", "In sync", lambda one: one.in_sync),
        Column("eligible", "May lead", lambda one: one.eligible),
        Column("address", "Address", lambda one: Mono(one.address)),
        Column("epoch", "Epoch", lambda one: one.epoch, right=True),
        Column("end", "End of its log", lambda one: one.log_end, right=True),
        Column("confirmed", "Confirmed", lambda one: one.confirmed, right=True),
        Column("lag", "Lag", lambda one: Size(one.lag_bytes) if one.lag_bytes >= 0 else "unknown", right=True),
        Column("release", "Release", lambda one: one.release),
        Column("reason", "Why it does not serve", lambda one: one.reason),
    ],
    "No replica answers.",
)


@page("/replicas/{broker}", title="Replicas of a group")
async def group(view: PageView) -> WebPage:
    name = view.path["broker"]
    try:
        (found,) = await replicated_groups(view.admin, name)
    except InvalidArgumentError as error:
        return WebPage(f"Replicas of {name}", [Note("none", f"{error.message}. {error.hint or ''}")])
    facts: list[tuple[str, Cell]] = [
        ("State", _state(found)), ("Broker", broker_link(name)), ("Cluster", found.cluster), ("Epoch", found.epoch),
        ("Master", _called(found.master)), ("In sync", ", ".join(map(str, found.in_sync)) or "none"),
        ("May lead", ", ".join(map(str, found.eligible)) or "none"), ("Least for a send", found.min_in_sync),
        ("Elections", found.elections), ("Changes of the set", found.set_changes), ("Forced", found.forced or "never"),
    ]  # fmt: skip
    blocks: list[Block] = [Facts("group", "Group", facts), table_of(found.replicas, _REPLICAS, {}, alone=False)]
    actions = [PageLink("Switch the master", f"/replicas/{name}/switch")] if view.may(Role.operator) else []
    return WebPage(f"Replicas of {name}", blocks, (), actions, refresh_s=5)


# -- switch


def _switch_fields(view: PageView) -> Sequence[FormField]:
    return [FormField("replica", "Replica that leads then", "number", required=True)]


def _wanted(view: PageView) -> int:
    replica = int_or(view.word("replica"), None, 0, 1 << 31)
    if replica is None:
        raise InvalidArgumentError(f"{view.word('replica')[:40]!r} is no number of a replica")
    return replica


async def _plan_switch(view: PageView) -> ActionPlan:
    name, wanted = view.path["broker"], _wanted(view)
    (found,) = await replicated_groups(view.admin, name)
    blocks: list[Block] = [table_of(found.replicas, _REPLICAS, {}, alone=False)]
    known = {one.replica for one in found.replicas}
    if wanted not in known:
        return ActionPlan([], blocks, problem=f"Group {name} has no replica {wanted}.")
    if wanted == found.master:
        return ActionPlan([], blocks, problem=f"Replica {wanted} leads already.")
    if wanted not in found.in_sync:
        return ActionPlan([], blocks, problem=f"Replica {wanted} is not in sync: it would lack messages.")
    return ActionPlan(
        [
            f"Replica {wanted} becomes the master of {name} in place of {_words(found.master)}.",
            "No message is lost: it is in sync. Sends wait for a moment and then go to the new master.",
        ],
        blocks,
    )


def _words(replica: int | None) -> str:
    return "nobody" if replica is None else f"replica {replica}"


@action(
    "/replicas/{broker}/switch", _plan_switch, title="Switch the master", role=Role.operator, button="Switch it",
    fields=_switch_fields, back=lambda view: f"/replicas/{view.path['broker']}",
)  # fmt: skip
async def switch(view: PageView) -> ActionOutcome:
    name, wanted = view.path["broker"], _wanted(view)
    after = await switch_master(view.admin, name, wanted)
    ok = after.master == wanted
    words = f"{_words(after.master)} leads {name} now, in epoch {after.epoch}."
    return ActionOutcome([words[0].upper() + words[1:]], [table_of(after.replicas, _REPLICAS, {}, alone=False)], ok)
