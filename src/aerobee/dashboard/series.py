"""Series over time, bounded: each value of the last hours, each minute of the last day. They are not kept on disk.

All series share one axis. A series that has no value at a moment has a gap there (NaN).
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

FINE_POINTS: Final = 2_160  # 10 s for 6 h
COARSE_POINTS: Final = 1_440  # 1 min for 24 h
SERIES_MAX: Final = 2_000
# A user who sees only a part of the cluster has a collector of its own.
SERIES_OF_A_USER: Final = 300
_GAP: Final = math.nan
_COARSE_MS: Final = 60_000


class _Ring:
    """The last `most` moments, with a value of each series at each."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.times: array[float] = array("d")
        self.values: dict[str, array[float]] = {}

    def add(self, now_ms: int, values: Mapping[str, float]) -> None:
        past = len(self.times)
        self.times.append(now_ms)
        for name, series in self.values.items():
            series.append(values.get(name, _GAP))
        for name, value in values.items():
            if name not in self.values:
                series = self.values[name] = array("f", (_GAP,)) * past
                series.append(value)
        # A tenth at a time, so that the arrays are not moved at every step.
        if len(self.times) > self._most + self._most // 10:
            cut = len(self.times) - self._most
            del self.times[:cut]
            for series in self.values.values():
                del series[:cut]

    def forget(self, name: str) -> None:
        self.values.pop(name, None)


class Series:
    """The series of one collector."""

    def __init__(self, most: int = SERIES_MAX) -> None:
        self._most = most
        self._fine = _Ring(FINE_POINTS)
        self._coarse = _Ring(COARSE_POINTS)
        self._sums: dict[str, tuple[float, int]] = {}
        self._minute = 0
        # When each series last had a value that is not 0, the one that rests longest first: it makes room.
        self._moved_ms: dict[str, int] = {}
        self.refused = 0

    def __len__(self) -> int:
        return len(self._moved_ms)

    def add(self, now_ms: int, values: Mapping[str, float]) -> None:
        """Add the values of one moment."""
        taken = {name: value for name, value in values.items() if self._has_room(name, value, now_ms)}
        self._fine.add(now_ms, taken)
        minute = now_ms // _COARSE_MS
        if self._minute and minute != self._minute:
            self._coarse.add(self._minute * _COARSE_MS, {name: sum_ / n for name, (sum_, n) in self._sums.items()})
            self._sums = {}
        self._minute = minute
        for name, value in taken.items():
            before, count = self._sums.get(name, (0.0, 0))
            self._sums[name] = before + value, count + 1

    def _has_room(self, name: str, value: float, now_ms: int) -> bool:
        known = name in self._moved_ms
        if not known and len(self._moved_ms) >= self._most:
            idle = next(iter(self._moved_ms))
            if not value or now_ms - self._moved_ms[idle] < 3_600_000:
                self.refused += 1
                return False
            self.forget(idle)
        if value or not known:
            self._moved_ms.pop(name, None)
            self._moved_ms[name] = now_ms
        return True

    def forget(self, name: str) -> None:
        """Drop a series, such as that of a deleted topic."""
        self._moved_ms.pop(name, None)
        self._sums.pop(name, None)
        self._fine.forget(name)
        self._coarse.forget(name)

    def keep_only(self, kind: str, names: set[str]) -> None:
        """Drop the series of a kind (`topic:`) whose things are gone."""
        for name in [one for one in self._moved_ms if one.startswith(kind) and one not in names]:
            self.forget(name)

    def read(self, names: list[str], since_ms: int, points: int = 400) -> tuple[list[int], list[list[float | None]]]:
        """Return the moments since a time, and the values of each series at them; None is a gap.

        Long spans come from the minutes, and at most `points` moments are told: the greatest value of each stretch.
        """
        fine = self._fine
        coarse = self._coarse
        # The minutes are for what lies before the fine values, and for nothing else.
        is_older = bool(coarse.times) and bool(fine.times) and coarse.times[0] < fine.times[0] - _COARSE_MS
        ring = coarse if is_older and fine.times[0] > since_ms else fine
        begin = bisect_left(ring.times, since_ms)
        step = max(1, -(-(len(ring.times) - begin) // points))
        places = range(begin, len(ring.times), step)
        times = [round(ring.times[min(at + step, len(ring.times)) - 1]) for at in places]
        told: list[list[float | None]] = []
        for name in names:
            series = ring.values.get(name)
            told.append([None if series is None else _greatest(series[at : at + step]) for at in places])
        return times, told


def _greatest(values: array[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return round(max(known), 3) if known else None
