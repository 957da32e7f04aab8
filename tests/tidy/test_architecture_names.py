"""docs/ARCHITECTURE.md is true: its packages are the ones that exist, and its walks name real functions."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
PAGE = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
# `path/file.py:Class.function`
NAMED = re.compile(r"`((?:aerobee|pyspark_rocketmq\w*)/[\w/]+\.py):([\w.]+)`")
FILES_MAX = {"A send": 20, "A pull": 18}


def section(title: str, level: str) -> str:
    found = re.search(rf"^{level} {re.escape(title)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"no section {title!r}"
    return found[1]


@cache
def names_of(path: str) -> frozenset[str]:
    """Return the functions, classes and methods of a file, as `name` and `Class.name`."""
    found = set()
    for node in ast.parse((SRC / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return frozenset(found)


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED.findall(PAGE))))
def test_every_named_function_exists(path: str, name: str) -> None:
    assert (SRC / path).exists(), f"no file {path}"
    assert name in names_of(path), f"{path} has no {name}"


def test_every_file_named_without_its_root_exists() -> None:
    for path in re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE):
        assert (ROOT / path).exists() or (SRC / "aerobee" / path).exists(), path


def test_the_packages_are_those_that_exist() -> None:
    told = re.findall(r"^((?:aerobee|pyspark_rocketmq)[\w/]*) ", section("The packages", "##"), re.MULTILINE)
    there = {str(path.parent.relative_to(SRC)) for path in SRC.rglob("__init__.py")} - {"aerobee"}
    assert len(told) == len(set(told))
    assert set(told) == there


@pytest.mark.parametrize("walk", FILES_MAX)
def test_a_walk_passes_through_few_files(walk: str) -> None:
    files = {path for path, _ in NAMED.findall(section(walk, "###"))}
    assert 5 < len(files) <= FILES_MAX[walk], sorted(files)


def test_the_walk_of_a_spark_batch_is_told() -> None:
    assert len(NAMED.findall(section("A Spark batch", "###"))) > 10
