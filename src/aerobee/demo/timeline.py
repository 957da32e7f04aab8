"""Counts over time, and a chart of them in a few lines of text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

_BARS = "▁▂▃▄▅▆▇█"
COLUMNS_MAX = 60


@dataclass(slots=True)
class Timeline:
    """The counters at each sample, `step_s` apart, and the events with their times.

    `spark` is filled at the end: Spark reports a batch when it is done.
    """

    step_s: float
    acknowledged: list[int] = field(default_factory=lambda: [0])
    consumed: list[int] = field(default_factory=lambda: [0])
    spark: list[int] = field(default_factory=list)
    marks: list[tuple[int, str]] = field(default_factory=list)

    def sample(self, acknowledged: int, consumed: int) -> None:
        self.acknowledged.append(acknowledged)
        self.consumed.append(consumed)

    def mark(self, text: str) -> None:
        """Note an event in the step that is being sampled."""
        self.marks.append((len(self.acknowledged) - 1, text))

    def fill_spark(self, batches: Sequence[tuple[float, float, int]]) -> None:
        """Fill `spark` from batches as (begin, end, rows), in seconds from the first sample.

        The rows of a batch are spread evenly over its time.
        """
        times = [number * self.step_s for number in range(len(self.acknowledged))]
        self.spark = [sum(math.floor(rows * _share(at, begin, end)) for begin, end, rows in batches) for at in times]

    @property
    def lag(self) -> list[int]:
        """The numbers of messages that were acknowledged and not consumed."""
        return _behind(self.acknowledged, self.consumed)

    @property
    def spark_lag(self) -> list[int]:
        """The numbers of messages that Spark has not yet read. A message that is stored twice is read twice."""
        return _behind(self.acknowledged, self.spark) if self.spark else []

    def flow_per_s(self, counts: Sequence[int]) -> float:
        """Return the mean rate over the steps in which the count grew."""
        steps = sum(after > before for before, after in pairwise(counts))
        return (counts[-1] - counts[0]) / (max(steps, 1) * self.step_s)

    def lines(self) -> list[str]:
        """Return the chart: the rates on one axis and one scale, the lag below on its own, and the marks."""
        width = -(-max(len(self.acknowledged) - 1, 1) // COLUMNS_MAX)
        seconds = width * self.step_s
        counters = {"sent/s": self.acknowledged, "consumed/s": self.consumed}
        if self.spark:
            counters["Spark/s"] = self.spark
        rates = {name: _rates(counts, width, seconds) for name, counts in counters.items()}
        top = max((*(value for rate in rates.values() for value in rate), 1.0))
        lines = [_line(name, rate, top) for name, rate in rates.items()]
        if self.spark:
            behind = [max(self.spark_lag[at : at + width]) * 1.0 for at in range(1, len(self.spark), width)]
            lines.append(_line("Spark lag", behind, max((*behind, 1.0))))
        return [*lines, *_mark_lines([(at // width, text) for at, text in self.marks])]


def sparkline(values: list[float], top: float) -> str:
    """Return one bar for each value. `top` is a full bar; 0 is a blank."""
    last = len(_BARS) - 1
    return "".join(_BARS[min(last, int(value / top * last + 0.5))] if value > 0 else " " for value in values)


def _line(name: str, values: list[float], top: float) -> str:
    return f"{name:10}  {sparkline(values, top)}  at most {max(values, default=0.0):,.0f}"


def _share(time: float, begin: float, end: float) -> float:
    """Return the share of begin..end that lies before the time."""
    return 1.0 if time >= end else max(0.0, (time - begin) / (end - begin))


def _behind(ahead: Sequence[int], counts: Sequence[int]) -> list[int]:
    return [max(0, one - other) for one, other in zip(ahead, counts, strict=True)]


def _rates(counts: list[int], width: int, seconds: float) -> list[float]:
    """Return counts a second over `width` samples each. The last column counts as if it were whole."""
    ends = [*range(width, len(counts), width)]
    if not ends or ends[-1] < len(counts) - 1:
        ends.append(len(counts) - 1)
    starts = [0, *ends[:-1]]
    return [(counts[end] - counts[start]) / seconds for start, end in zip(starts, ends, strict=True)]


def _mark_lines(marks: list[tuple[int, str]]) -> list[str]:
    return ["            " + " " * at + "↑ " + text for at, text in marks]
