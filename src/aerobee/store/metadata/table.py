"""What every table of `config/*.json` shares: its file, its data version, and saving only what changed.

The text is Apache's, in the pretty form its broker writes (RocketMQ: ConfigManager.persist), so either side
opens the other's. Rules about what may be in a table are the broker's; here a name only has to be fit for a
path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aerobee.errors import InvalidArgumentError
from aerobee.model.dataversion import DataVersion
from aerobee.model.dialect import Written, dumps, loads, written
from aerobee.runtime.paths import join, require_name
from aerobee.runtime.seams import Disk
from aerobee.store.statefile import Done, StateFile

_NAME_SIZE_MAX = 255


def check_name(name: str) -> str:
    """A topic or group name that can be part of a path, or InvalidArgumentError."""
    if not name.isprintable() or len(name) > _NAME_SIZE_MAX:
        raise InvalidArgumentError(f"{name!r} cannot be a name")
    return require_name(name)


class Parts:
    """The entries of a table as text, kept while they do not change: a table of 10,000 topics is written each time
    one is added, on the thread that serves clients."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[object, Written]] = {}

    def texts(self, table: Mapping[str, Any], to_json: Callable[[Any], object]) -> dict[str, Written]:
        """The table with each entry as the text of `to_json` of it. Entries are compared by value."""
        before, self._texts = self._texts, {}
        found: dict[str, Written] = {}
        for key, value in table.items():
            entry = before.get(key)
            if entry is None or (entry[0] is not value and entry[0] != value):
                data = to_json(value)
                entry = (data if isinstance(value, dict) else value, written(data, 2))
            self._texts[key] = entry
            found[key] = entry[1]
        return found


class MetadataTable:
    """Base of the tables. Subclasses say what the JSON looks like."""

    file_name: str

    def __init__(self, disk: Disk, root: str) -> None:
        self.state = StateFile(disk, join(root, "config", self.file_name))
        self.version = DataVersion()
        self._saved: bytes | None = None  # what the file holds
        self.parts = Parts()

    def load(self) -> bool:
        """Take up what was saved; False where nothing was. StoreError where it cannot be read."""
        content = self.state.load(self._take)
        self._saved = content if content is not None and not self.state.problems else None
        return content is not None

    def _take(self, content: bytes) -> bytes:
        # No bound on the size: the file is ours, and many topics times many groups grow large.
        data = loads(content, size_max=len(content))
        if not isinstance(data, dict):
            raise ValueError("not a JSON object")
        self.decode(data)
        return content

    def bump(self, now_ms: int, state_version: int = 0) -> None:
        """The table changed. RocketMQ: DataVersion.nextVersion."""
        self.version = self.version.next(now_ms, state_version)

    def to_bytes(self) -> bytes:
        """The file's text."""
        return dumps(self.encode_parts(), pretty=True)

    def save(self) -> bool:
        """Save where something changed, blocking; whether it had to be."""
        content = self.to_bytes()
        if content == self._saved:
            return False
        self.state.save(content)
        self._saved = content
        return True

    def submit(self, done: Done) -> None:
        """As `save`, synced off the caller's thread. `done` is called in any case."""
        content = self.to_bytes()
        if content == self._saved:
            done(None)
            return
        self._saved = content

        def saved(error: Any) -> None:
            if error is not None:
                self._saved = None
            done(error)

        self.state.submit(content, saved)

    def encode(self) -> dict[str, Any]:
        """Apache's object."""
        raise NotImplementedError

    def encode_parts(self) -> dict[str, Any]:
        """The same, large tables in parts that may be written already."""
        return self.encode()

    def decode(self, data: Mapping[Any, Any]) -> None:
        """Take up Apache's object, or raise and leave everything as it was."""
        raise NotImplementedError
