"""A small registry of counters and gauges, read as Prometheus text.

A counter is a number that its owner adds to directly (`counter.value += 1`), a gauge is one too or a
function that is asked when someone looks. One thread owns a registry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from aerobee.errors import InvalidArgumentError

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

Labels = tuple[tuple[str, str], ...]


class Counter:
    """Only ever grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: int | float = 0

    def add(self, amount: int | float = 1) -> None:
        """Count."""
        self.value += amount


class Gauge:
    """Goes up and down. With `read`, the value is asked for when needed."""

    __slots__ = ("_read", "value")

    def __init__(self, read: Callable[[], int | float] | None = None) -> None:
        self.value: int | float = 0
        self._read = read

    def current(self) -> int | float:
        """The value now."""
        return self._read() if self._read is not None else self.value


class _Family:
    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        self.text = text
        self.members: dict[Labels, Counter | Gauge] = {}


class Registry:
    """Metrics by name and labels. Asking again for the same gives the same object."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def counter(self, name: str, text: str = "", labels: Mapping[str, str] | None = None) -> Counter:
        """A counter."""
        members, key = self._family("counter", name, text, labels)
        found = members.get(key)
        if not isinstance(found, Counter):
            found = members[key] = Counter()
        return found

    def gauge(
        self,
        name: str,
        text: str = "",
        labels: Mapping[str, str] | None = None,
        read: Callable[[], int | float] | None = None,
    ) -> Gauge:
        """A gauge; giving `read` again replaces what is read."""
        members, key = self._family("gauge", name, text, labels)
        found = members.get(key)
        if not isinstance(found, Gauge) or read is not None:
            found = members[key] = Gauge(read)
        return found

    def _family(
        self, kind: str, name: str, text: str, labels: Mapping[str, str] | None
    ) -> tuple[dict[Labels, Counter | Gauge], Labels]:
        family = self._families.get(name)
        if family is None:
            if not _NAME.fullmatch(name):
                raise InvalidArgumentError(f"{name!r} cannot be the name of a metric")
            family = self._families[name] = _Family(kind, text)
        if family.kind != kind:
            raise InvalidArgumentError(f"metric {name} is a {family.kind}, not a {kind}")
        for label in labels or ():
            if not _LABEL.fullmatch(label):
                raise InvalidArgumentError(f"{label!r} cannot be a label of metric {name}")
        return family.members, tuple(sorted((labels or {}).items()))

    def remove(self, labels: Mapping[str, str]) -> int:
        """Forget every metric that carries these labels (a deleted topic); how many."""
        wanted = set(labels.items())
        count = 0
        for family in self._families.values():
            for key in [key for key in family.members if wanted <= set(key)]:
                del family.members[key]
                count += 1
        return count

    def values(self) -> dict[str, int | float]:
        """Every value by its full name, for tests and `--json`."""
        return {
            name + _labels(key): _value(metric)
            for name, family in sorted(self._families.items())
            for key, metric in sorted(family.members.items())
        }

    def render(self) -> str:
        """Prometheus' text format, 0.0.4."""
        lines = []
        for name, family in sorted(self._families.items()):
            if family.text:
                text = family.text.replace("\\", "\\\\").replace("\n", "\\n")
                lines.append(f"# HELP {name} {text}")
            lines.append(f"# TYPE {name} {family.kind}")
            for key, metric in sorted(family.members.items()):
                lines.append(f"{name}{_labels(key)} {_number(_value(metric))}")
        return "".join(line + "\n" for line in lines)


def _value(metric: Counter | Gauge) -> int | float:
    return metric.current() if isinstance(metric, Gauge) else metric.value


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: int | float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(value)
