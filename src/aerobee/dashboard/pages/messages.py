"""Messages: the search, and one message with its body, its properties, and what became of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import Response

from aerobee.admin.messages import (
    Span,
    find_at,
    find_by_key,
    find_by_unique_id,
    find_message,
    no_message,
    reader_of,
    track_message,
)
from aerobee.admin.messages import Span as TimeSpan
from aerobee.admin.trace import TraceEvent, trace_of
from aerobee.dashboard.blocks import (
    Badge,
    Block,
    Cell,
    Choice,
    Facts,
    Mono,
    Note,
    PageLink,
    SearchForm,
    Table,
    Text,
    Time,
    WebPage,
)
from aerobee.dashboard.bodies import SHOWN_MAX, preview_of, shown_body, size_of
from aerobee.dashboard.exporting import MESSAGE_NAMES, export_rows, told_of
from aerobee.dashboard.moments import moment_of
from aerobee.dashboard.pages.words import broker_link, group_link, topic_link, topics_to_suggest
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.registry import PageView, page, raw
from aerobee.dashboard.scanning import KEPT_MAX, SEARCHED, SEARCHED_MAX, Scan, Scanner, wanted_of
from aerobee.dashboard.security import Role
from aerobee.errors import AerobeeError, InvalidArgumentError
from aerobee.errors.codes import NoPermissionError, TopicNotExistError
from aerobee.hot.log.layout import COMPRESSED
from aerobee.model.compression import opening
from aerobee.model.message import Message
from aerobee.model.numbers import int_or

_BY = [
    ("newest", "newest first"), ("oldest", "oldest first"), ("id", "by id"), ("key", "by key"),
    ("place", "by queue and offset"),
]  # fmt: skip
_LIMITS = [("20", "20"), ("50", "50"), ("200", "200")]
_LIMIT_MAX: Final = 500
_EVERY = TimeSpan()
_NAMES: Final = ("topic", "broker", "queue", "offset", *MESSAGE_NAMES)
_CUT: Final = f": a page looks at 50,000 messages, for 5 seconds, or until it has found {KEPT_MAX >> 20} MiB."
_PATH_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


def _search(view: PageView) -> SearchForm:
    def field(name: str, label: str, help_: str = "", **more: object) -> Choice:
        return Choice(name, label, view.word(name), help=help_, **more)  # type: ignore[arg-type]

    fields = [
        field("topic", "Topic", "Dead letters are in %DLQ%GROUP.", suggested=topics_to_suggest(view)),
        Choice("by", "Look", view.word("by"), _BY, "select"),
        field("value", "Id, key or place", "For “by ...”. A place is broker:queue:offset."),
        field("since", "Stored at or after", "2026-11-18T10:00 (UTC), or 30m, 2h, 1d ago."),
        field("until", "Stored before"),
        field("tag", "Tag", "One, or A || B."),
        field("sql92", "SQL92", "Such as amount > 10 AND kind = 'new'."),
        field("text", "Text", SEARCHED),
        field("queue", "Queue", kind="number"),
        Choice("limit", "At most", view.word("limit", "20"), _LIMITS, "select"),
    ]
    return SearchForm("search", "Search", fields)


@page("/messages", title="Messages", menu="Messages", form=_search)
async def messages(view: PageView) -> WebPage:
    topic, by = view.word("topic"), view.word("by", "newest") or "newest"
    blocks: list[Block] = [_search(view)]
    if not topic and not (by == "id" and view.word("value")):
        blocks.append(Note("how", "Name a topic to look at its messages. An offset id is found without a topic."))
        return WebPage("Messages", blocks)
    unreached: dict[str, str] = {}
    if by in ("newest", "oldest"):
        blocks += await _scanned(view, topic, by, unreached)
    else:
        blocks += await _looked_up(view, topic, by)
    actions: list[PageLink] = []
    if topic:
        actions = [PageLink(f"Tail {topic}", "/tail", {"topic": topic}), PageLink("Topic", f"/topics/{topic}")]
        if view.shows_bodies and any(isinstance(one, Table) and one.rows for one in blocks):
            actions += [PageLink(word, "/raw/messages", {**view.query, "format": format_})
                        for word, format_ in (("JSON lines", "jsonl"), ("CSV", "csv"))]  # fmt: skip
    title = f"Messages of {topic}" if topic else "Messages"
    return WebPage(title, blocks, view.problems_with(unreached), actions)


def _span(view: PageView) -> TimeSpan:
    since, until = moment_of(view.word("since"), view.now_ms), moment_of(view.word("until"), view.now_ms)
    return Span(_EVERY.begin_ms if since is None else since, _EVERY.end_ms if until is None else until)


def _limit(view: PageView) -> int:
    return int_or(view.word("limit"), 20, 1, _LIMIT_MAX)


async def _scan(view: PageView, topic: str, by: str) -> tuple[Scan, bool]:
    """Return what a scan finds, and whether it looked for anything."""
    wanted = wanted_of(view.word("tag"), view.query.get("text", ""), view.word("sql92"))
    if not view.shows_bodies and (view.query.get("text") or view.word("sql92")):
        raise InvalidArgumentError("a viewer cannot search in bodies and properties")
    limit = _limit(view)
    queue = int_or(view.word("queue"), None, 0, 1 << 31)
    async with reader_of(view.admin) as consumer:
        chunk = limit if wanted.is_all else 32
        scanner = Scanner(consumer, view.clock, newest_first=by == "newest", chunk=chunk, silent=view.silent)
        found = await scanner.scan(topic, _span(view), wanted, limit, queue_id=queue, place=view.query.get("go_on", ""))
    return found, not wanted.is_all


async def _scanned(view: PageView, topic: str, by: str, unreached: dict[str, str]) -> list[Block]:
    """Return what a scan finds, and add why brokers were left out."""
    found, is_search = await _scan(view, topic, by)
    unreached |= found.unreached
    if not found.total and unreached:
        empty = "The brokers that answer have no message of this topic" + (" and time." if view.word("since") else ".")
    elif not found.total:
        empty = f"Topic {topic} has no message" + (
            " of this time." if view.word("since") or view.word("until") else "."
        )
    elif is_search:
        empty = "None of the messages that were looked at matches."
    else:
        empty = "There are no more messages."
    blocks: list[Block] = [_table(view, found.messages, empty)]
    seen = f"Looked at {found.looked:,} of {found.total:,} messages"
    if found.go_on:
        link = PageLink("Go on", "/messages", {**view.query, "go_on": found.go_on})
        why = "." if len(found.messages) >= _limit(view) else _CUT
        if unreached:
            why = f", without those of {', '.join(sorted(unreached))}."
        blocks.append(Note("looked", seen + why, links=[link]))
    else:
        where = f" on the brokers that answer, which {', '.join(sorted(unreached))} does not" if unreached else ""
        blocks.append(Note("looked", f"{seen}. There are no more{where}."))
    return blocks


async def _looked_up(view: PageView, topic: str, by: str) -> list[Block]:
    if not view.word("value"):
        return [Note("missing", "Type what to look for into the field “Id, key or place”.", "warn")]
    rows, problems, empty = await _look_up(view, topic, by)
    notes: list[Block] = [Note(f"silent{place}", text, "warn") for place, text in enumerate(problems)]
    return [*notes, _table(view, rows, empty)]


async def _look_up(view: PageView, topic: str, by: str) -> tuple[Sequence[Message], Sequence[str], str]:
    """Return the messages with an id, a key or a place, what went wrong, and what to say if there are none."""
    value = view.word("value")
    if by == "key":
        span = _span(view)
        found = await find_by_key(
            view.admin, topic, value, begin_ms=span.begin_ms, end_ms=span.end_ms,
            limit=int_or(view.word("limit"), 64, 1, _LIMIT_MAX), unfold=False,
        )  # fmt: skip
        return found.messages, found.problems, f"No message of {topic} has the key {value} in the brokers' index."
    if by == "place":
        broker, queue_id, offset = _place_of(value)
        return (await find_at(view.admin, topic, queue_id, offset, broker=broker, unfold=False),), (), ""
    return await _by_id(view, topic, value), (), f"There is no message {value}."


@raw("/raw/messages")
async def export(view: PageView) -> Response:
    """Return the messages that the page with this address shows as JSON lines or CSV, with bodies of up to 4 MiB."""
    if not view.shows_bodies:
        raise NoPermissionError("a viewer sees no bodies of messages", code=16)
    topic, by = view.word("topic"), view.word("by", "newest") or "newest"
    if not topic:
        raise InvalidArgumentError("name a topic")
    if by in ("newest", "oldest"):
        rows: Sequence[Message] = (await _scan(view, topic, by))[0].messages
    else:
        rows = (await _look_up(view, topic, by))[0]
    return await export_rows(view, _exported(rows), _NAMES, "messages")


async def _exported(rows: Sequence[Message]) -> AsyncGenerator[dict[str, Any], None]:
    for one in rows:
        told = {"topic": one.topic, "broker": one.broker, "queue": one.queue_id, "offset": one.queue_offset}
        yield {**told, **told_of(one, opening(one.body, one.sys_flag, SEARCHED_MAX))}


async def _by_id(view: PageView, topic: str, value: str) -> tuple[Message, ...]:
    """Return every copy of a message: a retry after a lost answer makes two."""
    if topic:
        copies = await find_by_unique_id(view.admin, value, topic, unfold=False)
        if copies.messages:
            return copies.messages
    return (await find_message(view.admin, value, topic=topic or None, unfold=False),)


def _place_of(value: str) -> tuple[str | None, int, int]:
    """Return broker, queue and offset of `broker:queue:offset` or `queue:offset`."""
    words = value.split(":")
    queue_id = int_or(words[-2] if len(words) > 1 else None, None, 0, 1 << 31)
    offset = int_or(words[-1], None, 0)
    if queue_id is None or offset is None:
        raise InvalidArgumentError(f"{value[:60]!r} is not queue:offset or broker:queue:offset")
    return ":".join(words[:-2]) or None, queue_id, offset


def is_in_paths(message_id: str) -> bool:
    """Tell whether a path can be made with an id. Senders choose unique ids."""
    return _PATH_ID.fullmatch(message_id) is not None


def id_in_path(one: Message) -> str:
    """Return the id by which a message has a page."""
    return one.message_id if is_in_paths(one.message_id) else one.offset_id


def message_link(one: Message) -> PageLink:
    """Return the link to a message. Its place makes it exact: two copies have one id."""
    at = f"{one.broker}:{one.queue_id}:{one.queue_offset}"
    return PageLink(one.message_id, f"/messages/{one.topic}/{id_in_path(one)}", {"at": at})


def _table(view: PageView, rows: Sequence[Message], empty: str) -> Block:
    columns: list[Column[Message]] = [
        Column("stored", "Stored", lambda one: Time(one.store_timestamp, exact=True)),
        Column("id", "Message", message_link),
        Column("tag", "Tag", lambda one: one.tags),
        Column("keys", "Keys", lambda one: one.keys),
        Column("place", "Place", lambda one: Mono(f"{one.broker}:{one.queue_id}:{one.queue_offset}")),
        Column("size", "Size", size_of, right=True),
    ]
    if view.shows_bodies:
        columns.append(Column("body", "Body", lambda one: Mono(preview_of(one))))
    return table_of(rows, Listing("messages", "Messages", columns, empty), {"size": "500"}, alone=False)


# -- one message


async def _the_message(view: PageView, *, unfold: bool) -> Message:
    topic, message_id, at = view.path["topic"], view.path["message_id"], view.word("at")
    if at:
        broker, queue_id, offset = _place_of(at)
        found = await find_at(view.admin, topic, queue_id, offset, broker=broker, unfold=unfold)
        if found.message_id == message_id or found.offset_id == message_id.upper():
            return found
        raise no_message(message_id, topic)
    return await find_message(view.admin, message_id, topic=topic, unfold=unfold)


@page("/messages/{topic}/{message_id}", title="Message")
async def message(view: PageView) -> WebPage:
    one = await _the_message(view, unfold=False)
    facts: list[tuple[str, Cell]] = [
        ("Topic", topic_link(one.topic)), ("Message id", Mono(one.message_id)), ("Offset id", Mono(one.offset_id)),
        ("Stored", Time(one.store_timestamp, exact=True)), ("Born", Time(one.born_timestamp, exact=True)),
        ("Tag", one.tags), ("Keys", one.keys),
        ("Broker", broker_link(one.broker)), ("Queue", one.queue_id), ("Offset", one.queue_offset),
        ("Size", size_of(one)), ("Retries", one.reconsume_times), ("Sent from", Mono(one.born_host)),
        ("Stored on", Mono(one.store_host)),
    ]  # fmt: skip
    blocks: list[Block] = [Facts("message", "Message", facts)]
    if view.shows_bodies:
        blocks.append(_body(view, one))
        blocks.append(_properties("properties", "Properties of the sender", one.properties, "The sender gave none."))
        blocks.append(
            _properties("system", "Properties of RocketMQ", one.system_properties, "There are none."),
        )
    else:
        blocks.append(Note("hidden", "A viewer sees neither bodies nor properties of messages."))
    problems: list[str] = []
    tracked, traced = await asyncio.gather(_tracked(view, one, problems), _traced(view, one, problems))
    actions = []
    if view.may(Role.operator):
        name = f"{one.topic}/{id_in_path(one)}"
        actions.append(PageLink("Copy to publish", f"/topics/{one.topic}/publish", {"copy_of": name}))
    return WebPage(f"Message {one.message_id}", [*blocks, tracked, traced], problems, actions)


def _body(view: PageView, one: Message) -> Text:
    kind = view.word("as") or "auto"
    body = opening(one.body, one.sys_flag, SHOWN_MAX + 1)
    title, text = shown_body(body, kind)
    path = f"/messages/{one.topic}/{id_in_path(one)}"
    at = {"at": view.word("at")} if view.word("at") else {}
    links = [PageLink(word, path, {**at, "as": word.lower()}) for word in ("text", "JSON", "hex")]
    links.append(PageLink("download", f"/raw/messages/{one.topic}/{id_in_path(one)}", at))
    whole = "" if one.sys_flag & COMPRESSED else f" of {len(one.body):,} bytes"
    cut = f"These are the first {SHOWN_MAX // 1024} KiB{whole}." if len(body) > SHOWN_MAX else ""
    return Text("body", f"Body as {title}", text, cut, links, title.partition(",")[0])


def _properties(name: str, title: str, properties: object, empty: str) -> Block:
    rows = sorted(dict(properties).items())  # type: ignore[call-overload]
    listing: Listing[tuple[str, str]] = Listing(
        name, title,
        [Column("name", "Name", lambda pair: Mono(pair[0])), Column("value", "Value", lambda pair: Mono(pair[1]))],
        empty,
    )  # fmt: skip
    return table_of(rows, listing, {"size": "500"}, alone=False)


_TRACK_WORDS: Final = {
    "CONSUMED": Badge("consumed", "good"), "NOT_CONSUME_YET": Badge("not yet", "warn"),
    "CONSUMED_BUT_FILTERED": Badge("passed over: another tag", "calm"), "NOT_ONLINE": Badge("no member", "warn"),
    "CONSUME_BROADCASTING": Badge("broadcast", "calm"), "PULL": Badge("pulls by itself", "calm"),
}  # fmt: skip


async def _tracked(view: PageView, one: Message, problems: list[str]) -> Block:
    empty = "No group consumes this topic."
    rows: list[Sequence[Cell]] = []
    try:
        for track in await track_message(view.admin, one):
            dead = Badge("dead letter", "bad") if track.dead_letter else None
            passed = "unknown" if track.passed is None else track.passed
            rows.append((group_link(track.group), _TRACK_WORDS.get(track.track, track.track), passed,
                         track.consumer_offset, track.retries, track.members, dead))  # fmt: skip
    except AerobeeError as error:
        problems.append(f"It is not known what the groups did: {error.message}")
        empty = "This could not be asked."
    heads = ("Group", "State", "Offset is beyond it", "Offset of the group", "Retries", "Members", "Dead letter")
    return _rows("track", "What the groups did with it", heads, rows, empty, right=(3, 4, 5))


async def _traced(view: PageView, one: Message, problems: list[str]) -> Block:
    empty = "No client has traced it. Clients write traces where tracing is on (`trace=True`)."
    events: Sequence[TraceEvent] = ()
    try:
        events = (await trace_of(view.admin, one.message_id)).events
    except TopicNotExistError:
        pass
    except NoPermissionError:
        empty = "This user may not read the topic of traces."
    except AerobeeError as error:
        problems.append(f"The trace could not be read: {error.message}")
    rows: list[Sequence[Cell]] = [
        (Time(event.time_ms, exact=True), event.kind, event.group, event.host,
         f"{event.cost_ms} ms" if event.cost_ms else None, event.success, event.retries or None)
        for event in events
    ]  # fmt: skip
    heads = ("Time", "Event", "Group", "Client", "Took", "Success", "Retry")
    return _rows("trace", "Trace", heads, rows, empty, right=(4, 6))


def _rows(
    name: str, title: str, heads: Sequence[str], rows: Sequence[Sequence[Cell]], empty: str, right: Sequence[int] = ()
) -> Block:
    columns: list[Column[Sequence[Cell]]] = [
        Column(f"c{place}", head, lambda row, place=place: row[place], right=place in right)  # type: ignore[misc]
        for place, head in enumerate(heads)
    ]
    return table_of(rows, Listing(name, title, columns, empty), {"size": "500"}, alone=False)


@raw("/raw/messages/{topic}/{message_id}")
async def download(view: PageView) -> Response:
    """Return the body of a message as a file: never as something that a browser shows."""
    if not view.shows_bodies:
        raise NoPermissionError("a viewer sees no bodies of messages", code=16)
    one = await _the_message(view, unfold=True)
    headers = {"content-disposition": f"attachment; filename*=utf-8''{quote(one.message_id)}.bin"}
    return Response(one.body, media_type="application/octet-stream", headers=headers)
