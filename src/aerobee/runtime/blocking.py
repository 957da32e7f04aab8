"""Sockets and threads for programs without an event loop, such as Spark's Python workers.

A `BlockingStream` is one connection with a time limit for every wait. `ahead` runs an iterator on a thread, some items
ahead of its reader. Nothing here survives a fork: see `aerobee.runtime.process.fork_count`.
"""

from __future__ import annotations

import io
import queue
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_BUFFER_BYTES: Final = 4 << 20
_LOOK_S: Final = 0.1
_LOOK_BYTES: Final = 16 << 10


class _Received(io.RawIOBase):
    """What comes over a socket, as a file."""

    def __init__(self, made: socket.socket) -> None:
        self._made = made

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._made.recv_into(buffer)


class BlockingStream:
    """A TCP connection, with or without TLS. Its errors are OSErrors, TimeoutError among them."""

    def __init__(self, host: str, port: int, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        try:
            made = socket.create_connection((host, port), timeout_s)
        except UnicodeError:
            raise OSError(f"{host[:80]!r} is no name of a host") from None
        self._tls: ssl.SSLSocket | None = None
        # With TLS: bytes that `may_have_come` has read before they were asked for.
        self._early = b""
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            if tls is not None:
                made = self._tls = tls.wrap_socket(made, server_hostname=host)
            self._socket = made
        except BaseException:
            made.close()
            raise
        # It fills the bytes that it returns, so that megabytes are neither cleared nor copied. With a buffer of one
        # byte, it takes nothing from the socket that was not asked for.
        self._reader = io.BufferedReader(_Received(made), 1)

    def set_timeout(self, timeout_s: float) -> None:
        """Set how long one wait may last."""
        self._socket.settimeout(timeout_s)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self, size: int) -> bytes:
        """Return exactly `size` bytes. Raise ConnectionError where the peer closes before."""
        early, self._early = self._early[:size], self._early[size:]
        data = self._reader.read(size - len(early))
        if len(early) + len(data) < size:
            raise ConnectionResetError("closed by the peer")
        return early + data if early else data

    def is_quiet(self) -> bool:
        """Tell whether nothing came, as on an idle connection that is still good."""
        return not wait_readable([self], 0.0)

    def may_have_come(self) -> bool:
        """Tell whether a read would find something now.

        With TLS the socket alone cannot tell: TLS has records of its own (tickets after a handshake), and it holds
        bytes that it has decrypted.
        """
        tls = self._tls
        if tls is None or self._early:
            return True
        before_s = tls.gettimeout()
        tls.settimeout(0.0)
        try:
            self._early = tls.recv(_LOOK_BYTES)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError:
            return True  # the next read raises it
        finally:
            tls.settimeout(before_s)
        return True

    def holds_some(self) -> bool:
        """Tell whether TLS holds bytes that the socket does not show any more."""
        return bool(self._early) or (self._tls is not None and self._tls.pending() > 0)

    def peer_certificate(self) -> bytes:
        """Return the certificate of the server (DER), nothing without TLS."""
        return (self._tls.getpeercert(binary_form=True) or b"") if self._tls is not None else b""

    def tls_version(self) -> str:
        """Return the version of TLS that is spoken, nothing without TLS."""
        return (self._tls.version() or "") if self._tls is not None else ""

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def __del__(self) -> None:
        # Spark ends its planners without closing them, so a connection ends with its owner.
        made = getattr(self, "_socket", None)
        if made is not None:
            made.close()


def wait_readable(streams: Sequence[BlockingStream], timeout_s: float) -> list[BlockingStream]:
    """Return the streams that have something to read, or were closed, after at most `timeout_s`."""
    found = [stream for stream in streams if stream.holds_some()]
    until_s = time.monotonic() + timeout_s
    while not found:
        shown = _shown(streams, until_s - time.monotonic())
        found = [stream for stream in shown if stream.may_have_come()]
        if not shown or time.monotonic() >= until_s:
            break
    return found


def _shown(streams: Sequence[BlockingStream], timeout_s: float) -> list[BlockingStream]:
    if hasattr(select, "poll"):  # not on Windows; select() knows no descriptor from 1024 on
        watched = select.poll()
        by_number = {stream.fileno(): stream for stream in streams}
        for number in by_number:
            watched.register(number, select.POLLIN)
        return [by_number[number] for number, _ in watched.poll(max(0.0, timeout_s) * 1000)]
    return select.select(list(streams), [], [], max(0.0, timeout_s))[0]


def pause(seconds: float) -> None:
    """Wait before another try."""
    threading.Event().wait(seconds)


class _End(Generic[T]):
    """The end of the items, with the error that ended them."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def ahead(make: Callable[[], Iterator[T]], depth: int, name: str) -> Iterator[T]:
    """Yield the items of `make()`, which a thread makes up to `depth` items before they are asked for.

    Closing this iterator ends the thread at its next item. The clean-up of `make()` runs on that thread.
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
        except BaseException as problem:  # noqa: BLE001 - raised again where the items are read
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
