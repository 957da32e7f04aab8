"""One end of a simulated connection: an asyncio transport whose bytes travel on the loop's timers.

Each end owns the way from itself to its peer: a queue of segments with their times of arrival, in order. A segment
that finds the way cut stays at the head until the network heals something.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple, cast

if TYPE_CHECKING:
    from aerobee.testing.net import SimNet

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

HIGH_WATER_BYTES = 64 * 1024
_Data = bytes | bytearray | memoryview


class Signal(Enum):
    """What travels besides bytes."""

    EOF = "eof"
    RESET = "reset"


class SimTransport(asyncio.Transport):
    """One end of a connection. What arrives before `start` is kept, because the protocol is not there yet."""

    def __init__(self, net: SimNet, local: tuple[str, int], remote: tuple[str, int]) -> None:
        super().__init__({"sockname": local, "peername": remote})
        self.local = local
        self.remote = remote
        # No callback of the protocol will come any more.
        self.is_lost = False
        # An end that no protocol owns and that repeats the first write of this one.
        self.shadow: SimTransport | None = None
        self._net = net
        self._peer: SimTransport | None = None
        self._protocol: asyncio.BaseProtocol | None = None
        self._is_started = False
        self._is_closing = False
        self._is_eof_sent = False
        self._is_reading = True
        self._is_writing_paused = False
        self._way: deque[tuple[float, bytes | Signal]] = deque()
        self._way_timer: asyncio.TimerHandle | None = None
        self._way_bytes = 0
        self._last_arrival_s = 0.0
        self._inbox: deque[bytes | Signal] = deque()
        self._inbox_bytes = 0
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        # Where the protocol was made: its callbacks run there, whoever causes them.
        self._context = contextvars.copy_context()

    def join(self, peer: SimTransport) -> None:
        self._peer, peer._peer = peer, self

    def accept(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """Make the protocol of an accepted connection and tell it."""
        protocol = factory()
        self.set_protocol(protocol)
        protocol.connection_made(self)
        self.start()

    def start(self) -> None:
        """Hand over what came meanwhile: the protocol has been told of its connection."""
        self._context = contextvars.copy_context()
        self._is_started = True
        self._drain_inbox()

    # --- asyncio.Transport

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: _Data) -> None:
        if self._is_closing:
            return
        if self._is_eof_sent:
            raise RuntimeError("cannot write after write_eof")
        if not len(data):
            return
        if self._net.entropy.chance(self._net.weather.reset):
            self.break_both()
            return
        payload = bytes(data)
        self._send_shadow(payload)
        size_max = self._net.weather.chunk_bytes_max
        if size_max is None:
            self._send(payload)
        else:
            at = 0
            while at < len(payload):
                size = self._net.entropy.below(size_max) + 1
                self._send(payload[at : at + size])
                at += size
        self._watch_high_water()

    def writelines(self, list_of_data: Iterable[_Data]) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if not self._is_eof_sent and not self._is_closing:
            self._is_eof_sent = True
            self._send(Signal.EOF)

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        """Close the connection. What was written still travels. What arrives from now on is answered by a reset, as
        a closed socket does."""
        if not self._is_closing:
            self.write_eof()
            self._begin_closing(None)

    def abort(self) -> None:
        if not self._is_closing:
            self._clear_way()
            self._send(Signal.RESET)
            self._begin_closing(None)

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._net.loop.call_soon(self._drain_inbox, context=self._net.context)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        self._high, self._low = high, high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        """Return how many bytes are on their way or not yet read by the peer."""
        return self._way_bytes + (self._peer._inbox_bytes if self._peer is not None else 0)

    # --- what the network does to it

    def break_both(self) -> None:
        """Let both ends lose the connection now, with all that is on its way."""
        for end in (self, self._peer):
            if end is not None:
                end._clear_way()
                end._begin_closing(ConnectionResetError("the connection was reset"))

    def vanish(self) -> None:
        """End without a callback and without a word to the peer: the owner is dead."""
        self._clear_way()
        self._is_closing = self.is_lost = True
        self._forget_when_done()

    def send_reset(self) -> None:
        self._clear_way()
        self._send(Signal.RESET)

    def resume_sending(self) -> None:
        """Try to send again, because some way was healed."""
        self._schedule()

    # --- the way to the peer

    def _send(self, payload: bytes | Signal) -> None:
        self._last_arrival_s = max(self._last_arrival_s, self._net.loop.time() + self._net.delay())
        self._way.append((self._last_arrival_s, payload))
        if isinstance(payload, bytes):
            self._way_bytes += len(payload)
        self._schedule()

    def _schedule(self) -> None:
        if self._way_timer is None and self._way and not self._is_way_cut():
            self._way_timer = self._net.loop.call_at(self._way[0][0], self._deliver, context=self._net.context)

    def _is_way_cut(self) -> bool:
        return self._net.is_cut(self.local[0], self.remote[0])

    def _deliver(self) -> None:
        self._way_timer = None
        if self._is_way_cut() or not self._way:
            return
        payload = self._next_payload()
        assert self._peer is not None
        if self._net.on_arrival is not None:
            self._net.on_arrival(self.local, self.remote, payload)
        self._peer._receive(payload)
        self._watch_low_water()
        self._schedule()
        self._forget_when_done()

    def _next_payload(self) -> bytes | Signal:
        """Take the head. Bytes that have arrived with it come as one chunk, unless chunks are to be small."""
        payload = self._way.popleft()[1]
        if isinstance(payload, Signal):
            return payload
        parts = [payload]
        now = self._net.loop.time()
        if self._net.weather.chunk_bytes_max is None:
            while self._way and self._way[0][0] <= now and isinstance(part := self._way[0][1], bytes):
                self._way.popleft()
                parts.append(part)
        joined = b"".join(parts)
        self._way_bytes -= len(joined)
        return joined

    def _clear_way(self) -> None:
        self._way.clear()
        self._way_bytes = 0
        if self._way_timer is not None:
            self._way_timer.cancel()
            self._way_timer = None

    def _send_shadow(self, payload: bytes) -> None:
        shadow, self.shadow = self.shadow, None
        if shadow is not None:
            shadow.write(payload)
            shadow.close()

    # --- what arrives

    def _receive(self, payload: bytes | Signal) -> None:
        if payload is Signal.RESET:
            self._clear_way()
            self._inbox.clear()
            self._inbox_bytes = 0
            self._begin_closing(ConnectionResetError("the peer reset the connection"))
        elif self._is_closing:
            if isinstance(payload, bytes):
                self.send_reset()
        else:
            self._inbox.append(payload)
            if isinstance(payload, bytes):
                self._inbox_bytes += len(payload)
            self._drain_inbox()

    def _drain_inbox(self) -> None:
        while self._inbox and self._is_started and self._is_reading and not self._is_closing:
            payload = self._inbox.popleft()
            protocol = cast(asyncio.Protocol, self._protocol)
            if isinstance(payload, bytes):
                self._inbox_bytes -= len(payload)
                self._call(protocol.data_received, payload)
                if self._peer is not None:
                    self._peer._watch_low_water()
            elif not self._call(protocol.eof_received):
                self.close()

    # --- telling the protocol

    def _call(self, callback: Callable[[*Ts], T], *arguments: *Ts) -> T:
        return self._context.run(callback, *arguments)

    def _begin_closing(self, error: Exception | None) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._net.loop.call_soon(self._lose, error, context=self._net.context)

    def _lose(self, error: Exception | None) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        self._forget_when_done()
        if self.shadow is not None:
            self.shadow.close()
        protocol = self._protocol
        if self._is_started and protocol is not None:
            self._net.when_running(self.local[0], lambda: self._call(protocol.connection_lost, error))

    def _forget_when_done(self) -> None:
        if self.is_lost and not self._way:
            self._net.forget(self)

    def _watch_high_water(self) -> None:
        if not self._is_writing_paused and self.get_write_buffer_size() > self._high:
            self._is_writing_paused = True
            self.get_protocol().pause_writing()

    def _watch_low_water(self) -> None:
        if self._is_writing_paused and self.get_write_buffer_size() <= self._low:
            self._is_writing_paused = False
            if not self.is_lost:
                self._call(self.get_protocol().resume_writing)
