"""A pipeline project on disk: its creation from a template, its state, and its checks.

    rows.py  stream.py  transformations/*.py  spark-pipeline.yml      files of the user
    tables/  state/start/  state/run/                                 our files: data, checkpoints, the catalog

`start` and `run` keep separate checkpoints, so a project that was used with one refuses the other.
"""

from __future__ import annotations

import ast
import re
import shutil
import string
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from aerobee.errors import AerobeeError, InvalidArgumentError

TEMPLATES: Final = ("table", "aggregate", "delta", "iceberg")
# Spark Declarative Pipelines cannot write these without jars: their projects are for `start` only.
STREAM_ONLY: Final = ("delta", "iceberg")
SPEC: Final = "spark-pipeline.yml"
STREAM: Final = "stream.py"
_SUFFIX: Final = ".in"
_SHARED: Final = {f"{SPEC}{_SUFFIX}": SPEC, f"gitignore{_SUFFIX}": ".gitignore"}
_INSERT: Final = re.compile(r"\binsert\s+into\s+(?:once\s+)?([\w.`]+)", re.IGNORECASE)
_CREATE_AS: Final = re.compile(r"\bcreate\s+(?:or\s+refresh\s+)?streaming\s+table\s+([\w.`]+)(.*?);", re.I | re.S)


class ProjectError(AerobeeError):
    """A project has an error."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class TemplateValues:
    """The values that `new` puts into a template."""

    topic: str
    target: str
    namesrv: str
    guarantee: str = "at-least-once"


def table_name(topic: str) -> str:
    """Return a topic's name as SQL accepts it without back-ticks."""
    name = re.sub(r"\W+", "_", topic).strip("_").lower() or "topic"
    return f"t_{name}" if name[0].isdigit() else name


def create(directory: Path, template: str, wanted: TemplateValues) -> list[Path]:
    """Create a project and return the files that were written. An existing directory must be empty."""
    if template not in TEMPLATES:
        raise InvalidArgumentError(f"no template {template}", hint=f"there are: {', '.join(TEMPLATES)}")
    if directory.exists() and any(directory.iterdir()):
        raise InvalidArgumentError(f"{directory} is not empty")
    name = table_name(wanted.target if template == "aggregate" else wanted.topic)
    values = {
        "topic": wanted.topic,
        "target": wanted.target,
        "namesrv": wanted.namesrv,
        "guarantee": wanted.guarantee,
        "table": name,
    }
    root = resources.files("pyspark_rocketmq.jobs") / "templates"
    files = {target: root / source for source, target in _SHARED.items()} | dict(_files(root / template))
    if template in STREAM_ONLY:
        del files[SPEC]
    written = []
    for relative, source in sorted(files.items()):
        path = directory / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(string.Template(source.read_text(encoding="utf-8")).substitute(values), encoding="utf-8")
        written.append(path)
    return written


