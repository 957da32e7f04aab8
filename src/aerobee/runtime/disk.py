"""The file system. InlineDisk does everything in the caller; RealDisk gives syncs and cold reads to two threads.

CPython releases the GIL in fdatasync and pread, so the threads cost the loop nothing. Only the caller's thread
touches mappings. Requests of one kind are served in the order in which they were made. The flusher takes all waiting
requests at once and syncs each file once for all of them (group commit): every request of the batch was made after
its writes.
"""

from __future__ import annotations

import errno
import os
import queue
import sys
import threading
from collections.abc import Callable, Sequence

from aerobee.errors import StoreClosedError, StoreLockedError
from aerobee.runtime.files import RealFile, naming_full_disk
from aerobee.runtime.private import FILE_MODE, make_private_dirs
from aerobee.runtime.seams import DirLock, File

if sys.platform != "win32":
    import fcntl

SyncDone = Callable[[OSError | None], None]
ReadDone = Callable[[bytes | OSError], None]
Post = Callable[[Callable[[], None]], None]

# A POSIX lock belongs to the process: a second lock of the same process would be granted, and closing any descriptor
# of the file drops the lock. So this table says which files the process holds, and is asked before a file is opened.
_held_locks: dict[tuple[int, int], RealLock] = {}
_held_locks_guard = threading.Lock()


class RealLock:
    """A lock file held by this process."""

    def __init__(self, fd: int, identity: tuple[int, int]) -> None:
        self._fd = fd
        self._identity = identity
        self._is_held = True

    def release(self) -> None:
        """Release the lock. A second call does nothing. The file stays, as RocketMQ leaves it."""
        with _held_locks_guard:
            if self._is_held:
                self._is_held = False
                _held_locks.pop(self._identity, None)
                os.close(self._fd)


class InlineDisk:
    """A disk without threads, for tools and tests. `sync` and `read` do their work and call `done` before they
    return."""

    def open(self, path: str, *, create: bool = False, write: bool = True) -> RealFile:
        flags = (os.O_RDWR if write else os.O_RDONLY) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        with naming_full_disk(path):
            fd = os.open(path, flags | os.O_CREAT if create else flags, FILE_MODE)
        if not write and os.path.isdir(path):
            os.close(fd)
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return RealFile(path, fd)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def make_dirs(self, path: str) -> None:
        with naming_full_disk(path):
            make_private_dirs(path)

    def rename(self, source: str, target: str) -> None:
        with naming_full_disk(target):
            os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_dir(self, path: str) -> None:
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        if sys.platform == "win32":
            return  # a directory cannot be opened there; NTFS journals names by itself
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            # The sync was begun and failed, whatever its error says. It must not look like an open that was refused.
            raise OSError(errno.EIO, f"fsync: {error.strerror}", path) from error
        finally:
            os.close(fd)

    def space(self, path: str) -> tuple[int, int]:
        """Return all and free bytes as df counts them: blocks kept for root are not free."""
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize

    def used_ratio(self, path: str) -> float:
        """Return the used share as df counts it: blocks kept for root are neither used nor free."""
        status = os.statvfs(path)
        used = status.f_blocks - status.f_bfree
        return used / max(1, used + status.f_bavail)

    def lock(self, path: str) -> DirLock:
        """Lock byte 0 of the file and write the word `lock` to it. RocketMQ: DefaultMessageStore.start."""
        if sys.platform == "win32":
            raise OSError(errno.ENOSYS, "a store directory cannot be locked on this system", path)
        with _held_locks_guard:
            if os.path.exists(path) and _identity(os.stat(path)) in _held_locks:
                raise StoreLockedError(f"{path} is held by this process")
            with naming_full_disk(path):
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
                try:
                    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
                    os.pwrite(fd, b"lock", 0)
                except OSError as error:
                    os.close(fd)
                    if error.errno in (errno.EACCES, errno.EAGAIN):
                        raise StoreLockedError(
                            f"{path} is held by another process", hint="stop the broker that runs there"
                        ) from error
                    raise
            identity = _identity(os.fstat(fd))
            held = _held_locks[identity] = RealLock(fd, identity)
            return held

    def sync(self, files: Sequence[File], done: SyncDone) -> None:
        try:
            for file in files:
                file.sync()
        except OSError as error:
            done(error)
        else:
            done(None)

    def read_cached(self, file: File, offset: int, size: int) -> bytes | None:
        """Return None: `read` does not wait for another thread here."""
        return None

    def read(self, file: File, offset: int, size: int, done: ReadDone) -> None:
        done(_outcome_of_read(lambda: file.read(offset, size)))

    def close(self) -> None:
        """Do nothing: no request is under way."""


