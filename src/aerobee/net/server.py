"""Listening ports, their channels, and the table that gives each frame to its handler.

Handlers are plain functions. A request that can be answered now is answered in the same call, without a task or a
future. `fast` handlers (the send and pull paths) get the frame itself; the others get a decoded command. On the
server side, errors become answers here and nowhere else.

A second port (a broker's fast port) may serve the same table without some codes. Its connections belong to the same
server and share its ids, limits and sweeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from aerobee.errors import AerobeeError, RemoteProtocolError, RequestTimeoutError
from aerobee.hot.wire.frame import Frame
from aerobee.net.channel import TOO_MANY_UNREAD, Channel
from aerobee.net.config import ServerTls
from aerobee.net.greeter import Greeter
from aerobee.net.limits import ConnectionLimits
from aerobee.net.turns import SHORT_TURN_S, TURN_S, Sliced, Turns
from aerobee.protocol.bodysizes import DEFAULT_MAX, body_problem
from aerobee.protocol.codes import FLAG_ONEWAY, ResponseCode
from aerobee.protocol.command import Command, decode_command, encode_command, response
from aerobee.runtime.bases import Clock
from aerobee.runtime.net import RealNet
from aerobee.runtime.seams import Listener, Net
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

Answer = Command | Sliced | None
Handler = Callable[[Channel, Command], Answer]
FastHandler = Callable[[Channel, Frame], None]

_SWEEP_INTERVAL_S = 1.0

# Bytes of large frames that one turn of the loop reads: about ten milliseconds of copying.
_LARGE_READ_MAX: Final = 8 << 20


def _began_s(channel: Channel) -> float:
    return channel.frame_began_s


def _unread(channel: Channel) -> int:
    return channel.unread


def _believed(host: str) -> bool:
    """Return that everybody is believed, as in RocketMQ."""
    return True


class Observer(Protocol):
    """Whoever wants to know of connections: the broker's client table or the name server's route table."""

    def channel_opened(self, channel: Channel) -> None: ...
    def channel_closed(self, channel: Channel) -> None: ...


class Http2Sink(Protocol):
    """What takes the bytes of a connection that begins as HTTP/2 does."""

    def receive(self, data: bytes) -> None: ...
    def lost(self) -> None: ...


class Server:
    """The ports of one server process."""

    def __init__(
        self,
        name: str,
        handlers: Mapping[int, Handler],
        *,
        clock: Clock,
        fast: Mapping[int, FastHandler] | None = None,
        observer: Observer | None = None,
        limits: ConnectionLimits | None = None,
        tls: ServerTls | None = None,
        net: Net | None = None,
    ) -> None:
        self.limits = limits or ConnectionLimits()
        # The TLS of new connections.
        self.tls = tls or ServerTls()
        # Called by every sweep, once a second.
        self.on_sweep: Callable[[], None] | None = None
        self.channels: dict[int, Channel] = {}
        # How many of them are of this process itself, and are bounded by whoever makes them.
        self.own_channels = 0
        self.address = ("", 0)
        # How many reads brought a whole frame. The broker's tick compares it to know whether the server is idle.
        self.reads = 0
        self._name = name
        self._handlers = handlers
        self.fast = fast if fast is not None else {}
        self._observer = observer
        self._clock = clock
        self._log = get_log(f"net.{name}")
        self._junk_log = RateLimitedLog(self._log, clock)
        self._last_channel_id = 0
        # Work that is left for the next turns of the loop.
        self.turns = Turns(clock)
        self._turn_s: float = TURN_S  # an attribute, because compiled code looks up names of other modules
        # Whether a connection has used up the time of this turn of the loop.
        self.is_spent = False
        self._turn_end_s = 0.0
        self._dirty: list[Channel] = []
        self._unfinished = 0
        # Bytes of large frames read in this turn of the loop, and who waits for the next one.
        self._large_read = 0
        self._slowed: list[Channel] = []
        # Bytes of answers that wait for peers; and with them those of connections that were cut and are still closing.
        self._unread = 0
        self._held = 0
        self.is_full = False
        # Tells of the address of a connection whether its PROXY header is believed.
        self.believes_proxy: Callable[[str], bool] = _believed
        # Makes the sink of a connection that begins as HTTP/2 does. None: such a connection is refused.
        self.http2: Callable[[Channel], Http2Sink] | None = None
        self._in_batch = False
        self._net: Net = net or RealNet()
        self._listeners: list[Listener] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- life

    async def bind(self, host: str, port: int) -> int:
        """Take the port without serving it yet, and return its number. Port 0 takes a free one."""
        self.address = await self._bind(host, port, frozenset())
        return self.address[1]

    async def bind_beside(self, host: str, port: int, refused: frozenset[int]) -> int:
        """Take one more port, and return its number. The codes in `refused` are answered there as unknown ones."""
        return (await self._bind(host, port, refused))[1]

    async def _bind(self, host: str, port: int, refused: frozenset[int]) -> tuple[str, int]:
        self._loop = asyncio.get_running_loop()
        listener = await self._net.listen(host, port, functools.partial(Greeter, self, refused), start=False)
        self._listeners.append(listener)
        return listener.host, listener.port

    def unbind(self) -> None:
        """Release every port that was bound and not served."""
        self._stop_listening()
        self._listeners.clear()

    async def serve(self) -> None:
        """Accept connections from now on."""
        assert self._loop is not None
        for listener in self._listeners:
            await listener.start()
        self._sweeper = self._loop.call_later(_SWEEP_INTERVAL_S, self._sweep)

    async def listen(self, host: str, port: int) -> int:
        """Bind and serve."""
        bound = await self.bind(host, port)
        await self.serve()
        return bound

    async def close(self) -> None:
        """Stop accepting, let written answers leave, and abort the connections that remain."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._stop_listening()
        for channel in list(self.channels.values()):
            channel.close()
        for _ in range(100):
            if not self.channels:
                break
            await asyncio.sleep(0.01)
        for channel in list(self.channels.values()):
            channel.abort()
        closed, self._listeners = self._listeners, []
        for listener in closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await listener.wait_closed()

    def abort(self) -> None:
        """Reset every connection at once. No answer leaves any more."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._stop_listening()
        for channel in list(self.channels.values()):
            channel.abort()

    def stop_reading(self) -> None:
        """Refuse new connections and read no more requests, before a stop. Answers still leave."""
        self._stop_listening()
        self.freeze()

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            listener.close()

    def freeze(self) -> None:
        """Stop reading, as a process does that the system has stopped. Connections stay open."""
        for channel in self.channels.values():
            channel.freeze()

    def thaw(self) -> None:
        """Read again, beginning with what came meanwhile."""
        for channel in list(self.channels.values()):
            channel.thaw()

    # -- what channels call

    def next_channel_id(self) -> int:
        self._last_channel_id += 1
        return self._last_channel_id

    def now_s(self) -> float:
        return self._clock.monotonic()

    def channel_opened(self, channel: Channel) -> None:
        if len(self.channels) - self.own_channels >= self.limits.connections_max:
            self._junk_log.warning(
                "connections", "connection refused: there are too many connections", peer=channel.remote_address
            )
            channel.abort()
            return
        self.channels[channel.id] = channel
        if self._observer is not None:
            self._observer.channel_opened(channel)

    def channel_closed(self, channel: Channel) -> None:
        if self.channels.pop(channel.id, None) is not None and self._observer is not None:
            self._observer.channel_closed(channel)

    def protocol_error(self, channel: Channel, error: RemoteProtocolError) -> None:
        self._junk_log.warning(
            "junk", "connection closed: not the remoting protocol", peer=channel.remote_address, reason=error.message
        )

    def greeting_failed(self, channel: Channel, reason: str) -> None:
        self._junk_log.warning(f"greeting {reason}", "connection closed", peer=channel.remote_address, reason=reason)

    def proxy_disbelieved(self, channel: Channel) -> None:
        """Tell that a PROXY header was passed over."""
        self._junk_log.warning(
            "proxy", "a PROXY header is not believed, so the address of the connection counts: name the proxy in "
            "proxyProtocolTrustedAddresses", peer=channel.remote_address,
        )  # fmt: skip

    def unfinished_grew(self, size: int) -> None:
        """Add to the bytes that connections hold of unfinished frames. If there are too many, cut the connection
        whose unfinished frame began first: a client that sends as fast as it can has finished its own."""
        self._unfinished += size
        while self._unfinished > self.limits.unfinished_bytes_max:
            slowest = min((one for one in self.channels.values() if one.unfinished), key=_began_s, default=None)
            if slowest is None:
                break
            self.cut(slowest, "too much is held of unfinished frames, and its own began first")
            slowest.forget_unfinished()

    def large_read(self, channel: Channel, size: int) -> None:
        """Count what came of a large frame in this turn of the loop. Where it is enough, those that send large frames
        wait for the next turn: the loop reads whatever has arrived on every connection before it serves others."""
        if self._loop is None:
            return
        if not self._large_read:
            self._loop.call_soon(self._end_large_reads)
        self._large_read += size
        if self._large_read <= _LARGE_READ_MAX:
            return
        waiting = [channel] if self._slowed else [one for one in self.channels.values() if one.unfinished]
        self._slowed += [one for one in waiting if one.slow()]

    def _end_large_reads(self) -> None:
        self._large_read = 0
        slowed, self._slowed = self._slowed, []
        for channel in slowed:
            channel.hasten()

    def unread_grew(self, size: int) -> None:
        """Add to the bytes of answers that peers have not read. If there are too many, cut the peer that has left
        the most: refusing requests instead would let a few peers starve all others."""
        self._unread += size
        self.released(-size)
        while self._unread > self.limits.unread_bytes_max:
            most = max((one for one in self.channels.values() if one.unread), key=_unread, default=None)
            if most is None:
                break
            self.cut(most, TOO_MANY_UNREAD)
            self._unread -= most.forget_unread()

    def released(self, size: int) -> None:
        """Count memory of unread answers as free. While too much is in use, frames wait until the memory of cut
        connections is free."""
        self._held -= size
        self.is_full = self._held > self.limits.unread_bytes_max * 5 // 4

    def begin_batch(self, now_s: float) -> None:
        """Begin the handling of the frames of one read."""
        self.reads += 1
        self._in_batch = True
        self._turn_end_s = now_s + self._turn_s

    def is_turn_over(self) -> bool:
        """Return whether the frames of one read have taken long enough, so that others get their turn.

        The connection that is read next in the same turn of the loop then gets less time, and none for requests that
        may take long. Otherwise many slow connections together would delay the others more than a single slow one
        may.
        """
        if self.now_s() < self._turn_end_s:
            return False
        if not self.is_spent and self._loop is not None:
            self.is_spent = True
            self._turn_s = SHORT_TURN_S
            self._loop.call_soon(self._begin_turn)
        return True

    def _begin_turn(self) -> None:
        self.is_spent = False
        self._turn_s = TURN_S

    def end_batch(self) -> None:
        self._in_batch = False
        if self._dirty:
            self.flush_written()

    def wants_flush(self, channel: Channel) -> None:
        """Note that a channel has answers. They leave at the end of this read, or with those of all channels at the
        end of the tick."""
        if not self._dirty and not self._in_batch:
            (self._loop or asyncio.get_running_loop()).call_soon(self.flush_written)
        self._dirty.append(channel)

    def flush_written(self) -> None:
        """Write everything that is queued now."""
        dirty, self._dirty = self._dirty, []
        for channel in dirty:
            channel.flush()

    # -- dispatch

    def dispatch_frame(self, channel: Channel, frame: Frame) -> None:
        """Give a frame to its handler. Refuse a body that is larger than its code allows, without decoding it."""
        size = frame.end - frame.body_pos
        if size > DEFAULT_MAX and not frame.flag & 1 and frame.code in self._handlers:
            problem = body_problem(frame.code, size)
            if problem:
                self._junk_log.warning(
                    f"size {frame.code}", "request refused", peer=channel.remote_address, reason=problem
                )
                if not frame.flag & FLAG_ONEWAY:
                    channel.send(response(frame, ResponseCode.INVALID_PARAMETER, remark=problem))
                return
        self.dispatch(channel, decode_command(frame))

    def dispatch(self, channel: Channel, command: Command) -> None:
        if command.is_response:
            channel.answer_arrived(command)
            return
        answer = self._answer(channel, command)
        if isinstance(answer, Sliced):
            self.work(channel, command, answer)
        elif answer is not None and not command.is_oneway:
            channel.send(answer)

    def _answer(self, channel: Channel, command: Command) -> Answer:
        handler = self._handlers.get(command.code)
        if handler is None or command.code in channel.refused:
            # RocketMQ: NettyRemotingAbstract.processRequestCommand
            remark = f" request type {command.code} not supported"
            return response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        try:
            return handler(channel, command)
        except Exception as error:  # noqa: BLE001 - the edge: an unknown failure is answered and logged
            return self._refused(channel, command, error)

    def work(self, channel: Channel, to: Command, work: Sliced) -> None:
        """Begin the work now, unless it is large and others wait. Continue in later turns, and send the answer that
        it ends with."""
        channel.begin_work()

        def go_on(until_s: float) -> bool:
            if channel.closed and not work.whole:
                work.slices.close()
                return False
            try:
                while True:
                    next(work.slices)
                    if self.now_s() >= until_s:
                        return True
            except StopIteration as stop:
                answer: Command | None = stop.value
            except Exception as error:  # noqa: BLE001 - the edge: an unknown failure is answered and logged
                answer = self._refused(channel, to, error)
            if answer is not None and not to.is_oneway:
                channel.send(answer)
            channel.end_work()
            return False

        if len(to.body) > DEFAULT_MAX and self.turns.is_crowded:
            # What large work makes in its first turn would stay in memory while it waits.
            self.turns.add_long(go_on)
        elif go_on(self._turn_end_s if self._in_batch else self.now_s() + TURN_S):
            self.turns.add_long(go_on)

    def rest(self, go_on: Callable[[], None]) -> None:
        """Call the function in a later turn, after the work that already waits."""

        def work(until_s: float) -> bool:
            go_on()
            return False

        self.turns.add(work)

    def _refused(self, channel: Channel, to: Command | Frame, error: Exception) -> Command:
        if not isinstance(error, AerobeeError):
            return self._failed(channel, to, error)
        code = error.code if error.code is not None else ResponseCode.SYSTEM_ERROR
        return response(to, code, remark=error.message)

    def fast_failed(self, channel: Channel, frame: Frame, error: Exception) -> None:
        """Answer a request whose fast handler raised. Log errors that nobody expected. The connection stays open."""
        answer = self._refused(channel, frame, error)
        if not frame.flag & FLAG_ONEWAY:
            channel.write(encode_command(answer))

    def _failed(self, channel: Channel, to: Command | Frame, error: Exception) -> Command:
        peer = channel.remote_address
        self._junk_log.error(f"failed {to.code}", "request failed", code=to.code, peer=peer, exc_info=error)
        return response(to, ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")

    # -- time

    def _sweep(self) -> None:
        """Once a second, cut peers that are idle, do not read or do not finish a frame, and expire the server's own
        calls."""
        now_s, limits = self.now_s(), self.limits
        for channel in list(self.channels.values()):
            for answered in channel.expire_requests(now_s):
                answered(RequestTimeoutError(f"no answer from {channel.remote_address}"))
            reason = self._cut_reason(channel, now_s, limits)
            if reason:
                self.cut(channel, reason)
        if self.on_sweep is not None:
            self.on_sweep()
        assert self._loop is not None
        self._sweeper = self._loop.call_later(_SWEEP_INTERVAL_S, self._sweep)

    def cut(self, channel: Channel, reason: str) -> None:
        """Close a connection without waiting for the peer."""
        self._junk_log.warning("cut", f"connection closed: {reason}", peer=channel.remote_address)
        channel.abort()

    @staticmethod
    def _cut_reason(channel: Channel, now_s: float, limits: ConnectionLimits) -> str:
        if channel.stalled_s(now_s) > limits.write_stall_s:
            return "the peer does not read its answers"
        if channel.write_buffer_size() > limits.write_buffer_bytes_max:
            return TOO_MANY_UNREAD
        if channel.frame_began_s and now_s - channel.frame_began_s > limits.frame_progress_s:
            return "a frame was begun and not finished"
        if now_s - channel.last_read_s > limits.idle_s:
            return f"idle for {limits.idle_s:.0f} s"
        return ""
