"""Topics: the list, and one topic with its queues, groups, route and settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from aerobee.admin.topics import QueueStatus, TopicSettings, TopicSummary, topic_details, topic_route
from aerobee.dashboard.blocks import Badge, Block, Cell, Chart, ChartLine, Choice, Facts, PageLink, Rate, Time, WebPage
from aerobee.dashboard.pages.words import (
    TREND_LABEL,
    allowed_text,
    broker_link,
    group_link,
    several,
    topic_link,
    trend_of,
)
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.registry import PageView, page
from aerobee.dashboard.security import Role
from aerobee.dashboard.snapshot import Snapshot, TopicNumbers
from aerobee.model.topic import perm_text

_KINDS = [("", "all but system and retry"), ("normal", "normal"), ("retry", "retry"), ("dlq", "dead letters"),
          ("system", "system"), ("every", "every kind")]  # fmt: skip
_HIDDEN = ("retry", "system")
_NONE = TopicNumbers()


def _listing(view: PageView, kind: str) -> Listing[TopicSummary]:
    snapshot = view.data.snapshot
    readers = _readers(snapshot)

    def numbers(one: TopicSummary) -> TopicNumbers:
        return snapshot.topic_numbers.get(one.topic, _NONE)

    empty = "No topic of this kind exists." if kind else "No topic exists yet. “Create a topic” makes one."
    if not snapshot.topics_ms:
        empty = "The brokers have not told their topics yet."
    return Listing(
        "topics",
        "Topics",
        [
            Column("topic", "Topic", lambda one: topic_link(one.topic), lambda one: one.topic),
            Column("kind", "Kind", _kind, lambda one: one.kind),
            Column("trend", TREND_LABEL, lambda one: trend_of(view, f"topic:{one.topic}")),
            Column("in_s", "In /s", lambda one: Rate(numbers(one).in_s), lambda one: numbers(one).in_s,
                   right=True, falls=True),
            Column("messages", "Kept", lambda one: numbers(one).messages, lambda one: numbers(one).messages,
                   right=True, falls=True),
            Column("last", "Last message", lambda one: Time(numbers(one).last_store_ms),
                   lambda one: numbers(one).last_store_ms, falls=True),
            Column("groups", "Groups", lambda one: readers.get(one.topic, 0), lambda one: readers.get(one.topic, 0),
                   right=True, falls=True),
            Column("queues", "Queues", lambda one: one.write_queues, lambda one: one.write_queues,
                   right=True, falls=True),
            Column("perm", "Allowed", lambda one: allowed_text(perm_text(one.perm)), lambda one: one.perm),
            Column("brokers", "Brokers", lambda one: several([broker_link(name) for name in one.brokers]),
                   lambda one: len(one.brokers)),
        ],
        empty,
        text=lambda one: one.topic,
        sort="topic",
        filters=[Choice("kind", "Kind", kind, _KINDS, "select")],
    )  # fmt: skip


def _readers(snapshot: Snapshot) -> Counter[str]:
    """Return how many groups have offsets in each topic."""
    return Counter(topic for one in snapshot.group_numbers.values() for topic in one.topics)


def _kind(one: TopicSummary) -> Cell:
    kind = one.attributes.get("message.type", "") if one.kind == "normal" else one.kind
    return Badge("dead letters" if kind == "dlq" else kind.lower() or "normal", "warn" if one.kind == "dlq" else "calm")


@page("/topics", title="Topics", menu="Topics")
async def topics(view: PageView) -> WebPage:
    snapshot, kind = view.data.snapshot, view.word("kind")
    chosen = [
        one
        for one in snapshot.topics.values()
        if kind == "every" or (one.kind == kind if kind else one.kind not in _HIDDEN)
    ]
    listing = _listing(view, kind)
    table = table_of(chosen, listing, view.query)
    view.data.want("topic", [row[0].text for row in table.rows if isinstance(row[0], PageLink)])
    actions = [PageLink("Create a topic", "/topics/create")] if view.may(Role.operator) else []
    return WebPage("Topics", [table], snapshot.problems, actions, as_of_ms=snapshot.at_ms, refresh_s=10)


def tabs(topic: str, here: str) -> list[tuple[PageLink, bool]]:
    return [
        (PageLink("Queues", f"/topics/{topic}"), here == "queues"),
        (PageLink("Messages", "/messages", {"topic": topic}), False),
        (PageLink("Tail", "/tail", {"topic": topic}), False),
        (PageLink("Route", f"/topics/{topic}/route"), here == "route"),
    ]


_QUEUES: Listing[QueueStatus] = Listing(
    "queues",
    "Queues",
    [
        Column("broker", "Broker", lambda one: broker_link(one.broker), lambda one: (one.broker, one.queue_id)),
        Column("queue", "Queue", lambda one: one.queue_id, lambda one: one.queue_id, right=True),
        Column("min", "First offset", lambda one: one.min_offset, lambda one: one.min_offset, right=True, falls=True),
        Column("max", "Next offset", lambda one: one.max_offset, lambda one: one.max_offset, right=True, falls=True),
        Column("messages", "Kept", lambda one: one.messages, lambda one: one.messages, right=True, falls=True),
        Column("last", "Last message", lambda one: Time(one.last_store_timestamp),
               lambda one: one.last_store_timestamp, falls=True),
    ],
    "The brokers that have this topic do not answer, so nothing is known of its queues.",
    sort="broker",
)  # fmt: skip


_SETTINGS: Listing[TopicSettings] = Listing(
    "settings",
    "Settings on each broker",
    [
        Column("broker", "Broker", lambda one: broker_link(one.broker)),
        Column("read", "Queues to read", lambda one: one.read_queues, right=True),
        Column("write", "Queues to write", lambda one: one.write_queues, right=True),
        Column("perm", "Allowed", lambda one: allowed_text(perm_text(one.perm))),
        Column("order", "Ordered", lambda one: one.order),
        Column(
            "attributes", "Attributes", lambda one: ", ".join(f"{k}={v}" for k, v in sorted(one.attributes.items()))
        ),
    ],
    "No broker has settings of it.",
)


@page("/topics/{topic}", title="Topic")
async def topic(view: PageView) -> WebPage:
    name = view.path["topic"]
    details = await topic_details(view.admin, name)
    snapshot = view.data.snapshot
    view.data.want("topic", [name])
    summary = snapshot.topics.get(name)
    first = details.settings[0]
    facts: list[tuple[str, Cell]] = [
        ("Kind", details.kind),
        ("Messages kept", details.messages),
        ("In /s", Rate(details.put_tps)),
        ("Queues to read and write", f"{sum(one.read_queues for one in details.settings)} and "
                                     f"{sum(one.write_queues for one in details.settings)}"),
        ("Allowed", allowed_text(perm_text(first.perm if summary is None else summary.perm))),
        ("Ordered", first.order),
        ("Last message", Time(max((one.last_store_timestamp for one in details.queues), default=0))),
        *((f"Attribute {key}", value) for key, value in first.attributes.items()),
    ]  # fmt: skip
    blocks: list[Block] = [
        Facts("topic", "Topic", facts),
        Chart("traffic", "Messages in a second", [ChartLine(f"topic:{name}", "in")]),
        table_of(details.queues, _QUEUES, view.query, alone=False),
        table_of(details.groups, _groups(snapshot), view.query, alone=False),
        table_of(details.settings, _SETTINGS, {}, alone=False),
    ]
    if details.pending:
        waiting: Listing[Sequence[Cell]] = Listing(
            "pending",
            "What waits here",
            [
                Column("broker", "Broker", lambda row: row[0]),
                Column("delay", "Delay", lambda row: row[1]),
                Column("count", "Waiting", lambda row: row[2], right=True),
            ],
            "Nothing waits.",
        )
        rows: list[Sequence[Cell]] = [(one.broker, one.delay, one.pending) for one in details.pending]
        blocks.append(table_of(rows, waiting, {}, alone=False))
    actions = []
    if view.may(Role.operator) and details.kind == "normal":
        actions += [PageLink("Publish", f"/topics/{name}/publish"), PageLink("Change", f"/topics/{name}/update")]
        actions += [PageLink("Copy to another topic", f"/topics/{name}/copy")]
    if view.may(Role.admin):
        actions.append(PageLink("Delete", f"/topics/{name}/delete"))
    return WebPage(f"Topic {name}", blocks, details.problems, actions, tabs(name, "queues"), refresh_s=10)


def _groups(snapshot: Snapshot) -> Listing[str]:
    def lag(name: str) -> int | None:
        found = snapshot.group_numbers.get(name)
        return None if found is None else found.lag

    return Listing(
        "groups",
        "Groups that consume it",
        [
            Column("group", "Group", group_link, lambda name: name),
            Column("lag", "Unconsumed in all topics", lag, lag, right=True, falls=True),
        ],
        "No group has an offset in this topic, and none is subscribed to it.",
        sort="group",
    )


@page("/topics/{topic}/route", title="Route")
async def route(view: PageView) -> WebPage:
    name = view.path["topic"]
    entries = await topic_route(view.admin, name)
    listing: Listing[Sequence[Cell]] = Listing(
        "route",
        "Route, as clients learn it",
        [
            Column("cluster", "Cluster", lambda row: row[0]),
            Column("broker", "Broker", lambda row: row[1]),
            Column("addresses", "Addresses", lambda row: row[2]),
            Column("read", "Queues to read", lambda row: row[3], right=True),
            Column("write", "Queues to write", lambda row: row[4], right=True),
            Column("perm", "Allowed", lambda row: row[5]),
        ],
        "No broker has registered the topic at the name server.",
    )
    rows: list[Sequence[Cell]] = [
        (
            one.cluster,
            broker_link(one.broker),
            ", ".join(
                f"{f'replica {number}' if number else 'master'} {address}"
                for number, address in sorted(one.addresses.items())
            ),
            one.read_queues,
            one.write_queues,
            allowed_text(perm_text(one.perm)),
        )
        for one in entries
    ]
    return WebPage(f"Route of {name}", [table_of(rows, listing, {})], tabs=tabs(name, "route"))
