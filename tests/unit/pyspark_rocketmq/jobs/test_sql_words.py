"""What `aerobee sql` does with words, before and after Spark."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from aerobee.errors import InvalidArgumentError
from pyspark_rocketmq.jobs import prompt
from pyspark_rocketmq.jobs.sql import as_json, quoted, require_new, shown, statements


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("select 1", ["select 1"]),
        ("select 1; select 2;", ["select 1", "select 2"]),
        ("select ';' ; -- a; b\nselect `x;y`", ["select ';'", "-- a; b\nselect `x;y`"]),
        (r"select 'it\'s;' a", [r"select 'it\'s;' a"]),
        ("  ;; -- nothing\n", []),
        ("select 1 /* ; ' */; /* all */ ; select 2", ["select 1 /* ; ' */", "select 2"]),
        ("select 'open", ["select 'open"]),
    ],
)
def test_statements_are_cut_outside_quotes_and_comments(text: str, found: list[str]) -> None:
    assert statements(text) == found


def test_names_are_quoted_where_sql_needs_it() -> None:
    assert [quoted(n) for n in ("orders", "my-topic", "%RETRY%g", "9x")] == [
        "orders",
        "`my-topic`",
        "`%RETRY%g`",
        "`9x`",
    ]


def test_values_are_shown_in_one_line_and_as_json() -> None:
    moment = datetime(2026, 11, 15, 10, 0, 12, 345000, tzinfo=UTC).replace(tzinfo=None)
    assert shown(None) == "NULL" and shown(b"a\nb") == "a.b" and shown(b"\xff") == "0xff"
    assert shown(moment) == "2026-11-15 10:00:12.345" and shown(date(2026, 1, 2)) == "2026-01-02"
    assert shown({"a": 1, "b": b"x"}) == "a=1 b=x" and len(shown("x" * 500)) == 200
    assert as_json({"t": moment, "b": b"\xff", "l": [b"x", None, 1.5]}) == {
        "t": "2026-11-15T10:00:12.345000Z",
        "b": "/w==",
        "l": ["x", None, 1.5],
    }


def test_the_prompt_gathers_lines_until_a_statement_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: Iterator[str | type[BaseException]] = iter(
        ["", "show tables", "select 1", "  , 2;", "select 3", "", "select 4", KeyboardInterrupt, "select 5; select 6;"]
    )

    def typed(ask: str) -> str:
        line = next(lines, EOFError)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr(builtins, "input", typed)
    found = ["show tables", "select 1\n  , 2", "select 3", "select 5", "select 6"]
    assert list(prompt.typed()) == found


def test_quit_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "input", lambda ask: "quit")
    assert list(prompt.typed()) == []


def test_a_file_is_not_written_over_unasked(tmp_path: Path) -> None:
    there = tmp_path / "a.parquet"
    require_new(there)
    there.write_text("x")
    require_new(there, replace=True)
    for target, why in ((there, "exists"), (tmp_path, "is a directory"), (tmp_path / "no" / "a", "no directory")):
        with pytest.raises(InvalidArgumentError, match=why):
            require_new(target)


ALL = "topic#1, broker#2, queue_id#3, queue_offset#4L, tags#5, body#6"


def plan(*nodes: str) -> str:
    """A plan whose nodes have one child each, down to the table."""
    chain = [*nodes, f"View (`orders`, [{ALL}])", f"RelationV2[{ALL}] rocketmq"]
    return "\n".join(["   " * (number - 1) + "+- " * (number > 0) + node for number, node in enumerate(chain)])


def test_a_query_reads_the_columns_that_it_names() -> None:
    from pyspark_rocketmq.jobs.pruning import needed_columns

    assert needed_columns(plan("Aggregate [count(1) AS n#20L]", "SubqueryAlias orders")) == ()
    grouped = plan("Aggregate [tags#5], [tags#5, count(1) AS n#20L]", "SubqueryAlias orders")
    assert needed_columns(grouped) == ("tags",)
    filtered = plan("Project [cast(body#6 as string) AS b#21]", "Filter (queue_id#3 = 0)", "SubqueryAlias orders")
    assert needed_columns(filtered) == ("queue_id", "body")
    # All columns, another table's number, a plan that Spark shortened, a table that is not ours.
    assert needed_columns(plan(f"Project [{ALL}]", "SubqueryAlias orders")) is None
    assert needed_columns(plan("Project [tags#99]")) == ()
    assert needed_columns(plan("Project [topic#1, ... 30 more fields]")) is None
    assert needed_columns(f"Project [tags#5]\n+- RelationV2[{ALL}] rocketmq_store") == ("tags",)
    assert needed_columns(f"Project [tags#5]\n+- RelationV2[{ALL}] parquet") is None
    assert needed_columns("Project [1 AS 1#7]\n+- OneRowRelation") is None
    # Nothing chooses columns here: table orders, from orders |> where ..., and a set operation over such a table.
    assert needed_columns(plan("SubqueryAlias orders")) is None
    assert needed_columns(plan("GlobalLimit 2", "LocalLimit 2", "Filter (tags#5 = A)", "SubqueryAlias orders")) is None
    assert needed_columns(plan("Aggregate [count(1) AS n#20L]", "Distinct", "SubqueryAlias orders")) is None
    # A command was run when its plan was made.
    assert needed_columns(plan("CreateDataSourceTableAsSelectCommand `t`", "Project [tags#5]")) is None


RELATION = "'UnresolvedRelation [orders], [], false"


@pytest.mark.parametrize(
    "lines",
    [
        ("'Aggregate ['topic], ['topic, 'count(1) AS n#0]", "+- 'Filter ('keys = k)", f"   +- {RELATION}"),
        ("'Project [unresolvedalias('count(1))]", f"+- {RELATION}"),
        ("'Project ['o.topic]", "+- 'Join Inner", "   :- 'SubqueryAlias o", f"   :  +- {RELATION}",
         f"   +- {RELATION}"),
        ("CTE [a]", ":  +- 'SubqueryAlias a", ":     +- 'Project ['topic]", f":        +- {RELATION}",
         "+- 'Project ['topic]", "   +- 'UnresolvedRelation [a], [], false"),
        ("'Project ['topic]", "+- 'Filter exists#1 []", "   :  +- 'Project [1]", f"   :     +- {RELATION}",
         f"   +- {RELATION}"),
        # from orders |> where ... |> order by ... |> select topic
        ("'Project ['topic]", "+- 'Sort ['keys ASC NULLS FIRST], true", "   +- 'PipeOperator",
         "      +- 'Filter ('tags = NEW)", "         +- 'PipeOperator", f"            +- {RELATION}"),
    ],
)  # fmt: skip
def test_a_plain_query_needs_what_it_names(lines: tuple[str, ...]) -> None:
    from pyspark_rocketmq.jobs.pruning import words_of

    words = words_of("\n".join(lines))
    assert words is not None and "orders" in words


@pytest.mark.parametrize(
    "lines",
    [
        (RELATION,),  # table orders
        ("'Project [*]", f"+- {RELATION}"),
        ("'Project ['count(o.*)]", f"+- {RELATION}"),
        ("'Project ['topic]", "+- 'Join NaturalJoin(Inner)", f"   :- {RELATION}", f"   +- {RELATION}"),
        ("'Project ['topic]", "+- 'Pivot 'tags, [a], ['count(1)]", f"   +- {RELATION}"),
        ("'Union false, false", f":- {RELATION}", f"+- {RELATION}"),
        ("'Distinct", f"+- {RELATION}"),
        ("CTE [a]", ":  +- 'SubqueryAlias a", f":     +- {RELATION}", "+- 'Project ['topic]",
         "   +- 'UnresolvedRelation [a], [], false"),
        # in (table b): Spark counts the columns of b.
        ("'Project ['topic]", "+- 'Filter 'topic IN (list#7 [])", f"   :  +- {RELATION}", f"   +- {RELATION}"),
        ("'DescribeRelation false, [col_name#3]", "+- 'UnresolvedTableOrView [orders], DESCRIBE TABLE, true"),
        ("'Project [topic, ... 30 more fields]", f"+- {RELATION}"),
    ],
)  # fmt: skip
def test_a_query_that_may_need_more_than_it_names_is_left_alone(lines: tuple[str, ...]) -> None:
    from pyspark_rocketmq.jobs.pruning import words_of

    assert words_of("\n".join(lines)) is None


def test_the_columns_that_are_named_are_those_that_are_read() -> None:
    from pyspark.sql.types import StructType

    from pyspark_rocketmq.columns import schema as c
    from pyspark_rocketmq.jobs.pruning import named_columns, typed_columns

    assert named_columns(frozenset(("select", "keys", "queue_id"))) == (c.QUEUE_ID, c.KEYS)
    assert named_columns(frozenset(("count",))) == (c.QUEUE_OFFSET,)
    schema = StructType()
    for name in ("topic", "keys", "amount", "a-b", "_corrupt"):
        schema.add(name, "string")
    plain = StructType([one for one in schema.fields if one.name != "a-b"])
    assert typed_columns(frozenset(("topic",)), plain) is None
    wanted = typed_columns(frozenset(("amount", "keys")), plain)
    assert wanted is not None and wanted.names == ["keys", "amount", "_corrupt"], "a body is read whole"
    odd = typed_columns(frozenset(("topic",)), schema)
    assert odd is not None and odd.names == ["topic", "amount", "a-b", "_corrupt"]
