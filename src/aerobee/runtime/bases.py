"""The two seams that every message passes, as base classes: the clock and an open file.

The other seams are protocols (see `seams.py`). These two are classes because compiled code calls the methods of a class
without looking them up by name.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from aerobee.hot.log.units import Mapped


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    """Wall time for what is stored and shown, monotonic time for every wait."""

    def now_ms(self) -> int:
        raise NotImplementedError

    def monotonic(self) -> float:
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class File:
    """One open file. Writes are positioned; what was written is visible to `view` and `read` at once."""

    path: str

    def size(self) -> int:
        raise NotImplementedError

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data`, or raise an error. This is the only way bytes reach a file."""
        raise NotImplementedError

    def read(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes, fewer only at the end of the file."""
        raise NotImplementedError

    def next_data(self, offset: int) -> int:
        """Return the first place at or after `offset` that may hold something but zeros, `size()` where none does.

        What was never written need not be read.
        """
        raise NotImplementedError

    def view(self) -> memoryview:
        """Map the file read-only, `size()` long. The mapping lives until `close`; the length must not change."""
        raise NotImplementedError

    def mapped(self) -> Mapped:
        """Return the same mapping for copies of small parts, which cost half of what they cost through `view`."""
        raise NotImplementedError

    def reserve(self, offset: int, size: int) -> None:
        """Take the blocks now (posix_fallocate), so that a later write cannot find the disk full."""
        raise NotImplementedError

    def truncate(self, size: int) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        """Sync the file (fdatasync), blocking: for start, stop and small files. While serving, use Disk.sync."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
