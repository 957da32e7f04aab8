"""Filters: what is told of a wrong one, limits, text behind an expression. (What they come to: tests/golden.)"""

from __future__ import annotations

import math
import time

import pytest

from aerobee.errors import InvalidArgumentError
from aerobee.model.sql92.compiler import compile_filter
from aerobee.model.sql92.errors import FilterEvaluationError, FilterSyntaxError
from aerobee.model.sql92.numbers import (
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    compare_doubles,
    parse_double,
    parse_integer,
)
from aerobee.model.sql92.parser import DEPTH_MAX, EXPRESSION_BYTES_MAX


def refused(expression: str) -> FilterSyntaxError:
    with pytest.raises(FilterSyntaxError) as caught:
        compile_filter(expression)
    return caught.value


class TestErrors:
    @pytest.mark.parametrize(
        ("expression", "reason", "position"),
        [
            ("", "a property, a value or a bracket is wanted, and the expression ends", 0),
            ("a = ", "a property, a value or a bracket is wanted, and the expression ends", 4),
            ("a > 'x'", "only numbers can be compared by size, and this is none", 4),
            ("a = NULL", "NULL equals nothing, write IS NULL:", 4),
            ("a IN ('x' 'y')", "a comma or the closing bracket of IN is wanted", 10),
            ("1 IN ('x')", "IN asks about a property, and this is none", 0),
            ("a BETWEEN 9 AND 3", "the limits of BETWEEN stand the wrong way round", 10),
            ("a CONTAINS b", "a string after CONTAINS is wanted", 11),
            ("a NOT b", "IN, BETWEEN, CONTAINS, STARTSWITH or ENDSWITH is wanted after NOT", 6),
            ("a = 1 AND 'x'", "a condition is wanted, and this is a value", 10),
            ("a = 'open", "this string does not end, it began", 4),
            ("a = 1 /* open", "this comment does not end, it began", 6),
            ("a ! 1", "'!' means nothing here", 2),
            ("(a = 1", "the closing bracket is wanted, and the expression ends", 6),
            ("a = 9223372036854775808", "this integer does not fit 64 bits", 4),
            ("a = 1e999", "this number is too large", 4),
            ("a = 0.0", "a zero with a point is not taken, write 0:", 4),
            ("a IS x", "NULL or NOT NULL after IS is wanted", 5),
        ],
    )
    def test_the_reason_and_the_place(self, expression: str, reason: str, position: int) -> None:
        error = refused(expression)
        assert (error.reason, error.position) == (reason, position)
        lines = error.message.split("\n")
        assert lines[0] == f"{reason} at character {position + 1}"
        assert lines[2].index("^") == 2 + position

    def test_the_caret_stands_below_its_place_in_many_lines_and_long_ones(self) -> None:
        error = refused("a = 1 AND\n  b = 'x' AND\n  c > 'y'")
        assert error.message.split("\n")[1:] == ["    c > 'y'", "        ^"]
        long = refused("a = 1 AND " * 30 + "c > 'y' AND " + "b = 2 AND " * 30 + "TRUE")
        shown, caret = long.message.split("\n")[1:]
        assert shown[caret.index("^") :].startswith("'y'")
        assert len(shown) <= 62

    def test_it_is_an_invalid_argument(self) -> None:
        assert isinstance(refused("a >"), InvalidArgumentError)
        with pytest.raises(InvalidArgumentError, match="'XPATH' are not known"):
            compile_filter("a = 1", "XPATH")


