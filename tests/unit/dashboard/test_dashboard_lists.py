"""Lists that are filtered, sorted and cut; series that are bounded; moments as people type them; bodies as text."""

import math

import pytest

from aerobee.dashboard.bodies import preview, shown_body
from aerobee.dashboard.collector import moved
from aerobee.dashboard.moments import moment_of
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.series import COARSE_POINTS, FINE_POINTS, SERIES_MAX, Series
from aerobee.dashboard.snapshot import GroupNumbers
from aerobee.errors import InvalidArgumentError

NUMBERS: Listing[int] = Listing(
    "numbers",
    "Numbers",
    [
        Column("n", "N", lambda one: one, lambda one: one),
        Column("odd", "Odd", lambda one: bool(one % 2)),
        Column("maybe", "Maybe", lambda one: None, lambda one: one if one % 2 else None),
    ],
    "none",
    text=str,
    sort="n",
)


def test_a_list_is_cut_and_says_where_one_is() -> None:
    table = table_of(range(120), NUMBERS, {"page": "3"})
    assert [row[0] for row in table.rows] == list(range(100, 120))
    assert table.pager is not None
    assert (table.pager.first, table.pager.last, table.pager.total, table.pager.after) == (101, 120, 120, None)
    assert table.pager.before == "page=2"


def test_a_list_makes_cells_for_what_it_shows_only() -> None:
    made = []
    listing: Listing[int] = Listing("n", "N", [Column("n", "N", lambda one: made.append(one) or one)], "none")
    table_of(range(10_000), listing, {})
    assert len(made) == 50


@pytest.mark.parametrize("query", [{"page": "0"}, {"page": "-1"}, {"page": "x"}, {"page": "9" * 400}, {"size": "0"}])
def test_a_wrong_page_is_a_page_that_exists(query: dict[str, str]) -> None:
    assert table_of(range(120), NUMBERS, query).rows


def test_a_list_is_filtered_and_sorted() -> None:
    table = table_of(range(120), NUMBERS, {"q": "11", "sort": "n", "falls": "1"})
    assert [row[0] for row in table.rows] == [119, 118, 117, 116, 115, 114, 113, 112, 111, 110, 11]
    assert table_of(range(120), NUMBERS, {"q": "x"}).empty == "Nothing contains “x”: 120 are there."
    mixed = table_of(range(4), NUMBERS, {"sort": "maybe", "falls": "1"})
    assert [row[0] for row in mixed.rows] == [3, 1, 0, 2]


def test_two_lists_of_a_page_have_states_of_their_own() -> None:
    table = table_of(range(120), NUMBERS, {"numbers.page": "2", "other.page": "7"}, alone=False)
    assert table.rows[0][0] == 50
    assert table.pager is not None
    assert table.pager.before == "numbers.page=1&other.page=7"


def test_series_keep_gaps_and_are_bounded() -> None:
    series = Series()
    series.add(1_000, {"a": 1.0})
    series.add(2_000, {"b": 5.0})
    assert series.read(["a", "b", "c"], 0) == ([1_000, 2_000], [[1.0, None], [None, 5.0], [None, None]])
    for step in range(2 * FINE_POINTS):
        series.add(3_000 + step * 10_000, {"a": 1.0})
    rings = (series._fine, series._coarse)
    assert [len(ring.times) <= most * 1.1 + 1 for ring, most in zip(rings, (FINE_POINTS, COARSE_POINTS), strict=True)]
    assert all(len(values) == len(ring.times) for ring in rings for values in ring.values.values())
    times, (values,) = series.read(["a"], 0, points=100)
    assert len(times) <= 100
    assert all(value is None or not math.isnan(value) for value in values)


def test_no_more_series_than_allowed_and_busy_ones_replace_idle_ones() -> None:
    series = Series()
    series.add(0, {f"topic:{number}": 0.0 for number in range(SERIES_MAX)})
    series.add(1_000, {"topic:busy": 1.0})
    assert len(series) == SERIES_MAX
    assert series.refused == 1
    series.add(3_700_000, {"topic:busy": 1.0})
    assert len(series) == SERIES_MAX
    assert series.read(["topic:busy"], 0)[1][0][-1] == 1.0
    series.keep_only("topic:", {"topic:busy"})
    assert len(series) == 1


def test_room_for_a_series_is_not_searched_for() -> None:
    """Ten thousand topics took seconds at every step: for each one the series that rests longest was looked for."""
    looked = 0

    class Counted(dict[str, int]):
        def __getitem__(self, name: str) -> int:
            nonlocal looked
            looked += 1
            return super().__getitem__(name)

    series = Series()
    series._moved_ms = Counted()
    series.add(0, {f"topic:{number}": 1.0 for number in range(10_000)})
    assert (len(series), series.refused) == (SERIES_MAX, 10_000 - SERIES_MAX)
    assert looked <= 10_000
    series.add(1_000, {f"topic:{number}": 1.0 for number in range(1, SERIES_MAX)})
    series.add(3_700_000, {"topic:9999": 1.0})
    assert series.read(["topic:0"], 0)[1] == [[None] * 3]


def test_a_query_keeps_its_rate_between_two_batches() -> None:
    """A query that moved every 30 s was told to be quiet two times of three."""
    rates, seen = [], None
    for step, consumed in enumerate((0, 0, 300, 300, 300, 600, 600, 600, 600, 600, 600, 600, 600, 600, 600, 900)):
        seen = moved(GroupNumbers(asked_ms=step * 10_000 + 1, consumed=consumed), seen)
        rates.append(seen.rows_s)
    assert rates == [None, 0.0, 30.0, 30.0, 30.0, 10.0, *[10.0] * 9, 3.0]
    assert moved(GroupNumbers(asked_ms=10_000_000, consumed=900), seen).rows_s == 0.0


NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("", None), ("now", NOW_MS), ("30m", NOW_MS - 1_800_000), ("2 h ago", NOW_MS - 7_200_000),
        ("1970-01-01T00:00:01", 1_000), ("1970-01-01 00:00:01Z", 1_000), ("1970-01-01T01:00:01+01:00", 1_000),
        ("1970-01-02", 86_400_000), ("1800000000000", NOW_MS),
    ],
)  # fmt: skip
def test_moments(text: str, ms: int | None) -> None:
    assert moment_of(text, NOW_MS) == ms


@pytest.mark.parametrize("text", ["yesterday", "30", "2026-13-01", "-5m", "9" * 40])
def test_wrong_moments_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        moment_of(text, NOW_MS)


def test_bodies_are_shown_as_what_they_are() -> None:
    assert shown_body(b'{"a":1}', "auto") == ("JSON", '{\n  "a": 1\n}')
    assert shown_body(b'[{"a": 10.00,"a":[ ],"b\\"]":{}},1e999,[2]]', "auto") == (
        "JSON",
        '[\n  {\n    "a": 10.00,\n    "a": [],\n    "b\\"]": {}\n  },\n  1e999,\n  [\n    2\n  ]\n]',
    )
    assert shown_body(b"<b>", "auto") == ("text", "<b>")
    assert shown_body(bytes(range(20)), "auto")[0] == "hex"
    assert shown_body(b"\xff\xfe", "text")[1] == "\ufffd\ufffd"
    assert shown_body(b"[" * 50_000, "json")[0] == "text, because it is no JSON"
    # Its lines would be 60 MiB long.
    deep = b"[" * 900 + b"1," * 31_000 + b"1" + b"]" * 900
    assert len(shown_body(deep, "json")[1]) == len(deep)
    assert len(preview(b"x" * 10_000)) == 121
    assert preview(b"a\n\x00b") == "a b"
