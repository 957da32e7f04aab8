"""What was measured as one table: ours over Apache's, the spread of that ratio, the aim, and why where it is missed.

A figure's ratio is taken alternation by alternation (both brokers in the same minute), so that a machine that slows
down slows both: shown are the median and the lowest and highest.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# row -> contender -> figure -> one value for each alternation
Figures = dict[str, dict[str, dict[str, list[float]]]]
APACHE, OURS, INTERPRETED = "apache", "aerobee", "interpreted"


@dataclass(frozen=True)
class Figure:
    """One kind of figure: what it is called, and whether less is better."""

    label: str
    less: bool = True


FIGURES = {
    "per_second": Figure("messages/s", less=False),
    "cpu_us": Figure("CPU us/msg"),
    "mean_ms": Figure("mean round trip ms"),
    "p50_ms": Figure("p50 ms"),
    "p99_ms": Figure("p99 ms"),
    "p999_ms": Figure("p99.9 ms"),
    "seconds": Figure("seconds"),
    "resident_mb": Figure("resident MB"),
    "cpu_percent": Figure("CPU % of a core"),
}

# (beginning of a row's name, figure) -> what issue and documentation promise.
AIMS = {
    ("gRPC", "cpu_us"): 0.25,
    ("gRPC", "per_second"): 3.0,
    ("gRPC", "p99_ms"): 0.5,
    ("send 128 B, 16 x 1", "cpu_us"): 0.35,
    ("send", "cpu_us"): 0.4,
    ("send", "per_second"): 1.7,
    ("pull", "cpu_us"): 0.6,
    ("fixed", "p99_ms"): 0.5,
    ("fixed", "p999_ms"): 0.5,
    ("fixed", "cpu_us"): 0.3,
    ("sync replication", "per_second"): 1.7,
    ("sync replication", "cpu_us"): 0.3,
    ("async replication", "cpu_us"): 0.3,
    ("sync", "per_second"): 1.2,
    ("sync", "cpu_us"): 0.4,
    ("start after kill -9", "seconds"): 0.3,
    ("start", "seconds"): 0.2,
    ("idle", "resident_mb"): 0.15,
    ("idle", "cpu_percent"): 0.2,
}

# Why, where an aim is missed: found by profiling, see docs/performance.md.
REASONS = {
    ("send", "per_second"): "the load generator shares the cores: with two of them ours is held back by it first",
    ("pull", "cpu_us"): "28 of our 45 us a pull are the kernel taking 12 KB to the socket, as Apache pays it",
    (
        "fixed",
        "cpu_us",
    ): "every message comes alone and finds caches cold; half of it are four system calls and a change of task",
    ("fixed", "p99_ms"): "one thread: a tick that stands behind another process waits for a core",
    ("fixed", "p999_ms"): "one thread: a tick that stands behind another process waits for a core",
    (
        "sync",
        "cpu_us",
    ): "groups are small: a sync (40 to 60 us of kernel) and two changes of thread for a handful of messages",
    ("sync", "per_second"): "each group waits for the flusher thread to be scheduled, twice",
    ("start", "seconds"): "starting Python and importing is most of it",
    ("idle", "cpu_percent"): "the tick: 20 wake-ups a second",
}


def _of(table: Mapping[tuple[str, str], object], row: str, figure: str) -> object | None:
    """The entry with the longest beginning of the row's name."""
    found = [name for name, key in table if key == figure and row.startswith(name)]
    return table[max(found, key=len), figure] if found else None


def shown(values: list[float]) -> str:
    """Median and half the span."""
    middle, spread = statistics.median(values), (max(values) - min(values)) / 2
    digits = 0 if middle >= 1000 else 1 if middle >= 10 else 2
    return f"{middle:,.{digits}f}+-{spread:,.{digits}f}"


def _is_shown(row: str, figure: str) -> bool:
    """Latency is told where the load is fixed; of a full pipe it says only how full it is."""
    return not figure.endswith("_ms") or row.startswith(("fixed", "end to end", "Java"))


def _ratios(kept: dict[str, dict[str, list[float]]], figure: str) -> list[float]:
    if APACHE not in kept or OURS not in kept:
        return []
    pairs = zip(kept[OURS].get(figure, []), kept[APACHE].get(figure, []), strict=False)
    return [ours / theirs for ours, theirs in pairs if theirs > 0]


def lines(row: str, kept: dict[str, dict[str, list[float]]], names: list[str]) -> list[str]:
    """The lines of one row, one for each figure; markdown."""
    made = []
    present = [name for name in names if name in kept]
    for figure, kind in FIGURES.items():
        if not _is_shown(row, figure) or not any(figure in kept[name] for name in present):
            continue
        cells = [shown(kept[name][figure]) if name in kept and figure in kept[name] else "" for name in names]
        ratios = _ratios(kept, figure)
        ratio = verdict = aim_text = ""
        if ratios:
            middle = statistics.median(ratios)
            ratio = f"{middle:.2f}x ({min(ratios):.2f} to {max(ratios):.2f})"
            aim = _of(AIMS, row, figure)
            if isinstance(aim, float):
                aim_text = f"{'<=' if kind.less else '>='} {aim}x"
                is_met = middle <= aim if kind.less else middle >= aim
                verdict = "yes" if is_met else f"SHORT: {_of(REASONS, row, figure) or 'not explained'}"
        made.append(f"| {row} | {kind.label} | {' | '.join(cells)} | {ratio} | {aim_text} | {verdict} |")
    refused = {name: int(sum(kept[name].get("refused", [0]))) for name in present}
    if any(refused.values()):
        made.append(f"| {row} | refused | {' | '.join(str(refused.get(name, '')) for name in names)} | | | |")
    return made


def head(names: list[str]) -> str:
    columns = ["load", "figure", *names, "ratio (span)", "aim", "met"]
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"


def whole(figures: Figures, names: list[str]) -> str:
    return "\n".join([head(names), *(line for row, kept in figures.items() for line in lines(row, kept, names))])


def plot(figures: Figures, names: list[str], path: Path) -> bool:
    """CPU per message and rate of each load, where matplotlib is installed."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        return False
    rows = [row for row, kept in figures.items() if all("cpu_us" in kept.get(name, {}) for name in names)]
    if not rows:
        return False
    panes = [("cpu_us", "CPU per message, us (less is better)"), ("per_second", "messages per second (more is better)")]
    figure, axes = plt.subplots(1, 2, figsize=(13, 0.55 * len(rows) + 1.6), sharey=True)
    height = 0.8 / len(names)
    for axis, (key, label) in zip(axes, panes, strict=True):
        for number, name in enumerate(names):
            values = [figures[row][name][key] for row in rows]
            middles = [statistics.median(one) for one in values]
            spans = [[m - min(v) for m, v in zip(middles, values, strict=True)],
                     [max(v) - m for m, v in zip(middles, values, strict=True)]]  # fmt: skip
            places = [at + number * height for at in range(len(rows))]
            axis.barh(places, middles, height, xerr=spans, label=name)
        axis.set_xlabel(label)
    axes[0].set_yticks([at + height * (len(names) - 1) / 2 for at in range(len(rows))], rows)
    axes[0].invert_yaxis()
    axes[1].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True
