"""The parser of filters: it turns an expression's text into its tree, or says where the text is wrong.

It is a hand-written recursive descent over seven short rules. It accepts what Apache's parser accepts, with the same
meaning, oddities included: NOT binds closer than `=`, and text after a whole expression is ignored.
RocketMQ: SelectorParser.jj.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, cast

from aerobee.model.numbers import int_or
from aerobee.model.sql92.compare import compare
from aerobee.model.sql92.errors import FilterEvaluationError, FilterSyntaxError
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
    is_condition,
)
from aerobee.model.sql92.numbers import INT_MAX, LONG_MAX, Long, parse_double
from aerobee.model.sql92.tokens import END, FLOAT, INTEGER, NAME, STRING, Token, Tokens

# Apache has no limits. An expression beyond these is a mistake or an attack.
EXPRESSION_BYTES_MAX: Final = 4096
DEPTH_MAX: Final = 32

_CONSTANTS: Final = {"TRUE": True, "FALSE": False, "NULL": None}
_COMPARISONS: Final = ("<", "<=", ">", ">=")
_SEARCHES: Final = ("CONTAINS", "STARTSWITH", "ENDSWITH")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The tree of an expression. The filter is its first `used` characters; the rest is ignored."""

    node: Node
    used: int


@dataclass(frozen=True, slots=True)
class _Part:
    node: Node
    depth: int
    position: int


def parse(expression: str) -> Parsed:
    """Return the tree of an expression; raise FilterSyntaxError where it is wrong."""
    size = len(expression.encode("utf-8", "surrogatepass"))
    if size > EXPRESSION_BYTES_MAX:
        reason = f"the expression has {size} bytes, more than {EXPRESSION_BYTES_MAX}: too long"
        raise FilterSyntaxError(reason, expression, 0)
    parser = _Parser(expression)
    part = parser.whole()
    return Parsed(part.node, parser.peek().position)


