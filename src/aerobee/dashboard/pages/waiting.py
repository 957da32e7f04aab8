"""What waits: messages with a delay or a time, half messages of transactions, and what consumers by POP hold."""

from __future__ import annotations

from typing import Any

from aerobee.admin.pending import levels_in
from aerobee.admin.pops import HeldMessage, HeldQueue, in_flight
from aerobee.dashboard.blocks import Block, Cell, Facts, PageLink, Time, WebPage
from aerobee.dashboard.pages.waitinglists import half_block, waiting_tabs
from aerobee.dashboard.pages.words import broker_link, group_link, topic_link
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.registry import PageView, page
from aerobee.model.numbers import int_or

_DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


@page("/waiting", title="Waiting", menu="Waiting")
async def waiting(view: PageView) -> WebPage:
    snapshot = view.data.snapshot
    masters = [one for one in snapshot.brokers if one.broker_id == 0 and one.problem is None]
    infos = [(one.broker, snapshot.infos.get(one.address, {})) for one in masters]

    def count(key: str) -> Cell:
        known = [int_or(info[key], 0) for _, info in infos if key in info]
        return sum(known) if known else "not told by these brokers"

    facts = Facts(
        "waiting",
        "Waiting now",
        [
            ("With a time of delivery", count("timerMessagePending")),
            ("In delay levels", sum(one.pending for name, info in infos for one in _levels(info, name))),
            ("Half messages of transactions", count("transactionHalfPending")),
            ("Held by consumers (POP)", count("popInFlight")),
        ],
    )
    levels = [one for name, info in infos for one in _levels(info, name) if one.pending]
    problems = list(snapshot.problems)
    blocks: list[Block] = [
        facts,
        table_of(levels, _LEVELS, view.query, alone=False),
        await half_block(view, problems, alone=False),
    ]
    held = await in_flight(view.admin, messages=50)
    queues = [one for one in held.queues if one.in_flight]
    blocks.append(table_of(queues, _HELD_QUEUES, view.query, alone=False))
    blocks.append(
        table_of([(queue, one) for queue in queues for one in queue.messages], _HELD, view.query, alone=False)
    )
    problems = list(dict.fromkeys([*problems, *held.problems]))
    return WebPage("Waiting", blocks, problems, (), waiting_tabs(""), as_of_ms=snapshot.at_ms, refresh_s=10)


def _levels(info: Any, broker: str) -> list[Any]:
    return levels_in(info, broker, _DEFAULT_LEVELS.split())


_LEVELS: Listing[Any] = Listing(
    "levels",
    "Delayed messages by level",
    [
        Column("broker", "Broker", lambda one: broker_link(one.broker), lambda one: one.broker),
        Column("level", "Level", lambda one: one.level, lambda one: one.level, right=True),
        Column("delay", "Delay, as RocketMQ has it", lambda one: one.delay),
        Column("pending", "Waiting", lambda one: one.pending, lambda one: one.pending, right=True, falls=True),
    ],
    "No message waits in a delay level.",
    sort="level",
)


_HELD_QUEUES: Listing[HeldQueue] = Listing(
    "held",
    "Held by consumers (POP), by queue",
    [
        Column("group", "Group", lambda one: group_link(one.group), lambda one: one.group),
        Column("topic", "Topic", lambda one: topic_link(one.topic), lambda one: one.topic),
        Column("broker", "Broker", lambda one: broker_link(one.broker), lambda one: one.broker),
        Column("queue", "Queue", lambda one: one.queue_id, lambda one: one.queue_id, right=True),
        Column("flight", "Held", lambda one: one.in_flight, lambda one: one.in_flight, right=True, falls=True),
        Column("taken", "Taken up to", lambda one: one.taken_offset, lambda one: one.taken_offset, right=True),
        Column("safe", "All done below", lambda one: one.safe_offset, lambda one: one.safe_offset, right=True),
    ],
    "No consumer holds a message. Only consumers that pop do: push consumers with mode=pop, and simple consumers.",
    text=lambda one: f"{one.group} {one.topic} {one.broker}",
    filter_label="Group, topic or broker contains",
    sort="flight",
    falls=True,
)
_HELD: Listing[tuple[HeldQueue, HeldMessage]] = Listing(
    "heldmessages",
    "The first messages of each of these queues",
    [
        Column("group", "Group", lambda row: group_link(row[0].group), lambda row: row[0].group),
        Column("message", "Message", lambda row: _place(row[1]), lambda row: row[1].queue_offset),
        Column("popped", "Taken", lambda row: Time(row[1].pop_timestamp), lambda row: row[1].pop_timestamp),
        Column("visible", "Others get it", lambda row: Time(row[1].visible_timestamp),
               lambda row: row[1].visible_timestamp),
    ],
    "No message is held.",
    text=lambda row: f"{row[0].group} {row[0].topic}",
    filter_label="Group or topic contains",
    sort="visible",
)  # fmt: skip


def _place(one: HeldMessage) -> PageLink:
    place = f"{one.broker}:{one.queue_id}:{one.queue_offset}"
    return PageLink(f"{one.topic} {place}", "/messages", {"topic": one.topic, "by": "place", "value": place})
