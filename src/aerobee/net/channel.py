"""One accepted connection. It gives the frames it receives to the server and writes the answers of a tick together.

A channel decides nothing about requests. It owns the unfinished bytes of its stream, the answers that are not yet
written and the calls that the server made to the peer (a broker asks clients too). Memory is bounded on both sides:
a channel does not read while its peer does not read, and a peer that does not read for `write_stall_s` is
disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from aerobee.errors import LocalProtocolError, RemoteProtocolError, TransportError
from aerobee.hot.log.host import encode_host
from aerobee.hot.wire.frame import Frame
from aerobee.protocol.command import Command, encode_command, too_large
from aerobee.protocol.connection import Connection

if TYPE_CHECKING:
    from aerobee.net.server import Server
    from aerobee.net.turns import Sliced

# Answers up to this size together are copied into one write, which is cheaper than a list of small ones.
_JOINED_MAX: Final = 64 * 1024

# Unfinished frames below this size are not counted.
_COUNTED_FROM: Final = 64 * 1024

Answered = Callable[[Command | Exception], None]

# Every 32nd frame with a fast handler checks whether the turn is over.
_LOOK_UP_EVERY: Final = 31

TOO_MANY_UNREAD: Final = "too many unread answers"


class Channel:
    """The server's side of one connection. It has the methods of an asyncio.Protocol but is no subclass, so that
    mypyc can compile it."""

    def __init__(self, server: Server, refused: frozenset[int] = frozenset()) -> None:
        self.id = server.next_channel_id()
        # Codes that the port of this connection does not serve.
        self.refused = refused
        self.remote_address = ""
        # The host of that address, and with access control the user who signed last and whether the bytes are secret.
        self.source = ""
        self.user = ""
        self.is_secure = False
        # Address and port as a record's born host carries them.
        self.remote_host = b""
        # What the broker knows of the client behind this connection, set by its heartbeat.
        self.client_id = ""
        self.closed = False
        self.last_read_s = server.now_s()
        # When the oldest unfinished frame began, 0 when none is.
        self.frame_began_s = 0.0
        # Bytes of that frame if it is a large one.
        self.unfinished = 0
        # Since when no byte has left although some wait; 0 while the peer reads.
        self.stalled_since_s = 0.0
        self._stalled_size = 0
        # Bytes of answers that wait while the peer does not read.
        self.unread = 0
        self._closing_size = 0
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._machine = Connection()
        self._out: list[bytes | memoryview] = []
        self._out_size = 0
        self._pending: dict[int, tuple[float, Answered]] = {}
        # A request is worked on in slices, or waits for a read from disk. Later requests wait for it.
        self.busy = False
        # Frames that wait for their turn, and whether any do. Nothing is read meanwhile.
        self._backlog: list[Frame] = []
        self._waits = False
        self._frozen = False
        # Whether it brought so much of a large frame that the rest has to wait for the next turn of the loop.
        self._slowed = False

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername") or ("0.0.0.0", 0)
        port: int = peer[1]
        self.came_from(str(peer[0]), port)
        self._transport.set_write_buffer_limits(high=self._server.limits.write_high_water_bytes)
        self._server.channel_opened(self)

    def came_from(self, host: str, port: int) -> None:
        """Set the address of the peer: that of the socket, or that of the client for whom a proxy connected."""
        self.remote_address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.source = host
        self.remote_host = encode_host(host, port)

    def carried_by(self, transport: asyncio.Transport) -> None:
        """Write answers to this transport from now on, for example to one that encrypts them."""
        self._transport = transport
        self.is_secure = True

    def data_received(self, data: bytes) -> None:
        server, machine = self._server, self._machine
        self.last_read_s = now_s = server.now_s()
        try:
            frames = machine.receive_frames(data)
            held = machine.held
            if not held:
                self.frame_began_s = 0.0
            elif not self.frame_began_s or frames:
                self.frame_began_s = now_s
            if held > _COUNTED_FROM or self.unfinished:
                self._count_unfinished(held)
                server.large_read(self, len(data))
            if frames:
                self._dispatch(frames, now_s)
        except RemoteProtocolError as error:
            machine.fail(error)
        if machine.error is not None:
            server.protocol_error(self, machine.error)
            self.abort()

    def _count_unfinished(self, held: int) -> None:
        """Tell the server how many bytes of an unfinished large frame are held. The server bounds the sum over all
        connections."""
        before, self.unfinished = self.unfinished, held
        self._server.unfinished_grew(held - before)

    def holds(self, held: int, now_s: float) -> None:
        """Take note of the bytes of unfinished requests that another protocol holds for this connection."""
        if held > self.unfinished and self.frame_began_s:
            pass
        else:
            self.frame_began_s = now_s if held else 0.0
        if held > _COUNTED_FROM or self.unfinished:
            self._count_unfinished(held)

    def forget_unfinished(self) -> None:
        """Drop the unfinished frame of a connection that is being cut."""
        self._machine.fail(RemoteProtocolError("cut"))
        self._count_unfinished(0)

    def _dispatch(self, frames: list[Frame], now_s: float, is_turn: bool = False) -> None:
        """Give each frame to its handler, and write what the handlers answer at once in one write. When the turn is
        over, put the rest off. Put off requests that may take long, unless this is a turn of their own (`is_turn`),
        where another connection has used up this turn."""
        if self._waits:
            # These bytes were on their way when reading stopped.
            self._backlog += frames
            return
        server = self._server
        if server.is_full:
            self._put_off(frames)
            return
        fast, refused = server.fast, self.refused
        server.begin_batch(now_s)
        done = 0
        try:
            for frame in frames:
                done += 1
                handler = fast.get(frame.code) if not frame.flag & 1 else None
                if handler is None or frame.code in refused:
                    if server.is_spent and not is_turn:
                        done -= 1
                        break
                    server.dispatch_frame(self, frame)
                    if server.is_turn_over() or self.busy:
                        break
                    continue
                try:
                    handler(self, frame)
                except RemoteProtocolError:
                    raise
                except Exception as error:  # noqa: BLE001 - the edge: an unknown failure is answered and logged
                    server.fast_failed(self, frame, error)
                if not done & _LOOK_UP_EVERY and server.is_turn_over():
                    break
        finally:
            server.end_batch()
        if self.busy or done < len(frames):
            self._put_off(frames[done:])

    def _put_off(self, frames: list[Frame]) -> None:
        self._backlog = frames
        self._waits = True
        if self._transport is not None and not self.closed:
            self._transport.pause_reading()
        if not self.busy:
            self._server.turns.add(self._go_on)

    def _go_on(self, until_s: float) -> bool:
        """Handle the frames that were put off. If they still take too long, put the rest off again."""
        if self.closed or self.busy or not self._waits:
            return False
        frames, self._backlog = self._backlog, []
        self._waits = False
        machine = self._machine
        try:
            self._dispatch(frames, self._server.now_s(), True)
        except RemoteProtocolError as error:
            machine.fail(error)
            self._server.protocol_error(self, error)
            self.abort()
        self._read_on()
        return False

    def begin_work(self) -> None:
        """Let the requests behind the current one wait until `end_work`."""
        self.busy = True

    def end_work(self) -> None:
        self.busy = False
        if self._waits and not self.closed:
            self._server.turns.add(self._go_on)

    def rest(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` after the other connections have had their turn."""
        self._server.rest(go_on)

    def work(self, to: Command, work: Sliced) -> None:
        """Do the work in slices and send the answer that it ends with. Later requests of the peer wait for it."""
        self._server.work(self, to, work)

    def slow(self) -> bool:
        """Stop reading until `hasten`; return whether it was read until now."""
        if self._slowed or self.closed or self._transport is None:
            return False
        self._slowed = True
        self._transport.pause_reading()
        return True

    def hasten(self) -> None:
        """Read on after `slow`."""
        self._slowed = False
        self._read_on()

    def _read_on(self) -> None:
        is_held = self._waits or self._frozen or self._slowed or self.stalled_since_s
        if self._transport is not None and not (self.closed or is_held):
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self.stalled_since_s = self._server.now_s()
        self._stalled_size = self.write_buffer_size()
        self._count_unread(self._stalled_size)
        if self._transport is not None and not self.closed:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.stalled_since_s = 0.0
        self._count_unread(0)
        self._read_on()

    def eof_received(self) -> None:
        """Return None, so that the transport closes: the peer will send nothing more."""

    def connection_lost(self, exc: Exception | None) -> None:
        if self.closed:
            return
        self.closed = True
        self._out.clear()
        self._out_size = 0
        self._backlog = []
        self._waits = False
        self._transport = None
        if self.unfinished:
            self._count_unfinished(0)
        self._count_unread(0)
        self._server.released(self._closing_size)
        self._closing_size = 0
        pending, self._pending = self._pending, {}
        for _, answered in pending.values():
            answered(TransportError(f"connection to {self.remote_address} was lost"))
        self._server.channel_closed(self)

    # -- what the server's handlers use

    def write(self, frame: bytes | memoryview) -> None:
        """Queue the bytes of one whole frame, or a slice of one. Queued bytes leave together at the end of the tick."""
        if self.closed:
            return
        if not self._out:
            self._server.wants_flush(self)
        self._out.append(frame)
        self._out_size += len(frame)

    def write_now(self, frames: bytes) -> None:
        """Write whole frames, joined by the caller, at once. Bytes that are already queued go first."""
        if self._out:
            self.write(frames)
        elif self._transport is not None:
            self._transport.write(frames)

    def send(self, command: Command) -> None:
        """Queue a command. An answer that does not fit into a frame is replaced by one that says so."""
        try:
            frame = encode_command(command)
        except LocalProtocolError as error:
            if not command.is_response:
                raise
            frame = encode_command(too_large(command, error.message))
        self.write(frame)

    def request(self, command: Command, answered: Answered, timeout_s: float = 3.0) -> None:
        """Ask the peer. Call `answered` with its response, or with the reason why there is none."""
        if self.closed:
            answered(TransportError(f"connection to {self.remote_address} is closed"))
        elif len(self._pending) >= self._server.limits.requests_in_flight_max:
            answered(TransportError(f"{self.remote_address} has too many unanswered requests"))
        else:
            self._pending[command.opaque] = (self._server.now_s() + timeout_s, answered)
            self.send(command)

    def answer_arrived(self, command: Command) -> None:
        waiting = self._pending.pop(command.opaque, None)
        if waiting is not None:
            waiting[1](command)

    def expire_requests(self, now_s: float) -> list[Answered]:
        """Remove and return the calls whose time is over."""
        late = [opaque for opaque, (deadline, _) in self._pending.items() if deadline <= now_s]
        return [self._pending.pop(opaque)[1] for opaque in late]

    def flush(self) -> None:
        out, self._out = self._out, []
        self._out_size, joined = 0, self._out_size <= _JOINED_MAX
        if self._transport is None or not out:
            return
        if len(out) == 1:
            self._transport.write(out[0])
        elif joined:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)
        if self.stalled_since_s:
            size = self.write_buffer_size()
            self._count_unread(size)
            if size > self._server.limits.write_buffer_bytes_max:
                # The sweep would be too late: answers that come from the disk or a timer fill memory faster.
                self._server.cut(self, TOO_MANY_UNREAD)

    def _count_unread(self, size: int) -> None:
        """Tell the server how many bytes of answers the peer has not read. The server bounds the sum over all
        connections."""
        before, self.unread = self.unread, size
        if size != before:
            self._server.unread_grew(size - before)

    def forget_unread(self) -> int:
        """Return how many bytes wait for a peer that is being cut. Their memory is free when the connection is
        closed."""
        unread, self.unread = self.unread, 0
        self._closing_size += unread
        return unread

    def stalled_s(self, now_s: float) -> float:
        """Return for how many seconds the peer has read nothing. A peer that reads slowly is not stalled."""
        if not self.stalled_since_s:
            return 0.0
        size = self.write_buffer_size()
        if size < self._stalled_size:
            self._stalled_size, self.stalled_since_s = size, now_s
            self._count_unread(size)
        return now_s - self.stalled_since_s

    def write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def freeze(self) -> None:
        """Stop reading until `thaw`."""
        self._frozen = True
        if self._transport is not None and not self.closed:
            self._transport.pause_reading()

    def thaw(self) -> None:
        self._frozen = False
        self._read_on()

    def close(self) -> None:
        """Write what is queued, then close."""
        if self._transport is not None:
            self.flush()
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
