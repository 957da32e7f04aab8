"""Spark from nearby: queries by their checkpoints, batches of exactly-once sinks, and the segments of archives."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aerobee.admin.messages import Span, reader_of
from aerobee.admin.sinkbatches import ABORTED, COMMITTED, PREPARED, SinkBatch, is_entry, newest_batches
from aerobee.admin.topics import topic_details
from aerobee.dashboard.blocks import Badge, Cell, Length, Mono, Note, PageLink, Rate, Size, Time, WebPage
from aerobee.dashboard.pages.words import broker_link, several, topic_link
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.registry import PageView, page
from aerobee.dashboard.scanning import LOOK_MAX, Scanner, WantedMessages
from aerobee.errors import AerobeeError
from aerobee.errors.codes import TopicNotExistError
from aerobee.model.names import BATCH_TOPIC
from aerobee.model.numbers import int_or
from aerobee.runtime.disk import InlineDisk

if TYPE_CHECKING:
    from pyspark_rocketmq.jobs.checkpoints import QueryProgress

# Of how many topics the ends are asked, and how many manifests of a broker are read.
_TOPICS_MAX: Final = 50
_MANIFESTS_MAX: Final = 500
_TOPICS_SHOWN: Final = 4
_STALE_MS: Final = 15 * 60_000
_NOT_YOURS: Final = (
    "Files of the dashboard's machine are shown to Super users only: the rights of other users do not reach there."
)


def spark_tabs(here: str) -> list[tuple[PageLink, bool]]:
    """Return the tabs of the pages about Spark."""
    places = [("", "Groups of queries"), ("/checkpoints", "Checkpoints"), ("/batches", "Sink batches"),
              ("/archives", "Archives")]  # fmt: skip
    return [(PageLink(word, f"/spark{path}"), path.removeprefix("/") == here) for path, word in places]


def _page(view: PageView, here: str, title: str, block: object, problems: Sequence[str] = ()) -> WebPage:
    told = list(dict.fromkeys([*view.data.snapshot.problems, *problems]))
    return WebPage(title, [block], told, (), spark_tabs(here), refresh_s=10)  # type: ignore[list-item]


def _topics(names: Sequence[str]) -> Cell:
    shown: list[Cell] = [topic_link(name) for name in names[:_TOPICS_SHOWN]]
    if len(names) > _TOPICS_SHOWN:
        shown.append(f"and {len(names) - _TOPICS_SHOWN} more")
    return several(shown)


# -- checkpoints


@page("/spark/checkpoints", title="Checkpoints")
async def checkpoints(view: PageView) -> WebPage:
    directories = view.places.pipelines
    if not directories:
        words = (
            "No project is named. Start the dashboard with `--pipeline DIR`, once for each project of "
            "`aerobee pipeline` or directory of checkpoints that this machine sees."
        )
        return _page(view, "checkpoints", "Checkpoints", Note("how", words))
    if not view.may_see_files:
        return _page(view, "checkpoints", "Checkpoints", Note("role", _NOT_YOURS))
    found, problems = await view.read(_queries_in, directories)
    ends = await _ends(view, sorted({topic for one in found for topic in one.topics})[:_TOPICS_MAX], problems)
    rows = [(one, one.behind(ends)) for one in found]
    return _page(view, "checkpoints", "Checkpoints", table_of(rows, _queries(view.now_ms), view.query), problems)


def _queries_in(directories: Sequence[str]) -> tuple[list[QueryProgress], list[str]]:
    from pyspark_rocketmq.jobs.checkpoints import queries_of

    found: list[QueryProgress] = []
    problems: list[str] = []
    for directory in directories:
        queries, told = queries_of(directory)
        found += queries
        problems += told
    return found, problems


async def _ends(view: PageView, topics: Sequence[str], problems: list[str]) -> dict[tuple[str, str, int], int]:
    """Return where the queues of topics end now."""
    ends: dict[tuple[str, str, int], int] = {}

    async def ask(topic: str) -> None:
        try:
            details = await topic_details(view.admin, topic)
        except AerobeeError as error:
            problems.append(f"the end of topic {topic} is not known: {error.message}")
            return
        ends.update({(topic, one.broker, one.queue_id): one.max_offset for one in details.queues})

    await asyncio.gather(*(ask(topic) for topic in topics))
    return ends


def _queries(now_ms: int) -> Listing[tuple[QueryProgress, int | None]]:
    return Listing(
        "queries",
        "Queries, by their checkpoints",
        [
            Column("project", "Project", lambda row: row[0].project, lambda row: row[0].project),
            Column("query", "Query", lambda row: row[0].query, lambda row: row[0].query),
            Column("state", "State", lambda row: _query_state(row[0], row[1], now_ms), lambda row: row[0].done_ms),
            Column("topics", "Topics", lambda row: _topics(row[0].topics)),
            Column("batch", "Last batch", lambda row: row[0].batch if row[0].batch >= 0 else None,
                   lambda row: row[0].batch, right=True, falls=True),
            Column("done", "Done", lambda row: Time(row[0].done_ms), lambda row: row[0].done_ms, falls=True),
            Column("rows", "Rows of it", lambda row: row[0].rows, lambda row: row[0].rows, right=True, falls=True),
            Column("took", "It took", lambda row: Length(row[0].batch_ms), lambda row: row[0].batch_ms, right=True,
                   falls=True),
            Column("rate", "Rows /s", lambda row: Rate(row[0].rows_s), lambda row: row[0].rows_s, right=True,
                   falls=True),
            Column("lag", "Unread", lambda row: row[1], lambda row: row[1], right=True, falls=True),
        ],
        "The directories hold no checkpoint yet: nothing has run.",
        text=lambda row: f"{row[0].project} {row[0].query} {' '.join(row[0].topics)}",
        filter_label="Project, query or topic contains",
        sort="project",
        note="Rows a second over the last ten batches, with pauses. Unread counts from the last batch that is done.",
    )  # fmt: skip


def _query_state(one: QueryProgress, lag: int | None, now_ms: int) -> Cell:
    if one.running is not None:
        if now_ms - one.began_ms > _STALE_MS:
            return Badge(f"batch {one.running} began long ago", "warn")
        return Badge(f"in batch {one.running}", "good")
    if one.batch < 0:
        return Badge("has not begun", "calm")
    return Badge("behind and quiet", "warn") if lag and now_ms - one.done_ms > _STALE_MS else Badge("waits", "calm")


# -- sink batches


@page("/spark/batches", title="Sink batches")
async def batches(view: PageView) -> WebPage:
    """Show what the newest records of each broker's journal of batches say."""
    looked, problems = "", list[str]()
    rows: tuple[SinkBatch, ...] = ()
    try:
        async with reader_of(view.admin) as consumer:
            scanner = Scanner(consumer, view.clock, newest_first=True, chunk=4, silent=view.silent)
            found = await scanner.scan(BATCH_TOPIC, Span(), WantedMessages(is_entry, False), LOOK_MAX)
        problems = view.problems_with(found.unreached)
        rows = newest_batches(found.messages)
        if found.go_on:
            looked = f" These are from the newest {found.looked:,} of {found.total:,} records."
    except TopicNotExistError:
        pass
    return _page(view, "batches", "Sink batches", table_of(rows, _batches(looked), view.query), problems)


