"""Turns pages into HTML. Everything from outside is escaped by the templates; nothing is marked as safe."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import resources
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from aerobee.dashboard.blocks import Cell, PageLink

# The dash of what is not there.
_NONE: Final = "\u2013"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STATIC: Final = (
    "dashboard.css", "dashboard.js", "theme.js", "favicon.svg", "htmx-2.0.11.min.js", "uplot-1.6.32.min.js",
    "uplot-1.6.32.min.css",
)  # fmt: skip


def number(value: float | None) -> str:
    """Return a number with separators, such as 12,345."""
    if value is None:
        return _NONE
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{value:,.0f}"


def size(count: int | None) -> str:
    """Return a number of bytes in the unit that fits."""
    if count is None:
        return _NONE
    value, place = 1.0 * count, 0
    while abs(value) >= 1024 and place < len(_UNITS) - 1:
        value, place = value / 1024, place + 1
    return f"{value:.0f} B" if place == 0 else f"{value:.1f} {_UNITS[place]}"


def rate(value: float | None) -> str:
    return _NONE if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def ratio(value: float | None) -> str:
    return _NONE if value is None or value < 0 else f"{value * 100:.1f} %"


def span(ms: float | None) -> str:
    """Return a length of time in one or two units, such as 3 min 5 s."""
    if ms is None:
        return _NONE
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = int(ms / 1000)
    for unit, word, below, small in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= unit:
            rest = seconds % unit // below
            return f"{seconds // unit} {word} {rest} {small}" if rest else f"{seconds // unit} {word}"
    return f"{seconds} s"


def utc(ms: int, exact: bool = False) -> str:
    """Return a moment in UTC, or a dash where there is none. An exact one has milliseconds."""
    try:
        at = datetime.fromtimestamp(ms / 1000, UTC).replace(tzinfo=None)
        return at.isoformat(" ", "milliseconds" if exact else "seconds") if ms > 0 else _NONE
    except (ValueError, OverflowError, OSError):
        return str(ms)


def iso(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return ""


def relative(ms: int, now_ms: int) -> str:
    """Return how long ago a moment was, or in how long it will be."""
    away = now_ms - ms
    if abs(away) < 1000:
        return "now"
    return f"{span(away)} ago" if away > 0 else f"in {span(-away)}"


def unbroken(label: str) -> str:
    """Return a label whose unit does not stand in a line of its own."""
    return label.replace(" /", "\u00a0/")


def kind_of(cell: Cell) -> str:
    """Return which macro shows a cell."""
    if cell is None or cell == "":
        return "none"
    if isinstance(cell, bool):
        return "bool"
    if isinstance(cell, int | float):
        return "number"
    return "text" if isinstance(cell, str) else cell.kind


class Renderer:
    """The templates of one dashboard, whose links begin with `root_path`."""

    def __init__(self, root_path: str) -> None:
        self._root = root_path
        self._marks = {name: _mark(name) for name in _STATIC}
        self._environment = Environment(
            loader=PackageLoader("aerobee.dashboard"), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True, auto_reload=False,
        )  # fmt: skip
        self._environment.globals.update(url=self.url, static=self.static, to=self.to)
        self._environment.filters.update(
            number=number, size=size, rate=rate, ratio=ratio, span=span, utc=utc, iso=iso, relative=relative,
            kind_of=kind_of, unbroken=unbroken,
        )  # fmt: skip

    def url(self, path: str, query: Mapping[str, str | int] | None = None) -> str:
        """Return the address of a page of this dashboard. The path is quoted here."""
        return self._root + self.path(path) + (f"?{urlencode(query)}" if query else "")

    @staticmethod
    def path(path: str) -> str:
        """Return a path as it stands in an address."""
        return quote(path, safe="/:@!$&'()*,;=~")

    def to(self, link: PageLink) -> str:
        """Return the address of a link."""
        return self.url(link.path, link.query)

    def static(self, name: str) -> str:
        """Return the address of a file. It changes with the file, so that browsers keep it for long."""
        return f"{self._root}/static/{name}?{self._marks[name]}"

    def html(self, template: str, **values: Any) -> str:
        return self._environment.get_template(template).render(**values)


def _mark(name: str) -> str:
    data = resources.files("aerobee.dashboard").joinpath("static", name).read_bytes()
    return hashlib.sha256(data).hexdigest()[:12]
