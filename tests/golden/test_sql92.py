"""Every expression of `sql92.jsonl` comes to what Apache's filter module made of it, refusals included."""

import json
from pathlib import Path

from aerobee.model.sql92.compiler import compile_filter
from aerobee.model.sql92.errors import FilterEvaluationError, FilterSyntaxError

DATA = Path(__file__).parent / "data" / "sql92.jsonl"
LETTERS = {True: "T", False: "F", None: "N"}


def _read() -> tuple[list[dict[str, str]], list[tuple[str, str]]]:
    # Not splitlines: expressions may hold other line separators.
    lines = DATA.read_text(encoding="utf-8").rstrip("\n").split("\n")
    return json.loads(lines[0]), [tuple(json.loads(line)) for line in lines[1:]]


def _ours(expression: str, sets: list[dict[str, str]]) -> str:
    try:
        compiled = compile_filter(expression)
    except FilterSyntaxError:
        return "-"
    letters = ""
    for properties in sets:
        try:
            letters += LETTERS[compiled.evaluate(properties)]
        except FilterEvaluationError:
            letters += "E"
        assert compiled.matches(properties) == (letters[-1] == "T")
    return letters


def test_every_expression_comes_to_what_apache_says() -> None:
    sets, rows = _read()
    differences = [
        f"{expression!r}: Apache {theirs}, ours {ours}"
        for expression, theirs in rows
        if (ours := _ours(expression, sets)) != theirs
    ]
    assert not differences, "\n".join(differences[:20])


def test_the_table_is_worth_its_name() -> None:
    sets, rows = _read()
    kept = [letters for _, letters in rows if letters != "-"]
    assert len(rows) >= 4000
    assert len(kept) >= 1500
    assert len(sets) >= 10
    assert all(letter in "".join(kept) for letter in "TFNE")
