"""Which columns a query needs, worked out of Spark's plans, because Spark does not tell a Python source.

The parsed plan is looked at first: where a query has a plain shape, only the columns that it names can count, and its
tables are made with these at once. The analyzed plan knows more, and costs a second analysis of the query.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.columns import schema as c

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_ATTRIBUTE: Final = re.compile(r"\b(\w+)#(\d+)")
_TABLE: Final = re.compile(r"RelationV2\[.*\] ?rocketmq(?:_store)?\b")
_DECLARES: Final = re.compile(r"^[\s:+-]*(?:RelationV2\[|View \()")
_NODE: Final = re.compile(r"([\s:+-]*)'?([A-Za-z]+)")
_WORD: Final = re.compile(r"\w+")
_RELATION: Final = "UnresolvedRelation"
# What `_NODE` finds of RelationV2.
_SCAN: Final = "RelationV"
# These choose the columns of what is below them.
_CHOOSING: Final = frozenset(("Project", "Aggregate"))
# These pass all columns on, so that one of the others must follow above. Views are only in analyzed plans.
_PASSING: Final = frozenset(
    ("Filter", "Join", "SubqueryAlias", "GlobalLimit", "LocalLimit", "PipeOperator", "Sort", "View")
)
_KNOWN: Final = frozenset(
    (*_CHOOSING, *_PASSING, _RELATION, "UnresolvedHaving", "UnresolvedQualify", "Distinct", "Union", "CTE")
)
# The roots of analyzed plans that only read. A command was run when its plan was made, and must not be run again.
_QUERIES: Final = frozenset(
    (*_CHOOSING, *_PASSING, "Distinct", "Union", "Except", "Intersect", "Window", "Offset", "WithCTE")
)
# How far a child is moved to the right in the text of a plan. Subqueries of an expression are moved twice.
_INDENT: Final = 3


def named_words(spark: SparkSession, text: str) -> frozenset[str] | None:
    """Return all words of a query, in lower case, if it needs only columns that it names. Else return None."""
    from pyspark.errors import PySparkException

    java = getattr(spark, "_jsparkSession", None)
    if java is None:  # Spark Connect
        return None
    try:
        return words_of(str(java.sessionState().sqlParser().parsePlan(text).toString()))
    except PySparkException:
        return None  # what runs the query says what is wrong


def words_of(plan: str) -> frozenset[str] | None:
    """Return all words of a parsed plan if its shape is plain. Else return None.

    It is plain if there is no star, and each table is below a SELECT list with nothing between them that would use
    columns without naming them: a NATURAL join, a PIVOT, a set operation.
    """
    if "*" in plan or "more fields" in plan or "..." in plan or "NaturalJoin" in plan:
        return None
    nodes = _nodes(plan)
    if not all(node in _KNOWN for _, node in nodes) or not _are_chosen(nodes, _RELATION):
        return None
    return frozenset(word.lower() for word in _WORD.findall(plan))


def _nodes(plan: str) -> list[tuple[int, str]]:
    """Return the node of each line of a plan and how far it is moved to the right. A line without one has ''."""
    matches = [_NODE.match(line) for line in plan.splitlines()]
    return [(0, "") if found is None else (len(found[1]), found[2]) for found in matches]


def _are_chosen(nodes: list[tuple[int, str]], table: str) -> bool:
    """Return whether each node named `table` is below a SELECT list that chooses its columns."""
    above: list[tuple[int, str]] = []
    for depth, node in nodes:
        while above and above[-1][0] >= depth:
            above.pop()
        if node == table and not _is_chosen(above, depth):
            return False
        above.append((depth, node))
    return True


def _is_chosen(above: list[tuple[int, str]], depth: int) -> bool:
    """Return whether a table at this depth is below a SELECT list. `above` are the nodes on its way to the root."""
    for place, node in reversed(above):
        if depth - place != _INDENT:
            return False
        if node in _CHOOSING:
            return True
        if node not in _PASSING:
            return False
        depth = place
    return False


def named_columns(words: frozenset[str]) -> tuple[str, ...]:
    """Return the columns of a message that a query names: at least one, because a table must have one."""
    return tuple(name for name in c.COLUMNS if name in words) or (c.QUEUE_OFFSET,)


def typed_columns(words: frozenset[str], schema: StructType) -> StructType | None:
    """Return the columns that a query needs of a table with typed bodies, or None if it needs no body.

    The fields of a body stay together: one that cannot be read makes all of them NULL, whichever a query names.
    """
    from pyspark.sql.types import StructType

    body = [one for one in schema.fields if one.name not in c.COLUMNS]
    # A name with other characters is not one word of the plan.
    if not any(one.name.lower() in words or not _WORD.fullmatch(one.name) for one in body):
        return None
    return StructType([one for one in schema.fields if one in body or one.name in words])


def plan_of(frame: DataFrame) -> str | None:
    """Return the text of a query's analyzed plan, or None where Spark does not show it (Spark Connect)."""
    java = getattr(frame, "_jdf", None)
    return None if java is None else str(java.queryExecution().analyzed().toString())


def needed_columns(plan: str) -> tuple[str, ...] | None:
    """Return the columns of our tables that an analyzed plan refers to, or None where all are needed or nobody knows.

    Each attribute has a number, so that a column of the table is recognised wherever the plan uses it. The lines of the
    tables themselves name every column and do not count. So all columns are needed of a table that is below no SELECT
    list, as in `table orders`. Nothing is returned for a command, because it has been run.
    """
    lines = plan.splitlines()
    tables = [line for line in lines if _TABLE.search(line)]
    if not tables or "more fields" in plan or "..." in plan:
        return None
    nodes = _nodes(plan)
    if nodes[0][1] not in _QUERIES or not _are_chosen(nodes, _SCAN):
        return None
    declared = {(name, number) for line in tables for name, number in _ATTRIBUTE.findall(line)}
    used = {found for line in lines if not _DECLARES.search(line) for found in _ATTRIBUTE.findall(line)}
    names = {name for name, _ in declared & used}
    if not names <= set(c.COLUMNS) or len(names) == len({name for name, _ in declared}):
        return None
    return tuple(name for name in c.COLUMNS if name in names)
