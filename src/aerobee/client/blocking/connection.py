"""One blocking connection to a name server or broker, and the idle connections of the process.

A program that only waits, such as a task of Spark, needs no event loop. It takes a `BlockingConnection` from the
`ConnectionPool` and gives it back, so that the next task of the process finds it open.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aerobee.client.core import ClientConfig, signer
from aerobee.errors import (
    ConnectTimeoutError,
    NotConnectedError,
    RemoteProtocolError,
    RequestTimeoutError,
    TransportError,
)
from aerobee.hot.wire.frame import FRAME_LENGTH_MAX, scan_frames
from aerobee.model.numbers import parse_int
from aerobee.protocol.command import Command, decode_command, encode_command, request
from aerobee.protocol.headers.base import Header
from aerobee.runtime.blocking import BlockingStream
from aerobee.runtime.process import fork_count
from aerobee.runtime.tls import tls_failure, tls_words

# How many idle connections to one server are kept. Servers close a connection after 120 s without a request.
_IDLE_PER_ADDRESS_MAX: Final = 8
# Requests written before the first answer is read: more could fill the buffers of both directions and block for ever.
_WINDOW: Final = 64


@dataclass(frozen=True, slots=True)
class Call:
    """One request to a server."""

    code: int
    header: Header | None = None
    body: bytes = b""
    # Further fields, beside those of the header.
    ext: tuple[tuple[str, str], ...] = ()


class BlockingConnection:
    """A connection to one server. After an error it is closed and must not be used again."""

    def __init__(self, address: str, config: ClientConfig) -> None:
        self.address = address
        self.config = config
        self._timeout_s = config.request_timeout_ms / 1000
        self._sign = signer(config.credentials) if config.credentials is not None else None
        self._opaque = 0
        # Requests sent whose answers were not read: such a connection is not lent out again.
        self.unanswered = 0
        host, _, port = address.rpartition(":")
        try:
            self.stream = BlockingStream(
                host.strip("[]"), parse_int(port, 0, 65535), config.connect_timeout_ms / 1000, config.tls
            )
        except TimeoutError:
            raise ConnectTimeoutError("could not connect in time", broker=address) from None
        except OSError as error:
            failure = tls_failure(error) if config.tls is not None else None
            words, hint = failure or (f"could not connect: {error.strerror or error}", None)
            raise NotConnectedError(words, broker=address, hint=hint) from None

    def post(self, call: Call) -> int:
        """Write a request and return the opaque that its answer will carry."""
        self._opaque += 1
        command = request(
            call.code, call.header, call.body, opaque=self._opaque, codec=self.config.codec, ext=dict(call.ext) or None
        )
        if self._sign is not None:
            self._sign(command)
        try:
            self.stream.send(encode_command(command))
        except OSError as error:
            raise self._lost(error) from None
        self.unanswered += 1
        return self._opaque

    def read_head(self) -> tuple[Command, int]:
        """Read the next answer up to its body. Return it and the size of the body, for `read_body`."""
        self.stream.set_timeout(self._timeout_s)
        try:
            prefix = self.stream.receive(8)
            length, header_size = int.from_bytes(prefix[:4], "big"), int.from_bytes(prefix[5:8], "big")
            body_size = length - 4 - header_size
            if not 4 <= length <= FRAME_LENGTH_MAX or body_size < 0:
                raise RemoteProtocolError(f"not RocketMQ's protocol: a frame of {length} bytes", broker=self.address)
            header = self.stream.receive(header_size)
        except OSError as error:
            raise self._lost(error) from None
        # The decoder takes whole frames, so it is given one without a body.
        whole = (header_size + 4).to_bytes(4, "big") + prefix[4:8] + header
        frames, _ = scan_frames(whole)
        return decode_command(frames[0]), body_size

    def read_body(self, size: int) -> bytes:
        """Read the body of the answer whose head was read."""
        try:
            body = self.stream.receive(size) if size else b""
        except OSError as error:
            raise self._lost(error) from None
        self.unanswered -= 1
        return body

    def read(self) -> Command:
        """Read the next answer with its body."""
        command, size = self.read_head()
        command.body = self.read_body(size)
        return command

    def ask_all(self, calls: Sequence[Call]) -> list[Command]:
        """Send several requests at once and return their answers, of any code, in the order of the requests."""
        places: dict[int, int] = {}
        answers: dict[int, Command] = {}
        for number, call in enumerate(calls):
            if len(places) - len(answers) >= _WINDOW:
                self._take(places, answers)
            places[self.post(call)] = number
        while len(answers) < len(calls):
            self._take(places, answers)
        return [answers[number] for number in range(len(calls))]

    def _take(self, places: dict[int, int], answers: dict[int, Command]) -> None:
        answer = self.read()
        number = places.get(answer.opaque)
        # A broker may send requests of its own on this connection.
        if answer.is_response and number is not None:
            answers[number] = answer
        else:
            self.unanswered += 1

    def _lost(self, error: OSError) -> TransportError:
        self.close()
        if isinstance(error, TimeoutError):
            return RequestTimeoutError(f"no answer within {self._timeout_s:g} s", broker=self.address)
        words = f"TLS: {tls_words(error)}" if isinstance(error, ssl.SSLError) else error.strerror or error
        return TransportError(f"connection was lost: {words}", broker=self.address)

    def close(self) -> None:
        self.unanswered += 1
        self.stream.close()


class ConnectionPool:
    """The idle connections of this process, by address and settings."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, ClientConfig], list[BlockingConnection]] = {}
        self._fork = fork_count()

    def take(self, address: str, config: ClientConfig) -> BlockingConnection:
        """Return an idle connection that still looks good, or a new one."""
        if self._fork != fork_count():
            # These sockets are the parent's. Closing them here leaves the parent's own descriptors open.
            self._idle.clear()
            self._fork = fork_count()
        idle = self._idle.get((address, config), [])
        while idle:
            connection = idle.pop()
            if connection.stream.is_quiet():
                return connection
            connection.close()
        return BlockingConnection(address, config)

    def give(self, connection: BlockingConnection) -> None:
        """Keep a connection for the next caller, unless answers are still to come on it."""
        idle = self._idle.setdefault((connection.address, connection.config), [])
        if connection.unanswered or len(idle) >= _IDLE_PER_ADDRESS_MAX:
            connection.close()
        else:
            idle.append(connection)


# Spark reuses its worker processes, so that a task finds the connections of the tasks before it.
CONNECTIONS: Final = ConnectionPool()
