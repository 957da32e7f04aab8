"""Consumer groups: the list, and one group with its progress, members and settings."""

from __future__ import annotations

from aerobee.admin.groups import GroupSettings, QueueLag, TopicSubscription, group_details
from aerobee.dashboard.blocks import (
    Badge,
    Block,
    Cell,
    Chart,
    ChartLine,
    Choice,
    Facts,
    Length,
    Mono,
    PageLink,
    Rate,
    Time,
    WebPage,
)
from aerobee.dashboard.pages.words import TREND_LABEL, broker_link, group_link, topic_link, trend_of
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.registry import PageView, page
from aerobee.dashboard.security import Role
from aerobee.dashboard.snapshot import GroupNumbers, KnownGroup, Snapshot

_NONE = GroupNumbers()
# RocketMQ's words for how a group consumes.
_WORDS = {
    "CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull", "CLUSTERING": "one member", "BROADCASTING": "every member",
    "CONSUME_FROM_LAST_OFFSET": "the last offset", "CONSUME_FROM_FIRST_OFFSET": "the first offset",
    "CONSUME_FROM_TIMESTAMP": "a time",
}  # fmt: skip
_KINDS = [("", "all but system"), ("members", "with members"), ("behind", "behind"), ("dead", "with dead letters"),
          ("every", "every group")]  # fmt: skip


def _word(name: str | None) -> str | None:
    return None if name is None else _WORDS.get(name, name)


def _listing(view: PageView, kind: str) -> Listing[KnownGroup]:
    snapshot = view.data.snapshot

    def numbers(one: KnownGroup) -> GroupNumbers:
        return snapshot.group_numbers.get(one.name, _NONE)

    empty = "No group is like that." if kind else "No group exists yet: its first consumer makes one."
    if not snapshot.topics_ms:
        empty = "The brokers have not told their groups yet."
    return Listing(
        "groups",
        "Groups",
        [
            Column("group", "Group", lambda one: group_link(one.name), lambda one: one.name),
            Column("state", "State", lambda one: _state(one, numbers(one)), lambda one: numbers(one).members),
            Column("members", "Members", lambda one: numbers(one).members, lambda one: numbers(one).members,
                   right=True, falls=True),
            Column("trend", TREND_LABEL, lambda one: trend_of(view, f"lag:{one.name}")),
            Column("lag", "Unconsumed", lambda one: numbers(one).lag, lambda one: numbers(one).lag, right=True,
                   falls=True),
            Column("oldest", "Oldest", lambda one: Length(numbers(one).oldest_ms), lambda one: numbers(one).oldest_ms,
                   right=True, falls=True),
            Column("tps", "Consumed /s", lambda one: Rate(numbers(one).tps), lambda one: numbers(one).tps,
                   right=True, falls=True),
            Column("retries", "Retries kept", lambda one: snapshot.retries_of(one.name),
                   lambda one: snapshot.retries_of(one.name), right=True, falls=True),
            Column("dead", "Dead letters", lambda one: _dead(snapshot, one.name),
                   lambda one: snapshot.dead_of(one.name), right=True, falls=True),
        ],
        empty,
        text=lambda one: one.name,
        sort="group",
        filters=[Choice("kind", "Which", kind, _KINDS, "select")],
    )  # fmt: skip


def _state(one: KnownGroup, numbers: GroupNumbers) -> Cell:
    if not one.may_consume:
        return Badge("may not consume", "warn")
    if numbers.members is None:
        return None
    return Badge("connected", "good") if numbers.members else Badge("no member", "warn" if numbers.lag else "calm")


def _dead(snapshot: Snapshot, name: str) -> Cell:
    count = snapshot.dead_of(name)
    return PageLink(f"{count:,}", f"/dead/{name}") if count else count


def _is_chosen(snapshot: Snapshot, one: KnownGroup, kind: str) -> bool:
    numbers = snapshot.group_numbers.get(one.name, _NONE)
    if kind == "every":
        return True
    if kind == "members":
        return bool(numbers.members)
    if kind == "behind":
        return bool(numbers.lag)
    return bool(snapshot.dead_of(one.name)) if kind == "dead" else not one.is_system


@page("/groups", title="Groups", menu="Groups")
async def groups(view: PageView) -> WebPage:
    snapshot, kind = view.data.snapshot, view.word("kind")
    chosen = [one for one in snapshot.groups.values() if _is_chosen(snapshot, one, kind)]
    table = table_of(chosen, _listing(view, kind), view.query)
    view.data.want("group", [row[0].text for row in table.rows if isinstance(row[0], PageLink)])
    actions = [PageLink("Create a group", "/groups/create")] if view.may(Role.operator) else []
    return WebPage("Groups", [table], snapshot.problems, actions, as_of_ms=snapshot.at_ms, refresh_s=10)