_PHASES: Final = {COMMITTED: "good", PREPARED: "warn", ABORTED: "bad"}


def _batches(looked: str) -> Listing[SinkBatch]:
    return Listing(
        "batches",
        "Newest batch of each exactly-once sink, by broker",
        [
            Column("query", "Query", lambda one: Mono(one.query), lambda one: one.query),
            Column("broker", "Broker", lambda one: broker_link(one.broker), lambda one: one.broker),
            Column("batch", "Batch", lambda one: one.batch, lambda one: one.batch, right=True, falls=True),
            Column("phase", "Phase", lambda one: Badge(one.phase, _PHASES.get(one.phase, "calm")),
                   lambda one: one.phase),
            Column("rows", "Rows", lambda one: one.rows, lambda one: one.rows, right=True, falls=True),
            Column("topics", "To topics", lambda one: _topics(one.topics)),
            Column("run", "Run", lambda one: one.epoch, lambda one: one.epoch, right=True),
            Column("began", "Began", lambda one: Time(one.first_ms), lambda one: one.first_ms),
            Column("last", "Last word", lambda one: Time(one.last_ms), lambda one: one.last_ms, falls=True),
        ],
        "No exactly-once sink has written a batch here.",
        text=lambda one: f"{one.query} {one.broker} {' '.join(one.topics)}",
        filter_label="Query, broker or topic contains",
        sort="last",
        falls=True,
        note="open: rows come, and nobody reads them yet. prepared: every broker has the rows. committed: the rows are "
        f"readable, or are being copied to their topics.{looked}",
    )  # fmt: skip


