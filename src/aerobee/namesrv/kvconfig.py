"""The key-value table: operators' settings by namespace, kept in one file; the order of topics is among them.

A change is on disk before it is answered and before anyone sees it. RocketMQ: KVConfigManager, which answers
success also when the file could not be written.
"""

from __future__ import annotations

from collections.abc import Mapping

from aerobee.errors import ConfigError, RemoteProtocolError
from aerobee.model import dialect
from aerobee.runtime.seams import Disk

# RocketMQ: NamesrvUtil.NAMESPACE_ORDER_TOPIC_CONFIG. Keys are topics, values like `broker-a:4;broker-b:4`.
ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

Table = dict[str, dict[str, str]]


class KVConfig:
    """Values by namespace and key. An empty path keeps them in memory only."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._table: Table = {}
        # Grows with every change.
        self.revision = 0

    def load(self) -> None:
        """Read the file; where it is damaged, the one before it. ConfigError where both are."""
        problems = []
        for path in (self._path, self._path + ".bak"):
            if not self._path or not self._disk.exists(path):
                continue
            try:
                self._table = _decode(read_whole(self._disk, path))
                return
            except (RemoteProtocolError, ValueError) as error:
                problems.append(f"{path}: {error}")
        if problems:
            raise ConfigError(problems)

    def put(self, namespace: str, key: str, value: str) -> None:
        self._replace(namespace, {**self._table.get(namespace, {}), key: value})

    def delete(self, namespace: str, key: str) -> None:
        """The namespace stays, even empty."""
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
            write_whole(self._disk, self._path, dialect.dumps({"configTable": table}))
        self._table = table
        self.revision += 1


def _decode(data: bytes) -> Table:
    if not data.strip():
        return {}
    document = dialect.loads(data)
    table = document.get("configTable", {}) if isinstance(document, dict) else None
    if not isinstance(table, dict) or not all(isinstance(entries, dict) for entries in table.values()):
        raise ValueError("not a key-value table")
    return {str(ns): {str(k): str(v) for k, v in entries.items()} for ns, entries in table.items()}


def read_whole(disk: Disk, path: str) -> bytes:
    file = disk.open(path, write=False)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def write_whole(disk: Disk, path: str, data: bytes) -> None:
    """Replace a small file so that a crash leaves the old or the new one; the old also as `.bak`."""
    directory = path.rpartition("/")[0] or "."
    disk.make_dirs(directory)
    _write_new(disk, path + ".tmp", data)
    if disk.exists(path):
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
