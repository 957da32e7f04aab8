"""The options of the store scan."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aerobee.errors import StoreError
from aerobee.hot.log.record import VERIFY_NONE, VERIFY_RECORD
from aerobee.model.fields import whole_of
from aerobee.runtime.seams import Disk
from pyspark_rocketmq.options import Option, OptionError, boolean, moment_ms, one_of, read_options, size_bytes, text

# As much as Spark gives a task for files (spark.sql.files.maxPartitionBytes). Each further task costs 20 ms.
SPLIT_BYTES: Final = 128 << 20


def _ranges(value: str) -> frozenset[tuple[int, int]]:
    try:
        return frozenset((whole_of(start), whole_of(end)) for start, end in json.loads(value))
    except (ValueError, TypeError, RecursionError):
        raise ValueError("is not [[start, end], ...]") from None


OPTIONS: Final = (
    Option("path", text, help="the store directory: it holds commitlog, consumequeue and checkpoint"),
    Option("commitLogPath", text, help="the log's directory, where it is not DIR/commitlog"),
    Option("topic", text, help="only these topics, apart by commas"),
    Option("startingTimestamp", moment_ms, help="only messages stored at or after this time"),
    Option("endingTimestamp", moment_ms, help="only messages stored before this time"),
    Option("verify", boolean, False, "check every record's checksum"),
    Option("badRecords", one_of("fail", "skip"), "fail", "what a record that is no record does to the read"),
    Option("failOnDataLoss", boolean, True, "whether a segment that vanished between planning and reading is an error"),
    Option("splitBytes", size_bytes, SPLIT_BYTES, "about how much of the log one task reads"),
    Option("filterPushdown", boolean, False, "WHERE narrows what is read: only for a DataFrame used once"),
    Option("archived", _ranges, frozenset(), "segments to leave out, which an archive holds: [[start, end], ...]"),
    Option("broker", text, help="the value of the column broker: a store does not know its broker's name"),
)


@dataclass(frozen=True, slots=True)
class WantedRecords:
    """The wanted records: those of these topics (all if None), stored from `from_ms` to before `until_ms`."""

    topics: frozenset[bytes] | None = None
    from_ms: int | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ScanSettings:
    """The values of the options."""

    root: str
    log_directory: str
    wanted: WantedRecords = WantedRecords()
    verify: int = VERIFY_NONE
    skip_bad: bool = False
    fail_on_data_loss: bool = True
    split_bytes: int = SPLIT_BYTES
    broker: str | None = None
    archived: frozenset[tuple[int, int]] = frozenset()
    pushdown: bool = False


def read_settings(options: Mapping[str, str]) -> ScanSettings:
    """Return the settings from Spark's map. Raises OptionError that tells what is wrong."""
    values = read_options(options, OPTIONS)
    if values["path"] is None:
        raise OptionError('no directory: spark.read.format("rocketmq_store").load(DIR)')
    root = local_path(values["path"])
    topics = None
    if values["topic"] is not None:
        topics = frozenset(part.strip().encode() for part in values["topic"].split(",") if part.strip())
        if not topics:
            raise OptionError("option topic: names no topic")
    return ScanSettings(
        root=root,
        log_directory=(values["commitLogPath"] or f"{root}/commitlog").rstrip("/"),
        wanted=WantedRecords(topics, values["startingTimestamp"], values["endingTimestamp"]),
        verify=VERIFY_RECORD if values["verify"] else VERIFY_NONE,
        skip_bad=values["badRecords"] == "skip",
        fail_on_data_loss=values["failOnDataLoss"],
        split_bytes=values["splitBytes"],
        broker=values["broker"],
        archived=values["archived"],
        pushdown=values["filterPushdown"],
    )


def local_path(given: str) -> str:
    """Return the path of a directory that a user gives as a path or as a URL of a file."""
    return given.strip().removeprefix("file://").rstrip("/") or "/"


def require_log(disk: Disk, directory: str) -> None:
    """Raise StoreError where the directory of a log does not exist. The error suggests a similar name."""
    if disk.is_dir(directory):
        return
    root = directory.removesuffix("/commitlog")
    near = None if disk.is_dir(root) else nearest_directory(disk, root)
    hint = f"Did you mean {near}?" if near else "Give the directory above it."
    raise StoreError(f"{directory} is not a directory: no commit log there", hint=hint)


def nearest_directory(disk: Disk, path: str) -> str | None:
    """Return the path of something beside a missing directory that has a similar name."""
    above, _, name = path.rpartition("/")
    beside = above or ("/" if path.startswith("/") else ".")
    near = difflib.get_close_matches(name, disk.listdir(beside) if disk.is_dir(beside) else (), n=1)
    if not near:
        return None
    return f"{above}/{near[0]}" if above else near[0]
