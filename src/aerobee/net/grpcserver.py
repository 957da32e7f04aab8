"""gRPC on the connections of a server: one sink for each connection that begins as HTTP/2 does.

The sink carries bytes between a channel and the machine of `protocol/grpc.py` and gives calls to a service. The limits
of the channel (bytes that are not read, idle time, how many connections) hold here too; what else a peer may hold back
is looked at once a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from aerobee.model.numbers import int_or
from aerobee.net.channel import TOO_MANY_UNREAD, Channel
from aerobee.net.limits import ConnectionLimits
from aerobee.net.server import Server
from aerobee.protocol import grpc
from aerobee.protocol.grpc import CallEvent, GrpcCall, GrpcConnection

_SWEEP_INTERVAL_S: Final = 1.0
_DRAIN_STEP_S: Final = 0.02
# Calls that are handled in one go, before other connections have their turn.
_CALLS_PER_TURN: Final = 64


class GrpcService(Protocol):
    """What calls are given to. Its answers go through `GrpcSink`."""

    def called(self, sink: GrpcSink, call: GrpcCall) -> None:
        """Take a new call. It may be refused at once."""

    def message(self, sink: GrpcSink, call: GrpcCall, message: bytes) -> None:
        """Take a message of a call."""

    def ended(self, sink: GrpcSink, call: GrpcCall) -> None:
        """Take note that the client has sent everything."""

    def given_up(self, sink: GrpcSink, call: GrpcCall) -> None:
        """Drop a call that the client does not wait for any more."""


class GrpcSink:
    """One connection of gRPC."""

    def __init__(self, server: GrpcServer, channel: Channel) -> None:
        self.channel = channel
        self._server = server
        self._machine = GrpcConnection(server.now_s())
        self._waiting: list[CallEvent] = []
        self._flushing = False
        self._stalled_since_s = 0.0
        self._stalled_bytes = 0
        # What the service remembers of the client that calls here, and the text by which it named itself.
        self.client: object = None
        self.client_key = b""

    @property
    def peer(self) -> tuple[str, int]:
        """Return the address of the client."""
        host, _, port = self.channel.remote_address.rpartition(":")
        return host.strip("[]"), int_or(port, 0, 0, 65535)

    # -- in

    def receive(self, data: bytes) -> None:
        """Take bytes of the connection."""
        now_s = self._server.now_s()
        self.channel.last_read_s = now_s
        events = self._machine.receive(data, now_s)
        self.channel.holds(self._machine.held, now_s)
        if self._waiting:
            self._waiting += events
        else:
            self._handle(events)
        self.flush()

    def _handle(self, events: list[CallEvent]) -> None:
        service = self._server.service
        for done, event in enumerate(events):
            if done >= _CALLS_PER_TURN * 3:
                self._waiting = events[done:]
                self.channel.rest(self._go_on)
                return
            call = event.call
            if event.kind == grpc.GIVEN_UP:
                service.given_up(self, call)
            elif call.is_answered:
                continue
            elif event.kind == grpc.CALLED:
                service.called(self, call)
            elif event.kind == grpc.MESSAGE:
                service.message(self, call, event.message)
            if event.ended and not call.is_answered and event.kind != grpc.GIVEN_UP:
                service.ended(self, call)

    def _go_on(self) -> None:
        events, self._waiting = self._waiting, []
        if not self.channel.closed:
            self._handle(events)
            self.flush()

    def lost(self) -> None:
        """Drop every call: the connection is gone."""
        self._server.forget(self)
        self._waiting = []
        for call in self._machine.calls:
            call.is_answered = True
            self._server.service.given_up(self, call)
            # Calls and streams name each other: what they hold would stay until the next collection.
            call.chunks = []
            call.stream.out = []
            call.stream.call = None

    # -- out

    def answer(self, call: GrpcCall, message: bytes) -> None:
        """Answer a call with one message."""
        self._machine.answer(call, message)
        self._flush_soon()

    def open(self, call: GrpcCall) -> None:
        """Begin a stream of answers."""
        self._machine.open(call)
        self._flush_soon()

    def send(self, call: GrpcCall, message: bytes) -> None:
        """Send one message of a stream."""
        self._machine.send(call, message)
        self._flush_soon()

    def send_all(self, call: GrpcCall, messages: list[bytes]) -> None:
        """Send several messages of a stream."""
        self._machine.send_all(call, messages)
        self._flush_soon()

    def end(self, call: GrpcCall) -> None:
        """End a stream of answers."""
        self._machine.end(call)
        self._flush_soon()

    def fail(self, call: GrpcCall, status: int, words: str) -> None:
        """End a call with a status of gRPC."""
        self._machine.fail(call, status, words)
        self._flush_soon()

    def is_behind(self, call: GrpcCall) -> bool:
        """Tell whether the client has not read what was sent for the call."""
        return call.stream.out_size > 0

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Write what is to be written."""
        self._flushing = False
        machine, channel = self._machine, self.channel
        out = machine.http.output()
        if out and not channel.closed:
            channel.write(out)
        error = machine.http.error
        if error is not None:
            self._server.violated(channel, error.reason)
            channel.close()

    def drain(self) -> None:
        """Tell the client to go elsewhere with its next calls."""
        self._machine.http.drain()
        self.flush()

    @property
    def has_calls(self) -> bool:
        """Whether calls are not answered yet."""
        return bool(self._machine.calls)

    # -- time

    def sweep(self, now_s: float) -> None:
        """Cut requests that do not come to an end, and a peer that reads nothing."""
        server, machine = self._server, self._machine
        for call in machine.calls:
            if not (call.has_ended or call.is_streaming) and now_s - call.began_s > server.limits.frame_progress_s:
                machine.cut(call)
                server.service.given_up(self, call)
        queued: int = machine.http.queued
        if not queued or queued != self._stalled_bytes:
            self._stalled_bytes, self._stalled_since_s = queued, now_s
        elif now_s - self._stalled_since_s > server.limits.write_stall_s:
            server.cut(self.channel, "the peer does not read its answers")
            return
        if queued > server.limits.write_buffer_bytes_max:
            server.cut(self.channel, TOO_MANY_UNREAD)
            return
        self.flush()


