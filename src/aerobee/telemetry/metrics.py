"""Metrics in Prometheus' text format: histograms, labels, and the lines of a family.

A server counts in its own numbers, and this module turns them into text when somebody asks. It is no registry: the
families of a broker are in `broker/metrics`. Texts from outside (topics, groups, versions) are escaped.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# The name of the series that stands for all those that are too many.
OTHER: Final = "_other"
# Stands in a label for everything together.
ALL: Final = "_all"


class Histogram:
    """Counts of observations by upper bound, with their sum. The last count is that above every bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float], counts: Sequence[int] | None = None, total: float = 0.0) -> None:
        self.bounds = tuple(bounds)
        self.counts = list(counts) if counts is not None else [0] * (len(self.bounds) + 1)
        self.total = total

    def add(self, value: float, times: int = 1) -> None:
        """Count an observation that was made so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def merge(self, other: Histogram) -> None:
        """Add everything that another histogram with the same bounds has counted."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    @property
    def count(self) -> int:
        return sum(self.counts)


def escaped(text: str) -> str:
    """Return a text as the value of a label holds it."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def labels_of(pairs: Mapping[str, str]) -> str:
    """Return labels as they stand between the braces."""
    return ",".join(f'{name}="{escaped(value)}"' for name, value in pairs.items())


def number(value: float) -> str:
    """Return a number of the text format."""
    if isinstance(value, int):
        return str(value)
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def head(name: str, kind: str, words: str) -> str:
    """Return the two lines that begin a family."""
    return f"# HELP {name} {words}\n# TYPE {name} {kind}\n"


def sample(name: str, labels: str, value: float) -> str:
    """Return the line of one series."""
    return f"{name}{{{labels}}} {number(value)}\n" if labels else f"{name} {number(value)}\n"


def histogram_lines(name: str, labels: str, found: Histogram) -> str:
    """Return the lines of one histogram."""
    lines: list[str] = []
    before = labels + "," if labels else ""
    total = 0
    for bound, count in zip((*found.bounds, math.inf), found.counts, strict=True):
        total += count
        shown = "+Inf" if bound == math.inf else repr(bound * 1.0)
        lines.append(f'{name}_bucket{{{before}le="{shown}"}} {total}\n')
    lines.extend((sample(name + "_count", labels, total), sample(name + "_sum", labels, found.total)))
    return "".join(lines)


def family(name: str, kind: str, words: str, series: Iterable[tuple[str, float]]) -> Iterator[str]:
    """Yield the text of one family: its head, then a piece for each series. A family without series has no text."""
    begun = False
    for labels, value in series:
        line = sample(name, labels, value)
        yield line if begun else head(name, kind, words) + line
        begun = True


def histogram_family(name: str, words: str, series: Iterable[tuple[str, Histogram]]) -> Iterator[str]:
    """Yield the text of a family of histograms."""
    begun = False
    for labels, found in series:
        lines = histogram_lines(name, labels, found)
        yield lines if begun else head(name, "histogram", words) + lines
        begun = True
