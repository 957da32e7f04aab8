"""The progress of queries as their checkpoints tell it: which batch is done, how many rows it had, how fast it goes.

Spark writes `offsets/N` before batch N runs and `commits/N` when it is done. Nothing here needs Spark or changes a
file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aerobee.model.numbers import int_or

# How many batches the rate is taken from, and how large a file of offsets may be.
_BATCHES: Final = 10
_SIZE_MAX: Final = 8 << 20
_QUERIES_MAX: Final = 500
# Where a directory may hold checkpoints: a project that was started, one that was run, or the directory itself.
_PLACES: Final = ("state/start/checkpoints", "state/run/storage/_checkpoints", "")

# By topic, broker and queue: the next offset.
Places = Mapping[tuple[str, str, int], int]


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """One query. `batch` is the last batch that is done, -1 before the first one."""

    project: str
    query: str
    batch: int
    # The batch that has begun and is not done, or None.
    running: int | None
    # When the last batch was done, and when the running one began.
    done_ms: int
    began_ms: int
    # Of the last batch; None where it cannot be told from the offsets.
    rows: int | None
    batch_ms: int | None
    # Over the last batches that are still in the checkpoint.
    rows_s: float | None
    offsets: Places = field(default_factory=dict)

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({topic for topic, _, _ in self.offsets}))

    def behind(self, ends: Places) -> int | None:
        """Return how many messages the query has not read, None where the end of a queue is not known."""
        if not self.offsets or not self.offsets.keys() <= ends.keys():
            return None
        topics = set(self.topics)
        return sum(max(0, end - self.offsets.get(place, 0)) for place, end in ends.items() if place[0] in topics)


def queries_of(directory: str) -> tuple[list[QueryProgress], list[str]]:
    """Return the queries of a project or of a directory of checkpoints, and sentences on what cannot be read."""
    root = Path(directory)
    found: list[QueryProgress] = []
    problems: list[str] = []
    try:
        if not root.is_dir():
            return [], [f"there is no directory {directory}"]
        for place in _PLACES:
            above = root / place if place else root
            for path in _checkpoints(above, deep=bool(place)):
                try:
                    found.append(_query(root.resolve().name, path))
                except (OSError, ValueError, TypeError, AttributeError) as error:
                    problems.append(f"the checkpoint {path} cannot be read: {error}")
            if found:
                break
    except OSError as error:
        problems.append(f"{directory} cannot be read: {error.strerror or error}")
    return found, problems


def _checkpoints(above: Path, *, deep: bool) -> Sequence[Path]:
    """Return the directories that hold a checkpoint: those with a directory `offsets`."""
    if not above.is_dir():
        return []
    if (above / "offsets").is_dir():
        return [above]
    patterns = ("*/offsets", "*/*/offsets", "*/*/*/offsets", "*/*/*/*/offsets") if deep else ("*/offsets",)
    return sorted({path.parent for pattern in patterns for path in above.glob(pattern)})[:_QUERIES_MAX]


def _query(project: str, path: Path) -> QueryProgress:
    planned, done = _numbers(path / "offsets"), _numbers(path / "commits")
    batch = max(done, default=-1)
    last = max(planned, default=-1)
    # The number of a run below the name of a query is no name.
    name = path.parent.name if path.name.isdigit() else path.name
    kept = [one for one in sorted(done) if one in planned][-_BATCHES - 1 :]
    offsets = {one: _offsets(path / "offsets" / str(one)) for one in {*kept[:1], *kept[-2:]}}
    rows = rate = None
    if len(kept) > 1:
        if kept[-1] - kept[-2] == 1:
            rows = _rows(offsets[kept[-2]], offsets[kept[-1]])
        passed_ms = _time(path / "commits" / str(kept[-1])) - _time(path / "commits" / str(kept[0]))
        all_rows = _rows(offsets[kept[0]], offsets[kept[-1]])
        if passed_ms > 0 and all_rows is not None:
            rate = all_rows * 1000 / passed_ms
    done_ms = _time(path / "commits" / str(batch)) if batch >= 0 else 0
    began_ms = _time(path / "offsets" / str(last)) if last > batch else 0
    took = max(0, done_ms - _time(path / "offsets" / str(batch))) if batch in planned else None
    return QueryProgress(
        project, name, batch, last if last > batch else None, done_ms, began_ms, rows, took, rate,
        offsets.get(batch, {}),
    )  # fmt: skip


def _numbers(directory: Path) -> set[int]:
    if not directory.is_dir():
        return set()
    numbers = (int_or(path.name, None, 0) for path in directory.iterdir())
    return {one for one in numbers if one is not None}


def _time(path: Path) -> int:
    return int(path.stat().st_mtime * 1000)


def _rows(before: Places, after: Places) -> int | None:
    """Return how many messages lie between two places, None where a queue has no earlier place."""
    if not after or not after.keys() <= before.keys():
        return None
    return sum(max(0, offset - before[place]) for place, offset in after.items())


def _offsets(path: Path) -> Places:
    """Return the offsets of RocketMQ's sources in a file of offsets. Other sources are passed over."""
    if path.stat().st_size > _SIZE_MAX:
        raise ValueError(f"{path.name} has more than {_SIZE_MAX >> 20} MiB")
    found: dict[tuple[str, str, int], int] = {}
    for line in path.read_text(encoding="utf-8").splitlines()[2:]:
        if not line.startswith("{"):
            continue
        told: Any = json.loads(line)
        topics = told.get("offsets") if isinstance(told, dict) else None
        if not isinstance(topics, dict):
            continue
        for topic, brokers in topics.items():
            for broker, queues in brokers.items():
                for queue, offset in queues.items():
                    found[topic, broker, int_or(queue, -1)] = int_or(str(offset), 0)
    return found
