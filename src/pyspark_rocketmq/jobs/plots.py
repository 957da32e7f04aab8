"""Plots of tables: lag and throughput over time, or any query whose first column is an axis.

A plot is first a value (`Picture`, `Panel`). matplotlib draws it at the end, as a PNG, an SVG, or an HTML page that
needs no other file. No display is necessary.
"""

from __future__ import annotations

import html
import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aerobee.errors import AerobeeError, InvalidArgumentError
from aerobee.model.numbers import plain_float
from pyspark_rocketmq.jobs.failures import BadQueryError
from pyspark_rocketmq.jobs.lag import lag_rows
from pyspark_rocketmq.jobs.sql import TopicSql, first_rows
from pyspark_rocketmq.jobs.trace import flow

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame

_POINTS_MAX: Final = 20_000
_SERIES_MAX: Final = 12
_KINDS: Final = (".png", ".html", ".svg")
# The colours of Okabe and Ito, which colour-blind readers can distinguish.
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")


class NoPlotError(AerobeeError):
    """matplotlib is not installed."""

    exit_code = 2


Points = list[tuple[Any, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over one axis."""

    title: str
    unit: str
    series: Mapping[str, Points]


@dataclass(frozen=True, slots=True)
class Picture:
    """Panels one below the other, and a table for the HTML page."""

    title: str
    panels: Sequence[Panel]
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = field(default_factory=tuple)


def plot_query(frame: DataFrame, target: Path, title: str) -> None:
    """Draw a query: the first column is the axis, numbers are lines, and a text column divides lines by its values."""
    require_kind(target)
    rows, more = first_rows(frame, _POINTS_MAX)
    if more:
        raise InvalidArgumentError(f"more than {_POINTS_MAX} points", hint="group by a time, or add a limit")
    draw(Picture(title, [Panel("", "", series_of(frame.dtypes, rows))]), target)


def series_of(dtypes: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> dict[str, Points]:
    """Return the lines of the rows. The types of the columns decide which is the axis, a number or a name."""
    numeric = [i for i, (_, kind) in enumerate(dtypes) if i and kind.startswith(_NUMBERS)]
    labels = [i for i, (_, kind) in enumerate(dtypes) if i and kind == "string"]
    if not numeric:
        raise BadQueryError("nothing to draw", hint="select an axis first, then one or more numbers")
    found: dict[str, Points] = {}
    for row in sorted((one for one in rows if one[0] is not None), key=lambda one: one[0]):
        words = [str(row[i]) for i in labels]
        for i in numeric:
            name = " ".join([*words, dtypes[i][0]] if len(numeric) > 1 or not words else words)
            if row[i] is not None:
                found.setdefault(name, []).append((row[0], plain_float(row[i])))
    if len(found) > _SERIES_MAX:
        raise InvalidArgumentError(f"{len(found)} lines are too many for a picture", hint=f"at most {_SERIES_MAX}")
    return found


_NUMBERS: Final = ("int", "bigint", "smallint", "tinyint", "double", "float", "decimal")


def plot_flow(topics: TopicSql, target: Path, step_s: int = 1) -> None:
    """Draw the rates of producers and consumers and the lag over the trace, with the current lag as a table."""
    require_kind(target)
    rows, _ = first_rows(flow(topics.query("select * from trace"), step_s), _POINTS_MAX)
    if not rows:
        raise InvalidArgumentError(
            f"topic {topics.places.trace_topic} holds no trace",
            hint="create clients with trace=True (Java: enableMsgTrace)",
        )
    lag = lag_rows(topics.places.namesrv, timeout_s=topics.places.timeout_s)
    draw(flow_picture(rows, lag, step_s), target)


def flow_picture(rows: Sequence[Sequence[Any]], lag: Sequence[Sequence[Any]], step_s: int = 1) -> Picture:
    """Return the picture of `trace.flow` rows (time, topic, group, messages) and `lag.SCHEMA` rows."""
    rates: dict[str, Points] = {}
    for time, topic, group, messages in rows:
        name = f"{topic} produced" if group is None else f"{topic} consumed by {group}"
        rates.setdefault(name, []).append((time, messages / step_s))
    left = left_over(rows)
    rates = {name: _with_zeros(points, step_s) for name, points in rates.items()}
    totals: dict[tuple[str, str], int] = {}
    for one in lag:
        totals[one[0], one[1]] = totals.get((one[0], one[1]), 0) + one[6]
    table = [(group, topic, str(behind)) for (group, topic), behind in sorted(totals.items())]
    panels = [Panel("throughput", "messages/s", _first(rates)), Panel("lag", "messages", _first(left))]
    return Picture("Throughput and lag, from the message trace", panels, ("group", "topic", "lag now"), table)


def left_over(rows: Sequence[Sequence[Any]]) -> dict[str, Points]:
    """Return the lag of each group over time: all messages sent so far minus those that the group has finished.

    A trace does not contain messages from before it began, so the lag begins at 0.
    """
    pairs = {(topic, group) for _, topic, group, _ in rows if group is not None}
    now: dict[tuple[str, str], float] = dict.fromkeys(sorted(pairs), 0.0)
    found: dict[str, Points] = {}
    for time, some in itertools.groupby(rows, key=lambda row: row[0]):
        changed = set()
        for _, topic, group, messages in some:
            for pair in now:
                if pair[0] == topic and group in (None, pair[1]):
                    now[pair] += messages if group is None else -messages
                    changed.add(pair)
        for pair in sorted(changed):
            found.setdefault(f"{pair[1]} of {pair[0]}", []).append((time, max(0.0, now[pair])))
    return found


def _first(series: dict[str, Points]) -> dict[str, Points]:
    """Return the lines with the highest values, as many as a reader can distinguish."""
    largest = sorted(series, key=lambda name: -sum(value for _, value in series[name]))[:_SERIES_MAX]
    return {name: series[name] for name in series if name in largest}


def _with_zeros(points: Points, step_s: int) -> Points:
    """Return the points with zeros added. A step without messages has no row, and its rate is 0."""
    step = timedelta(seconds=step_s)
    found: Points = []
    for time, value in points:
        if found and time - found[-1][0] > step:
            found.append((found[-1][0] + step, 0.0))
            if time - found[-1][0] > step:
                found.append((time - step, 0.0))
        found.append((time, value))
    return found


# -- drawing


def require_kind(target: Path) -> None:
    """Raise an error for a file that cannot be drawn, before anything is read."""
    if target.suffix.lower() not in _KINDS:
        raise InvalidArgumentError(f"{target.name}: a plot is a .png, .svg or .html file")
    try:
        __import__("matplotlib")
    except ImportError:
        raise NoPlotError("matplotlib is not installed", hint="pip install 'aerobee[plot]'") from None


def draw(picture: Picture, target: Path) -> None:
    """Write the picture in the format of the file's suffix."""
    require_kind(target)
    kind = target.suffix.lower()
    if kind == ".html":
        target.write_text(page(picture), encoding="utf-8")
    else:
        target.write_bytes(_render(picture, kind[1:]))


def page(picture: Picture) -> str:
    """Return an HTML page that needs no other file."""
    svg = _render(picture, "svg").decode()
    svg = svg[svg.index("<svg") :]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in picture.header)
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in picture.rows)
    table = f"<table><tr>{head}</tr>{rows}</table>" if picture.rows else ""
    title = html.escape(picture.title)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        "<style>body{font:15px system-ui,sans-serif;margin:2rem;max-width:70rem}svg{width:100%;height:auto}"
        "td,th{padding:.2rem 1rem .2rem 0;text-align:left}</style>"
        f"<h1>{title}</h1>{svg}{table}</html>\n"
    )


def _render(picture: Picture, kind: str) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Figure = Figure(figsize=(11, 1.2 + 3.2 * len(picture.panels)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(picture.panels), 1, sharex=True, squeeze=False)
    for row, panel in zip(axes, picture.panels, strict=True):
        _draw_panel(row[0], panel)
    if kind != "svg":
        figure.suptitle(picture.title, fontsize=12)
    out = io.BytesIO()
    figure.savefig(out, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
    return out.getvalue()


def _draw_panel(axis: Any, panel: Panel) -> None:
    for number, (name, points) in enumerate(panel.series.items()):
        along, up = [x for x, _ in points], [y for _, y in points]
        style = "-" if number < len(_COLOURS) else "--"
        mark = "o" if len(points) < 2 else None
        axis.plot(along, up, style, marker=mark, label=name, color=_COLOURS[number % len(_COLOURS)], linewidth=1.6)
    axis.set_title(panel.title, loc="left", fontsize=11)
    axis.set_ylabel(panel.unit)
    axis.set_ylim(bottom=min(0, *axis.get_ylim()))
    axis.grid(alpha=0.3)
    if panel.series:
        axis.legend(loc="upper left", fontsize=9)
