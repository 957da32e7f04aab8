"""Spark: queries that show their progress as groups, sink batches, and the archive."""

from __future__ import annotations

from typing import Any

from aerobee.admin.cluster import settings_of
from aerobee.admin.connection import from_each
from aerobee.dashboard.blocks import Badge, Block, Cell, Length, Mono, Rate, Time, WebPage
from aerobee.dashboard.pages.pipelines import spark_tabs
from aerobee.dashboard.pages.words import broker_link, group_link, several, topic_link
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.registry import PageView, page
from aerobee.dashboard.snapshot import GroupNumbers
from aerobee.errors import AerobeeError
from aerobee.model.numbers import int_or

_SHOWN_TOPICS = 4


@page("/spark", title="Spark", menu="Spark")
async def spark(view: PageView) -> WebPage:
    snapshot = view.data.snapshot
    queries = [
        (name, numbers)
        for name, numbers in snapshot.group_numbers.items()
        if numbers.topics and not numbers.members and not snapshot.groups[name].is_system
    ]
    problems = list(snapshot.problems)
    sinks = [
        (one.broker, int_or(info.get("batchChunksPending"), None), int_or(info.get("batchRowsSetAside"), None))
        for one in snapshot.brokers
        if one.broker_id == 0 and one.problem is None and "batchChunksPending" in (info := snapshot.infos[one.address])
    ]
    blocks: list[Block] = [
        table_of(queries, _queries(), view.query, alone=False),
        table_of(sinks, _SINKS, {}, alone=False),
        await _archives(view, problems),
    ]
    return WebPage("Spark", blocks, problems, (), spark_tabs(""), as_of_ms=snapshot.at_ms, refresh_s=10)


def _queries() -> Listing[tuple[str, GroupNumbers]]:
    return Listing(
        "queries",
        "Queries and pipelines, by their group",
        [
            Column("group", "Group", lambda row: group_link(row[0]), lambda row: row[0]),
            Column("state", "State", _state, lambda row: row[1].moved_ms),
            Column("topics", "Topics", lambda row: _topics(row[1])),
            Column("rows", "Rows /s", lambda row: Rate(row[1].rows_s), lambda row: row[1].rows_s, right=True,
                   falls=True),
            Column("lag", "Unread", lambda row: row[1].lag, lambda row: row[1].lag, right=True, falls=True),
            Column("oldest", "Oldest unread", lambda row: Length(row[1].oldest_ms), lambda row: row[1].oldest_ms,
                   right=True, falls=True),
            Column("batch", "Last batch seen", lambda row: Time(row[1].moved_ms), lambda row: row[1].moved_ms,
                   falls=True),
        ],
        "No query shows its progress. The option `group` of the Spark source makes it do so.",
        text=lambda row: row[0],
        sort="group",
        note="Groups that have offsets and no members: a query of Spark commits its progress so, and so do tools that "
        "read by themselves. “Last batch seen” counts from the start of this dashboard.",
    )  # fmt: skip


def _state(row: tuple[str, GroupNumbers]) -> Cell:
    if row[1].rows_s:
        return Badge("runs", "good")
    return Badge("behind and quiet", "warn") if row[1].lag else Badge("quiet", "calm")


def _topics(numbers: GroupNumbers) -> Cell:
    shown: list[Cell] = [topic_link(name) for name in numbers.topics[:_SHOWN_TOPICS]]
    if len(numbers.topics) > _SHOWN_TOPICS:
        shown.append(f"and {len(numbers.topics) - _SHOWN_TOPICS} more")
    return several(shown)


_SINKS: Listing[Any] = Listing(
    "sinks",
    "Batches of exactly-once sinks",
    [
        Column("broker", "Broker", lambda row: broker_link(row[0])),
        Column("chunks", "Chunks not yet copied to their topics", lambda row: row[1], right=True),
        Column("aside", "Rows set aside", lambda row: row[2], right=True),
    ],
    "These brokers do not tell: only Aerobee's keep rows of batches.",
)


async def _archives(view: PageView, problems: list[str]) -> Block:
    """Return where each broker's archive is, and the oldest message that the broker still has."""
    rows: list[tuple[str, str, int]] = []
    empty = "No broker has an archive. Set archivePath, and let `aerobee archive run` fill it."
    try:
        masters = [one for one in await view.admin.masters() if one.address not in view.data.snapshot.silent]
        said, silent = await from_each(masters, lambda one: settings_of(view.admin, one))
        problems += silent
        oldest = {one.address: one.earliest_timestamp for one in view.data.snapshot.brokers}
        rows = [
            (one.name, settings["archivePath"], oldest.get(one.address, 0))
            for one, settings in said
            if settings.get("archivePath")
        ]
    except AerobeeError as error:
        empty = f"It cannot be told whether there is an archive: {error.message}"
    listing: Listing[tuple[str, str, int]] = Listing(
        "archives",
        "Archives",
        [
            Column("broker", "Broker", lambda row: broker_link(row[0])),
            Column("path", "Path", lambda row: Mono(row[1])),
            Column("oldest", "Oldest message that is still in the log", lambda row: Time(row[2])),
        ],
        empty,
        note="`aerobee archive status PATH` lists the segments of an archive.",
    )
    return table_of(rows, listing, {}, alone=False)
