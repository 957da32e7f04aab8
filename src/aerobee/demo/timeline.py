"""Counts over time, and their picture in one line of text."""

from __future__ import annotations

from dataclasses import dataclass, field

_BARS = "▁▂▃▄▅▆▇█"
COLUMNS_MAX = 60


@dataclass(slots=True)
class Timeline:
    """How far two counters were at each sample, `step_s` apart, and what happened when."""

    step_s: float
    acknowledged: list[int] = field(default_factory=lambda: [0])
    consumed: list[int] = field(default_factory=lambda: [0])
    marks: list[tuple[int, str]] = field(default_factory=list)

    def sample(self, acknowledged: int, consumed: int) -> None:
        self.acknowledged.append(acknowledged)
        self.consumed.append(consumed)

    def mark(self, text: str) -> None:
        """Something happened in the step that is being sampled."""
        self.marks.append((len(self.acknowledged) - 1, text))

    def lines(self) -> list[str]:
        """Both rates on one axis and one scale, and the marks below."""
        width = -(-max(len(self.acknowledged) - 1, 1) // COLUMNS_MAX)
        seconds = width * self.step_s
        rates = [_rates(counts, width, seconds) for counts in (self.acknowledged, self.consumed)]
        top = max((*rates[0], *rates[1], 1.0))
        lines = [
            f"{name}  {sparkline(rate, top)}  at most {max(rate, default=0.0):,.0f}"
            for name, rate in zip(("sent/s    ", "consumed/s"), rates, strict=True)
        ]
        return [*lines, *_mark_lines([(at // width, text) for at, text in self.marks])]


def sparkline(values: list[float], top: float) -> str:
    """One bar for each value; `top` is a full one, nothing at all is a blank."""
    last = len(_BARS) - 1
    return "".join(_BARS[min(last, int(value / top * last + 0.5))] if value > 0 else " " for value in values)


def _rates(counts: list[int], width: int, seconds: float) -> list[float]:
    """Counts a second over `width` samples each; a rest of the last column counts as if it were whole."""
    ends = [*range(width, len(counts), width)]
    if not ends or ends[-1] < len(counts) - 1:
        ends.append(len(counts) - 1)
    starts = [0, *ends[:-1]]
    return [(counts[end] - counts[start]) / seconds for start, end in zip(starts, ends, strict=True)]


def _mark_lines(marks: list[tuple[int, str]]) -> list[str]:
    return ["            " + " " * at + "↑ " + text for at, text in marks]