class TestLimits:
    def test_size(self) -> None:
        fits = "a = '" + "x" * (EXPRESSION_BYTES_MAX - 6) + "'"
        assert compile_filter(fits).evaluate({"a": "x"}) is False
        assert "4097 bytes" in refused(fits + " ").reason
        assert "bytes" in refused("a = '" + "é" * 2100 + "'").reason

    @pytest.mark.parametrize("opening", ["(", "-", "+", "NOT ", "- (", "NOT (", "(TRUE AND "])
    def test_depth(self, opening: str) -> None:
        closing = ")" if "(" in opening else ""
        assert "nested more than 32 deep" in refused(opening * 200 + "TRUE" + closing * 200).reason
        few = DEPTH_MAX // 2 - 1
        compile_filter(f"({opening * few}TRUE{closing * few}) IS NULL")

    def test_chains_are_bounded_too_and_those_of_and_or_are_not_deep(self) -> None:
        assert "nested" in refused("a" + " = 1" * 60).reason
        assert "nested" in refused("'a'" + " CONTAINS 'a'" * 60).reason
        for word, result in (("AND", True), ("OR", True)):
            many = compile_filter(f" {word} ".join(["a=1"] * 500))
            assert many.evaluate({"a": "1"}) is result
            assert many.evaluate({}) is None

    def test_no_text_makes_it_slow(self) -> None:
        began = time.process_time()
        for text in ("'" * 4095, "0" * 4096, "1" * 4000 + "e", "-" * 4096, "/*" * 2048, "(" * 4096, "a=" * 2048):
            refused(text)
        for value in ("1" * 32_000 + "x", "." * 32_000, "1e" + "9" * 32_000 + "x", "0x" + "f" * 32_000, " " * 32_000):
            for expression in ("a > 1", "a > 1.5", "a = 3000000000", "a > b"):
                assert not compile_filter(expression).matches({"a": value, "b": value})
        assert time.process_time() - began < 5


def test_text_behind_an_expression_is_not_looked_at_and_told() -> None:
    assert compile_filter("a = 1").ignored == ""
    assert compile_filter("a = 1 -- a comment\n").ignored == ""
    both = compile_filter("a = 1 b = 2")
    assert both.ignored == "b = 2"
    assert both.matches({"a": "1", "b": "3"})


class TestNumbers:
    def test_integers_as_java_reads_them(self) -> None:
        assert parse_integer("-2147483648", INT_MIN, INT_MAX) == INT_MIN
        assert parse_integer("+0042", INT_MIN, INT_MAX) == 42
        assert parse_integer("0" * 50_000 + "7", INT_MIN, INT_MAX) == 7
        assert parse_integer("٠٩", INT_MIN, INT_MAX) == 9
        assert parse_integer(str(LONG_MIN), LONG_MIN, LONG_MAX) == LONG_MIN
        for text in ("", "-", "+-1", "1_0", " 1", "1.0", "2147483648", "-2147483649", "9" * 50_000, "²", "\U0001d7d9"):
            with pytest.raises(FilterEvaluationError):
                parse_integer(text, INT_MIN, INT_MAX)

    def test_doubles_as_java_reads_them(self) -> None:
        values = {"1": 1, " 1.5\n": 1.5, "1.": 1, ".5": 0.5, "1e3": 1000, "1d": 1, "1F": 1, "0x1p3": 8, "0x.8P1d": 1}
        for text, value in values.items():
            assert parse_double(text) == value
        assert parse_double("0x1p99999") == math.inf
        assert parse_double("-0x1p" + "9" * 500) == -math.inf
        assert parse_double("-Infinity") == -math.inf
        assert math.isnan(parse_double("NaN"))
        assert parse_double("1" * 400) == math.inf
        for text in ("", "x", "1e", "inf", "nan", "infinity", "1_0", "٣", "0x1", "0x1.p", "0xp1", "1dd", "--1", "1 1"):
            with pytest.raises(FilterEvaluationError):
                parse_double(text)

    def test_order_is_total(self) -> None:
        ordered = [-math.inf, -1.0, -0.0, 0.0, 5e-324, 1.0, math.inf, math.nan]
        for i, left in enumerate(ordered):
            for j, right in enumerate(ordered):
                order = compare_doubles(left, right)
                assert (order > 0) - (order < 0) == (i > j) - (i < j)
