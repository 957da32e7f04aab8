"""Pictures out of rows: which lines there are, and that both kinds of file are whole."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("matplotlib")

from aerobee.errors import AerobeeError, InvalidArgumentError
from pyspark_rocketmq.jobs import plots

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def at(second: int) -> datetime:
    return NOON + timedelta(seconds=second)


def test_rates_fall_to_zero_between_rows_and_lag_is_by_group() -> None:
    rows = [(at(0), "orders", None, 10), (at(0), "orders", "billing", 4), (at(9), "orders", "billing", 6)]
    lag = [("billing", "orders", "a", 0, 10, 8, 2, 0, None), ("billing", "orders", "b", 0, 5, 4, 1, 0, None)]
    picture = plots.flow_picture(rows, lag)
    rates, left = picture.panels
    assert rates.series["orders produced"] == [(at(0), 10.0)]
    assert rates.series["orders consumed by billing"] == [(at(0), 4.0), (at(1), 0.0), (at(8), 0.0), (at(9), 6.0)]
    assert left.series == {"billing of orders": [(at(0), 6.0), (at(9), 0.0)]}
    assert picture.rows == [("billing", "orders", "3")]


def test_a_query_gives_a_line_for_each_number_or_label() -> None:
    types = [("t", "timestamp"), ("tags", "string"), ("n", "bigint")]
    assert plots.series_of(types, [(at(1), "B", 2), (at(0), "B", 1), (at(0), "A", None)]) == {
        "B": [(at(0), 1.0), (at(1), 2.0)]
    }
    assert list(plots.series_of([("x", "int"), ("a", "int"), ("b", "double")], [(1, 2, 3.0)])) == ["a", "b"]
    with pytest.raises(AerobeeError, match="nothing to draw"):
        plots.series_of([("x", "int")], [(1,)])
    with pytest.raises(InvalidArgumentError, match="too many"):
        plots.series_of(types, [(at(0), str(n), n) for n in range(20)])


def test_png_and_page_are_complete_in_themselves(tmp_path: Path) -> None:
    panel = plots.Panel("lag", "messages", {"a<b": [(at(0), 1.0), (at(1), 2.0)]})
    picture = plots.Picture("Lag & more", [panel], ("group", "lag"), [("<g>", "2")])
    plots.draw(picture, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    plots.draw(picture, tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    assert "<svg" in page and "Lag &amp; more" in page and "&lt;g&gt;" in page and "<script" not in page
    with pytest.raises(InvalidArgumentError, match="a plot is"):
        plots.draw(picture, tmp_path / "x.gif")
