"""The gRPC service in front of a `BrokerKit`, for tests: real frames of HTTP/2 in and out in memory, on virtual time.

async def main(kit: BrokerKit) -> None:
    peer = FrontKit(kit).connect("client@1")
    answer = await peer.call(PbSendMessageRequest(...), PbSendMessageResponse)
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeVar

from aerobee.app.grpcfront import route_of
from aerobee.hot.h2 import frames
from aerobee.hot.h2.frames import frame, word
from aerobee.hot.h2.hpack import literal
from aerobee.model.route import TopicRouteData
from aerobee.net.greeter import Greeter
from aerobee.net.grpcserver import GrpcServer
from aerobee.net.loopback import LoopbackNet
from aerobee.net.server import Server
from aerobee.protocol.grpc import prefixed
from aerobee.protocol.v2.fields import decode, encode
from aerobee.proxy.backend import ClusterBackend
from aerobee.proxy.service import PATH, MessagingService
from aerobee.runtime.net import RealNet
from aerobee.testing.brokerkit import BrokerKit, settle

T = TypeVar("T")
# A test's client opens its windows as far as they go.
_SETTINGS: Final = b"\x00\x04" + word(frames.WINDOW_MAX)
# Longer than between two looks for requests that are late: both ways of a call end in the same step.
_STEP_S: Final = 0.25
_PATIENCE_S: Final = 60.0


class FrontKit:
    """The service of a broker's process. `is_short` False: every call takes the long way."""

    def __init__(self, kit: BrokerKit, *, is_short: bool = True) -> None:
        self.kit = kit
        self._numbers = iter(range(1, 1 << 30))
        self.backend = ClusterBackend(
            list, kit.clock.monotonic,
            lambda peer: LoopbackNet(kit.server, lambda host, port: True, RealNet(), peer),
            own_route=self.backend_route,
        )  # fmt: skip
        self.service = MessagingService(self.backend, kit.clock, lambda: f"nonce-{next(self._numbers)}")
        if not is_short:
            self.service.short_methods.clear()
        self.server = Server("front", {}, clock=kit.clock)
        self.grpc = GrpcServer(self.server, self.service, kit.clock.monotonic)

    def backend_route(self, topic: str) -> TopicRouteData | None:
        """Return the route of a topic that the broker has."""
        state = self.kit.state
        return route_of(state.catalog.find(topic), "c", state.name, state.address)

    def connect(self, client_id: str, port: int = 50_000, host: str = "10.0.0.9") -> FrontPeer:
        """Return a client with a connection of its own."""
        return FrontPeer(self, client_id, port, host)

    async def close(self) -> None:
        """Stop the service."""
        await self.grpc.drain(0.0)
        await self.service.stop()
        await self.backend.close()


class _Wire(asyncio.Transport):
    """The far end of a connection, which keeps what is written to it."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__({"peername": (host, port)})
        self.written = bytearray()
        # Set when something is written.
        self.told = asyncio.Event()
        self.protocol: asyncio.Protocol
        self._is_closing = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: nothing is ever held back."""

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Do nothing: what a test sends arrives."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: Any) -> None:
        self.written += data
        self.told.set()

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


