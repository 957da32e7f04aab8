"""Any text compiles or is refused with its place; any filter and any values come to an answer or a declared error."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.model.sql92.compiler import compile_filter
from aerobee.model.sql92.errors import FilterEvaluationError, FilterSyntaxError

WORDS = (
    "a", "b", "$c_1", "NOT", "AND", "or", "BETWEEN", "IN", "('x','y')", "TRUE", "false", "NULL", "IS", "CONTAINS",
    "STARTSWITH", "ENDSWITH", "'x'", "'it''s'", "''", "'", "1", "2147483648", "9223372036854775807L", "1.5", ".5e3",
    "1e400", "=", "<>", "<", "<=", ">", ">=", "(", ")", ",", "+", "-", "--x\n", "/* y */", "/*", "0", "é", "a = 1",
    "b > 2", "IS NULL", "IS NOT NULL",
)  # fmt: skip
ATOMS = (
    "(a > 3)", "(a = b)", "(b <= 2.5)", "a", "(a IN ('x'))", "(b NOT BETWEEN 1 AND 5)", "(a CONTAINS 'x')", "TRUE",
)  # fmt: skip
VALUES = st.one_of(st.text(max_size=20), st.integers().map(str), st.floats().map(repr), st.sampled_from(["true", "x"]))
PROPERTIES = st.dictionaries(st.sampled_from(["a", "b", "$c_1"]), VALUES)


def check(expression: str, properties: dict[str, str]) -> None:
    try:
        compiled = compile_filter(expression)
    except FilterSyntaxError as error:
        assert 0 <= error.position <= len(expression)
        assert error.message.count("\n") == 2
        return
    assert not compiled.ignored or compiled.ignored in expression
    value = None
    with contextlib.suppress(FilterEvaluationError):
        value = compiled.evaluate(properties)
    assert value in (True, False, None)
    assert compiled.matches(properties) is (value is True)
    assert compile_filter(expression).matches(properties) is compiled.matches(properties)


@settings(max_examples=200)
@given(st.text(max_size=80), PROPERTIES)
def test_any_text(expression: str, properties: dict[str, str]) -> None:
    check(expression, properties)


@settings(max_examples=300)
@given(st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join), PROPERTIES)
def test_any_words(expression: str, properties: dict[str, str]) -> None:
    check(expression, properties)


@st.composite
def conditions(draw: st.DrawFn, depth: int = 3) -> str:
    if depth and draw(st.booleans()):
        form = draw(st.sampled_from(["({} AND {})", "({} OR {})", "(NOT {0})", "({0} IS NULL)", "({} = {})"]))
        return form.format(draw(conditions(depth - 1)), draw(conditions(depth - 1)))
    return draw(st.sampled_from(ATOMS))


@given(conditions(), PROPERTIES)
def test_laws_of_three_valued_logic(one: str, properties: dict[str, str]) -> None:
    """De Morgan, and double negation, wherever nothing fails."""
    with contextlib.suppress(FilterEvaluationError):
        plain = compile_filter(f"({one}) OR FALSE").evaluate(properties)
        assert compile_filter(f"NOT NOT ({one})").evaluate(properties) is plain
        assert compile_filter(f"NOT (({one}) AND TRUE)").evaluate(properties) is (None if plain is None else not plain)
        assert compile_filter(f"({one}) AND NOT ({one})").evaluate(properties) is (None if plain is None else False)
