"""Who did what: the changes and logins of this dashboard, and what the audit logs of servers say."""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.dashboard.auditing import EVENTS_MAX, AuditEvent
from aerobee.dashboard.auditlogs import ServerEvent, server_events
from aerobee.dashboard.blocks import Badge, Choice, Mono, Note, PageLink, Time, WebPage
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.registry import PageView, page
from aerobee.dashboard.security import Role

_TONES = {"done": "good", "refused": "bad", "failed": "bad", "partly": "warn", "allowed": "good"}


def _tabs(here: str) -> list[tuple[PageLink, bool]]:
    return [
        (PageLink("This dashboard", "/audit"), here == "own"),
        (PageLink("Servers", "/audit/servers"), here == "servers"),
    ]


def _listing(*, everybody: bool) -> Listing[AuditEvent]:
    seen = "" if everybody else " An admin sees those of everybody."
    return Listing(
        "events",
        "Changes and logins" if everybody else "Your changes and logins",
        [
            Column("time", "When", lambda one: Time(one.time_ms), lambda one: one.time_ms, falls=True),
            Column("person", "Who", lambda one: one.person, lambda one: one.person),
            Column("address", "From", lambda one: Mono(one.address), lambda one: one.address),
            Column("what", "What", lambda one: one.what, lambda one: one.what),
            Column("given", "With", lambda one: Mono(one.given)),
            Column("result", "Result", lambda one: Badge(one.result, _TONES.get(one.result, "calm")),
                   lambda one: one.result),
            Column("words", "Words", lambda one: one.words),
        ],
        f"Nothing was changed through this dashboard since it was started.{seen}",
        text=lambda one: f"{one.person} {one.what} {one.given} {one.words}",
        filter_label="Contains",
        sort="time",
        falls=True,
        note=f"The last {EVENTS_MAX:,} events of this dashboard, and `--log-file` keeps all.{seen}",
    )  # fmt: skip


@page("/audit", title="Audit", menu="Audit")
async def audit(view: PageView) -> WebPage:
    everybody = view.may(Role.admin)
    events = [one for one in view.trail.events if everybody or one.person == view.person.name]
    table = table_of(events, _listing(everybody=everybody), view.query)
    return WebPage("Audit", [table], (), (), _tabs("own"), refresh_s=10)


# -- servers


def _server_listing(empty: str, filters: Sequence[Choice], logs: int) -> Listing[ServerEvent]:
    columns: list[Column[ServerEvent]] = [
        Column("time", "When", lambda one: Time(one.time_ms), lambda one: one.time_ms, falls=True),
        Column("user", "Who", lambda one: one.user, lambda one: one.user),
        Column("source", "From", lambda one: Mono(one.source), lambda one: one.source),
        Column("event", "Event", lambda one: one.event, lambda one: one.event),
        Column("decision", "Decision", lambda one: Badge(one.decision, _TONES.get(one.decision, "calm")),
               lambda one: one.decision),
        Column("code", "Request", lambda one: Mono(one.code), lambda one: one.code),
        Column("resource", "On", lambda one: Mono(f"{one.actions} {one.resource}".strip()), lambda one: one.resource),
        Column("why", "Why, or before and after", lambda one: Mono(one.why)),
    ]  # fmt: skip
    if logs > 1:
        columns.append(Column("log", "Log", lambda one: Mono(one.log.rpartition("/")[2]), lambda one: one.log))
    return Listing(
        "events", "Events at the servers", columns, empty,
        text=lambda one: f"{one.user} {one.source} {one.code} {one.resource} {one.why}",
        filter_label="Contains", sort="time", falls=True, filters=filters,
        note="The newest events of each log. Refusals of one user are sampled: ten a second are written, and the "
        "others are counted.",
    )  # fmt: skip


@page("/audit/servers", title="Audit of the servers")
async def servers(view: PageView) -> WebPage:
    logs = view.places.audit_logs
    if not view.may(Role.admin):
        words = "The audit logs of servers tell what everybody did. They are shown to the role admin only."
        return WebPage("Audit of the servers", [Note("role", words)], (), (), _tabs("servers"))
    if not logs:
        words = (
            "No audit log is named. A server writes one with the setting auditLogPath; start the dashboard on the same "
            "machine with --audit-log FILE, once for each log. Servers do not send their audit log over the network."
        )
        return WebPage("Audit of the servers", [Note("how", words)], (), (), _tabs("servers"))
    events, problems = await view.read(server_events, logs)
    decision, kind = view.word("decision"), view.word("event")
    shown = [one for one in events if decision in ("", one.decision) and kind in ("", one.event)]
    kinds = sorted({one.event for one in events} | ({kind} if kind else set()))
    filters = [
        Choice("decision", "Decision", decision, [("", "any"), ("allowed", "allowed"), ("refused", "refused")],
               "select"),
        Choice("event", "Event", kind, [("", "any"), *((one, one) for one in kinds)], "select"),
    ]  # fmt: skip
    empty = "No event is like that." if events else "The logs have no event yet."
    table = table_of(shown, _server_listing(empty, filters, len(logs)), view.query)
    return WebPage("Audit of the servers", [table], problems, (), _tabs("servers"), refresh_s=10)
