"""The demo's picture, a PNG: rates and lag on one time axis, with a mark for the kill."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aerobee.demo.timeline import Timeline

# The colours are those of Okabe and Ito, which colour-blind readers can tell apart.
_BLUE, _ORANGE, _GREEN, _GREY = "#0072B2", "#E69F00", "#009E73", "#555555"
# A rate is the mean over this time. Without it every pause of a process would be a spike.
_SMOOTH_S = 1.0


def draw(timeline: Timeline, target: Path, scratch: Path) -> str:
    """Write the picture and return a sentence about it. matplotlib's cache goes to `scratch`, not to a home."""
    os.environ["MPLCONFIGDIR"] = str(scratch)
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return "No picture: matplotlib is not installed (pip install 'aerobee[plot]')."
    figure = Figure(figsize=(10, 6), layout="constrained")
    FigureCanvasAgg(figure)
    rates, lags = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    times = [number * timeline.step_s for number in range(len(timeline.acknowledged))]
    # The line of consumed hides that of produced as long as nobody is behind, so the lower one is wider.
    for name, counts, colour, width in (
        ("produced/s", timeline.acknowledged, _BLUE, 4.0),
        ("consumed/s", timeline.consumed, _ORANGE, 1.5),
        ("Spark rows/s", timeline.spark, _GREEN, 1.8),
    ):
        if counts:
            rates.plot(times, smooth_rates(counts, timeline.step_s), label=name, color=colour, linewidth=width)
    lags.plot(times, timeline.lag, label="lag of the consumers", color=_ORANGE, linewidth=1.8)
    if timeline.spark:
        lags.plot(times, timeline.spark_lag, label="lag of Spark", color=_GREEN, linewidth=1.8)
    rates.set_title("Orders through three replicas, of which the master is killed", loc="left", fontsize=12)
    rates.set_ylabel("messages/s")
    lags.set_ylabel("messages behind")
    lags.set_xlabel("seconds since the first order")
    _mark(rates, lags, [(at * timeline.step_s, text) for at, text in timeline.marks], times[-1])
    for axis in (rates, lags):
        _dress(axis)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=110)
    return f"The picture of this run: {target}"


def smooth_rates(counts: Sequence[int], step_s: float) -> list[float]:
    """Return rates per second, each over a window around its sample. The window is cut at both ends."""
    half = max(1, round(_SMOOTH_S / step_s / 2))
    last = len(counts) - 1
    windows = [(max(0, at - half), min(last, at + half)) for at in range(len(counts))]
    return [(counts[end] - counts[begin]) / (max(end - begin, 1) * step_s) for begin, end in windows]


def _mark(rates: Any, lags: Any, marks: list[tuple[float, str]], end_s: float) -> None:
    """Draw a line through both panels for each mark. Each text has a level of its own, so that none overlap."""
    top = rates.get_ylim()[1]
    level = top * 0.09
    rates.set_ylim(0, top + level * (len(marks) + 0.5))
    for number, (at_s, text) in enumerate(marks):
        colour, style = ("#D00000", "-") if text.startswith("kill") else (_GREY, "--")
        for axis in (rates, lags):
            axis.axvline(at_s, color=colour, linestyle=style, linewidth=1.2)
        is_late = at_s > end_s * 0.6
        rates.annotate(
            text,
            (at_s, top + level * (len(marks) - number - 0.5)),
            xytext=(-5 if is_late else 5, 0),
            textcoords="offset points",
            horizontalalignment="right" if is_late else "left",
            verticalalignment="center",
            color=colour,
            fontsize=10,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
        )


def _dress(axis: Any) -> None:
    axis.set_xlim(left=0)
    axis.set_ylim(bottom=0)
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(loc="upper right", fontsize=10)
