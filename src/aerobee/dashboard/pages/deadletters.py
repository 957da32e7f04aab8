"""Dead letters: which groups have some, the letters of one group, and sending them again with a result for each."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from starlette.responses import Response

from aerobee.admin.deadletters import (
    DeadLetterEntry,
    LetterResult,
    dead_letter,
    letters_plan,
    read_letters,
    resend_each,
)
from aerobee.admin.messages import Span, reader_of
from aerobee.dashboard.blocks import Badge, Block, Choice, Mono, Note, PageLink, SearchForm, Table, Time, WebPage
from aerobee.dashboard.bodies import preview_of
from aerobee.dashboard.exporting import MESSAGE_NAMES, export_rows, told_of
from aerobee.dashboard.moments import moment_of
from aerobee.dashboard.pages.groups import tabs
from aerobee.dashboard.pages.messages import message_link
from aerobee.dashboard.pages.words import counted, topic_link
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.registry import ActionOutcome, ActionPlan, FormField, PageView, action, page, raw
from aerobee.dashboard.scanning import SEARCHED, Scanner, wanted_of
from aerobee.dashboard.security import Role
from aerobee.errors import InvalidArgumentError
from aerobee.errors.codes import NoPermissionError
from aerobee.model.names import DLQ_PREFIX, dlq_topic
from aerobee.model.numbers import int_or

_LIMITS = [("50", "50"), ("200", "200"), ("500", "500")]
_RESEND_MAX: Final = 10_000
_SPAN_FIELDS = [
    Choice("since", "Dead since", help="2026-11-18T10:00 (UTC), or 30m, 2h, 1d ago."),
    Choice("until", "Dead before"),
]


@page("/dead", title="Dead letters", menu="Dead letters")
async def dead(view: PageView) -> WebPage:
    snapshot = view.data.snapshot
    groups = [
        (name.removeprefix(DLQ_PREFIX), numbers)
        for name, numbers in snapshot.topic_numbers.items()
        if name.startswith(DLQ_PREFIX) and numbers.messages
    ]
    listing: Listing[Any] = Listing(
        "groups",
        "Groups with dead letters",
        [
            Column("group", "Group", lambda row: PageLink(row[0], f"/dead/{row[0]}"), lambda row: row[0]),
            Column("letters", "Dead letters", lambda row: row[1].messages, lambda row: row[1].messages, right=True,
                   falls=True),
            Column("last", "Last one", lambda row: Time(row[1].last_store_ms), lambda row: row[1].last_store_ms,
                   falls=True),
        ],
        "No group has given up on a message, as far as is known.",
        text=lambda row: row[0],
        sort="letters",
        falls=True,
    )  # fmt: skip
    return WebPage("Dead letters", [table_of(groups, listing, view.query)], snapshot.problems, as_of_ms=snapshot.at_ms,
                refresh_s=10)  # fmt: skip


def _span(view: PageView) -> Span:
    every = Span()
    since, until = moment_of(view.word("since"), view.now_ms), moment_of(view.word("until"), view.now_ms)
    return Span(every.begin_ms if since is None else since, every.end_ms if until is None else until)


def _limit(view: PageView) -> int:
    return int_or(view.word("limit"), 50, 1, 500)


def _search(view: PageView) -> SearchForm:
    fields = [Choice(one.name, one.label, view.word(one.name), help=one.help) for one in _SPAN_FIELDS]
    fields += [
        Choice("text", "Text", view.word("text"), help=SEARCHED),
        Choice("limit", "At most", str(_limit(view)), _LIMITS, "select"),
    ]
    return SearchForm("search", "Which letters", fields, "Show")


@page("/dead/{group}", title="Dead letters of a group", form=_search)
async def letters(view: PageView) -> WebPage:
    group = view.path["group"]
    wanted_span = _span(view)
    blocks: list[Block] = [_search(view)]
    actions: list[PageLink] = []
    problems: Sequence[str] = view.data.snapshot.problems
    if view.query.get("text") and not view.shows_bodies:
        raise InvalidArgumentError("a viewer cannot search in bodies and properties")
    found: list[DeadLetterEntry] = []
    if await view.admin.route(dlq_topic(group)) is not None:
        async with reader_of(view.admin) as consumer:
            scanner = Scanner(consumer, view.clock, newest_first=True, silent=view.silent)
            wanted = wanted_of("", view.query.get("text", ""), "")
            seen = await scanner.scan(
                dlq_topic(group), wanted_span, wanted, _limit(view), place=view.query.get("go_on", "")
            )
        problems = view.problems_with(seen.unreached)
        found = [dead_letter(one) for one in seen.messages]
        links = [PageLink("Go on", f"/dead/{group}", {**view.query, "go_on": seen.go_on})] if seen.go_on else []
        blocks.append(_letters(view, group, found))
        words = f"Looked at {seen.looked:,} of {seen.total:,} letters, newest first." + (
            "" if links else f" There are no more{' on the brokers that answer' if seen.unreached else ''}."
        )
        blocks.append(Note("looked", words, links=links))
        span = {name: view.word(name) for name in ("since", "until") if view.word(name)}
        if view.may(Role.operator) and found:
            which = "Send all of this time again" if span else "Send all again"
            actions.append(PageLink(which, f"/dead/{group}/resend", {**span, "all": "1"}))
        if view.shows_bodies and found:
            actions += [PageLink("JSON lines", f"/raw/dead/{group}", {**span, "format": "jsonl"}),
                        PageLink("CSV", f"/raw/dead/{group}", {**span, "format": "csv"})]  # fmt: skip
    else:
        blocks.append(_letters(view, group, found))
    return WebPage(f"Dead letters of {group}", blocks, problems, actions, tabs(group, "dead"))


def _letters(view: PageView, group: str, found: Sequence[DeadLetterEntry]) -> Table:
    columns: list[Column[DeadLetterEntry]] = [
        Column("stored", "Dead since", lambda one: Time(one.message.store_timestamp)),
        Column("id", "Letter", lambda one: message_link(one.message)),
        Column("origin", "Came from", lambda one: topic_link(one.origin_topic) if one.origin_topic
               else Badge("nobody knows", "warn")),
        Column("tag", "Tag", lambda one: one.message.tags),
        Column("keys", "Keys", lambda one: one.message.keys),
        Column("retries", "Retries", lambda one: one.message.reconsume_times, right=True),
    ]  # fmt: skip
    if view.shows_bodies:
        columns.append(Column("body", "Body", lambda one: Mono(preview_of(one.message))))
    empty = f"Group {group} has no dead letters" + (" that match." if view.word("text") or view.word("since") else ".")
    listing = Listing("letters", "Letters", columns, empty)
    table = table_of(found, listing, {"size": "500"}, alone=False)
    if not view.may(Role.operator):
        return table
    return table.with_picks(
        [one.message.message_id for one in found], "ids", f"/dead/{group}/resend", "Send the chosen again"
    )


# -- sending again


def _resend_fields(view: PageView) -> Sequence[FormField]:
    return [
        FormField(
            "ids", "Letters, one id on each line", "area", help="Leave this empty to send all letters of a time."
        ),
        FormField("all", "All letters of the time that is named, or all", "checkbox"),
        *(FormField(one.name, one.label, help=one.help) for one in _SPAN_FIELDS),
        FormField("rate", "Letters a second", "number", help="Empty sends as fast as it goes."),
    ]


def chosen_ids(view: PageView) -> list[str]:
    """Return the ids that were chosen, each once."""
    return list(dict.fromkeys(one for text in view.many.get("ids", ()) for one in text.split()))


async def _chosen(view: PageView) -> tuple[list[str], Span]:
    ids = chosen_ids(view)
    if not ids and not view.word("all"):
        raise InvalidArgumentError("choose letters, or all of a time")
    if ids and view.word("all"):
        raise InvalidArgumentError("choose letters or all of a time, not both")
    return ids, _span(view)


async def _plan_resend(view: PageView) -> ActionPlan:
    group = view.path["group"]
    ids, span = await _chosen(view)
    plan = await letters_plan(view.admin, group, message_ids=ids, span=span, limit=_RESEND_MAX + 1)
    if plan.total + plan.without_origin > _RESEND_MAX:
        return ActionPlan(
            [], problem=f"These are more than {_RESEND_MAX:,}: `aerobee dlq resend` sends them, or name a shorter time."
        )
    sentences = [
        f"{counted(count, 'letter is', 'letters are')} sent to {topic} again."
        for topic, count in sorted(plan.topics.items())
    ]
    if not plan.topics:
        sentences = ["Nothing is sent: no letter was found whose topic is known."]
    warnings = [
        f"{topic} is also consumed by {', '.join(others)}: they get these messages again, too."
        for topic, others in sorted(plan.other_groups.items())
        if others
    ]
    if plan.without_origin:
        warnings.append(f"Of {plan.without_origin:,} letters nobody knows the topic: they are left out.")
    if plan.missing_topics:
        warnings.append(f"These topics are gone, so their letters will fail: {', '.join(plan.missing_topics)}.")
    if plan.missing_ids:
        warnings.append(f"These letters are not there: {', '.join(plan.missing_ids[:20])}.")
    warnings += [f"Some letters cannot be read now: {one}." for one in plan.unread]
    sentences.append("The letters themselves stay where they are, because nothing can be taken out of a log.")
    return ActionPlan(sentences, warnings=warnings)


_RESULTS: Listing[LetterResult] = Listing(
    "results",
    "Each letter",
    [
        Column("letter", "Letter", lambda one: Mono(one.message_id)),
        Column("topic", "Topic", lambda one: topic_link(one.topic) if one.topic else None),
        Column("result", "Result", lambda one: Badge("sent", "good") if one.is_sent else Badge("failed", "bad")),
        Column("words", "Why, or the new id", lambda one: Mono(one.words)),
    ],
    "No letter was found.",
)


@action(
    "/dead/{group}/resend", _plan_resend, title="Send dead letters again", role=Role.operator, button="Send them",
    fields=_resend_fields, back=lambda view: f"/dead/{view.path['group']}",
)  # fmt: skip
async def resend(view: PageView) -> ActionOutcome:
    ids, span = await _chosen(view)
    rate = int_or(view.word("rate"), None, 1, 1_000_000) if view.word("rate") else None
    results = await resend_each(
        view.admin, view.path["group"], message_ids=ids, span=span, rate=rate, limit=_RESEND_MAX
    )  # fmt: skip
    failed = [one for one in results if not one.is_sent]
    sentences = [f"{counted(len(results) - len(failed), 'letter was', 'letters were')} sent again."]
    if failed:
        sentences.append(f"{len(failed):,} were not: the table says why.")
    # What failed comes first: it is what somebody has to look at.
    ordered = [*failed, *(one for one in results if one.is_sent)][:500]
    return ActionOutcome(sentences, [table_of(ordered, _RESULTS, {"size": "500"}, alone=False)], ok=not failed)


# -- export


_NAMES: Final = ("message_id", "origin_topic", "origin_message_id", *MESSAGE_NAMES[1:])


@raw("/raw/dead/{group}")
async def export(view: PageView) -> Response:
    """Return all letters of a time as JSON lines or CSV."""
    if not view.shows_bodies:
        raise NoPermissionError("a viewer sees no bodies of messages", code=16)
    letters = read_letters(view.admin, view.path["group"], _span(view))
    return await export_rows(view, _exported(letters), _NAMES, "dead-letters")


async def _exported(letters: AsyncGenerator[DeadLetterEntry, None]) -> AsyncGenerator[dict[str, Any], None]:
    async with contextlib.aclosing(letters):
        async for one in letters:
            told = told_of(one.message, one.message.body)
            told |= {"origin_topic": one.origin_topic, "origin_message_id": one.origin_message_id}
            yield {name: told[name] for name in _NAMES}
