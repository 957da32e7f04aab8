"""The open files of the consume queues: a few at a time, whatever the number of queues."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Final

from aerobee.runtime.seams import Disk, File
from aerobee.store.diskrules import sync_directory

# The topics that can be part of a path at all. Callers that check the names of clients are stricter.
PATH_SAFE: Final = re.compile(rb"[%|a-zA-Z0-9_+-]{1,255}")


class FileCache:
    """Keeps the files used last open, at most `limit` of them."""

    def __init__(self, disk: Disk, limit: int = 512) -> None:
        self.disk = disk
        self.limit = limit
        self._open: OrderedDict[str, File] = OrderedDict()
        # Files that were written but not yet given to a sync. These stay open, whatever the limit says.
        self._held: dict[str, File] = {}
        # Directories that lost a name: a power cut could bring the name back with its old content.
        self._lost_names: dict[str, None] = {}

    def get(self, path: str) -> File | None:
        """Return the file, None where there is none."""
        file = self._open.get(path)
        if file is None and (file := self._held.get(path)) is not None:
            self._keep(path, file)
        elif file is None:
            try:
                file = self.disk.open(path)
            except FileNotFoundError:
                return None
            self._keep(path, file)
        else:
            self._open.move_to_end(path)
        return file

    def get_or_create(self, directory: str, name: str, size: int) -> File:
        """Return the file at its full length, sparse."""
        path = f"{directory}/{name}"
        file = self.get(path)
        if file is None:
            self.disk.make_dirs(directory)
            file = self.disk.open(path, create=True)
            self._keep(path, file)
        if file.size() != size:
            file.truncate(size)
        self._held[path] = file
        return file

    def release(self) -> None:
        """Stop holding the files that were written: a sync has them now and keeps them open itself."""
        for path, file in self._held.items():
            if self._open.get(path) is not file:
                file.close()
        self._held.clear()

    def _keep(self, path: str, file: File) -> None:
        while len(self._open) >= self.limit:
            old_path, old = self._open.popitem(last=False)
            if self._held.get(old_path) is not old:
                old.close()
        self._open[path] = file

    def remove(self, path: str) -> None:
        for file in (self._open.pop(path, None), self._held.pop(path, None)):
            if file is not None:
                file.close()
        self.disk.unlink(path)
        self._lost_names[path.rpartition("/")[0]] = None

    def remove_dir(self, path: str) -> None:
        self.disk.remove_dir(path)
        self._lost_names[path.rpartition("/")[0]] = None

    def sync_removals(self) -> None:
        """Make removals durable, also where a new file has the name of a removed one."""
        for directory in self._lost_names:
            if self.disk.is_dir(directory):
                sync_directory(self.disk, directory)
        self._lost_names.clear()

    def close(self) -> None:
        self.release()
        while self._open:
            self._open.popitem()[1].close()
