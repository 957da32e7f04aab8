"""The client's side of one connection to a server: answers are matched to requests by their opaque number."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Final, cast

from aerobee.errors import (
    AerobeeError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeoutError,
    TransportError,
)
from aerobee.hot.wire.frame import Frame
from aerobee.protocol.codes import FLAG_RESPONSE, ResponseCode
from aerobee.protocol.command import Command, decode_command, encode_command, response
from aerobee.protocol.connection import Connection
from aerobee.runtime.tls import tls_words
from aerobee.telemetry.stdlog import get_log

PushHandler = Callable[["Link", Command], Command | None]
Answered = Callable[[Command | AerobeeError], None]
# Takes an answer as it came, or the reason why there is none.
FrameAnswered = Callable[[Frame | AerobeeError], None]

# So many sweeps without the answer to the oldest post make a server silent.
_SILENT_SWEEPS: Final = 5
_NEVER: Final = float("inf")

_log = get_log("net.client")


class Link:
    """The client's side of one connection to a server. It has the methods of an asyncio.Protocol but is no subclass, so
    that mypyc can compile it."""

    def __init__(self, address: str, pushed: Mapping[int, PushHandler], on_lost: Callable[[Link], None]) -> None:
        self.address = address
        self.closed = False
        self._pushed = pushed
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._machine = Connection()
        self._out: list[bytes] = []
        # By opaque: the deadline (in loop time) and the function to call.
        self._waiting: dict[int, tuple[float, Answered]] = {}
        self._frames: dict[int, tuple[float, FrameAnswered]] = {}
        # The oldest post at the last sweep, and at how many sweeps it was the oldest.
        self._oldest: int | None = None
        self._sweeps = 0
        # Set once the transport is gone.
        self.lost = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        machine = self._machine
        try:
            frames = self._frames
            for frame in machine.receive_frames(data):
                posted = frames.pop(frame.opaque, None) if frames and frame.flag & FLAG_RESPONSE else None
                if posted is not None:
                    posted[1](frame)
                else:
                    self._received(decode_command(frame))
        except RemoteProtocolError as error:
            machine.fail(error)
        if machine.error is not None:
            _log.warning(
                "connection closed: not the remoting protocol", server=self.address, reason=machine.error.message
            )
            self.abort()

    def _received(self, command: Command) -> None:
        if command.is_response:
            waiting = self._waiting.pop(command.opaque, None)
            if waiting is not None:
                waiting[1](command)
            return
        handler = self._pushed.get(command.code)
        if handler is None:
            remark = f" request type {command.code} not supported"
            answer: Command | None = response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        else:
            try:
                answer = handler(self, command)
            except AerobeeError as error:
                answer = response(command, error.code or ResponseCode.SYSTEM_ERROR, remark=error.message)
        if answer is not None and not command.is_oneway:
            self.write(encode_command(answer))

    def eof_received(self) -> None:
        """Return None, so that the transport closes: the server will send nothing more."""

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._transport = None
        self._writable.set()
        self.lost.set()
        self._on_lost(self)
        # With TLS 1.3 a server asks for the client's certificate only after the handshake.
        why = f": TLS: {tls_words(exc)}" if isinstance(exc, ssl.SSLError) else ""
        self._fail(lambda: TransportError(f"connection to {self.address} was lost{why}", broker=self.address))

    def _fail(self, why: Callable[[], AerobeeError]) -> None:
        """Tell everybody who waits for an answer why there is none."""
        waiting, self._waiting = self._waiting, {}
        for _, answered in waiting.values():
            answered(why())
        frames, self._frames = self._frames, {}
        for _, taken in frames.values():
            taken(why())

    def give_up(self, words: str) -> None:
        """End the connection to a server that does not answer. Everybody who waits hears that in these words."""
        self._fail(lambda: RequestTimeoutError(words, broker=self.address))
        self.abort()

    def write(self, frame: bytes) -> None:
        """Queue one frame. All frames that are queued in a tick leave in one write."""
        if self.closed:
            raise TransportError(f"connection to {self.address} is closed", broker=self.address)
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and out:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    async def drain(self) -> None:
        """Wait until the server reads again."""
        await self._writable.wait()

    @property
    def writable(self) -> bool:
        """Whether the server reads what was written."""
        return self._writable.is_set()

    def post(self, opaque: int, frame: bytes, deadline_s: float, answered: Answered) -> None:
        """Write a request. Call `answered` with the answer, or with the reason why there is none. `deadline_s` is
        loop time."""
        if opaque in self._waiting:
            raise LocalProtocolError(f"opaque {opaque} is already in use")
        self.write(frame)
        self._waiting[opaque] = (deadline_s, answered)

    def post_frame(self, opaque: int, frame: bytes, deadline_s: float, answered: FrameAnswered) -> None:
        """Write a request as `post` does. Call `answered` with the frame of the answer, which nobody has decoded."""
        self.write(frame)
        self._frames[opaque] = (deadline_s, answered)

    def expect(self, opaque: int) -> asyncio.Future[Command]:
        """Return a future for the answer to `opaque`. Whoever stops waiting must call `forget`."""
        if opaque in self._waiting:
            raise LocalProtocolError(f"opaque {opaque} is already in use")
        future: asyncio.Future[Command] = self._loop.create_future()

        def answered(answer: Command | AerobeeError) -> None:
            if future.done():
                return
            if isinstance(answer, AerobeeError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        self._waiting[opaque] = (_NEVER, answered)
        return future

    def expire(self, now_s: float) -> None:
        """Tell the posts whose deadline has passed."""
        late = [opaque for opaque, waiting in self._waiting.items() if waiting[0] <= now_s]
        for opaque in late:
            answered = self._waiting.pop(opaque)[1]
            answered(RequestTimeoutError("no answer in time", broker=self.address))
        for opaque in [opaque for opaque, waiting in self._frames.items() if waiting[0] <= now_s]:
            self._frames.pop(opaque)[1](RequestTimeoutError("no answer in time", broker=self.address))

    def is_silent(self) -> bool:
        """Tell whether a post waits for its answer since some sweeps. Each call is a sweep.

        Other requests do not count: a pull is held for long at a server that is well.
        """
        oldest = next((opaque for opaque, waiting in self._waiting.items() if waiting[0] < _NEVER), None)
        if oldest is None:
            oldest = next(iter(self._frames), None)
        self._sweeps = self._sweeps + 1 if oldest is not None and oldest == self._oldest else 0
        self._oldest = oldest
        return self._sweeps >= _SILENT_SWEEPS

    def forget(self, opaque: int) -> None:
        self._waiting.pop(opaque, None)

    def close(self) -> None:
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