def _files(root: Traversable, below: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in root.iterdir():
        if entry.is_dir():
            yield from _files(entry, f"{below}{entry.name}/")
        elif entry.name.endswith(_SUFFIX):
            yield below + entry.name.removesuffix(_SUFFIX), entry


class Project:
    """A directory with pipelines."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        if not self.directory.is_dir():
            raise ProjectError(f"no directory {directory}", hint="`aerobee pipeline new DIR` makes a project")

    @property
    def tables(self) -> Path:
        return self.directory / "tables"

    def state(self, mode: str) -> Path:
        """Return the directory in which `start` or `run` keeps its state."""
        return self.directory / "state" / mode

    def storage(self) -> Path:
        """Return the directory of SDP's checkpoints."""
        return self.state("run") / "storage"

    def claim(self, mode: str) -> Path:
        """Create and return the state directory of `mode`, or raise ProjectError if the other mode was used."""
        other = self.state("run" if mode == "start" else "start")
        if other.exists():
            raise ProjectError(
                f"this project is used with `{other.name}`, whose checkpoints `{mode}` cannot use",
                hint="use only one of them, or start again with `aerobee pipeline refresh`",
            )
        state = self.state(mode)
        state.mkdir(parents=True, exist_ok=True)
        return state

    def leavings(self, tables: tuple[str, ...] = ()) -> list[Path]:
        """Return what a refresh removes: all data and state, or those of some tables and sinks."""
        if not tables:
            return [path for path in (self.tables, self.directory / "state") if path.exists()]
        found = []
        for name in tables:
            places = [self.tables / name, self.tables / name.lower(), self.state("start") / "checkpoints" / name]
            places += self.storage().glob(f"_checkpoints/**/{name}")
            found += [path for path in dict.fromkeys(places) if path.exists()]
        return [path for path in found if not any(other in path.parents for other in found)]

    def known(self) -> list[str]:
        """Return the tables and sinks that have data or progress."""
        checkpoints = [self.state("start") / "checkpoints", self.storage() / "_checkpoints"]
        inner = self.storage() / "_checkpoints" / "spark_catalog" / "default"
        places = [path for place in (self.tables, inner, *checkpoints) if place.is_dir() for path in place.iterdir()]
        return sorted({path.name for path in places if path.is_dir()} - {"spark_catalog"})

    def refresh(self, tables: tuple[str, ...] = ()) -> None:
        """Remove what `leavings` lists. `pipelines.drop_tables` removes the catalog entries of tables."""
        for path in self.leavings(tables):
            shutil.rmtree(path, ignore_errors=True)

    # -- checks

    def problems(self) -> list[str]:
        """Return a sentence for each error that Spark would accept without a message."""
        flows: dict[str, list[str]] = {}
        found = []
        for path in sorted((self.directory / "transformations").rglob("*")):
            where = path.relative_to(self.directory)
            if path.suffix == ".py":
                tree = _parsed(path)
                for target, flow in _python_flows(tree):
                    flows.setdefault(target, []).append(f"{flow} ({where})")
                if any(isinstance(n, ast.Attribute) and n.attr == "dataSource" for n in ast.walk(tree)):
                    found.append(
                        f"{where} registers a data source: none is needed, and the run would end with an error"
                    )
            elif path.suffix == ".sql":
                for target in _sql_flows(path.read_text(encoding="utf-8")):
                    flows.setdefault(target, []).append(str(where))
        sinks = set(self._sinks())
        for target, names in flows.items():
            if len(names) > 1 and target not in sinks:
                found.append(
                    f"table {target} has {len(names)} flows, {' and '.join(names)}: Spark would lose the rows of one; "
                    "make it one flow with union"
                )
        return found

    def _sinks(self) -> Iterator[str]:
        for path in (self.directory / "transformations").rglob("*.py"):
            for node in ast.walk(_parsed(path)):
                if isinstance(node, ast.Call) and _called(node) == "create_sink":
                    name = _text_argument(node, "name")
                    if name:
                        yield name


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"), str(path))
    except SyntaxError as error:
        raise ProjectError(f"{path.name}, line {error.lineno}: {error.msg}") from None


def _called(node: ast.expr) -> str:
    """Return `table` for `@dp.table`, `@dp.table(...)` and `@table`."""
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _text_argument(call: ast.Call, name: str) -> str | None:
    values = [one.value for one in call.keywords if one.arg == name] or (call.args[:1] if name == "name" else [])
    first = values[0] if values else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def _python_flows(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Return (target, flow) of every decorated function that fills a table."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        for mark in node.decorator_list:
            kind = _called(mark)
            if kind in ("table", "materialized_view"):
                yield (isinstance(mark, ast.Call) and _text_argument(mark, "name")) or node.name, node.name
            elif kind == "append_flow" and isinstance(mark, ast.Call):
                target = _text_argument(mark, "target")
                if target:
                    yield target, node.name


def _sql_flows(text: str) -> Iterator[str]:
    for found in _INSERT.finditer(text):
        yield found[1].replace("`", "")
    for found in _CREATE_AS.finditer(text + ";"):
        if re.search(r"\bas\b", found[2], re.IGNORECASE):
            yield found[1].replace("`", "")
