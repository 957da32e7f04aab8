"""What every table of `config/*.json` shares: its file, its data version, and saving only what changed.

The text is Apache's, in the pretty form its broker writes (RocketMQ: ConfigManager.persist), so either side
opens the other's. The broker has the rules about what may be in a table; here a name only has to be fit for a path.

A file is read entry by entry: one that cannot be used moves to `<file>.rejected`, with an ERROR line, and the others
are taken up. A file that is no table at all is left to its `.bak` (see `statefile.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from aerobee.errors import AerobeeError, InvalidArgumentError
from aerobee.model.dataversion import DataVersion
from aerobee.model.dialect import WrittenJson, dumps, loads, written
from aerobee.model.fields import map_of
from aerobee.runtime.paths import join, require_name
from aerobee.runtime.rejected import REJECTED, Rejected, count_set_aside, set_aside
from aerobee.runtime.seams import Disk
from aerobee.store.statefile import SENSELESS, Done, StateFile
from aerobee.telemetry.stdlog import get_log

T = TypeVar("T")
_NAME_SIZE_MAX = 255
# A field of ours. Apache reads past it and does not write it.
JOURNALLED = "aerobeeJournalled"
# So many entries set aside at once have a line of their own in the log. Of more, only the number is logged.
_LINES_MAX = 20
_SHOWN_MAX = 200
_log = get_log("store.metadata")


def check_name(name: str) -> str:
    """Return a topic or group name that can be part of a path. Raise InvalidArgumentError for any other."""
    if not name.isprintable() or len(name) > _NAME_SIZE_MAX:
        raise InvalidArgumentError(f"{name!r} cannot be a name")
    return require_name(name)


def reason_of(error: Exception) -> str:
    """Return why an entry cannot be used, in words."""
    if isinstance(error, AerobeeError):
        return error.message
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


class Parts:
    """The entries of a table as text, kept while they do not change.

    A table of 10,000 topics is written each time one is added, on the thread that serves clients.
    """

    def __init__(self) -> None:
        self._texts: dict[str, tuple[object, WrittenJson]] = {}

    def note(self, key: str, value: object, to_json: Callable[[Any], object]) -> None:
        """Write an entry that was put into the table now: thousands can come between two savings."""
        self._texts[key] = (value, written(to_json(value), 2))

    def texts(self, table: Mapping[str, Any], to_json: Callable[[Any], object]) -> dict[str, WrittenJson]:
        """Return the table with each entry as the text of `to_json`. Entries are compared by value."""
        before, self._texts = self._texts, {}
        found: dict[str, WrittenJson] = {}
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
        self._saved: bytes | None = None  # what the file holds, or will when the saves under way are done
        self._saving = 0  # saves under way
        self._disk = disk
        self._unusable: list[Rejected] = []  # of the file that is being read
        self.rejected = 0  # entries that lie in `<file>.rejected`
        self.parts = Parts()
        # Whether the journal of a replicated group has the truth, and the file only follows it: from now on, and as
        # far as the file told when it was read. Another broker that writes the file leaves that out.
        self.is_journalled = False
        self.was_journalled = True

    def load(self, now_ms: int = 0) -> bool:
        """Take up what was saved; False where nothing was. StoreError where it cannot be read."""
        content = self.state.load(self._take)
        self._saved = content if content is not None and not self.state.problems else None
        self.rejected = count_set_aside(self._disk, self.state.path)
        if self._unusable:
            self.set_aside(self._unusable, now_ms)
            # The next start must find neither the entries nor a reason to set them aside again.
            self._saved = None
            self.save()
        return content is not None

    def set_aside(self, found: Sequence[Rejected], now_ms: int) -> None:
        """Keep entries of the file that cannot be used beside it, and say so."""
        set_aside(self._disk, self.state.path, found, now_ms)
        self.rejected += len(found)
        path = self.state.path + REJECTED
        for one in found[:_LINES_MAX]:
            _log.error(
                "an entry cannot be used and was set aside: mend it and put it back while the broker is stopped",
                file=self.state.path, entry=one.key[:_SHOWN_MAX], reason=one.reason[:_SHOWN_MAX], kept=path,
            )  # fmt: skip
        if len(found) > _LINES_MAX:
            _log.error("more entries were set aside", file=self.state.path, entries=len(found), kept=path)

    def each(self, data: Mapping[Any, Any], field: str, read: Callable[[str, Any], T]) -> dict[str, T]:
        """Return the entries of a table of the file as `read(key, value)` makes them.

        Entries for which it raises are set aside. A null stands for no entry. Raise DialectError where the field is no
        table.
        """
        found: dict[str, T] = {}
        for key, value in map_of(data, field).items():
            if value is not None:
                self._entry(found, field, key, value, read)
        return found

    def _entry(self, found: dict[str, T], field: str, key: Any, value: Any, read: Callable[[str, Any], T]) -> None:
        try:
            found[str(key)] = read(str(key), value)
        except SENSELESS as error:
            self._unusable.append(Rejected(f"{field}/{key}", reason_of(error), value))

    def read_version(self, data: Mapping[Any, Any]) -> DataVersion:
        """Return the file's version; one that cannot be used is set aside like an entry."""
        found: dict[str, DataVersion] = {}
        if data.get("dataVersion") is not None:
            self._entry(found, "dataVersion", "", data["dataVersion"], lambda _, one: DataVersion.from_json(one))
        return found.get("", DataVersion())

    def _take(self, content: bytes) -> bytes:
        self._unusable = []
        # The size has no bound: the file is ours, and many topics times many groups grow large.
        data = loads(content, size_max=len(content))
        if not isinstance(data, dict):
            raise ValueError("not a JSON object")
        self.decode(data)
        self.was_journalled = data.get(JOURNALLED) is True
        return content

    def bump(self, now_ms: int, state_version: int = 0) -> None:
        """Note that the table changed. RocketMQ: DataVersion.nextVersion."""
        self.version = self.version.next(now_ms, state_version)

    def to_bytes(self) -> bytes:
        """Return the file's text."""
        data = self.encode_parts()
        return dumps({**data, JOURNALLED: True} if self.is_journalled else data, pretty=True)

    def save(self) -> bool:
        """Save where something changed, blocking; whether it had to be."""
        content = self.to_bytes()
        if content == self._saved:
            return False
        self.state.save(content)
        self._saved = content
        return True

    def submit(self, done: Done) -> None:
        """Save as `save` does, synced off the caller's thread. `done` is called in any case."""
        content = self.to_bytes()
        if content == self._saved and not self._saving:
            done(None)
            return
        self._saved = content
        self._saving += 1

        def saved(error: Any) -> None:
            self._saving -= 1
            if error is not None:
                self._saved = None
            done(error)

        self.state.submit(content, saved)

    def encode(self) -> dict[str, Any]:
        """Return Apache's object."""
        raise NotImplementedError

    def encode_parts(self) -> dict[str, Any]:
        """Return the same, with large tables in parts that may be written already."""
        return self.encode()

    def decode(self, data: Mapping[Any, Any]) -> None:
        """Take up Apache's object by `each`, or raise and leave everything as it was."""
        raise NotImplementedError
