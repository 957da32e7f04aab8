"""The key-value table: values that operators set by namespace, such as the order configuration of topics.

A change is on disk before it is visible and before it is answered. An entry of the file that cannot be used is moved to
`<file>.rejected`. RocketMQ: KVConfigManager, which answers success even if the file could not be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aerobee.errors import ConfigError, InvalidArgumentError, RemoteProtocolError
from aerobee.model import dialect
from aerobee.protocol.codes import ResponseCode
from aerobee.runtime.rejected import REJECTED, Rejected, set_aside
from aerobee.runtime.seams import Disk
from aerobee.telemetry.stdlog import get_log

# RocketMQ: NamesrvUtil.NAMESPACE_ORDER_TOPIC_CONFIG. Keys are topics, values like `broker-a:4;broker-b:4`.
ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

# Apache has no bounds. The whole file is written for each change and read at each start.
NAME_LENGTH_MAX: Final = 1_024
VALUE_LENGTH_MAX: Final = 65_536
NAMESPACES_MAX: Final = 1_024
ENTRIES_MAX: Final = 16_384
TABLE_LENGTH_MAX: Final = 4 << 20

Table = dict[str, dict[str, str]]
_log = get_log("namesrv.kv")


class KVConfig:
    """Values by namespace and key. With an empty path they are kept in memory only."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._table: Table = {}
        self._length = self._count = 0
        self._damaged = False  # whether the present file is damaged
        # It grows with every change.
        self.revision = 0

    def load(self, now_ms: int = 0) -> None:
        """Read the file, or its backup if it is damaged. Raise ConfigError if both are damaged."""
        problems = []
        for path in (self._path, self._path + ".bak"):
            if not self._path or not self._disk.exists(path):
                continue
            try:
                table, unusable = _decode(read_whole(self._disk, path))
                self._take(table, unusable, now_ms)
                return
            except (RemoteProtocolError, ValueError) as error:
                problems.append(f"{path}: {error}")
                self._damaged = True
        if problems:
            raise ConfigError(problems)

    def _take(self, table: Table, unusable: list[Rejected], now_ms: int) -> None:
        self._table = table
        self._length = sum(_length(ns, key, value) for ns, entries in table.items() for key, value in entries.items())
        self._count = sum(map(len, table.values()))
        if unusable:
            set_aside(self._disk, self._path, unusable, now_ms)
            for one in unusable:
                _log.error(
                    "an entry cannot be used and was set aside",
                    file=self._path, entry=one.key[:200], reason=one.reason, kept=self._path + REJECTED,
                )  # fmt: skip
            self._write(table)

    def _write(self, table: Table) -> None:
        # A damaged file must not replace the good backup.
        write_whole(self._disk, self._path, _encode(table), keep_old=not self._damaged)
        self._damaged = False

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Raise InvalidArgumentError if the table would exceed its bounds."""
        problem = self._problem(namespace, key, value)
        if problem is not None:
            raise InvalidArgumentError(problem, code=ResponseCode.INVALID_PARAMETER)
        self._replace(namespace, {**self._table.get(namespace, {}), key: value})

    def _problem(self, namespace: str, key: str, value: str) -> str | None:
        if max(len(namespace), len(key)) > NAME_LENGTH_MAX:
            return f"namespaces and keys have at most {NAME_LENGTH_MAX} characters"
        if len(value) > VALUE_LENGTH_MAX:
            return f"the value has {len(value)} characters: at most {VALUE_LENGTH_MAX} are allowed"
        if namespace not in self._table and len(self._table) >= NAMESPACES_MAX:
            return f"there are {NAMESPACES_MAX} namespaces already"
        before = self.get(namespace, key)
        if before is None and self._count >= ENTRIES_MAX:
            return f"there are {ENTRIES_MAX} entries already: delete some"
        grown = _length(namespace, key, value) - (0 if before is None else _length(namespace, key, before))
        if grown > 0 and self._length + grown > TABLE_LENGTH_MAX:
            return f"the table would take more than {TABLE_LENGTH_MAX} characters: delete entries"
        return None

    def delete(self, namespace: str, key: str) -> None:
        """Delete a value. The namespace stays, even if it is empty."""
        entries = self._table.get(namespace, {})
        if key in entries:
            self._replace(namespace, {k: v for k, v in entries.items() if k != key})

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        return self._table.get(namespace)

    def _replace(self, namespace: str, entries: dict[str, str]) -> None:
        table = {**self._table, namespace: entries}
        if self._path:
            self._write(table)
        self._take(table, [], 0)
        self.revision += 1


def _encode(table: Table) -> bytes:
    return dialect.dumps({"configTable": table})


def _length(namespace: str, key: str, value: str) -> int:
    return len(namespace) + len(key) + len(value)


def _decode(data: bytes) -> tuple[Table, list[Rejected]]:
    """Return the table and the entries that cannot be used. Raise ValueError or DialectError if it is no table."""
    if not data.strip():
        return {}, []
    document = dialect.loads(data, size_max=len(data))
    table = document.get("configTable", {}) if isinstance(document, dict) else None
    if not isinstance(table, dict):
        raise ValueError("this is not a key-value table")
    found: Table = {}
    unusable: list[Rejected] = []
    for namespace, entries in table.items():
        if not isinstance(entries, dict):
            unusable.append(Rejected(str(namespace), "the namespace is not an object", entries))
            continue
        kept = found.setdefault(str(namespace), {})
        for key, value in entries.items():
            if isinstance(value, str | int | float):
                kept[str(key)] = str(value)
            elif value is not None:
                unusable.append(Rejected(f"{namespace}/{key}", "the value is not a text", value))
    return found, unusable


def read_whole(disk: Disk, path: str) -> bytes:
    file = disk.open(path, write=False)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def write_whole(disk: Disk, path: str, data: bytes, *, keep_old: bool = True) -> None:
    """Replace a small file. After a crash, either the old or the new file is there. `keep_old` makes a `.bak`."""
    directory = path.rpartition("/")[0] or "."
    disk.make_dirs(directory)
    _write_new(disk, path + ".tmp", data)
    if keep_old and disk.exists(path):
        _write_new(disk, path + ".bak", read_whole(disk, path))
    disk.rename(path + ".tmp", path)
    disk.sync_dir(directory)


def _write_new(disk: Disk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.write(0, data)
        file.sync()
    finally:
        file.close()
