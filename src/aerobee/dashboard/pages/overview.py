"""The overview: brokers, the busiest topics, the groups that are furthest behind; and the figures of charts."""

from __future__ import annotations

from typing import Final

from starlette.responses import JSONResponse, Response

from aerobee.admin.cluster import BrokerStatus
from aerobee.dashboard.blocks import Chart, ChartLine, Facts, Length, Rate, WebPage
from aerobee.dashboard.pages.brokers import broker_listing
from aerobee.dashboard.pages.words import TREND_LABEL, group_link, topic_link, trend_of, troubles_of
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.registry import PageView, page, raw
from aerobee.dashboard.snapshot import GroupNumbers, TopicNumbers

TOP: Final = 10
REFRESH_S: Final = 10
_LINES_MAX: Final = 12
_SPANS: Final = {"15m": 15 * 60_000, "1h": 3_600_000, "6h": 6 * 3_600_000, "24h": 24 * 3_600_000}


@page("/", title="Overview", menu="Overview")
async def overview(view: PageView) -> WebPage:
    snapshot = view.data.snapshot
    busiest = sorted(
        (
            (name, one)
            for name, one in snapshot.topic_numbers.items()
            if one.in_s and (known := snapshot.topics.get(name)) is not None and known.kind != "system"
        ),
        key=lambda pair: pair[1].in_s or 0.0,
        reverse=True,
    )[:TOP]
    behind = sorted(
        ((name, one) for name, one in snapshot.group_numbers.items() if one.lag),
        key=lambda pair: pair[1].lag or 0,
        reverse=True,
    )[:TOP]
    masters = [one for one in snapshot.brokers if one.broker_id == 0]
    living = [one for one in snapshot.brokers if one.problem is None]
    facts = Facts(
        "cluster",
        "Cluster",
        [
            ("Brokers that answer", f"{len(living)} of {len(snapshot.brokers)}"),
            ("Messages in /s", Rate(sum(one.in_tps for one in masters))),
            ("Messages out /s", Rate(sum(one.out_tps for one in masters))),
            ("In today", sum(one.in_today for one in masters)),
            ("Topics", sum(1 for one in snapshot.topics.values() if one.kind == "normal")),
            ("Groups", sum(1 for one in snapshot.groups.values() if not one.is_system)),
            ("Unconsumed", sum(one.lag or 0 for one in snapshot.group_numbers.values())),
            ("Dead letters", sum(one.messages or 0 for name, one in snapshot.topic_numbers.items()
                                 if name.startswith("%DLQ%"))),
        ],
        large=True,
    )  # fmt: skip
    troubles = [text for one in snapshot.brokers for text in troubles_of(one)]
    lines = [ChartLine("cluster:in", "in"), ChartLine("cluster:out", "out")]
    disks = [ChartLine(f"disk:{one.broker}:{one.broker_id}", _called(one)) for one in living][:_LINES_MAX]
    return WebPage(
        "Overview",
        [
            facts,
            Chart("traffic", "Messages a second", lines),
            table_of(busiest, _busiest(view), {}, alone=False),
            table_of(behind, _behind(view), {}, alone=False),
            table_of(snapshot.brokers, broker_listing(), {}, alone=False),
            Chart("disks", "Disk used", disks, "%"),
        ],
        [*troubles, *snapshot.problems, *filter(None, (snapshot.unasked,))],
        as_of_ms=snapshot.at_ms,
        refresh_s=REFRESH_S,
    )


def _called(broker: BrokerStatus) -> str:
    return broker.broker if broker.broker_id == 0 else f"{broker.broker} replica {broker.broker_id}"


def _busiest(view: PageView) -> Listing[tuple[str, TopicNumbers]]:
    return Listing(
        "busiest",
        "Busiest topics",
        [
            Column("topic", "Topic", lambda pair: topic_link(pair[0])),
            Column("trend", TREND_LABEL, lambda pair: trend_of(view, f"topic:{pair[0]}")),
            Column("in_s", "In /s", lambda pair: Rate(pair[1].in_s), right=True),
            Column("messages", "Kept", lambda pair: pair[1].messages, right=True),
        ],
        "No topic has got a message within the last seconds.",
    )


def _behind(view: PageView) -> Listing[tuple[str, GroupNumbers]]:
    return Listing(
        "behind",
        "Groups that are behind",
        [
            Column("group", "Group", lambda pair: group_link(pair[0])),
            Column("trend", TREND_LABEL, lambda pair: trend_of(view, f"lag:{pair[0]}")),
            Column("lag", "Unconsumed", lambda pair: pair[1].lag, right=True),
            Column("oldest", "Oldest", lambda pair: Length(pair[1].oldest_ms), right=True),
            Column("tps", "Out /s", lambda pair: Rate(pair[1].tps), right=True),
        ],
        "Every group has consumed everything.",
    )


@raw("/api/series")
async def series(view: PageView) -> Response:
    """Return the values of series: `names` are separated by line ends, `span` is one of 15m, 1h, 6h, 24h."""
    names = [one for one in view.query.get("names", "").split("\n") if one][:_LINES_MAX]
    span_ms = _SPANS.get(view.word("span", "15m"), _SPANS["15m"])
    times, values = view.data.series.read(names, view.now_ms - span_ms)
    return JSONResponse({"times": times, "series": dict(zip(names, values, strict=True)), "now": view.now_ms})
