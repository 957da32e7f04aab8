"""TLS of one accepted connection, as a transport. A channel writes plain bytes to it; the transport of the socket
carries the encrypted records.

It owns no socket and no timer. Whoever reads the socket hands the bytes to `receive`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import Any, Final

_READ_BYTES: Final = 256 * 1024


class TlsTransport(asyncio.Transport):
    """The transport between a channel and the transport of its socket."""

    def __init__(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        super().__init__()
        self.is_open = False
        # Whether the peer has sent its close alert.
        self.has_ended = False
        self._transport = transport
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        # Bytes that were written before the handshake was complete.
        self._early: list[bytes] = []

    # -- from the socket

    def receive(self, data: bytes) -> bytes:
        """Return the plain bytes that are complete now. Raise ssl.SSLError if the peer does not speak TLS, or no
        version that is accepted."""
        self._incoming.write(data)
        plain: list[bytes] = []
        try:
            if not self.is_open:
                self._session.do_handshake()
                self.is_open = True
                early, self._early = self._early, []
                self.writelines(early)
            while piece := self._session.read(_READ_BYTES):
                plain.append(piece)
            self.has_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.has_ended = True
        finally:
            self._send()
        return plain[0] if len(plain) == 1 else b"".join(plain)

    # -- asyncio.Transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._encrypt(data)
        self._send()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self._encrypt(data)
        self._send()

    def _encrypt(self, data: bytes | bytearray | memoryview) -> None:
        if self.is_closing():
            return
        if not self.is_open:
            self._early.append(bytes(data))
            return
        rest = memoryview(data)
        while rest:  # one record at a time
            rest = rest[self._session.write(rest) :]

    def _send(self) -> None:
        if self._outgoing.pending and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    def close(self) -> None:
        """Send a close alert without waiting for that of the peer, and close."""
        if self.is_open and not self.is_closing():
            try:
                self._session.unwrap()
            except ssl.SSLError:  # the peer's close alert has not come yet
                pass
            self._send()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + sum(map(len, self._early))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
