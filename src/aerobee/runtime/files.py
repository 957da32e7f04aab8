"""One open file of the operating system, and the errors of its calls."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import sys
import threading
from collections.abc import Iterator

from aerobee.errors import DiskFullError
from aerobee.runtime.bases import File

if sys.platform != "win32":
    import fcntl

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def naming_full_disk(path: str) -> Iterator[None]:
    """Raise DiskFullError for ENOSPC and EDQUOT. Every other OSError passes."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise _full(path, error)  # noqa: B904
        raise


def _full(path: str, error: OSError) -> DiskFullError:
    """Return the error with its cause set, because compiled code loses the cause of `raise ... from`."""
    full = DiskFullError(f"no space to write {path}", hint="free space on the disk")
    full.__cause__ = error
    return full


def sync_descriptor(fd: int) -> None:
    """Flush contents and length in the strongest way that the system offers."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # on macOS fsync does not flush the drive's own cache
    elif hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


class RealFile(File):
    """A descriptor and perhaps a mapping. A pinned file (work of another thread under way) closes when
    unpinned: a descriptor number given to another file meanwhile would be synced in its place."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._map: mmap.mmap | bytes | None = None
        self._view: memoryview | None = None
        self._pins = 0
        self._is_closed = False
        self._lock = threading.Lock()

    def _descriptor(self) -> int:
        if self._is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        return self._fd

    def size(self) -> int:
        return os.fstat(self._descriptor()).st_size

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        # Every message passes here, so calls that are not needed are avoided.
        fd = self._fd if not self._is_closed else self._descriptor()
        size = len(data)
        try:
            written = os.pwrite(fd, data, offset)
            while written < size:  # a short write is no error: writing the rest raises if there is one
                written += os.pwrite(fd, memoryview(data)[written:], offset + written)
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise _full(self.path, error)  # noqa: B904
            raise

    def read(self, offset: int, size: int) -> bytes:
        # Every pull passes here for its queue units, so calls that are not needed are avoided.
        return _read_fully(self._fd if not self._is_closed else self._descriptor(), offset, size)

    def next_data(self, offset: int) -> int:
        if hasattr(os, "SEEK_DATA"):
            try:
                return os.lseek(self._descriptor(), offset, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return self.size()
                if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                    raise
        return offset

    def read_cached(self, offset: int, size: int) -> bytes | None:
        """Return all the bytes if they are in the page cache. Return None if the disk would have to be asked, or if
        the system cannot say."""
        if not hasattr(os, "RWF_NOWAIT"):
            return None
        buffer = bytearray(size)
        try:
            if os.preadv(self._descriptor(), [buffer], offset, os.RWF_NOWAIT) != size:
                return None
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
                return None
            raise
        return bytes(buffer)

    def view(self) -> memoryview:
        if self._view is None:
            self._view = memoryview(self.mapped())
        return self._view

    def mapped(self) -> mmap.mmap | bytes:
        fd = self._descriptor()
        if self._map is None:
            length = self.size()
            self._map = mmap.mmap(fd, length, access=mmap.ACCESS_READ) if length else b""
        return self._map

    def reserve(self, offset: int, size: int) -> None:
        fd = self._descriptor()
        with naming_full_disk(self.path):
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, offset, size)
            elif self.size() < offset + size:
                os.ftruncate(fd, offset + size)

    def truncate(self, size: int) -> None:
        fd = self._descriptor()
        with naming_full_disk(self.path):
            os.ftruncate(fd, size)

    def sync(self) -> None:
        self._descriptor()
        self.sync_pinned()

    def close(self) -> None:
        """Close the file. A second call does nothing. Slices of the view that are in use stay readable: the mapping
        goes with the last of them."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._map = self._view = None
            if self._pins == 0:
                os.close(self._fd)

    def pin(self) -> int:
        """Return the descriptor and keep it open until `unpin`."""
        with self._lock:
            fd = self._descriptor()
            self._pins += 1
            return fd

    def unpin(self) -> None:
        with self._lock:
            self._pins -= 1
            if self._pins == 0 and self._is_closed:
                os.close(self._fd)

    def read_pinned(self, offset: int, size: int) -> bytes:
        """Read for the reader thread. This works on a file that was closed meanwhile."""
        return _read_fully(self._fd, offset, size)

    def sync_pinned(self) -> None:
        """Sync for the flusher thread. This works on a file that was closed meanwhile. An error names the file."""
        try:
            sync_descriptor(self._fd)
        except OSError as error:
            error.filename = self.path
            raise


def _read_fully(fd: int, offset: int, size: int) -> bytes:
    """Read all the bytes. One pread is enough in nearly every case; after a short one, read on until the end of the
    file."""
    data = os.pread(fd, size, offset)
    if len(data) == size or not data:
        return data
    parts = [data]
    have = len(data)
    while have < size:
        data = os.pread(fd, size - have, offset + have)
        if not data:
            break
        parts.append(data)
        have += len(data)
    return b"".join(parts)
