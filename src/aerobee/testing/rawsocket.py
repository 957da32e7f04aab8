"""A plain blocking connection to a server, for tests that send what no client of Aerobee would send."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from types import TracebackType

from aerobee.model.numbers import parse_int
from aerobee.protocol.command import Command, encode_command, request
from aerobee.protocol.connection import Connection


class RawSocket:
    """A connection that sends frames and reads answers in any order."""

    def __init__(self, address: str, timeout_s: float = 60.0) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, parse_int(port, 1, 65_535)), timeout_s)
        self._machine = Connection()
        self._arrived: dict[int, Command] = {}
        self._opaque = 0

    def __enter__(self) -> RawSocket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"") -> int:
        """Send a request; return its opaque, by which to wait for the answer."""
        self._opaque += 1
        self.socket.sendall(encode_command(request(code, None, body, opaque=self._opaque, ext=ext)))
        return self._opaque

    def answer(self, opaque: int) -> Command:
        """Wait for one answer. Other answers that come first are kept."""
        while opaque not in self._arrived:
            self._receive()
        return self._arrived.pop(opaque)

    def ask(self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"") -> Command:
        return self.answer(self.send(code, ext, body))

    def arrived(self, wait_s: float) -> list[Command]:
        """Return everything that comes until nothing has come for `wait_s`."""
        before_s = self.socket.gettimeout()
        self.socket.settimeout(wait_s)
        try:
            while True:
                self._receive()
        except TimeoutError:
            pass
        finally:
            self.socket.settimeout(before_s)
        found, self._arrived = list(self._arrived.values()), {}
        return found

    def _receive(self) -> None:
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        for command in self._machine.receive_data(data):
            self._arrived[command.opaque] = command

    def close(self) -> None:
        self.socket.close()
