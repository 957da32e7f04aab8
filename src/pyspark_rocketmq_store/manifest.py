"""The directory of the archive: the names of its files, and the manifests that list the finished segments.

    topic=<topic>/date=<yyyy-mm-dd>/<broker>-<segment>.parquet    escaped as Spark does, so `%RETRY%g` is `%25RETRY%25g`
    _manifest/<broker>/<segment>-<end>.json                       one for each finished segment, written last

A broker with `archivePath` uses only the names of the manifests. Their content is for readers.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from aerobee.errors import InvalidArgumentError, StoreError
from aerobee.model.numbers import parse_hex
from aerobee.runtime.seams import Disk
from aerobee.store.readonly import (
    MANIFESTS,
    manifest_directory,
    manifest_name,
    parse_manifest_name,
    topic_generations,
)
from pyspark_rocketmq_store.settings import nearest_directory

_VERSION: Final = 1
_ESCAPED: Final = re.compile("%([0-9A-F]{2})")


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One Parquet file: its path below the archive, its content, and the checksum of its columns."""

    path: str
    topic: str
    date: str
    rows: int
    bytes: int
    crc: str


@dataclass(frozen=True, slots=True)
class Archived:
    """One finished segment. `queues` maps topic and queue id to the first and last queue offset.

    `generations` tells each topic from one of the same name that was deleted later. Older manifests do not have it.
    """

    broker: str
    start: int
    end: int
    records: int
    rows: int
    first_store_ms: int
    last_store_ms: int
    files: tuple[ArchivedFile, ...] = ()
    queues: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    generations: dict[str, str] = field(default_factory=dict)


def escape(value: str) -> str:
    """Return a partition value as it is written in a path."""
    return manifest_directory(value)


def unescape(name: str) -> str:
    """Return the value that `escape` made `name` from."""
    return _ESCAPED.sub(lambda found: chr(parse_hex(found[1], 2)), name)


def file_name(broker: str, start: int) -> str:
    """Return the name that the files of a segment have in each directory."""
    return f"{escape(broker)}-{start:020d}.parquet"


def directory_of(topic: str, date: str) -> str:
    """Return the directory of a day of a topic, below the archive."""
    return f"topic={escape(topic)}/date={date}"


class NoArchiveError(InvalidArgumentError):
    """There is no archive where one should be read."""

    exit_code = 2


def require_archive(disk: Disk, archive: str) -> None:
    """Raise NoArchiveError where there is no archive in a directory. The error suggests a similar name."""
    if not disk.is_dir(archive):
        near = nearest_directory(disk, archive)
        raise NoArchiveError(f"there is no directory {archive}", hint=f"Did you mean {near}?" if near else None)
    held = disk.listdir(archive)
    if not any(name == MANIFESTS or name.startswith("topic=") for name in held):
        raise NoArchiveError(
            f"{archive} is no archive: it has no directory {MANIFESTS}",
            hint="`aerobee archive run` makes one; or give the directory above or below.",
        )


def require_store_of(disk: Disk, store: str, broker: str) -> None:
    """Raise InvalidArgumentError where a store directory belongs to another broker.

    Every broker has a topic of its own name, so the table of topics tells. A directory without that table is taken as
    it is.
    """
    topics = topic_generations(disk, store)
    if topics and broker not in topics:
        near = difflib.get_close_matches(broker, topics, n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]}?" if near else "Give the brokerName of its broker."
        raise InvalidArgumentError(f"the store {store} does not belong to a broker named {broker!r}", hint=hint)


def brokers_of(disk: Disk, archive: str) -> list[str]:
    """Return the brokers that have segments in the archive."""
    return [unescape(name) for name in disk.listdir(f"{archive}/{MANIFESTS}") if not name.startswith(".")]


def finished(disk: Disk, archive: str, broker: str) -> list[tuple[int, int]]:
    """Return the finished segments as (start, end)."""
    names = disk.listdir(f"{archive}/{MANIFESTS}/{escape(broker)}")
    return sorted(found for found in map(parse_manifest_name, names) if found is not None)


def read_manifest(disk: Disk, archive: str, broker: str, start: int, end: int) -> Archived:
    """Return one manifest. Raises StoreError if it cannot be read."""
    path = f"{archive}/{MANIFESTS}/{escape(broker)}/{manifest_name(start, end)}"
    file = disk.open(path, write=False)
    try:
        data = file.read(0, file.size())
    finally:
        file.close()
    try:
        value: dict[str, Any] = json.loads(data)
        if value.pop("v") != _VERSION:
            raise StoreError(f"{path}: written by a later version")
        value["files"] = tuple(ArchivedFile(**one) for one in value["files"])
        return Archived(**value)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(f"{path} is no manifest: {error}") from error


def write_manifest(disk: Disk, archive: str, done: Archived) -> None:
    """Write a manifest durably, whole or not at all."""
    directory = f"{archive}/{MANIFESTS}/{escape(done.broker)}"
    disk.make_dirs(directory)
    name = manifest_name(done.start, done.end)
    temporary = f"{directory}/.{name}.tmp"
    file = disk.open(temporary, create=True)
    try:
        data = json.dumps({"v": _VERSION, **asdict(done)}, sort_keys=True).encode()
        file.truncate(0)
        file.write(0, data)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, f"{directory}/{name}")
    disk.sync_dir(directory)
    disk.sync_dir(f"{archive}/{MANIFESTS}")
    disk.sync_dir(archive)
