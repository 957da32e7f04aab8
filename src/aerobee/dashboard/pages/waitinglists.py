"""What waits, message by message: timed messages, delay levels, and transactions without an end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aerobee.admin.messages import Span, reader_of
from aerobee.admin.pending import Pending, pending_of
from aerobee.admin.waiting import (
    TimedFilter,
    WaitingListing,
    WaitingMessage,
    delay_ms,
    delayed,
    due_of,
    half_messages,
    waiting_message,
)
from aerobee.dashboard.blocks import Block, Cell, Choice, Length, Note, PageLink, SearchForm, Time, WebPage
from aerobee.dashboard.pages.messages import is_in_paths
from aerobee.dashboard.pages.words import broker_link, topic_link
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.registry import PageView, page
from aerobee.dashboard.scanning import Scanner, WantedMessages
from aerobee.errors.codes import NoPermissionError, TopicNotExistError
from aerobee.model.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from aerobee.model.numbers import int_or

_SHOWN: Final = 50
_SHOWN_MAX: Final = 500
_LEVEL_SHOWN: Final = 200


def waiting_tabs(here: str) -> list[tuple[PageLink, bool]]:
    """Return the tabs of the pages about what waits."""
    places = [("", "All"), ("/timed", "Timed"), ("/levels", "Delay levels"), ("/half", "Transactions")]
    return [(PageLink(word, f"/waiting{path}"), path.removeprefix("/") == here) for path, word in places]


def _message_link(one: WaitingMessage, waits_in: str) -> Cell:
    """Return a link to the message where it waits: under its own topic it does not exist yet."""
    at = f"{one.broker}:{one.waits_in_queue}:{one.offset}"
    if not is_in_paths(one.message_id):
        return PageLink(one.message_id, "/messages", {"topic": waits_in, "by": "place", "value": at})
    return PageLink(one.message_id, f"/messages/{waits_in}/{one.message_id}", {"at": at})


def _columns(at: str) -> list[Column[WaitingMessage]]:
    return [
        Column("due", "Delivered at", lambda one: Time(one.due_ms or 0), lambda one: one.due_ms),
        Column("topic", "For topic", lambda one: topic_link(one.topic), lambda one: one.topic),
        Column("message", "Message", lambda one: _message_link(one, at)),
        Column("keys", "Keys", lambda one: one.keys, lambda one: one.keys),
        Column("tags", "Tag", lambda one: one.tags, lambda one: one.tags),
        Column("stored", "Sent", lambda one: Time(one.stored_ms), lambda one: one.stored_ms),
        Column("broker", "Broker", lambda one: broker_link(one.broker), lambda one: one.broker),
    ]


def _text(one: WaitingMessage) -> str:
    return f"{one.topic} {one.message_id} {one.keys} {one.broker} {one.producer_group}"


# -- timed


@page("/waiting/timed", title="Timed messages")
async def timed(view: PageView) -> WebPage:
    topic, limit = view.word("topic"), int_or(view.word("limit"), _SHOWN, 1, _SHOWN_MAX)
    wanted = TimedFilter(view.now_ms, topic)
    async with reader_of(view.admin) as consumer:
        scanner = Scanner(consumer, view.clock, newest_first=True, silent=view.silent)
        try:
            found = await scanner.scan(
                TIMER_TOPIC, Span(), WantedMessages(wanted.matches, False), limit, place=view.query.get("go_on", "")
            )
        except TopicNotExistError:
            note = Note("none", "These brokers have no timer topic: they are older than RocketMQ 5.0, or it is off.")
            return WebPage("Timed messages", [note], view.data.snapshot.problems, (), waiting_tabs("timed"))
    rows = [waiting_message(one, due_of(one)) for one in found.messages]
    form = SearchForm(
        "search",
        "Which",
        [
            Choice("topic", "For topic", topic, help="Empty: every topic."),
            Choice("limit", "At most", str(limit), [("50", "50"), ("200", "200"), ("500", "500")], "select"),
        ],
        "Show",
    )
    for_topic = f" for topic {topic}" if topic else ""
    empty = f"No message{for_topic} waits for its time."
    if found.go_on:
        empty = f"None of the records that were looked at waits{for_topic}."
    table = table_of(rows, _timed_listing(empty), {"size": str(_SHOWN_MAX), **view.query})
    looked = f"Looked at {found.looked:,} of {found.total:,} records of the brokers' timer topic, newest first"
    if found.go_on:
        link = PageLink("Go on", "/waiting/timed", {**view.query, "go_on": found.go_on})
        told = Note("looked", f"{looked}. Many of them have been delivered.", links=[link])
    else:
        told = Note("looked", f"{looked}: all of them{' on the brokers that answer' if found.unreached else ''}.")
    problems = view.problems_with(found.unreached)
    return WebPage("Timed messages", [form, table, told], problems, (), waiting_tabs("timed"))


def _timed_listing(empty: str) -> Listing[WaitingMessage]:
    return Listing(
        "timed",
        "Messages with a time of delivery",
        _columns(TIMER_TOPIC),
        empty,
        sort="due",
        note="A producer takes one back with the handle that it got when it sent it.",
    )


# -- levels


@page("/waiting/levels", title="Delay levels")
async def levels(view: PageView) -> WebPage:
    masters = await view.admin.masters()
    counts, untold = await pending_of(view.admin, masters, SCHEDULE_TOPIC)
    problems = list(untold)
    wanted = int_or(view.word("level"), None, 1, 10_000)
    blocks: list[Block] = [table_of(_by_level(counts), _levels(), view.query, alone=False)]
    if wanted is not None:
        blocks.insert(0, await _of_level(view, wanted, counts, problems))
    else:
        blocks.append(Note("how", "A level leads to its messages."))
    told = list(dict.fromkeys([*view.data.snapshot.problems, *problems]))
    return WebPage("Delay levels", blocks, told, (), waiting_tabs("levels"))


def _by_level(counts: Sequence[Pending]) -> list[tuple[int, str, int, int]]:
    """Return level, delay, count and number of brokers with messages, summed over the brokers."""
    found: dict[int, tuple[int, str, int, int]] = {}
    for one in counts:
        level = one.level or 0
        _, delay, count, brokers = found.get(level, (level, one.delay or "", 0, 0))
        # Brokers may name the delays of their levels differently.
        shown = delay if delay == one.delay else f"{delay} or {one.delay}"
        found[level] = level, shown, count + one.pending, brokers + bool(one.pending)
    return list(found.values())


def _levels() -> Listing[tuple[int, str, int, int]]:
    return Listing(
        "levels",
        "Levels",
        [
            Column("level", "Level", lambda row: PageLink(str(row[0]), "/waiting/levels", {"level": row[0]}),
                   lambda row: row[0]),
            Column("delay", "Delay", lambda row: row[1], lambda row: delay_ms(row[1])),
            Column("pending", "Waiting", lambda row: row[2], lambda row: row[2], right=True, falls=True),
            Column("brokers", "On brokers", lambda row: row[3], lambda row: row[3], right=True),
        ],
        "No broker tells its delay levels.",
        sort="level",
        note="Consumers' retries wait here, too. Brokers count again when they save their progress, every 10 s.",
    )  # fmt: skip


async def _of_level(view: PageView, level: int, counts: Sequence[Pending], problems: list[str]) -> Block:
    """Return the messages of a level, and add what is wrong to the problems."""
    delays = {one.broker: delay_ms(one.delay or "") for one in counts if one.level == level}
    infos = _infos(view, delays)
    delay = max(delays.values(), default=0)
    async with reader_of(view.admin) as consumer:
        found = await delayed(consumer, infos, level, delay, view.now_ms, _LEVEL_SHOWN, unreached=view.silent)
    problems += found.problems
    listing: Listing[WaitingMessage] = Listing(
        "messages",
        f"Messages of level {level}, the next ones first",
        _columns(SCHEDULE_TOPIC),
        "No message of this level waits now. What is due within seconds is being delivered, and not shown.",
        text=_text,
        filter_label="Topic, id, key or broker contains",
        sort="due",
        note=_shown_of(found),
    )
    return table_of(found.messages, listing, view.query, alone=False)


def _infos(view: PageView, brokers: Mapping[str, int]) -> dict[str, Mapping[str, str]]:
    snapshot = view.data.snapshot
    return {
        one.broker: snapshot.infos.get(one.address, {})
        for one in snapshot.brokers
        if one.broker_id == 0 and one.broker in brokers
    }


def _shown_of(found: WaitingListing) -> str:
    if len(found.messages) >= found.total:
        return ""
    return f"The first {len(found.messages):,} of {found.total:,}."


# -- half messages


async def half_block(view: PageView, problems: list[str], *, alone: bool) -> Block:
    """Return the transactions that have no end yet, and add what is wrong to the problems."""
    async with reader_of(view.admin) as consumer:
        try:
            found = await half_messages(view.admin, consumer, unreached=view.silent)
        except NoPermissionError as error:
            return Note("half", f"The transactions that wait are not told to this user: {error.message}")
    now_ms = view.now_ms
    listing: Listing[WaitingMessage] = Listing(
        "half",
        "Transactions without an end, the oldest first",
        [
            Column("age", "Age", lambda one: Length(max(0, now_ms - one.stored_ms)), lambda one: -one.stored_ms),
            Column("group", "Producer group", lambda one: one.producer_group, lambda one: one.producer_group),
            Column("topic", "For topic", lambda one: topic_link(one.topic), lambda one: one.topic),
            Column("message", "Message", lambda one: _message_link(one, HALF_TOPIC)),
            Column("keys", "Keys", lambda one: one.keys, lambda one: one.keys),
            Column("asked", "Asked", lambda one: one.asked, lambda one: one.asked, right=True, falls=True),
            Column("stored", "Sent", lambda one: Time(one.stored_ms), lambda one: one.stored_ms),
            Column("broker", "Broker", lambda one: broker_link(one.broker), lambda one: one.broker),
        ],
        "Every transaction has ended: none waits for a commit or a rollback.",
        text=_text,
        filter_label="Topic, id, key, broker or producer group contains",
        sort="stored",
        note="The broker asks a member of the producer group what became of it, again and again. “Asked” counts that.",
    )  # fmt: skip
    problems += found.problems
    if not found.is_exact:
        problems.append(
            "A broker has more than 20,000 records of transactions that it has not counted as ended: the first ones "
            "were compared, so some of those below may have ended."
        )
    return table_of(found.messages, listing, view.query, alone=alone)


@page("/waiting/half", title="Transactions")
async def half(view: PageView) -> WebPage:
    problems = list(view.data.snapshot.problems)
    block = await half_block(view, problems, alone=True)
    return WebPage("Transactions", [block], list(dict.fromkeys(problems)), (), waiting_tabs("half"), refresh_s=10)