class _Parser:
    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = Tokens(expression)
        self._nesting = 0
        self.peek = self._tokens.peek

    # -- rules, loosest binding first

    def whole(self) -> _Part:
        return self._condition(self._or())

    def _or(self) -> _Part:
        return self._chain("OR", self._and, Any)

    def _and(self) -> _Part:
        return self._chain("AND", self._equality, All)

    def _chain(self, word: str, rule: Callable[[], _Part], node: type[Any] | type[All]) -> _Part:
        first = rule()
        if self.peek().kind != word:
            return first
        parts = [self._condition(first)]
        while self._took(word):
            parts.append(self._condition(rule()))
        return self._join(node(tuple(part.node for part in parts)), first.position, *parts)

    def _equality(self) -> _Part:
        left = self._comparison()
        while True:
            token = self.peek()
            if token.kind in ("=", "<>"):
                self._tokens.take()
                right = self._comparison()
                self._check_equal(left, right)
                equal: Node = Equal(left.node, right.node)
                left = self._join(equal if token.kind == "=" else Not(equal), left.position, left, right)
            elif token.kind == "IS":
                self._tokens.take()
                negated = self._took("NOT")
                self._need("NULL", "NULL or NOT NULL after IS")
                null: Node = Equal(left.node, Constant(None))
                left = self._join(Not(null) if negated else null, left.position, left)
            else:
                return left

    def _comparison(self) -> _Part:
        left = self._unary()
        while True:
            token = self.peek()
            if token.kind in _COMPARISONS:
                self._tokens.take()
                right = self._unary()
                left = self._compared(token.kind, left, right)
                continue
            negated = self._took("NOT")
            word = self.peek()
            if word.kind in _SEARCHES:
                self._tokens.take()
                kind = cast(Literal["CONTAINS", "STARTSWITH", "ENDSWITH"], word.kind)
                text = self._need(STRING, f"a string after {word.kind}").text
                left = self._join(Search(kind, left.node, text, negated), left.position, left)
            elif word.kind == "BETWEEN":
                self._tokens.take()
                left = self._between(left, negated)
            elif word.kind == "IN":
                self._tokens.take()
                left = self._in(left, negated)
            elif negated:
                self._fail("IN, BETWEEN, CONTAINS, STARTSWITH or ENDSWITH is wanted after NOT", word.position)
            else:
                return left

    def _between(self, left: _Part, negated: bool) -> _Part:
        low = self._unary()
        self._need("AND", "AND between the two limits of BETWEEN")
        high = self._unary()
        if negated:
            parts = (self._compared("<", left, low), self._compared(">", left, high))
            return self._join(Any(tuple(part.node for part in parts)), left.position, *parts)
        parts = (self._compared(">=", left, low), self._compared("<=", left, high))
        if isinstance(low.node, Constant) and isinstance(high.node, Constant):
            try:
                reversed_limits = compare(high.node.value, low.node.value) < 0
            except FilterEvaluationError as error:  # pragma: no cover - both are numbers by now
                self._fail(error.message, low.position)
            if reversed_limits:
                self._fail("the limits of BETWEEN stand the wrong way round", low.position)
        return self._join(All(tuple(part.node for part in parts)), left.position, *parts)

    def _in(self, left: _Part, negated: bool) -> _Part:
        self._need("(", "( after IN")
        values = [self._need(STRING, "a string in the list of IN").text]
        while self._took(","):
            values.append(self._need(STRING, "a string in the list of IN").text)
        self._need(")", "a comma or the closing bracket of IN")
        if not isinstance(left.node, Property):
            self._fail("IN asks about a property, and this is none", left.position)
        return self._join(OneOf(left.node.name, frozenset(values), negated), left.position, left)

    def _unary(self) -> _Part:
        token = self.peek()
        if token.kind not in ("+", "-", "NOT"):
            return self._primary()
        self._tokens.take()
        with_operand = self._nested(token, self._unary)
        if token.kind == "+":
            return _Part(with_operand.node, with_operand.depth, token.position)
        if token.kind == "-":
            return self._join(Negate(with_operand.node), token.position, with_operand)
        operand = self._condition(with_operand)
        return self._join(Not(operand.node), token.position, operand)

    def _primary(self) -> _Part:
        token = self._tokens.take()
        if token.kind == NAME:
            return _Part(Property(token.text), 1, token.position)
        if token.kind == STRING:
            return _Part(Constant(token.text), 1, token.position)
        if token.kind == INTEGER:
            return _Part(Constant(self._integer(token)), 1, token.position)
        if token.kind == FLOAT:
            return _Part(Constant(self._float(token)), 1, token.position)
        if token.kind in _CONSTANTS:
            return _Part(Constant(_CONSTANTS[token.kind]), 1, token.position)
        if token.kind == "(":
            inside = self._nested(token, self._or)
            self._need(")", "the closing bracket")
            return inside
        self._fail("a property, a value or a bracket is wanted", token.position, token)

    # -- literals

    def _integer(self, token: Token) -> int:
        value = int_or(token.text.rstrip("lL").lstrip("0") or "0", None, 0, LONG_MAX)
        if value is None:
            self._fail("this integer does not fit 64 bits", token.position)
        return value if value <= INT_MAX else Long(value)

    def _float(self, token: Token) -> float:
        value = parse_double(token.text)
        if math.isinf(value):
            self._fail("this number is too large", token.position)
        if value == 0:
            self._fail("a zero with a point is not taken, write 0:", token.position)
        return value

    # -- what may stand where

    def _condition(self, part: _Part) -> _Part:
        """Require a condition. RocketMQ: SelectorParser.asBooleanExpression."""
        if is_condition(part.node):
            return part
        if isinstance(part.node, Property):
            return self._join(IsTrue(part.node), part.position, part)
        self._fail("a condition is wanted, and this is a value", part.position)

    def _compared(self, operator: str, left: _Part, right: _Part) -> _Part:
        """Compare two parts by size. RocketMQ: ComparisonExpression.checkLessThanOperand."""
        for part in (left, right):
            if isinstance(part.node, Constant):
                if not part.node.is_number:
                    self._fail("only numbers can be compared by size, and this is none", part.position)
            elif is_condition(part.node):
                self._fail("a condition cannot be compared by size", part.position)
        kind = cast(Literal["<", "<=", ">", ">="], operator)
        return self._join(Compare(kind, left.node, right.node), left.position, left, right)

    def _check_equal(self, left: _Part, right: _Part) -> None:
        """Refuse operands of `=` that do not fit. RocketMQ: ComparisonExpression.checkEqualOperand(Compatability)."""
        for part in (left, right):
            if isinstance(part.node, Constant) and part.node.value is None:
                self._fail("NULL equals nothing, write IS NULL:", part.position)
        if isinstance(left.node, Constant) and isinstance(right.node, Constant):
            if left.node.is_condition and not right.node.is_condition:
                self._fail("TRUE and FALSE are not compared with this value", right.position)

    # -- help

    def _took(self, kind: str) -> bool:
        if self.peek().kind != kind:
            return False
        self._tokens.take()
        return True

    def _need(self, kind: str, wanted: str) -> Token:
        token = self._tokens.take()
        if token.kind != kind:
            self._fail(f"{wanted} is wanted", token.position, token)
        return token

    def _nested(self, token: Token, rule: Callable[[], _Part]) -> _Part:
        self._nesting += 1
        if self._nesting > DEPTH_MAX:
            self._too_deep(token.position)
        part = rule()
        self._nesting -= 1
        return part

    def _join(self, node: Node, position: int, *parts: _Part) -> _Part:
        depth = 1 + max(part.depth for part in parts)
        if depth > DEPTH_MAX + 1:
            self._too_deep(position)
        return _Part(node, depth, position)

    def _too_deep(self, position: int) -> NoReturn:
        self._fail(f"the expression is nested more than {DEPTH_MAX} deep", position)

    def _fail(self, reason: str, position: int, found: Token | None = None) -> NoReturn:
        if found is not None and found.kind == END:
            reason += ", and the expression ends"
        raise FilterSyntaxError(reason, self._expression, position)
