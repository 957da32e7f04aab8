"""Brokers: their state, what they tell about themselves, and their settings with where each comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aerobee.admin.cluster import BrokerStatus, change_broker_settings, setting_sources, settings_of
from aerobee.admin.upkeep import drain
from aerobee.dashboard.blocks import (
    Badge,
    Block,
    Cell,
    Chart,
    ChartLine,
    Choice,
    Mono,
    PageLink,
    Rate,
    Ratio,
    Time,
    WebPage,
)
from aerobee.dashboard.pages.words import broker_link, several, state_of, troubles_of, version_text
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.registry import ActionOutcome, ActionPlan, FormField, PageView, action, page
from aerobee.dashboard.security import Role
from aerobee.errors import InvalidArgumentError

_SECRETS = ("password", "secret", "credential", "accesskey", "keypassword", "authenticationuser")
_HIDDEN = "(hidden)"


def _role(one: BrokerStatus) -> str:
    return "master" if one.broker_id == 0 else f"replica {one.broker_id}"


def broker_listing() -> Listing[BrokerStatus]:
    """Return how brokers are listed."""
    return Listing(
        "brokers",
        "Brokers",
        [
            Column("broker", "Broker", lambda one: broker_link(one.broker), lambda one: one.broker),
            Column("role", "Role", _role,
                   lambda one: one.broker_id),
            Column("state", "State", state_of, lambda one: one.problem or ""),
            Column("address", "Address", lambda one: Mono(one.address), lambda one: one.address),
            Column("version", "Version", lambda one: version_text(one.version), lambda one: one.version),
            Column("in", "In /s", lambda one: Rate(one.in_tps), lambda one: one.in_tps, right=True, falls=True),
            Column("out", "Out /s", lambda one: Rate(one.out_tps), lambda one: one.out_tps, right=True, falls=True),
            Column("disk", "Disk used", lambda one: Ratio(one.disk_used_ratio), lambda one: one.disk_used_ratio,
                   right=True, falls=True),
            Column("oldest", "Oldest message", lambda one: Time(one.earliest_timestamp),
                   lambda one: one.earliest_timestamp),
        ],
        "No broker is registered at the name server. `aerobee broker -n NAMESRV` starts one.",
        text=lambda one: f"{one.broker} {one.address}",
        filter_label="Name or address contains",
    )  # fmt: skip


@page("/brokers", title="Brokers", menu="Brokers")
async def brokers(view: PageView) -> WebPage:
    snapshot = view.data.snapshot
    return WebPage(
        "Brokers",
        [table_of(snapshot.brokers, broker_listing(), view.query)],
        [*snapshot.problems, *(text for one in snapshot.brokers for text in troubles_of(one))],
        as_of_ms=snapshot.at_ms,
        refresh_s=10,
    )


def _the_broker(view: PageView) -> list[BrokerStatus]:
    name = view.path["broker"]
    found = [one for one in view.data.snapshot.brokers if one.broker == name]
    if not found:
        raise InvalidArgumentError(f"there is no broker {name}", hint="The page of brokers lists them.")
    return found


def _tabs(name: str, here: str) -> list[tuple[PageLink, bool]]:
    return [
        (PageLink("State", f"/brokers/{name}"), here == "state"),
        (PageLink("Settings", f"/brokers/{name}/settings"), here == "settings"),
    ]


@page("/brokers/{broker}", title="Broker")
async def broker(view: PageView) -> WebPage:
    found = _the_broker(view)
    name = found[0].broker
    snapshot = view.data.snapshot
    listed = replace(broker_listing(), title="Master and replicas") if len(found) > 1 else broker_listing()
    blocks: list[Block] = [table_of(found, listed, {})]
    labels = {one.broker_id: "" if len(found) == 1 else f"{_role(one)} " for one in found}
    blocks.append(
        Chart(
            "traffic",
            "Messages a second",
            [ChartLine(f"{way}:{name}:{one.broker_id}", f"{labels[one.broker_id]}{way}")
             for one in found for way in ("in", "out")],
        )
    )  # fmt: skip
    blocks.append(
        Chart(
            "disk",
            "Disk used",
            [ChartLine(f"disk:{name}:{one.broker_id}", _role(one)) for one in found],
            "%",
        )
    )
    for one in found:
        info = snapshot.infos.get(one.address, {})
        title = "What it tells" if len(found) == 1 else f"What the {_role(one)} tells"
        blocks.append(table_of(sorted(info.items()), _pairs(f"info{one.broker_id}", title), view.query, alone=False))
    actions = []
    if view.may(Role.operator):
        # Apache's brokers do not tell whether they are drained.
        drained = any(one.drained for one in found)
        actions = [] if drained else [PageLink("Drain", f"/brokers/{name}/drain")]
        actions.append(PageLink("Undrain", f"/brokers/{name}/undrain"))
    return WebPage(
        f"Broker {name}",
        blocks,
        [*snapshot.problems, *(text for one in found for text in troubles_of(one))],
        actions,
        _tabs(name, "state"),
        snapshot.at_ms,
        10,
    )


def _pairs(name: str, title: str) -> Listing[tuple[str, str]]:
    return Listing(
        name,
        title,
        [
            Column("key", "Key", lambda pair: Mono(pair[0]), lambda pair: pair[0]),
            Column("value", "Value", lambda pair: Mono(pair[1]), lambda pair: pair[1]),
        ],
        "The broker does not answer, or does not tell it to this user.",
        text=lambda pair: f"{pair[0]} {pair[1]}",
        filter_label="Key or value contains",
        sort="key",
    )


def is_secret(key: str) -> bool:
    """Tell whether the value of a setting must not be shown."""
    return any(word in key.lower() for word in _SECRETS)


@page("/brokers/{broker}/settings", title="Settings")
async def settings(view: PageView) -> WebPage:
    name = _the_broker(view)[0].broker
    sources = (await setting_sources(view.admin, broker=name)).get(name, {})
    (master,) = await view.admin.masters(broker=name)
    values = await settings_of(view.admin, master)
    wanted = view.word("source")
    rows = [
        (key, _HIDDEN if is_secret(key) and value else value, sources.get(key, "unknown"))
        for key, value in sorted(values.items())
        if wanted in ("", sources.get(key, "unknown"))
    ]
    kinds = sorted(set(sources.values()))
    changes: list[Column[tuple[str, str, str]]] = []
    if view.may(Role.operator):
        changes.append(Column("change", "", lambda row: several(_change_links(name, row))))
    listing: Listing[tuple[str, str, str]] = Listing(
        "settings",
        "Settings",
        [
            Column("key", "Key", lambda row: Mono(row[0]), lambda row: row[0]),
            Column("value", "Value", lambda row: Mono(row[1]), lambda row: row[1]),
            Column("source", "Comes from", lambda row: Badge(row[2], "calm" if row[2] == "default" else "good"),
                   lambda row: row[2]),
            *changes,
        ],
        "No setting comes from there." if wanted else "The broker tells no settings to this user.",
        text=lambda row: f"{row[0]} {row[1]}",
        filter_label="Key or value contains",
        filters=[Choice("source", "Comes from", wanted, [("", "anywhere"), *((one, one) for one in kinds)], "select")],
        sort="key",
    )  # fmt: skip
    actions = [PageLink("Change a setting", f"/brokers/{name}/settings/change")] if view.may(Role.operator) else []
    return WebPage(f"Settings of {name}", [table_of(rows, listing, {"size": "500", **view.query})], (), actions,
                _tabs(name, "settings"))  # fmt: skip


def _change_links(name: str, row: tuple[str, str, str]) -> list[Cell]:
    """Return the links to change a setting, and to take back what was changed over the wire."""
    key, value, source = row
    path, given = f"/brokers/{name}/settings/change", {} if is_secret(key) else {"value": value}
    found: list[Cell] = [PageLink("Change", path, {"key": key, **given})]
    if source == "wire":
        found.append(PageLink("Take back", path, {"key": key, "unset": "1", "plan": "1"}))
    return found


# -- changes


def _change_fields(view: PageView) -> Sequence[FormField]:
    return [
        FormField("key", "Key", required=True, help="A key of broker.conf, such as fileReservedTime."),
        FormField("value", "Value", help="Empty with “take back” below."),
        FormField("unset", "Take back a change that was made while the broker ran", "checkbox"),
    ]


async def _plan_change(view: PageView) -> ActionPlan:
    name, key = _the_broker(view)[0].broker, view.word("key")
    (master,) = await view.admin.masters(broker=name)
    before = (await settings_of(view.admin, master)).get(key)
    source = (await setting_sources(view.admin, broker=name)).get(name, {}).get(key, "unknown")
    shown = _HIDDEN if is_secret(key) and before else before
    if before is None:
        return ActionPlan([], problem=f"Broker {name} has no setting {key}.")
    if is_secret(key) and not view.word("unset"):
        return ActionPlan([], problem=f"{key} holds a secret, which must not be in an address: change it in the file.")
    if view.word("unset"):
        words = f"Broker {name} forgets that {key} was changed over the wire. It is {shown} now, from {source}."
        return ActionPlan([words])
    value = view.word("value")
    return ActionPlan(
        [f"Broker {name} changes {key} from {shown} (from {source}) to {value or 'nothing'}, at once and for good."],
        warnings=["The value stays after a restart: it then comes from “wire”."],
    )


@action(
    "/brokers/{broker}/settings/change", _plan_change, title="Change a setting", role=Role.operator, button="Change it",
    fields=_change_fields, back=lambda view: f"/brokers/{view.path['broker']}/settings",
)  # fmt: skip
async def change(view: PageView) -> ActionOutcome:
    name, key = _the_broker(view)[0].broker, view.word("key")
    if view.word("unset"):
        _, warnings = await change_broker_settings(view.admin, {}, unset=[key], broker=name)
    elif is_secret(key):
        raise InvalidArgumentError(f"{key} holds a secret", hint="Change it in the file of the broker.")
    else:
        _, warnings = await change_broker_settings(view.admin, {key: view.word("value")}, broker=name)
    (master,) = await view.admin.masters(broker=name)
    after = (await settings_of(view.admin, master)).get(key, "")
    shown = _HIDDEN if is_secret(key) else after
    return ActionOutcome([f"{key} of broker {name} is {shown} now.", *warnings], ok=not warnings)


async def _plan_drain(view: PageView) -> ActionPlan:
    name = _the_broker(view)[0].broker
    return ActionPlan(
        [
            f"Broker {name} takes no messages any more. Consumers go on reading what it has.",
            "Producers learn it within 30 s and send to the other brokers of the topic.",
        ],
        warnings=["Topics that are on this broker only cannot be written until it is undrained."],
    )


@action(
    "/brokers/{broker}/drain", _plan_drain, title="Drain a broker", role=Role.operator, button="Drain it",
    back=lambda view: f"/brokers/{view.path['broker']}",
)  # fmt: skip
async def drain_it(view: PageView) -> ActionOutcome:
    name = await drain(view.admin, _the_broker(view)[0].broker)
    return ActionOutcome([f"Broker {name} takes no messages any more."])


async def _plan_undrain(view: PageView) -> ActionPlan:
    return ActionPlan([f"Broker {_the_broker(view)[0].broker} takes messages again."])


@action(
    "/brokers/{broker}/undrain", _plan_undrain, title="Undrain a broker", role=Role.operator, button="Undrain it",
    back=lambda view: f"/brokers/{view.path['broker']}",
)  # fmt: skip
async def undrain_it(view: PageView) -> ActionOutcome:
    name = await drain(view.admin, _the_broker(view)[0].broker, reads_only=False)
    return ActionOutcome([f"Broker {name} takes messages again."])
