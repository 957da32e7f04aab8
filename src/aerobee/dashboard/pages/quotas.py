"""Quotas: what users, addresses and topics may send a second, on each broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aerobee.admin.quotas import quotas_of, remove_quota, set_quota
from aerobee.dashboard.blocks import Cell, PageLink, WebPage
from aerobee.dashboard.pages.words import broker_link, topic_link
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.registry import ActionOutcome, ActionPlan, FormField, PageView, action, page
from aerobee.dashboard.security import Role
from aerobee.errors import AerobeeError, InvalidArgumentError
from aerobee.errors.codes import NoPermissionError
from aerobee.model.numbers import int_or
from aerobee.model.quota import RATE_MAX, Quota, QuotaKind, parse_quotas

_KINDS = [
    (QuotaKind.user.name, "user: who signs"),
    (QuotaKind.address.name, "address: where nobody logs in"),
    (QuotaKind.topic.name, "topic"),
]


@page("/quotas", title="Quotas", menu="Quotas")
async def quotas(view: PageView) -> WebPage:
    problems = list(view.data.snapshot.problems)

    async def ask(broker: str) -> list[tuple[str, Quota]]:
        try:
            return [(broker, one) for one in (await quotas_of(view.admin, broker=broker))[broker]]
        except NoPermissionError:
            raise
        except AerobeeError as error:
            problems.append(f"broker {broker}: {error.message}")
            return []

    said = await asyncio.gather(*(ask(one.name) for one in await view.admin.masters()))
    rows = [row for some in said for row in some]
    may = view.may(Role.operator)
    actions = [PageLink("Set a quota", "/quotas/set")] if may else []
    table = table_of(rows, _listing(may), view.query)
    return WebPage("Quotas", [table], list(dict.fromkeys(problems)), actions)


def _listing(may: bool) -> Listing[tuple[str, Quota]]:
    columns: list[Column[tuple[str, Quota]]] = [
        Column("kind", "Kind", lambda row: row[1].kind.name, lambda row: row[1].kind.name),
        Column("name", "Who", _who, lambda row: row[1].name),
        Column("broker", "On broker", lambda row: broker_link(row[0]), lambda row: row[0]),
        Column("messages", "Messages /s", lambda row: row[1].messages_s or "any", lambda row: row[1].messages_s,
               right=True, falls=True),
        Column("bytes", "Bytes /s", lambda row: row[1].bytes_s or "any", lambda row: row[1].bytes_s, right=True,
               falls=True),
    ]  # fmt: skip
    if may:
        columns.append(Column("change", "", _change_link))
        columns.append(Column("remove", "", lambda row: PageLink("Remove", "/quotas/remove", _query(row))))
    return Listing(
        "quotas", "Quotas", columns, "There are no quotas: everybody sends as fast as the brokers take it.",
        text=lambda row: f"{row[1].kind.name} {row[1].name} {row[0]}", filter_label="Who or broker contains",
        sort="name",
        note="A quota holds for each broker by itself. Who sends more is read from more slowly; what waits longer than "
        "a second is refused with FLOW_CONTROL. “*” stands for everybody without a quota of their own.",
    )  # fmt: skip


def _who(row: tuple[str, Quota]) -> Cell:
    one = row[1]
    return topic_link(one.name) if one.kind is QuotaKind.topic and one.name != "*" else one.name


def _query(row: tuple[str, Quota]) -> dict[str, str | int]:
    return {"kind": row[1].kind.name, "name": row[1].name, "broker": row[0], "plan": "1"}


def _change_link(row: tuple[str, Quota]) -> PageLink:
    one = row[1]
    more = {"bytes": one.bytes_s or "", "messages": one.messages_s or ""}
    return PageLink("Change", "/quotas/set", {**_query(row), **more})


# -- changes


def _where_fields(view: PageView) -> list[FormField]:
    return [
        FormField("kind", "Kind", "select", default="user", options=_KINDS),
        FormField("name", "Name", required=True, help="“*” is everybody without a quota of their own."),
        FormField("broker", "On broker", help="Empty: on every broker."),
    ]


def _set_fields(view: PageView) -> Sequence[FormField]:
    return [
        *_where_fields(view),
        FormField("messages", "Messages a second", "number", help="Empty: any number."),
        FormField("bytes", "Bytes of bodies a second", "number", help="Empty: any number."),
    ]


def _kind(view: PageView) -> QuotaKind:
    word = view.word("kind", "user") or "user"
    if word not in QuotaKind.__members__:
        raise InvalidArgumentError(f"{word[:40]!r} is none of {', '.join(QuotaKind.__members__)}")
    return QuotaKind[word]


def _rate(view: PageView, name: str) -> int:
    word = view.word(name)
    rate = int_or(word, None, 1, RATE_MAX) if word else 0
    if rate is None:
        raise InvalidArgumentError(f"{word[:40]!r} is no rate from 1 to {RATE_MAX}")
    return rate


def _wanted(view: PageView) -> Quota:
    """Return the quota of a form, checked as brokers check it. Raise InvalidArgumentError."""
    wanted = Quota(_kind(view), view.word("name"), _rate(view, "bytes"), _rate(view, "messages"))
    if set(wanted.name) & set("; \t"):
        raise InvalidArgumentError(f"the name {wanted.name[:60]!r} has a blank or a semicolon")
    parse_quotas(str(wanted))
    return wanted


async def _held(view: PageView, kind: QuotaKind, name: str) -> dict[str, Quota | None]:
    """Return the quota that each broker has now."""
    found = await quotas_of(view.admin, broker=view.word("broker") or None)
    return {
        broker: next((one for one in some if (one.kind, one.name) == (kind, name)), None)
        for broker, some in found.items()
    }


async def _plan_set(view: PageView) -> ActionPlan:
    wanted = _wanted(view)
    held = await _held(view, wanted.kind, wanted.name)
    sentences = []
    for broker, before in held.items():
        if before == wanted:
            sentences.append(f"Broker {broker} has this quota already.")
        else:
            sentences.append(f"Broker {broker} sets {wanted}, in place of {before or 'no quota'}.")
    warnings = ["It holds at once, also for clients that are connected."] if held else []
    return ActionPlan(sentences, (), warnings, "" if held else "There is no broker.")


@action(
    "/quotas/set", _plan_set, title="Set a quota", role=Role.operator, button="Set it", fields=_set_fields,
    back=lambda view: "/quotas",
)  # fmt: skip
async def set_it(view: PageView) -> ActionOutcome:
    wanted = _wanted(view)
    changed = await set_quota(view.admin, wanted, broker=view.word("broker") or None)
    where = f"It was changed on {', '.join(changed)}." if changed else "It was so before: nothing was changed."
    return ActionOutcome([f"{wanted}: the quota is set. {where}"], next=("/quotas", "Look at the quotas"))


async def _plan_remove(view: PageView) -> ActionPlan:
    kind, name = _kind(view), view.word("name")
    having = {broker: one for broker, one in (await _held(view, kind, name)).items() if one is not None}
    if not having:
        return ActionPlan([], problem=f"{kind.name}:{name} has no quota there.")
    return ActionPlan([f"Broker {broker} drops {one}." for broker, one in having.items()])


@action(
    "/quotas/remove", _plan_remove, title="Remove a quota", role=Role.operator, button="Remove it",
    fields=_where_fields, back=lambda view: "/quotas",
)  # fmt: skip
async def remove_it(view: PageView) -> ActionOutcome:
    kind, name = _kind(view), view.word("name")
    changed = await remove_quota(view.admin, kind, name, broker=view.word("broker") or None)
    if not changed:
        raise InvalidArgumentError(f"{kind.name}:{name} has no quota there")
    return ActionOutcome(
        [f"{kind.name}:{name} has no quota on {', '.join(changed)} any more."], next=("/quotas", "Look at the quotas")
    )
