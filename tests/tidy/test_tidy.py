"""The code base as data: sizes, names and docstrings that reviews would otherwise have to ask for."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(p for p in (ROOT / "src").rglob("*.py"))
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
BANNED_NAMES = re.compile(r"(^|_)(utils?|common|helpers?|misc|manager|impl)(_|\.|$)")


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT / "src")))
def test_file_is_short_named_well_and_says_what_it_owns(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "no head docstring: what does this file own?"
    assert not BANNED_NAMES.search(path.name), "the name says nothing"
    assert text.count("\n") <= FILE_LINES_MAX, f"over {FILE_LINES_MAX} lines: does it own one thing?"
    sizes = {f.name: (f.end_lineno or 0) - f.lineno + 1 for f in functions(tree)}
    long = {name: size for name, size in sizes.items() if size > FUNCTION_LINES_MAX}
    assert not long, f"functions over {FUNCTION_LINES_MAX} lines: {long}"


# These names stand twice on purpose: the clients with and without asyncio have the same names, Spark finds a source by
# the name DefaultSource, and the client's NotDurableError adds the receipt to that of the table of codes.
NAMES_TWICE = frozenset(
    (
        "Admin",
        "DefaultSource",
        "LitePullConsumer",
        "NotDurableError",
        "Producer",
        "PushConsumer",
        "SimpleConsumer",
        "Transaction",
    )
)


def test_a_public_class_name_stands_for_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(f"{path.relative_to(ROOT / 'src')}:{node.lineno}")
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert NAMES_TWICE <= twice.keys(), "a name of the list stands once: take it off"
    assert not (others := {name: found for name, found in twice.items() if name not in NAMES_TWICE}), others


def test_nothing_names_a_machine_or_a_package_index() -> None:
    words = r"(^|[^A-Za-z0-9_.])/(work|root)/|index-url|registry *[=:] *.?https?:"
    found = subprocess.run(
        ["git", "grep", "-nIE", words, "--", ".", ":!tests/tidy"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert found.returncode == 1, found.stdout
