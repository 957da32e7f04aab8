"""The tree of a filter. Each node evaluates to text, a number, a boolean, or None for unknown.

Which nodes are conditions decides where the parser allows them. RocketMQ: org.apache.rocketmq.filter.expression.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from aerobee.model.sql92.numbers import Long

Value: TypeAlias = str | int | Long | float | bool | None


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal. TRUE, FALSE and NULL are conditions as well."""

    value: Value

    @property
    def is_condition(self) -> bool:
        return self.value is None or isinstance(self.value, bool)

    @property
    def is_number(self) -> bool:
        return isinstance(self.value, int | float) and not isinstance(self.value, bool)


@dataclass(frozen=True, slots=True)
class Property:
    """A property of the message, by its exact name."""

    name: str


@dataclass(frozen=True, slots=True)
class Negate:
    """Unary minus. The result for text is unknown, also where the text is a number."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison of two numbers. Text is read as a number."""

    operator: Literal["<", "<=", ">", ">="]
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Equal:
    """An equation, or IS NULL: two unknown values are equal."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a condition. The negation of unknown is unknown."""

    operand: Node


@dataclass(frozen=True, slots=True)
class IsTrue:
    """A property where a condition is expected. Text is never true."""

    operand: Node


@dataclass(frozen=True, slots=True)
class All:
    """AND of two or more conditions."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Any:
    """OR of two or more conditions."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class OneOf:
    """IN and NOT IN."""

    name: str
    values: frozenset[str]
    negated: bool


@dataclass(frozen=True, slots=True)
class Search:
    """CONTAINS, STARTSWITH, ENDSWITH and their NOT forms."""

    kind: Literal["CONTAINS", "STARTSWITH", "ENDSWITH"]
    operand: Node
    text: str
    negated: bool


Node: TypeAlias = Constant | Property | Negate | Compare | Equal | Not | IsTrue | All | Any | OneOf | Search


def is_condition(node: Node) -> bool:
    """Return whether the node can only be true, false or unknown."""
    if isinstance(node, Constant):
        return node.is_condition
    return not isinstance(node, Property | Negate)
