"""The seams: everything impure that the rest of Aerobee is handed. Real forms live beside this file,
simulated forms in `aerobee.testing`.

Disk errors are the caller's to understand: ENOSPC and EDQUOT raise DiskFullError, every other OSError passes
through as it is. From a sync every error passes as it is, ENOSPC too: it is final, not a lack of space to be
waited out. Using a closed file is OSError EBADF. Network errors are OSErrors as the operating system gives
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:  # the store imports this file and must not pull asyncio in
    import asyncio
    import ssl

    from aerobee.hot.log.gather import Mapped

    ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)


class Clock(Protocol):
    """Wall time for what is stored and shown, monotonic time for every wait."""

    def now_ms(self) -> int: ...
    def monotonic(self) -> float: ...


class Entropy(Protocol):
    """The only source of randomness."""

    def token(self, size: int) -> bytes: ...
    def below(self, limit: int) -> int: ...
    def uniform(self) -> float: ...


class File(Protocol):
    """One open file. Writes are positioned; what was written is visible to `view` and `read` at once."""

    path: str

    def size(self) -> int: ...
    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """All of it or an error. The only way bytes reach a file."""

    def read(self, offset: int, size: int) -> bytes:
        """At most `size` bytes, fewer only at the end of the file."""

    def next_data(self, offset: int) -> int:
        """The first place at or after `offset` that may hold something but zeros, `size()` where none does: what was
        never written need not be read."""

    def view(self) -> memoryview:
        """The file mapped read-only, `size()` long; kept until `close`. Length must not change afterwards."""

    def mapped(self) -> Mapped:
        """The same, for copies of small parts: half of what they cost through `view`."""

    def reserve(self, offset: int, size: int) -> None:
        """Take the blocks now (posix_fallocate), so that a later write cannot find the disk full."""

    def truncate(self, size: int) -> None: ...
    def sync(self) -> None:
        """fdatasync, blocking: for start, stop and small files. While serving, use Disk.sync."""

    def close(self) -> None: ...


class DirLock(Protocol):
    """A held lock file."""

    def release(self) -> None: ...


class Disk(Protocol):
    """Files by path. Nothing is durable before `sync` (contents) and `sync_dir` (names) returned."""

    def open(self, path: str, *, create: bool = False, write: bool = True) -> File: ...
    def exists(self, path: str) -> bool: ...
    def is_dir(self, path: str) -> bool: ...
    def listdir(self, path: str) -> list[str]:
        """Sorted; empty where the directory does not exist."""

    def make_dirs(self, path: str) -> None: ...
    def rename(self, source: str, target: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def remove_dir(self, path: str) -> None:
        """An empty directory only."""

    def sync_dir(self, path: str) -> None: ...
    def used_ratio(self, path: str) -> float:
        """Share of the file system in use, 0.0 to 1.0."""

    def space(self, path: str) -> tuple[int, int]:
        """All and free bytes of the file system that holds the path."""

    def lock(self, path: str) -> DirLock:
        """fcntl.lockf on the file, as Java's FileChannel.lock; StoreLockedError where it is held."""

    def sync(self, files: Sequence[File], done: Callable[[OSError | None], None]) -> None:
        """fdatasync each, off the caller's thread, in the order asked; then `done` on the caller's thread."""

    def read_cached(self, file: File, offset: int, size: int) -> bytes | None:
        """All of these bytes where that costs no wait, because the system has them in memory; else None."""

    def read(self, file: File, offset: int, size: int, done: Callable[[bytes | OSError], None]) -> None:
        """A read that may touch the disk, off the caller's thread; then `done` on the caller's thread."""

    def close(self) -> None:
        """Finish what was submitted and stop the threads."""


class Timer(Protocol):
    """A pending call."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """Calls made later, on the owner's thread."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer: ...


class Listener(Protocol):
    """A bound port."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int:
        """The port really bound, where 0 was asked."""

    async def start(self) -> None:
        """Accept connections from now on. Needed only after `listen(..., start=False)`."""

    def close(self) -> None:
        """Refuse new connections. Accepted connections go on; their owner closes them."""

    async def wait_closed(self) -> None:
        """Wait until the port is free and the system has let go of the accepted connections that were closed."""


class Net(Protocol):
    """Byte streams between asyncio.Protocols, as seen from one host."""

    async def listen(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None = None,
        start: bool = True,
    ) -> Listener:
        """Bind a port. Without `start` the port is taken, and connections are refused until `Listener.start`."""

    async def connect(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], ProtocolT],
        *,
        tls: ssl.SSLContext | None = None,
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """Waits as long as the network does: the caller sets the time limit."""
