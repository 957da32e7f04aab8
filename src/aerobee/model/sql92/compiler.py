"""Compiled filters: closures over a mapping of properties, made from the tree once for a subscription.

A filter gives True, False or None (unknown) as in SQL's three-valued logic, with Apache's exceptions: two missing
properties are equal, `missing = 1` is unknown, `1 = missing` is false. RocketMQ: Expression.evaluate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from aerobee.errors import InvalidArgumentError
from aerobee.model.sql92.compare import compare, number_like, numbers
from aerobee.model.sql92.errors import FilterEvaluationError
from aerobee.model.sql92.nodes import (
    All,
    Any,
    Compare,
    Constant,
    Equal,
    IsTrue,
    Negate,
    Node,
    Not,
    OneOf,
    Property,
    Search,
    Value,
)
from aerobee.model.sql92.numbers import parse_double
from aerobee.model.sql92.parser import parse

Properties: TypeAlias = Mapping[str, str]
Evaluate: TypeAlias = Callable[[Properties], Value]

SQL92 = "SQL92"


class CompiledFilter:
    """A compiled expression. It has no state; equal texts give equal filters."""

    __slots__ = ("_evaluate", "expression", "ignored")

    def __init__(self, expression: str, evaluate: Evaluate, ignored: str) -> None:
        self.expression = expression
        # The text behind the expression. It is ignored, as in Apache's code, but worth a warning.
        self.ignored = ignored
        self._evaluate = evaluate

    def evaluate(self, properties: Properties) -> bool | None:
        """Evaluate a message's properties; raise FilterEvaluationError where the values cannot be compared."""
        value = self._evaluate(properties)
        return value if isinstance(value, bool) else None

    def matches(self, properties: Properties) -> bool:
        """Return whether a consumer with this filter gets the message: the expression must be true."""
        try:
            return self._evaluate(properties) is True
        except FilterEvaluationError:
            return False


def compile_filter(expression: str, expression_type: str = SQL92) -> CompiledFilter:
    """Compile an expression; raise FilterSyntaxError, which says where the expression is wrong."""
    if expression_type != SQL92:
        raise InvalidArgumentError(f"filters of the type {expression_type!r} are not known, only TAG and SQL92")
    parsed = parse(expression)
    return CompiledFilter(expression, _compile(parsed.node), expression[parsed.used :].strip())


def _compile(node: Node) -> Evaluate:
    result: Evaluate
    match node:
        case Constant(value):
            result = lambda properties: value  # noqa: E731
        case Property(name):
            result = lambda properties: properties.get(name)  # noqa: E731
        case Negate(operand):
            result = _negate(_compile(operand))
        case Compare():
            result = _compare(node)
        case Equal():
            result = _equal(node)
        case Not(operand):
            result = _not(_compile(operand))
        case IsTrue(operand):
            result = _is_true(_compile(operand))
        case All(operands):
            result = _all(tuple(map(_compile, operands)))
        case Any(operands):
            result = _any(tuple(map(_compile, operands)))
        case OneOf():
            result = _one_of(node)
        case Search():
            result = _search(node)
    return result


def _negate(operand: Evaluate) -> Evaluate:
    def negate(properties: Properties) -> Value:
        value = operand(properties)
        return None if value is None or isinstance(value, str | bool) else -value

    return negate


_HOLDS: dict[str, Callable[[int], bool]] = {
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def _compare(node: Compare) -> Evaluate:
    holds = _HOLDS[node.operator]
    if isinstance(node.left, Property) and isinstance(node.right, Constant):
        return _compare_property(node.left.name, node.right.value, holds)
    left, right = _compile(node.left), _compile(node.right)

    def compare_two(properties: Properties) -> Value:
        one = left(properties)
        if one is None:
            return None
        other = right(properties)
        if other is None:
            return None
        if isinstance(one, str) and isinstance(other, str):
            return holds(numbers(parse_double(one), parse_double(other)))
        return holds(compare(one, other))

    return compare_two


def _compare_property(name: str, limit: Value, holds: Callable[[int], bool]) -> Evaluate:
    """Compile the common case, a property and a number: one conversion and no choice of types."""
    assert isinstance(limit, int | float)
    number: int | float = limit

    def compare_property(properties: Properties) -> Value:
        text = properties.get(name)
        return None if text is None else holds(numbers(number_like(number, text), number))

    return compare_property


def _equal(node: Equal) -> Evaluate:
    if isinstance(node.left, Property) and isinstance(node.right, Constant) and isinstance(node.right.value, str):
        return _equal_text(node.left.name, node.right.value)
    left, right = _compile(node.left), _compile(node.right)

    def equal(properties: Properties) -> Value:
        one, other = left(properties), right(properties)
        if one is None:
            return True if other is None else None
        if other is None:
            return False
        return compare(one, other) == 0

    return equal


def _equal_text(name: str, wanted: str) -> Evaluate:
    def equal_text(properties: Properties) -> Value:
        text = properties.get(name)
        return None if text is None else text == wanted

    return equal_text


def _not(operand: Evaluate) -> Evaluate:
    def negation(properties: Properties) -> Value:
        value = operand(properties)
        return None if value is None else not value

    return negation


def _is_true(operand: Evaluate) -> Evaluate:
    def is_true(properties: Properties) -> Value:
        value = operand(properties)
        return None if value is None else value is True

    return is_true


def _all(operands: tuple[Evaluate, ...]) -> Evaluate:
    def conjunction(properties: Properties) -> Value:
        result: Value = True
        for operand in operands:
            value = operand(properties)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return conjunction


def _any(operands: tuple[Evaluate, ...]) -> Evaluate:
    def disjunction(properties: Properties) -> Value:
        result: Value = False
        for operand in operands:
            value = operand(properties)
            if value is True:
                return True
            if value is None:
                result = None
        return result

    return disjunction


def _one_of(node: OneOf) -> Evaluate:
    name, values, negated = node.name, node.values, node.negated

    def one_of(properties: Properties) -> Value:
        text = properties.get(name)
        return None if text is None else (text in values) is not negated

    return one_of


def _search(node: Search) -> Evaluate:
    """Compile a search. A missing value or an empty search text is false in both forms, never unknown."""
    operand, text, negated = _compile(node.operand), node.text, node.negated
    if not text:
        return lambda properties: False
    found: Callable[[str], bool]
    match node.kind:
        case "CONTAINS":
            found = lambda value: text in value  # noqa: E731
        case "STARTSWITH":
            found = lambda value: value.startswith(text)  # noqa: E731
        case "ENDSWITH":
            found = lambda value: value.endswith(text)  # noqa: E731

    def search(properties: Properties) -> Value:
        value = operand(properties)
        return isinstance(value, str) and found(value) is not negated

    return search
