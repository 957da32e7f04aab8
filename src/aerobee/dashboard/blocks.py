"""What pages are made of: cells, and blocks of cells. Templates show them, and `to_json` tells the same to programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class PageLink:
    """Text that leads to another page of the dashboard."""

    text: str
    path: str
    query: Mapping[str, str | int] = field(default_factory=dict)
    kind = "link"

    @property
    def plain(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Time:
    """A moment in milliseconds since 1970. 0 and less stand for none. An exact one shows its milliseconds."""

    ms: int
    exact: bool = False
    kind = "time"

    @property
    def plain(self) -> int | None:
        return self.ms if self.ms > 0 else None


@dataclass(frozen=True, slots=True)
class Length:
    """A length of time in milliseconds."""

    ms: float | None
    kind = "span"

    @property
    def plain(self) -> float | None:
        return self.ms


@dataclass(frozen=True, slots=True)
class Size:
    """A number of bytes."""

    bytes: int | None
    kind = "size"

    @property
    def plain(self) -> int | None:
        return self.bytes


@dataclass(frozen=True, slots=True)
class Rate:
    """A number a second."""

    value: float | None
    kind = "rate"

    @property
    def plain(self) -> float | None:
        return None if self.value is None else round(self.value, 3)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A part of a whole, from 0 to 1."""

    value: float | None
    kind = "ratio"

    @property
    def plain(self) -> float | None:
        return None if self.value is None else round(self.value, 4)


@dataclass(frozen=True, slots=True)
class Badge:
    """A word with a tone: good, warn, bad or calm. The word alone must tell: not everybody sees colours."""

    text: str
    tone: str = "calm"
    kind = "badge"

    @property
    def plain(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Mono:
    """Text in letters of one width, such as an id. It breaks anywhere."""

    text: str
    kind = "code"

    @property
    def plain(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Trend:
    """The last values of a series as a small line. It shows its form only: the figures are beside it."""

    values: tuple[float, ...]
    kind = "trend"

    @property
    def plain(self) -> list[float]:
        return list(self.values)

    @property
    def points(self) -> str:
        """Return the points of the line in a box of 100 by 24, whose floor is 0."""
        top = max(self.values) or 1.0
        step = 100 / max(1, len(self.values) - 1)
        return " ".join(f"{place * step:.1f},{22 - value / top * 20:.1f}" for place, value in enumerate(self.values))


@dataclass(frozen=True, slots=True)
class Several:
    """Several cells in one place."""

    cells: tuple[Cell, ...]
    kind = "several"

    @property
    def plain(self) -> list[Any]:
        return [plain_of(one) for one in self.cells]


Cell = str | int | float | bool | None | PageLink | Time | Length | Size | Rate | Ratio | Badge | Mono | Trend | Several


def plain_of(cell: Cell) -> Any:
    """Return a cell as JSON tells it."""
    if cell is None or isinstance(cell, str | int | float | bool):
        return cell
    return cell.plain


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column. `sort` is the query of a click on it, None where the column does not sort."""

    key: str
    label: str
    right: bool = False
    sort: str | None = None
    # up, down, or nothing.
    sorted: str = ""


@dataclass(frozen=True, slots=True)
class Pager:
    """Where one is in a long table. The queries are None at the ends."""

    first: int
    last: int
    total: int
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Choice:
    """A field that narrows a table or a search. With `options` it is a list to choose from."""

    name: str
    label: str
    value: str = ""
    options: Sequence[tuple[str, str]] = ()
    kind: str = "text"
    help: str = ""
    # What a browser offers to who types. Other words are taken, too.
    suggested: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under heads. `empty` says why there is nothing."""

    name: str
    title: str
    heads: Sequence[Head]
    rows: Sequence[Sequence[Cell]]
    empty: str
    filters: Sequence[Choice] = ()
    pager: Pager | None = None
    # Hidden fields that a filter must keep: the state of other tables of the page.
    kept: Sequence[tuple[str, str]] = ()
    note: str = ""
    # The value that each row is chosen by, the name of the field, the path of the change, and the word of the button.
    picks: Sequence[str] = ()
    picked: tuple[str, str, str] | None = None
    block = "table"

    def with_picks(self, values: Sequence[str], name: str, path: str, button: str) -> Table:
        """Return the table with a box before each row: the chosen ones go to the page of a change."""
        return replace(self, picks=values, picked=(name, path, button))

    def to_json(self) -> dict[str, Any]:
        keys = [head.key for head in self.heads]
        rows = [dict(zip(keys, map(plain_of, row), strict=True)) for row in self.rows]
        total = len(rows) if self.pager is None else self.pager.total
        return {"rows": rows, "total": total, "empty": "" if rows else self.empty, "note": self.note}


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels with values."""

    name: str
    title: str
    items: Sequence[tuple[str, Cell]]
    # Whether the values are large: the figures that one looks for first.
    large: bool = False
    block = "facts"

    def to_json(self) -> dict[str, Any]:
        return {label: plain_of(cell) for label, cell in self.items}


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One series of a chart."""

    key: str
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Series over time, which the page fetches. `unit` is /s, bytes, % or nothing."""

    name: str
    title: str
    lines: Sequence[ChartLine]
    unit: str = "/s"
    block = "chart"

    def to_json(self) -> dict[str, Any]:
        return {"series": {line.key: line.label for line in self.lines}, "unit": self.unit}


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence. Its tone is calm, good, warn or bad."""

    name: str
    text: str
    tone: str = "calm"
    links: Sequence[PageLink] = ()
    block = "note"

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "tone": self.tone}


@dataclass(frozen=True, slots=True)
class SearchForm:
    """A form whose state is the address of the page: what it finds can be sent to a colleague as a link."""

    name: str
    title: str
    fields: Sequence[Choice]
    button: str = "Search"
    block = "search"

    def to_json(self) -> dict[str, Any]:
        return {one.name: one.value for one in self.fields}


@dataclass(frozen=True, slots=True)
class Text:
    """Text from outside, such as the body of a message. It is shown as it is, never as HTML."""

    name: str
    title: str
    text: str
    note: str = ""
    links: Sequence[PageLink] = ()
    # The text of the link that leads to what is shown.
    here: str = ""
    block = "text"

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "note": self.note}


@dataclass(frozen=True, slots=True)
class Tail:
    """Messages as they come, from a stream of server-sent events."""

    name: str
    title: str
    path: str
    query: Mapping[str, str]
    block = "tail"

    def to_json(self) -> dict[str, Any]:
        return {"stream": self.path, "query": dict(self.query)}


Block = Table | Facts | Chart | Note | SearchForm | Text | Tail


@dataclass(frozen=True, slots=True)
class WebPage:
    """One page. `problems` are sentences, such as one for each silent broker."""

    title: str
    blocks: Sequence[Block]
    problems: Sequence[str] = ()
    # Links to changes and to related pages.
    actions: Sequence[PageLink] = ()
    tabs: Sequence[tuple[PageLink, bool]] = ()
    # When what is shown was asked, if it was not just now.
    as_of_ms: int = 0
    # How often the page renews itself; 0 is never.
    refresh_s: int = 0

    def to_json(self) -> dict[str, Any]:
        told = {one.name: one.to_json() for one in self.blocks}
        return {"title": self.title, "problems": list(self.problems), "as_of": self.as_of_ms or None, **told}
