"""A disk whose syncs fail from a signal on, as those of a broken device do."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Callable, Sequence

from aerobee.runtime.disk import RealDisk, SyncDone
from aerobee.runtime.seams import File

BREAK = signal.SIGUSR1


class FailingDisk(RealDisk):
    """The real disk, until the process gets the signal `BREAK`."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(post)
        self._told = post
        self.is_broken = False

    def sync(self, files: Sequence[File], done: SyncDone) -> None:
        if self.is_broken:
            self._told(lambda: done(OSError(errno.EIO, os.strerror(errno.EIO))))
        else:
            super().sync(files, done)


def failing_disk_of_this_loop() -> RealDisk:
    """Return a disk for the running loop that breaks at the signal."""
    loop = asyncio.get_running_loop()

    def post(done: Callable[[], None]) -> None:
        loop.call_soon_threadsafe(done)

    disk = FailingDisk(post)

    def broken() -> None:
        disk.is_broken = True

    loop.add_signal_handler(BREAK, broken)
    return disk
