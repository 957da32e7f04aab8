"""The seams: everything impure that the rest of Aerobee is handed. The real forms are beside this file, the
simulated ones in `aerobee.testing`.

ENOSPC and EDQUOT raise DiskFullError; every other OSError of a disk passes as it is. From a sync every error passes
as it is, ENOSPC too, because a failed sync is final. Using a closed file raises OSError EBADF. Network errors are
OSErrors as the operating system gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from aerobee.runtime.bases import Clock as Clock
from aerobee.runtime.bases import File as File

if TYPE_CHECKING:  # the store imports this file and must not pull asyncio in
    import asyncio
    import ssl

    ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)


class Entropy(Protocol):
    """The only source of randomness."""

    def token(self, size: int) -> bytes: ...
    def below(self, limit: int) -> int: ...
    def uniform(self) -> float: ...


class DirLock(Protocol):
    """A held lock file."""

    def release(self) -> None: ...


class Disk(Protocol):
    """Files by path. Nothing is durable before `sync` (contents) and `sync_dir` (names) have returned."""

    def open(self, path: str, *, create: bool = False, write: bool = True) -> File: ...
    def exists(self, path: str) -> bool: ...
    def is_dir(self, path: str) -> bool: ...
    def listdir(self, path: str) -> list[str]:
        """Return the names, sorted. There are none if the directory does not exist."""

    def make_dirs(self, path: str) -> None: ...
    def rename(self, source: str, target: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""

    def sync_dir(self, path: str) -> None: ...
    def used_ratio(self, path: str) -> float:
        """Return the used share of the file system, 0.0 to 1.0."""

    def space(self, path: str) -> tuple[int, int]:
        """Return all and free bytes of the file system that holds the path."""

    def lock(self, path: str) -> DirLock:
        """Lock the file by fcntl.lockf, as Java's FileChannel.lock does. Raise StoreLockedError if it is held."""

    def sync(self, files: Sequence[File], done: Callable[[OSError | None], None]) -> None:
        """Call fdatasync for each file in the order given, off the caller's thread. Then call `done` on the caller's
        thread."""

    def read_cached(self, file: File, offset: int, size: int) -> bytes | None:
        """Return all these bytes if the system has them in memory, so that nobody waits, else None."""

    def read(self, file: File, offset: int, size: int, done: Callable[[bytes | OSError], None]) -> None:
        """Read, off the caller's thread, because it may touch the disk. Then call `done` on the caller's thread."""

    def close(self) -> None:
        """Finish what was submitted and stop the threads."""


class Timer(Protocol):
    """A pending call."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """Calls that are made later, on the owner's thread."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer: ...


class Listener(Protocol):
    """A bound port."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int:
        """The port that was bound if 0 was asked for."""

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
        """Connect, waiting as long as the network does. The caller sets the time limit."""
