"""Long lists: filtered, sorted and cut by the state in the address of a page, before any cell is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlencode

from aerobee.dashboard.blocks import Cell, Choice, Head, Pager, Table
from aerobee.model.numbers import int_or

T = TypeVar("T")

ROWS: Final = 50
ROWS_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column. `value` sorts the items; without it the column does not sort. `cell` shows one item."""

    key: str
    label: str
    cell: Callable[[T], Cell]
    value: Callable[[T], Any] | None = None
    right: bool = False
    # Whether the first click sorts the greatest to the top, as one wants for rates.
    falls: bool = False


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """What a list needs. `text` is what the filter looks at."""

    name: str
    title: str
    columns: Sequence[Column[T]]
    empty: str
    text: Callable[[T], str] | None = None
    sort: str = ""
    falls: bool = False
    filters: Sequence[Choice] = ()
    note: str = ""
    filter_label: str = "Name contains"


def table_of(items: Sequence[T], listing: Listing[T], query: Mapping[str, str], *, alone: bool = True) -> Table:
    """Return the page of a list that the query asks for. Where a page has several lists, `alone` is False: the
    parameters of each then begin with its name."""
    before = "" if alone else f"{listing.name}."
    word = query.get(f"{before}q", "").strip()
    text = listing.text
    found = [one for one in items if word.lower() in text(one).lower()] if word and text is not None else list(items)
    key, falls = _order(listing, query, before)
    for column in listing.columns:
        if column.key == key and column.value is not None:
            value = column.value
            found.sort(key=lambda one: _sortable(value(one)), reverse=falls)
    size = int_or(query.get(f"{before}size"), ROWS, 1, ROWS_MAX)
    pages = max(1, -(-len(found) // size))
    number = min(int_or(query.get(f"{before}page"), 1, 1), pages)
    shown = found[(number - 1) * size : number * size]

    def to(**changes: str) -> str:
        return _query(query, {f"{before}{name}": value for name, value in changes.items()})

    heads = [_head(column, key, falls, to) for column in listing.columns]
    pager = Pager(
        (number - 1) * size + 1 if found else 0,
        min(number * size, len(found)),
        len(found),
        to(page=str(number - 1)) if number > 1 else None,
        to(page=str(number + 1)) if number < pages else None,
    )
    filters: list[Choice] = []
    if text is not None and (len(items) > 10 or word):
        filters.append(Choice(f"{before}q", listing.filter_label, word, kind="search"))
    filters += listing.filters if len(items) > 0 or any(one.value for one in listing.filters) else ()
    named = {one.name for one in filters} | {f"{before}page"}
    return Table(
        listing.name,
        listing.title,
        heads,
        [[column.cell(one) for column in listing.columns] for one in shown],
        f"Nothing contains “{word}”: {len(items)} are there." if word and items else listing.empty,
        filters,
        pager,
        [(name, value) for name, value in query.items() if name not in named],
        listing.note,
    )


def _order(listing: Listing[T], query: Mapping[str, str], before: str) -> tuple[str, bool]:
    """Return the column that sorts, and whether the greatest comes first."""
    asked = query.get(f"{before}sort", "")
    if any(column.key == asked for column in listing.columns):
        return asked, query.get(f"{before}falls") == "1"
    return listing.sort, listing.falls


def _head(column: Column[T], key: str, falls: bool, to: Callable[..., str]) -> Head:
    if column.value is None:
        return Head(column.key, column.label, column.right)
    is_this = column.key == key
    wanted = not falls if is_this else column.falls
    word = ("down" if falls else "up") if is_this else ""
    return Head(
        column.key, column.label, column.right, to(sort=column.key, falls="1" if wanted else "0", page="1"), word
    )


def _sortable(value: Any) -> tuple[int, Any]:
    """Return a value that compares with others: what is unknown comes before everything."""
    if value is None:
        return 0, 0
    return (2, value.lower()) if isinstance(value, str) else (1, value)


def _query(query: Mapping[str, str], changes: Mapping[str, str]) -> str:
    return urlencode({**query, **changes})