# -- archives


@dataclass(frozen=True, slots=True)
class ArchivedBroker:
    """What an archive holds of one broker."""

    archive: str
    broker: str
    segments: int
    begin: int
    end: int
    rows: int
    bytes: int
    last_store_ms: int
    # Whether only the newest manifests were read for rows and bytes.
    is_cut: bool = False


@page("/spark/archives", title="Archives")
async def archives(view: PageView) -> WebPage:
    if not view.places.archives:
        words = (
            "No archive is named. Start the dashboard with `--archive DIR`, once for each archive that this machine "
            "sees. `aerobee archive run` makes one."
        )
        return _page(view, "archives", "Archives", Note("how", words))
    if not view.may_see_files:
        return _page(view, "archives", "Archives", Note("role", _NOT_YOURS))
    found, problems = await view.read(_archived_in, view.places.archives)
    snapshot = view.data.snapshot
    log_ends = {
        one.broker: int_or(snapshot.infos.get(one.address, {}).get("commitLogMaxOffset"), 0)
        for one in snapshot.brokers
        if one.broker_id == 0
    }
    rows = [(one, max(0, log_ends[one.broker] - one.end) if log_ends.get(one.broker) else None) for one in found]
    return _page(view, "archives", "Archives", table_of(rows, _archives(), view.query), problems)


def _archived_in(directories: Sequence[str]) -> tuple[list[ArchivedBroker], list[str]]:
    from pyspark_rocketmq_store import manifest

    disk = InlineDisk()
    found: list[ArchivedBroker] = []
    problems: list[str] = []
    try:
        for directory in directories:
            try:
                manifest.require_archive(disk, directory)
                for broker in manifest.brokers_of(disk, directory):
                    spans = manifest.finished(disk, directory, broker)
                    read = [manifest.read_manifest(disk, directory, broker, *one) for one in spans[-_MANIFESTS_MAX:]]
                    if read:
                        found.append(
                            ArchivedBroker(
                                directory, broker, len(spans), spans[0][0], spans[-1][1], sum(one.rows for one in read),
                                sum(file.bytes for one in read for file in one.files),
                                max(one.last_store_ms for one in read), len(spans) > len(read),
                            )
                        )  # fmt: skip
            except (AerobeeError, OSError) as error:
                problems.append(f"the archive {directory} cannot be read: {error}")
    finally:
        disk.close()
    return found, problems


def _archives() -> Listing[tuple[ArchivedBroker, int | None]]:
    return Listing(
        "archives",
        "Archived segments, by broker",
        [
            Column("archive", "Archive", lambda row: Mono(row[0].archive), lambda row: row[0].archive),
            Column("broker", "Broker", lambda row: broker_link(row[0].broker), lambda row: row[0].broker),
            Column("segments", "Segments", lambda row: row[0].segments, lambda row: row[0].segments, right=True,
                   falls=True),
            Column("rows", "Messages", lambda row: row[0].rows, lambda row: row[0].rows, right=True, falls=True),
            Column("bytes", "Parquet", lambda row: Size(row[0].bytes), lambda row: row[0].bytes, right=True,
                   falls=True),
            Column("last", "Newest message", lambda row: Time(row[0].last_store_ms),
                   lambda row: row[0].last_store_ms, falls=True),
            Column("end", "Archived up to", lambda row: row[0].end, lambda row: row[0].end, right=True),
            Column("behind", "Not archived yet", lambda row: Size(row[1]), lambda row: row[1], right=True, falls=True),
        ],
        "The archives hold no segment yet.",
        sort="broker",
        note=f"“Not archived yet” counts from there to the end of the broker's log; a segment that is still written is "
        f"in it. Messages and bytes are of the newest {_MANIFESTS_MAX} segments of a broker.",
    )  # fmt: skip
