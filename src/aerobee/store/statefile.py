"""Small state on disk (`config/*.json`): replaced whole, so that every crash leaves the old content or the new.

A save writes `NAME.tmp`, syncs it, moves the old file to `NAME.bak` (as RocketMQ: ConfigManager.persist
does), moves the new one into its place and syncs the directory. A load takes the file, or `.bak` where the
file is missing or cannot be understood; where neither can, it raises StoreError: starting empty would lose
topics or offsets.

An entry that cannot be used, in a file that can be read, is no reason not to start: see `runtime/rejected.py`.

Such a file ends in its checksum, written as white space (a line break, then 32 blanks and tabs): JSON readers,
Apache's among them, do not see it, and what Apache writes has none and is taken as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from aerobee.errors import AerobeeError, StoreDamagedError, StoreError
from aerobee.hot.log.checksum import crc32
from aerobee.runtime.seams import Disk, File
from aerobee.store.diskrules import sync_directory, sync_file

T = TypeVar("T")
Done = Callable[[OSError | StoreError | None], None]
# The errors that content without sense raises when read.
SENSELESS: Final = (ValueError, KeyError, TypeError, AttributeError, AerobeeError)
_SEAL_SIZE: Final = 33
_BITS: Final = str.maketrans("01", " \t")


def seal(content: bytes) -> bytes:
    """Return the content with its checksum behind it."""
    return content + b"\n" + f"{crc32(content):032b}".translate(_BITS).encode()


def unseal(content: bytes) -> bytes:
    """Return the content without its checksum, if it has one. Raise ValueError where the checksum does not match."""
    tail = content[-_SEAL_SIZE:]
    # One flipped bit of the seal still leaves 31 blanks and tabs, which nothing else ends in.
    if len(tail) < _SEAL_SIZE or tail.count(b" ") + tail.count(b"\t") < _SEAL_SIZE - 2:
        return content
    if seal(content[:-_SEAL_SIZE]) != content:
        raise ValueError("its checksum does not match (edited by hand? then remove the white space at its end)")
    return content[:-_SEAL_SIZE]


class StateFile:
    """One file with its backup. `decode` given to `load` raises ValueError for content that makes no
    sense."""

    def __init__(self, disk: Disk, path: str, *, keep_backup: bool = True, sealed: bool = True) -> None:
        self._disk = disk
        self._keep_backup = keep_backup
        self._sealed = sealed
        self.path = path
        self.backup_path = path + ".bak"
        self._temporary_path = path + ".tmp"
        self._damaged = False  # the file in place must not become the backup
        self._pending: bytes | None = None  # the newest content that waits for a save under way
        self._waiting: list[Done] = []
        self._busy = False
        self._saves = 0
        self._unsettled = False  # its name may not be durable yet
        self.problems: list[str] = []

    def load(self, decode: Callable[[bytes], T]) -> T | None:
        """Return what was last saved; None where nothing ever was."""
        self.problems = []
        for path in (self.path, self.backup_path):
            if not self._disk.exists(path):
                continue
            try:
                content = self._content(path)
                if self._sealed:
                    content = unseal(content)
                if not content.strip(b"\0 \t\r\n"):
                    raise ValueError("empty")
                return decode(content)
            except SENSELESS as error:
                self.problems.append(f"{path}: {error}")
                self._damaged = self._damaged or path == self.path
        if self.problems:
            raise StoreDamagedError(
                f"state cannot be read: {'; '.join(self.problems)}",
                hint="restore the file or its .bak; starting without it would lose what it holds",
            )
        return None

    def _content(self, path: str) -> bytes:
        file = self._disk.open(path, write=False)
        try:
            return file.read(0, file.size())
        finally:
            file.close()

    def save(self, content: bytes) -> None:
        """Replace the content, durably; blocks for two syncs. What was submitted before and is still under
        way is older: it no longer takes its place."""
        self._saves += 1
        self._pending = None
        file = self._write_temporary(content)
        try:
            sync_file(file)
        finally:
            file.close()
        self._put_in_place()

    def submit(self, content: bytes, done: Done) -> None:
        """Save as `save` does, with the file's sync off the caller's thread.

        If several contents come while a save is under way, only the last is saved. Every `done` is called.
        """
        self._pending = content
        self._waiting.append(done)
        if not self._busy:
            self._next()

    def _next(self) -> None:
        content, self._pending = self._pending, None
        told, self._waiting = self._waiting, []
        if content is None:
            return
        self._busy = True
        saves = self._saves
        try:
            file = self._write_temporary(content)
        except (OSError, StoreError) as error:
            self._finish(told, error)
            return

        def synced(error: OSError | None) -> None:
            file.close()
            outcome: OSError | StoreError | None = error
            if error is None and saves == self._saves:
                try:
                    self._put_in_place()
                except (OSError, StoreError) as late:
                    outcome = late
            self._finish(told, outcome)

        self._disk.sync([file], synced)

    def _finish(self, told: list[Done], error: OSError | StoreError | None) -> None:
        self._busy = False
        if self._pending is None:
            told, self._waiting = told + self._waiting, []
        for done in told:
            done(error)
        if self._pending is not None and not self._busy:
            self._next()

    def settle(self) -> bool:
        """Sync the directory if that failed after the last save. Return whether it was necessary."""
        if not self._unsettled:
            return False
        sync_directory(self._disk, self.path.rpartition("/")[0] or ".")
        self._unsettled = False
        return True

    def _write_temporary(self, content: bytes) -> File:
        self.settle()
        parent = self.path.rpartition("/")[0]
        if parent and not self._disk.is_dir(parent):
            self._disk.make_dirs(parent)
            sync_directory(self._disk, parent.rpartition("/")[0] or ".")
        if self._disk.exists(self._temporary_path):
            self._disk.unlink(self._temporary_path)
        file = self._disk.open(self._temporary_path, create=True)
        try:
            file.write(0, seal(content) if self._sealed else content)
        except BaseException:
            file.close()
            raise
        return file

    def _put_in_place(self) -> None:
        if self._keep_backup and self._disk.exists(self.path):
            # A damaged file is kept for a later look, and never replaces the good backup.
            self._disk.rename(self.path, self.path + ".damaged" if self._damaged else self.backup_path)
        self._disk.rename(self._temporary_path, self.path)
        self._damaged, self._unsettled = False, True
        self.settle()