class RealDisk(InlineDisk):
    """The disk of a running server. `post` brings `done` to the owner's thread (loop.call_soon_threadsafe). `close`
    finishes what was submitted before, so the loop must still be open then."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._syncs: queue.SimpleQueue[tuple[list[RealFile], SyncDone] | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[tuple[RealFile, int, int, ReadDone] | None] = queue.SimpleQueue()
        self._flusher: threading.Thread | None = None
        self._reader: threading.Thread | None = None
        self._is_closed = False

    def sync(self, files: Sequence[File], done: SyncDone) -> None:
        self._require_open()
        pinned: list[RealFile] = []
        try:
            for file in files:
                assert isinstance(file, RealFile)
                file.pin()
                pinned.append(file)
        except OSError as error:
            for file in pinned:
                file.unpin()
            self._post(_call(done, error))
            return
        if self._flusher is None:
            self._flusher = _start_thread("aerobee-flusher", self._run_flusher)
        self._syncs.put((pinned, done))

    def read_cached(self, file: File, offset: int, size: int) -> bytes | None:
        assert isinstance(file, RealFile)
        return file.read_cached(offset, size)

    def read(self, file: File, offset: int, size: int, done: ReadDone) -> None:
        self._require_open()
        assert isinstance(file, RealFile)
        try:
            file.pin()
        except OSError as error:
            self._post(_call_read(done, error))
            return
        if self._reader is None:
            self._reader = _start_thread("aerobee-reader", self._run_reader)
        self._reads.put((file, offset, size, done))

    def close(self) -> None:
        """Finish what was submitted and stop the threads. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._flusher is not None:
            self._syncs.put(None)
            self._flusher.join()
        if self._reader is not None:
            self._reads.put(None)
            self._reader.join()

    def _require_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError("the disk is closed")

    def _run_flusher(self) -> None:
        while True:
            batch, is_last = _take_all(self._syncs)
            outcomes: dict[RealFile, OSError | None] = {}
            for files, done in batch:
                failure: OSError | None = None
                for file in files:
                    if file not in outcomes:
                        outcomes[file] = _outcome_of_sync(file)
                    failure = outcomes[file]
                    if failure is not None:
                        break  # the files after it in this request count as not synced
                for file in files:
                    file.unpin()
                self._post(_call(done, failure))
            if is_last:
                return

    def _run_reader(self) -> None:
        while (request := self._reads.get()) is not None:
            file, offset, size, done = request
            try:
                outcome: bytes | OSError = file.read_pinned(offset, size)
            except OSError as error:
                outcome = error
            file.unpin()
            self._post(_call_read(done, outcome))


def _take_all(
    requests: queue.SimpleQueue[tuple[list[RealFile], SyncDone] | None],
) -> tuple[list[tuple[list[RealFile], SyncDone]], bool]:
    """Return all waiting requests, at least one, and True if the end was asked for."""
    batch: list[tuple[list[RealFile], SyncDone]] = []
    request = requests.get()
    while request is not None:
        batch.append(request)
        try:
            request = requests.get_nowait()
        except queue.Empty:
            return batch, False
    return batch, True


def _outcome_of_sync(file: RealFile) -> OSError | None:
    try:
        file.sync_pinned()
    except OSError as error:
        return error
    return None


def _outcome_of_read(read: Callable[[], bytes]) -> bytes | OSError:
    try:
        return read()
    except OSError as error:
        return error


def _call(done: SyncDone, failure: OSError | None) -> Callable[[], None]:
    return lambda: done(failure)


def _call_read(done: ReadDone, outcome: bytes | OSError) -> Callable[[], None]:
    return lambda: done(outcome)


def _start_thread(name: str, run: Callable[[], None]) -> threading.Thread:
    # The thread is a daemon: a process that ends without close() has acknowledged nothing that still waits here.
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def is_held_here(path: str) -> bool:
    """Whether this process holds the lock file."""
    with _held_locks_guard:
        return os.path.exists(path) and _identity(os.stat(path)) in _held_locks


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
