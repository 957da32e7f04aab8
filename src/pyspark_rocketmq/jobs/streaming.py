"""Pipelines that run all the time: the queries of a project's stream.py are started, watched and stopped.

The file defines `stream(spark)`, which returns a DataStreamWriter or several by name. This module sets the name, the
checkpoint and, on request, the trigger. The same file runs on any master.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aerobee.errors import AerobeeError
from aerobee.model.fields import float_of, int_of, whole_of
from aerobee.runtime.clock import SystemClock
from pyspark_rocketmq.jobs.failures import JobFailedError, failure, one_line
from pyspark_rocketmq.jobs.projects import ProjectError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_FUNCTION: Final = "stream"
_USERS_MISTAKES: Final = (
    SyntaxError, ImportError, NameError, OSError, ValueError, TypeError, AttributeError, LookupError, RuntimeError,
    ArithmeticError,
)  # fmt: skip
_POLL_S: Final = 0.5
_CLOCK: Final = SystemClock()


def load(path: Path) -> Callable[[Any], Any]:
    """Return the function `stream` of a file. The file may import from its directory."""
    if not path.is_file():
        raise ProjectError(f"no file {path}", hint="`aerobee pipeline new DIR` makes a project with one")
    _prefer(path.parent.resolve())
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except _USERS_MISTAKES as error:
        raise _mistake(error, path.parent) from None
    function = getattr(module, _FUNCTION, None)
    if not callable(function):
        raise ProjectError(f"{path.name} defines no function {_FUNCTION}(spark)")
    return function  # type: ignore[no-any-return]


def _mistake(error: BaseException, directory: Path) -> ProjectError:
    """Return an error in the user's code with its line in the project."""
    here = directory.resolve()
    frames = [one for one in traceback.extract_tb(error.__traceback__) if Path(one.filename).resolve().parent == here]
    place = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}: " if frames else ""
    if isinstance(error, SyntaxError) and error.filename:
        return ProjectError(f"{Path(error.filename).name}, line {error.lineno}: {error.msg}")
    return ProjectError(f"{place}{type(error).__name__}: {error}")


def _prefer(directory: Path) -> None:
    """Make imports find this directory first, and no module of another project with the same name."""
    text = str(directory)
    if text in sys.path:
        sys.path.remove(text)
    sys.path.insert(0, text)
    for path in directory.glob("*.py"):
        loaded = sys.modules.get(path.stem)
        if loaded is not None and getattr(loaded, "__file__", None) != str(path):
            del sys.modules[path.stem]
    importlib.invalidate_caches()


def writers(function: Callable[[Any], Any], spark: SparkSession, default_name: str) -> dict[str, Any]:
    """Return the writers that `stream(spark)` returns, by name."""
    from pyspark.errors import PySparkException

    try:
        found = function(spark)
    except PySparkException as error:
        raise failure(error) from None
    except _USERS_MISTAKES as error:
        raise _mistake(error, Path(getattr(function, "__code__", writers.__code__).co_filename).parent) from None
    named = dict(found) if isinstance(found, Mapping) else {default_name: found}
    for name, writer in named.items():
        if not hasattr(writer, "trigger") or not hasattr(writer, "start"):
            raise ProjectError(
                f"{_FUNCTION}(spark) returned {type(writer).__name__} for {name}",
                hint="return df.writeStream.format(...), not yet started, or a dict of them",
            )
    return named


def start(
    named: Mapping[str, DataStreamWriter], checkpoints: str, *, available_now: bool = False
) -> dict[str, StreamingQuery]:
    """Start the queries, each with its own checkpoint. If one does not start, stop the others."""
    from pyspark.errors import PySparkException

    started: dict[str, StreamingQuery] = {}
    try:
        for name, writer in named.items():
            made = writer.queryName(name).option("checkpointLocation", f"{checkpoints.rstrip('/')}/{name}")
            started[name] = (made.trigger(availableNow=True) if available_now else made).start()
    except PySparkException as error:
        stop(started)
        raise failure(error) from None
    return started