class GrpcServer:
    """The sinks of one server."""

    def __init__(self, server: Server, service: GrpcService, now_s: Callable[[], float]) -> None:
        self.service = service
        self.now_s = now_s
        self._server = server
        self._sinks: set[GrpcSink] = set()
        self._timer: asyncio.TimerHandle | None = None
        server.http2 = self.sink

    @property
    def limits(self) -> ConnectionLimits:
        """Return the limits of the server's connections."""
        return self._server.limits

    def sink(self, channel: Channel) -> GrpcSink:
        """Return the sink of a new connection."""
        sink = GrpcSink(self, channel)
        self._sinks.add(sink)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SWEEP_INTERVAL_S, self._sweep)
        return sink

    def forget(self, sink: GrpcSink) -> None:
        self._sinks.discard(sink)

    def cut(self, channel: Channel, reason: str) -> None:
        self._server.cut(channel, reason)

    def violated(self, channel: Channel, reason: str) -> None:
        self._server.greeting_failed(channel, f"HTTP/2: {reason}")

    def _sweep(self) -> None:
        now_s = self.now_s()
        for sink in list(self._sinks):
            sink.sweep(now_s)
        self._timer = None
        if self._sinks:
            self._timer = asyncio.get_running_loop().call_later(_SWEEP_INTERVAL_S, self._sweep)

    async def drain(self, limit_s: float) -> None:
        """Tell every client to go, and wait until the calls under way are answered."""
        for sink in list(self._sinks):
            sink.drain()
        until_s = self.now_s() + limit_s
        while any(sink.has_calls for sink in self._sinks) and self.now_s() < until_s:  # noqa: ASYNC110
            await asyncio.sleep(_DRAIN_STEP_S)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