class FrontCall:
    """A call that was begun: the messages that came, and how it ended."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.data = b""
        # The header blocks that came, and whether the last one did.
        self.blocks = b""
        self.has_ended = False

    def messages(self, kind: type[T]) -> list[T]:
        """Return the messages that have come whole."""
        found, at = [], 0
        while len(self.data) - at >= 5:
            end = at + 5 + int.from_bytes(self.data[at + 1 : at + 5], "big")
            if end > len(self.data):
                break
            found.append(decode(kind, self.data[at + 5 : end]))
            at = end
        return found


class FrontPeer:
    """One client of the service."""

    def __init__(self, front: FrontKit, client_id: str, port: int, host: str = "10.0.0.9") -> None:
        self.front = front
        self.metadata = {b"x-mq-client-id": client_id.encode(), b"x-mq-language": b"JAVA"}
        self._wire = _Wire(host, port)
        self._wire.protocol = self._greeter = Greeter(front.server, frozenset())
        self._greeter.connection_made(self._wire)
        self._number = -1
        self._calls: dict[int, FrontCall] = {}
        self.write(frames.PREFACE + frame(frames.SETTINGS, 0, 0, _SETTINGS))
        self.write(frame(frames.WINDOW_UPDATE, 0, 0, word(frames.WINDOW_MAX - frames.WINDOW)))

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._greeter.data_received(data)

    def begin(self, request: object, *, name: str = "", ends: bool = True) -> FrontCall:
        """Begin a call. Its method is named as its request is."""
        name = name or type(request).__name__.removeprefix("Pb").removesuffix("Request")
        return self.begin_bytes(name, encode(request), ends=ends)

    def begin_bytes(self, name: str, message: bytes, *, ends: bool = True) -> FrontCall:
        """Begin a call with the bytes of its message."""
        self._number += 2
        block = b"\x83\x86" + literal(b":path", PATH + name.encode()) + literal(b"content-type", b"application/grpc")
        block += b"".join(literal(key, value) for key, value in self.metadata.items())
        data = prefixed(message)
        self.write(frame(frames.HEADERS, frames.END_HEADERS, self._number, block))
        call = FrontCall(self._number)
        self.expect(call)
        self._data(self._number, data, ends=ends)
        return call

    def expect(self, call: FrontCall) -> None:
        """Take what comes for a call, whoever began it."""
        self._calls[call.number] = call

    def put(self, call: FrontCall, request: object) -> None:
        """Send one more message of a stream."""
        self._data(call.number, prefixed(encode(request)), ends=False)

    def _data(self, number: int, data: bytes, *, ends: bool) -> None:
        for at in range(0, len(data), frames.PAYLOAD_MAX):
            is_last = ends and at + frames.PAYLOAD_MAX >= len(data)
            flags = frames.END_STREAM if is_last else 0
            self.write(frame(frames.DATA, flags, number, data[at : at + frames.PAYLOAD_MAX]))

    def reset(self, call: FrontCall) -> None:
        """Give a call up."""
        self.write(frame(frames.RST_STREAM, 0, call.number, word(frames.CANCEL)))

    async def ended(self, call: FrontCall) -> FrontCall:
        """Wait until a call is answered. Time passes if need be."""
        waited_s = 0.0
        await settle()
        self.receive()
        while not call.has_ended:
            assert waited_s < _PATIENCE_S, "the call is not answered"
            await self.front.kit.pass_time(_STEP_S)
            waited_s += _STEP_S
            self.receive()
        return call

    async def call(self, request: object, answer: type[T]) -> T:
        """Make a unary call."""
        (found,) = (await self.ended(self.begin(request))).messages(answer)
        return found

    async def stream(self, request: object, answer: type[T]) -> list[T]:
        """Make a call that answers with a stream; return all of it."""
        return (await self.ended(self.begin(request))).messages(answer)

    async def came(self) -> None:
        """Wait until the server has written something, and take it."""
        await self._wire.told.wait()
        self._wire.told.clear()
        self.receive()

    def receive(self) -> None:
        """Take what the server has written."""
        data, at = bytes(self._wire.written), 0
        while len(data) - at >= 9:
            end = at + 9 + int.from_bytes(data[at : at + 3], "big")
            if end > len(data):
                break
            kind, flags, number = data[at + 3], data[at + 4], int.from_bytes(data[at + 5 : at + 9], "big")
            call = self._calls.get(number)
            if call is not None:
                if kind == frames.DATA:
                    call.data += data[at + 9 : end]
                elif kind == frames.HEADERS:
                    call.blocks += data[at + 9 : end]
                if kind == frames.RST_STREAM or (kind in (frames.DATA, frames.HEADERS) and flags & frames.END_STREAM):
                    call.has_ended = True
            at = end
        del self._wire.written[:at]

    def close(self) -> None:
        """Cut the connection."""
        self._wire.abort()
