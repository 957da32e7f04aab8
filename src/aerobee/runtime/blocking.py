"""Sockets and threads for callers without an event loop: Spark's Python workers, which only ever wait for one thing.

A `BlockingStream` is one connection with a deadline for every read. `ahead` runs an iterator on a thread, some items
ahead of its reader. Nothing here survives a fork: see `aerobee.runtime.process.fork_count`.
"""

from __future__ import annotations

import queue
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_BUFFER_BYTES: Final = 4 << 20
_LOOK_S: Final = 0.1


class BlockingStream:
    """A TCP connection. Errors are OSErrors; TimeoutError is one."""

    def __init__(self, host: str, port: int, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        made = socket.create_connection((host, port), timeout_s)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            self._socket = made if tls is None else tls.wrap_socket(made, server_hostname=host)
        except BaseException:
            made.close()
            raise

    def set_timeout(self, timeout_s: float) -> None:
        """How long one wait may last."""
        self._socket.settimeout(timeout_s)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self, size: int) -> bytes:
        """Exactly so many bytes; ConnectionError where the peer closed before."""
        data = bytearray(size)
        view = memoryview(data)
        at = 0
        while at < size:
            got = self._socket.recv_into(view[at:])
            if not got:
                raise ConnectionResetError("closed by the peer")
            at += got
        return bytes(data)

    def is_quiet(self) -> bool:
        """Whether nothing came: what an idle connection that is still good looks like."""
        return not wait_readable([self], 0.0)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def __del__(self) -> None:
        # Spark ends its planners without a word: a connection lives as long as who holds it.
        made = getattr(self, "_socket", None)
        if made is not None:
            made.close()


def wait_readable(streams: Sequence[BlockingStream], timeout_s: float) -> list[BlockingStream]:
    """Those that have something to read, or were closed, after at most `timeout_s`."""
    if hasattr(select, "poll"):  # not on Windows; select() knows no descriptor from 1024 on
        watched = select.poll()
        by_number = {stream.fileno(): stream for stream in streams}
        for number in by_number:
            watched.register(number, select.POLLIN)
        return [by_number[number] for number, _ in watched.poll(max(0.0, timeout_s) * 1000)]
    return select.select(list(streams), [], [], max(0.0, timeout_s))[0]


def pause(seconds: float) -> None:
    """Let time pass before another try."""
    threading.Event().wait(seconds)


class _End(Generic[T]):
    """What the thread says last: nothing more, or why not."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def ahead(make: Callable[[], Iterator[T]], depth: int, name: str) -> Iterator[T]:
    """The items of `make()`, made on a thread up to `depth` items before they are asked for.

    Closing this iterator ends the thread at its next item; `make`'s own clean-up runs there.
    """
    ready: queue.Queue[T | _End[T]] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: T | _End[T]) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=_LOOK_S)
                return True
            except queue.Full:
                continue
        return False

    def run() -> None:
        items = make()
        error: BaseException | None = None
        try:
            for item in items:
                if not put(item):
                    break
        except BaseException as problem:  # noqa: BLE001 (raised again where the items are read)
            error = problem
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()
        put(_End(error))

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        stopped.set()
