"""Requests to name servers and brokers over blocking connections, cached per process by address.

Spark's planner and tasks are plain processes that wait: no event loop is worth its start there. A `Wire` is one
connection; `Wires` lends them out and takes them back, so that the next task of this worker finds them open.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aerobee.client.core.signing import signer
from aerobee.errors import NotConnectedError, RemoteProtocolError, RequestTimeoutError, TransportError
from aerobee.errors.codes import error_for
from aerobee.hot.wire.frame import FRAME_LENGTH_MAX, scan_frames
from aerobee.model.numbers import parse_int
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command, decode_command, encode_command, request
from aerobee.protocol.headers.base import Header
from aerobee.runtime.blocking import BlockingStream
from aerobee.runtime.process import fork_count
from aerobee.runtime.tls import tls_failure, tls_words
from pyspark_rocketmq.options import Endpoint

# A connection kept for longer may have been cut by the server (120 s idle) or by something between.
_IDLE_PER_ADDRESS_MAX: Final = 8
# Requests written before the first answer is read: more could fill both directions and stand still.
_WINDOW: Final = 64
_CONNECT_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Ask:
    """One request."""

    code: int
    header: Header | None = None
    body: bytes = b""


class Wire:
    """One connection. After an error it is closed and must not be used again."""

    def __init__(self, address: str, endpoint: Endpoint) -> None:
        self.address = address
        self.endpoint = endpoint
        self._timeout_s = timeout_s = endpoint.request_timeout_ms / 1000
        self._sign = signer(endpoint.credentials) if endpoint.credentials is not None else None
        self._opaque = 0
        # Requests sent whose answers were not read: such a connection is not lent out again.
        self.unanswered = 0
        host, _, port = address.rpartition(":")
        tls = endpoint.tls.context() if endpoint.tls is not None else None
        try:
            self.stream = BlockingStream(
                host.strip("[]"), parse_int(port, 0, 65535), min(timeout_s, _CONNECT_TIMEOUT_S), tls
            )
        except TimeoutError:
            raise NotConnectedError("could not connect in time", broker=address) from None
        except OSError as error:
            failure = tls_failure(error) if tls is not None else None
            words, hint = failure or (f"could not connect: {error.strerror or error}", None)
            raise NotConnectedError(words, broker=address, hint=hint) from None

    def post(self, ask: Ask) -> int:
        """Write a request; the opaque of its answer."""
        self._opaque += 1
        command = request(ask.code, ask.header, ask.body, opaque=self._opaque)
        if self._sign is not None:
            self._sign(command)
        try:
            self.stream.send(encode_command(command))
        except OSError as error:
            raise self._lost(error) from None
        self.unanswered += 1
        return self._opaque

    def read_head(self, timeout_s: float | None = None) -> tuple[Command, int]:
        """The next answer without its body, and the size of the body, which `read_body` must take next."""
        self.stream.set_timeout(self._timeout_s if timeout_s is None else timeout_s)
        try:
            prefix = self.stream.receive(8)
            length, header_size = int.from_bytes(prefix[:4], "big"), int.from_bytes(prefix[5:8], "big")
            body_size = length - 4 - header_size
            if not 4 <= length <= FRAME_LENGTH_MAX or body_size < 0:
                raise RemoteProtocolError(f"not RocketMQ's protocol: a frame of {length} bytes", broker=self.address)
            header = self.stream.receive(header_size)
        except OSError as error:
            raise self._lost(error) from None
        # The frame as if it had no body, for the one decoder there is.
        whole = (header_size + 4).to_bytes(4, "big") + prefix[4:8] + header
        frames, _ = scan_frames(whole)
        return decode_command(frames[0]), body_size

    def read_body(self, size: int) -> bytes:
        """The body of the answer whose head was read."""
        try:
            body = self.stream.receive(size) if size else b""
        except OSError as error:
            raise self._lost(error) from None
        self.unanswered -= 1
        return body

    def read(self, timeout_s: float | None = None) -> Command:
        """The next answer, whole."""
        command, size = self.read_head(timeout_s)
        command.body = self.read_body(size)
        return command

    def call(self, ask: Ask) -> Command:
        """The answer to a request, whatever its code."""
        return self.call_all([ask])[0]

    def call_all(self, asks: Sequence[Ask]) -> list[Command]:
        """The answers in the order of the requests, which are under way together."""
        places: dict[int, int] = {}
        answers: dict[int, Command] = {}
        for number, ask in enumerate(asks):
            if len(places) - len(answers) >= _WINDOW:
                self._take(places, answers)
            places[self.post(ask)] = number
        while len(answers) < len(asks):
            self._take(places, answers)
        return [answers[number] for number in range(len(asks))]

    def _take(self, places: dict[int, int], answers: dict[int, Command]) -> None:
        answer = self.read()
        number = places.get(answer.opaque)
        # A broker's own request on this connection is nobody's answer.
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


def checked(answer: Command, address: str) -> Command:
    """The answer where it is SUCCESS; its refusal raised otherwise."""
    if answer.code != ResponseCode.SUCCESS:
        raise error_for(answer.code, answer.remark or "", address)
    return answer


class Wires:
    """The idle connections of this process."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, Endpoint], list[Wire]] = {}
        self._fork = fork_count()

    def take(self, address: str, endpoint: Endpoint) -> Wire:
        """An idle connection that still looks good, or a new one."""
        if self._fork != fork_count():
            # The parent's sockets: closing them here leaves the parent's own descriptors open.
            self._idle.clear()
            self._fork = fork_count()
        idle = self._idle.get((address, endpoint), [])
        while idle:
            wire = idle.pop()
            if wire.stream.is_quiet():
                return wire
            wire.close()
        return Wire(address, endpoint)

    def give(self, wire: Wire) -> None:
        """Keep it for the next, unless answers are still to come on it."""
        idle = self._idle.setdefault((wire.address, wire.endpoint), [])
        if wire.unanswered or len(idle) >= _IDLE_PER_ADDRESS_MAX:
            wire.close()
        else:
            idle.append(wire)


# One for each worker process: Spark reuses workers, so tasks find the connections of those before.
WIRES: Final = Wires()
