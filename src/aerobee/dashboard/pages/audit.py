"""What was done through this dashboard: its last 1,000 events."""

from __future__ import annotations

from aerobee.dashboard.auditing import EVENTS_MAX, AuditEvent
from aerobee.dashboard.blocks import Badge, Mono, Time, WebPage
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.registry import PageView, page

_TONES = {"done": "good", "refused": "bad", "failed": "bad", "partly": "warn"}


def _result(one: AuditEvent) -> Badge:
    return Badge(one.result, _TONES.get(one.result, "calm"))


_EVENTS: Listing[AuditEvent] = Listing(
    "events",
    "Changes and logins",
    [
        Column("time", "When", lambda one: Time(one.time_ms), lambda one: one.time_ms, falls=True),
        Column("person", "Who", lambda one: one.person, lambda one: one.person),
        Column("address", "From", lambda one: Mono(one.address), lambda one: one.address),
        Column("what", "What", lambda one: one.what, lambda one: one.what),
        Column("given", "With", lambda one: Mono(one.given)),
        Column(
            "result", "Result", lambda one: Badge(one.result, _TONES.get(one.result, "calm")), lambda one: one.result
        ),
        Column("words", "Words", lambda one: one.words),
    ],
    "Nothing was changed through this dashboard since it was started.",
    text=lambda one: f"{one.person} {one.what} {one.given} {one.words}",
    filter_label="Contains",
    sort="time",
    falls=True,
    note=f"The last {EVENTS_MAX:,} events of this dashboard, which its log keeps, too. What came to the brokers in "
    "other ways is in the audit log of each broker and name server.",
)


@page("/audit", title="Audit", menu="Audit")
async def audit(view: PageView) -> WebPage:
    return WebPage("Audit", [table_of(list(view.trail.events), _EVENTS, view.query)], refresh_s=10)