def stop(queries: Mapping[str, StreamingQuery]) -> None:
    """Stop a query and wait until it has stopped. The next start reads again what a batch had not committed."""
    from pyspark.errors import PySparkException

    for query in queries.values():
        try:
            query.stop()
        except PySparkException as error:  # it did not end in time; the others still must
            sys.stderr.write(f"warning: {one_line(str(error))}\n")


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """The progress of one batch of one query."""

    query: str
    batch: int
    rows: int
    rows_per_second: float
    batch_ms: int
    behind: int | None
    # The bytes of the batch in the log, where the brokers tell them.
    bytes: int | None = None

    def line(self) -> str:
        """Return one line for the terminal."""
        behind = "" if self.behind is None else f", {self.behind:,} behind"
        size = "" if self.bytes is None else f" ({self.bytes / 1e6:,.1f} MB)"
        return (
            f"{self.query}: batch {self.batch}, {self.rows:,} rows{size} in {self.batch_ms / 1000:.1f} s "
            f"({self.rows_per_second:,.0f}/s){behind}"
        )


def progress_of(name: str, raw: Mapping[str, Any]) -> BatchProgress:
    """Return the progress of a batch from Spark's report."""
    sources = raw.get("sources") or []
    left = [behind(one.get("endOffset"), one.get("latestOffset")) for one in sources]
    known = [one for one in left if one is not None]
    sizes = [one for one in (_size(source.get("latestOffset")) for source in sources) if one is not None]
    return BatchProgress(
        name,
        int_of(raw, "batchId", -1),
        int_of(raw, "numInputRows"),
        float_of(raw, "processedRowsPerSecond"),
        int_of(raw.get("durationMs") or {}, "triggerExecution"),
        sum(known) if known else None,
        sum(sizes) if sizes else None,
    )


def _size(latest: object) -> int | None:
    """Return the bytes of a batch that a report of our source tells, or None."""
    try:
        value = json.loads(latest) if isinstance(latest, str) else latest
        return whole_of(value["batch"]["bytes"])  # type: ignore[index]
    except (TypeError, KeyError, ValueError):
        return None


def behind(end: object, latest: object) -> int | None:
    """Return the number of messages between two offsets of our source, or None for other offsets."""
    ends, tops = _numbers(end), _numbers(latest)
    if ends is None or tops is None:
        return None
    return sum(max(0, top - ends.get(queue, top)) for queue, top in tops.items())


def _numbers(offset: object) -> dict[tuple[str, str, str], int] | None:
    try:
        value = json.loads(offset) if isinstance(offset, str) else offset
        table = value["offsets"]  # type: ignore[index]
        return {
            (topic, broker, queue): whole_of(number)
            for topic, brokers in table.items()
            for broker, queues in brokers.items()
            for queue, number in queues.items()
        }
    except (TypeError, KeyError, ValueError, AttributeError):
        return None


def watch(queries: Mapping[str, StreamingQuery], is_stopping: Callable[[], bool]) -> Iterator[BatchProgress]:
    """Return each finished batch until all queries have ended or `is_stopping`. Raise a failed query as one line."""
    from pyspark.errors import PySparkException

    seen: dict[str, int] = {}
    running = dict(queries)
    while running and not is_stopping():
        for name, query in list(running.items()):
            try:
                is_over = bool(query.awaitTermination(_POLL_S / len(running)))  # type: ignore[arg-type]
            except PySparkException as error:
                raise _failed(name, error) from None
            last = query.lastProgress
            if last is not None and seen.get(name) != last["batchId"]:
                seen[name] = last["batchId"]
                yield progress_of(name, json.loads(last.json) if hasattr(last, "json") else dict(last))
            if is_over:
                del running[name]


def _failed(name: str, error: BaseException) -> AerobeeError:
    return JobFailedError(f"{name}: {failure(error).message}")


class Pace:
    """A choice of the progress to print: every batch on a terminal, else the first one and one each `every_s`."""

    def __init__(self, every_s: float = 10.0) -> None:
        self._every_s = every_s
        self._last_s: float | None = None

    def admits(self, progress: BatchProgress) -> bool:
        """Return whether to print a batch. A batch without rows is never printed."""
        now_s = _CLOCK.monotonic()
        if not progress.rows or (self._last_s is not None and now_s - self._last_s < self._every_s):
            return False
        self._last_s = now_s
        return True
