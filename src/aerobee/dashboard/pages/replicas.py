"""Copies of broker groups: those that elect a master, with set, lags and epochs; and masters with slaves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aerobee.admin.copies import CopyView, GroupCopies, LogEpoch, SlaveView, copied_groups, epochs_at
from aerobee.admin.replicas import GroupReplicas, ReplicaView, replicated_groups, switch_master
from aerobee.dashboard.blocks import Badge, Block, Cell, Facts, Mono, Note, PageLink, Rate, Size, Time, WebPage
from aerobee.dashboard.pages.words import broker_link
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.registry import ActionOutcome, ActionPlan, FormField, PageView, action, page
from aerobee.dashboard.security import Role
from aerobee.errors import AerobeeError, InvalidArgumentError
from aerobee.model.numbers import int_or

_TONES = {"leader": "good", "follower": "calm", "away": "bad"}
_EPOCHS_SHOWN = 50


@page("/replicas", title="Replicas", menu="Replicas")
async def replicas(view: PageView) -> WebPage:
    groups, copies = await asyncio.gather(replicated_groups(view.admin), copied_groups(view.admin))
    elected = {(one.cluster, one.group) for one in groups}
    fixed = [one for one in copies if (one.cluster, one.group) not in elected]
    blocks = [
        table_of(groups, _groups(), view.query, alone=False),
        table_of(fixed, _fixed_groups(), view.query, alone=False),
    ]
    return WebPage("Replicas", blocks, view.data.snapshot.problems, refresh_s=5)


def _groups() -> Listing[GroupReplicas]:
    return Listing(
        "groups",
        "Groups that elect their master",
        [
            Column("group", "Group", lambda one: PageLink(one.group, f"/replicas/{one.group}"), lambda one: one.group),
            Column("state", "State", _state, lambda one: one.is_sound),
            Column("master", "Master", lambda one: _called(one.master), lambda one: one.master),
            Column("epoch", "Epoch", lambda one: one.epoch, lambda one: one.epoch, right=True, falls=True),
            Column("insync", "In sync", lambda one: f"{len(one.in_sync)} of {len(one.replicas)}",
                   lambda one: len(one.in_sync)),
            Column("least", "Least for a send", lambda one: one.min_in_sync, right=True),
            Column("lag", "Largest lag", lambda one: _largest_lag(one.replicas),
                   lambda one: max((row.lag_bytes for row in one.replicas), default=0), right=True, falls=True),
            Column("elections", "Elections", lambda one: one.elections, lambda one: one.elections, right=True,
                   falls=True),
        ],
        "No group of this cluster elects its master. `aerobee up --replicas 3` starts such a group.",
        text=lambda one: one.group,
        sort="group",
        note="Elections are counted by the master since its process started.",
    )  # fmt: skip


def _largest_lag(rows: Sequence[ReplicaView]) -> Cell:
    known = [one.lag_bytes for one in rows if one.lag_bytes >= 0]
    if len(known) < len(rows):
        return "unknown"
    return Size(max(known, default=0))


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


def _fixed_groups() -> Listing[GroupCopies]:
    return Listing(
        "fixed",
        "Groups with fixed roles",
        [
            Column("group", "Group", lambda one: PageLink(one.group, f"/replicas/{one.group}"), lambda one: one.group),
            Column("state", "State", _fixed_state, lambda one: one.has_master),
            Column("slaves", "Slaves", lambda one: one.wanted_slaves, lambda one: one.wanted_slaves, right=True,
                   falls=True),
            Column("connected", "Copying now", lambda one: len(one.slaves), lambda one: len(one.slaves), right=True),
            Column("lag", "Largest lag", lambda one: Size(one.largest_lag), lambda one: one.largest_lag, right=True,
                   falls=True),
        ],
        "Every group of this cluster elects its master.",
        text=lambda one: one.group,
        sort="group",
        note="A master is one by its settings. If it is lost, its slaves serve readers, and nobody takes messages.",
    )  # fmt: skip


def _fixed_state(one: GroupCopies) -> Cell:
    if not one.has_master:
        return Badge("no master answers", "bad")
    if not one.wanted_slaves:
        return Badge("one copy only", "calm")
    if len(one.slaves) < one.wanted_slaves:
        return Badge("a slave does not copy", "warn")
    return Badge("sound", "good") if all(slave.in_sync for slave in one.slaves) else Badge("a slave is behind", "warn")


# -- one group


def _replicas() -> Listing[ReplicaView]:
    return Listing(
        "replicas",
        "Replicas",
        [
            Column("replica", "Replica", lambda one: one.replica),
            Column("role", "Role", lambda one: Badge(_role(one), _TONES.get(one.role, "warn"))),
            Column("insync", "In sync", lambda one: one.in_sync),
            Column("alive", "Alive", lambda one: one.alive),
            Column("lag", "Lag", lambda one: Size(one.lag_bytes) if one.lag_bytes >= 0 else "unknown", right=True),
            Column("epoch", "Epoch", lambda one: one.epoch, right=True),
            Column("end", "Log ends at byte", lambda one: one.log_end, right=True),
            Column("confirmed", "Confirmed to byte", lambda one: one.confirmed, right=True),
            Column("address", "Address", lambda one: Mono(one.address)),
            Column("release", "Release", lambda one: one.release),
            Column("reason", "Why it does not serve", _why_not),
        ],
        "No replica answers.",
    )


def _why_not(one: ReplicaView) -> str:
    """Return why a replica does not do its work. That a follower is not the master is no reason."""
    return "" if one.role == "follower" and one.alive else one.reason


def _role(one: ReplicaView) -> str:
    """Return the role in the words of the other pages."""
    return {"leader": "master", "follower": "learner" if one.learner else "follower"}.get(one.role, one.role)


_EPOCHS: Listing[LogEpoch] = Listing(
    "epochs",
    "Epochs of the master's log, the newest first",
    [
        Column("epoch", "Epoch", lambda one: one.epoch),
        Column("start", "From byte", lambda one: one.start, right=True),
        Column("end", "To byte", lambda one: one.end, right=True),
        Column("size", "Written", lambda one: Size(max(0, one.end - one.start)), right=True),
    ],
    "The master does not tell its epochs.",
    note="Each election begins an epoch. An epoch in which nothing was written is not in the log.",
)


@page("/replicas/{broker}", title="Replicas of a group")
async def group(view: PageView) -> WebPage:
    name = view.path["broker"]
    found = [one for one in await replicated_groups(view.admin) if one.group == name]
    if not found:
        return await _fixed_group(view, name)
    (one,) = found
    facts: list[tuple[str, Cell]] = [
        ("State", _state(one)), ("Broker", broker_link(name)), ("Cluster", one.cluster), ("Epoch", one.epoch),
        ("Master", _called(one.master)), ("In sync", ", ".join(map(str, one.in_sync)) or "none"),
        ("Left the set, may still lead", ", ".join(map(str, one.eligible)) or "none"),
        ("Least for a send", one.min_in_sync), ("Elections", one.elections),
        ("Changes of the set", one.set_changes), ("Forced by an operator", one.forced or "never"),
    ]  # fmt: skip
    blocks: list[Block] = [
        Facts("group", "Group", facts),
        table_of(one.replicas, _replicas(), {}, alone=False),
        await _epochs(view, one),
    ]
    problems = [f"replica {row.replica}: {_why_not(row)}" for row in one.replicas if _why_not(row)]
    problems += [f"replica {row.replica} at {row.address} does not answer" for row in one.replicas
                 if row.role == "away"]  # fmt: skip
    actions = [PageLink("Switch the master", f"/replicas/{name}/switch")] if view.may(Role.admin) else []
    return WebPage(f"Replicas of {name}", blocks, problems, actions, refresh_s=5)


async def _epochs(view: PageView, one: GroupReplicas) -> Block:
    told: Sequence[LogEpoch] = ()
    addresses = [row.address for row in one.replicas if row.replica == one.master]
    if addresses:
        try:
            told = await epochs_at(view.admin, addresses[0])
        except AerobeeError as error:
            return Note("epochs", f"The master does not tell its epochs: {error.message}", "warn")
    return table_of(tuple(reversed(told))[:_EPOCHS_SHOWN], _EPOCHS, {}, alone=False)


_COPIES: Listing[CopyView] = Listing(
    "brokers",
    "Brokers of the group",
    [
        Column("id", "Id", lambda one: one.broker_id, right=True),
        Column("role", "Role", lambda one: Badge(one.role, {"master": "good", "away": "bad"}.get(one.role, "calm"))),
        Column("address", "Address", lambda one: Mono(one.address)),
        Column("end", "Log ends at byte", lambda one: one.log_end, right=True),
        Column("from", "Copies from", lambda one: Mono(one.copies_from) if one.copies_from else None),
        Column("connected", "Connected", lambda one: one.is_connected if one.role == "slave" else None),
        Column("read", "Last read from it", lambda one: Time(one.last_read_ms)),
        Column("problem", "Problem", lambda one: one.problem),
    ],
    "The name server knows no broker of this group.",
)
_SLAVES: Listing[SlaveView] = Listing(
    "slaves",
    "Slaves, as the master sees them",
    [
        Column("address", "Connection from", lambda one: Mono(one.address)),
        Column("sync", "In sync", lambda one: one.in_sync),
        Column("acked", "Has up to byte", lambda one: one.acknowledged, right=True),
        Column("lag", "Lag", lambda one: Size(one.lag_bytes), right=True),
        Column("rate", "Bytes /s", lambda one: Rate(one.bytes_s), right=True),
    ],
    "No slave copies from this master. A slave is a broker with the same brokerName and brokerRole=SLAVE.",
)


async def _fixed_group(view: PageView, name: str) -> WebPage:
    copies = [one for one in await copied_groups(view.admin) if one.group == name]
    if not copies:
        raise InvalidArgumentError(f"there is no broker group {name}", hint="The page of brokers lists them.")
    (one,) = copies
    facts: list[tuple[str, Cell]] = [
        ("State", _fixed_state(one)), ("Broker", broker_link(name)), ("Cluster", one.cluster),
        ("Roles", "fixed by brokerRole: nothing is elected, and nothing can be switched"),
    ]  # fmt: skip
    blocks: list[Block] = [
        Facts("group", "Group", facts), table_of(one.brokers, _COPIES, {}, alone=False),
        table_of(one.slaves, _SLAVES, {}, alone=False),
    ]  # fmt: skip
    problems = [f"broker {name} (id {row.broker_id}) at {row.address}: {row.problem}" for row in one.brokers
                if row.problem]  # fmt: skip
    return WebPage(f"Replicas of {name}", blocks, problems, refresh_s=5)


# -- switch


def _switch_fields(view: PageView) -> Sequence[FormField]:
    return [FormField("replica", "Replica that leads then", "number", required=True, help="One that is in sync.")]


async def _group_of(view: PageView) -> GroupReplicas:
    name = view.path["broker"]
    found = [one for one in await replicated_groups(view.admin) if one.group == name]
    if not found:
        raise InvalidArgumentError(
            f"{name} is no group that elects its master", hint="The roles of other groups are settings: brokerRole."
        )
    return found[0]


def _problem(one: GroupReplicas, wanted: int | None) -> str:
    """Return why a replica cannot become the master, nothing if it can."""
    if wanted not in {row.replica for row in one.replicas}:
        known = ", ".join(str(row.replica) for row in one.replicas)
        return f"Group {one.group} has no such replica: it has {known}."
    if wanted == one.master:
        return f"Replica {wanted} leads already."
    if wanted not in one.in_sync:
        return f"Replica {wanted} is not in sync: it would lack messages."
    return "" if one.master is not None else f"Group {one.group} has no master that could hand over its role."


async def _plan_switch(view: PageView) -> ActionPlan:
    found, wanted = await _group_of(view), int_or(view.word("replica"), None, 0, 1 << 31)
    blocks: list[Block] = [table_of(found.replicas, _replicas(), {}, alone=False)]
    problem = _problem(found, wanted)
    if problem:
        return ActionPlan([], blocks, problem=problem)
    return ActionPlan(
        [
            f"Replica {wanted} becomes the master of {found.group} in place of replica {found.master}, "
            f"which follows it then. Epoch {found.epoch} ends.",
            "No acknowledged message is lost: the replica is in sync. Sends wait for at most half a second.",
        ],
        blocks,
    )


@action(
    "/replicas/{broker}/switch", _plan_switch, title="Switch the master", role=Role.admin, button="Switch it",
    fields=_switch_fields, named=lambda view: view.path["broker"], back=lambda view: f"/replicas/{view.path['broker']}",
)  # fmt: skip
async def switch(view: PageView) -> ActionOutcome:
    before, wanted = await _group_of(view), int_or(view.word("replica"), None, 0, 1 << 31)
    problem = _problem(before, wanted)
    if problem or wanted is None:
        raise InvalidArgumentError(problem)
    after = await switch_master(view.admin, before.group, wanted)
    blocks = [table_of(after.replicas, _replicas(), {}, alone=False)]
    leads = "Nobody" if after.master is None else f"Replica {after.master}"
    words = f"{leads} leads {after.group} now, in epoch {after.epoch}. Before, replica {before.master} led in epoch "
    words += f"{before.epoch}."
    return ActionOutcome([words], blocks, after.master == wanted, (f"/replicas/{after.group}", "Look at the group"))