def tabs(group: str, here: str) -> list[tuple[PageLink, bool]]:
    return [
        (PageLink("Progress", f"/groups/{group}"), here == "progress"),
        (PageLink("Members", f"/groups/{group}/members"), here == "members"),
        (PageLink("Dead letters", f"/dead/{group}"), here == "dead"),
    ]


_QUEUES: Listing[QueueLag] = Listing(
    "queues",
    "Queues",
    [
        Column("topic", "Topic", lambda one: topic_link(one.topic), lambda one: one.topic),
        Column("broker", "Broker", lambda one: broker_link(one.broker), lambda one: one.broker),
        Column("queue", "Queue", lambda one: one.queue_id, lambda one: one.queue_id, right=True),
        Column("offset", "Offset of the group", lambda one: one.consumer_offset, lambda one: one.consumer_offset,
               right=True, falls=True),
        Column("end", "Next offset", lambda one: one.broker_offset, lambda one: one.broker_offset, right=True,
               falls=True),
        Column("lag", "Unconsumed", lambda one: one.lag, lambda one: one.lag, right=True, falls=True),
        Column("flight", "In flight", lambda one: one.in_flight, lambda one: one.in_flight, right=True, falls=True),
        Column("last", "Last consumed was stored", lambda one: Time(one.last_consumed_timestamp),
               lambda one: one.last_consumed_timestamp, falls=True),
    ],
    "The group has no offset in any topic yet: it has not consumed anything.",
    text=lambda one: f"{one.topic} {one.broker}",
    filter_label="Topic or broker contains",
    sort="topic",
)  # fmt: skip


@page("/groups/{group}", title="Group")
async def group(view: PageView) -> WebPage:
    name = view.path["group"]
    snapshot = view.data.snapshot
    # A broker tells the settings of all its groups or of none, and the collector has asked for them already.
    details = await group_details(view.admin, name, view.data.settings_of(name))
    view.data.want("group", [name])
    numbers = snapshot.group_numbers.get(name, _NONE)
    facts: list[tuple[str, Cell]] = [
        ("Unconsumed", details.progress.lag),
        ("Oldest unconsumed", Length(numbers.oldest_ms)),
        ("Consumed /s", Rate(details.progress.consume_tps)),
        ("Members", len(details.members)),
        ("Consumes by", _word(details.consume_type)),
        ("Each message goes to", _word(details.message_model)),
        ("Begins at", _word(details.consume_from_where)),
        ("Retries kept", snapshot.retries_of(name)),
        ("Dead letters", _dead(snapshot, name)),
    ]
    blocks: list[Block] = [
        Facts("group", "Group", facts),
        Chart("lag", "Unconsumed messages", [ChartLine(f"lag:{name}", "unconsumed")], ""),
        table_of(details.progress.queues, _QUEUES, view.query, alone=False),
        table_of(details.subscriptions, _SUBSCRIPTIONS, {}, alone=False),
        table_of(details.settings, _SETTINGS, {}, alone=False),
    ]
    actions = []
    if view.may(Role.operator):
        actions += [
            PageLink("Reset offsets", f"/groups/{name}/reset"),
            PageLink("Clone offsets", f"/groups/{name}/clone"),
        ]
        actions.append(PageLink("Change", f"/groups/{name}/update"))
    if view.may(Role.admin):
        actions.append(PageLink("Delete", f"/groups/{name}/delete"))
    return WebPage(f"Group {name}", blocks, details.progress.problems, actions, tabs(name, "progress"), refresh_s=10)


_SUBSCRIPTIONS: Listing[TopicSubscription] = Listing(
    "subscriptions",
    "Subscriptions of its members",
    [
        Column("topic", "Topic", lambda one: topic_link(one.topic)),
        Column("expression", "Filter", lambda one: Mono(one.expression)),
        Column("kind", "Kind", lambda one: one.expression_type),
    ],
    "No member is connected, so nothing is subscribed.",
)
_SETTINGS: Listing[GroupSettings] = Listing(
    "settings",
    "Settings",
    [
        Column("broker", "Broker", lambda one: broker_link(one.broker)),
        Column("consume", "May consume", lambda one: one.consume_enabled),
        Column("broadcast", "May broadcast", lambda one: one.broadcast_enabled),
        Column("orderly", "In order", lambda one: one.orderly),
        Column("queues", "Retry queues", lambda one: one.retry_queues, right=True),
        Column("max", "Retries", lambda one: one.retry_max_times, right=True),
    ],
    "No broker has settings of this group: its members were let in without.",
)
