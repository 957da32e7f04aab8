"""The connection machine: it takes received bytes in any chunks and returns frames or commands, until an error."""

from __future__ import annotations

from aerobee.errors import RemoteProtocolError
from aerobee.hot.wire.frame import Frame, bytes_needed, scan
from aerobee.protocol.command import Command, decode_command


class Connection:
    """The receiving half of one connection.

    A call still returns the frames before a bad one. Then `error` is set, and each further call raises it.
    The driver closes the connection when a call raises or has set `error`.
    """

    __slots__ = ("_chunks", "_held", "_needed", "error")

    def __init__(self) -> None:
        self.error: RemoteProtocolError | None = None
        # Chunks of a frame that is not whole yet. They are joined once, when the frame is whole.
        self._chunks: list[bytes] = []
        self._held = 0
        self._needed = 8

    @property
    def held(self) -> int:
        """Return how many received bytes are part of a frame that is not whole yet."""
        return self._held

    def receive_frames(self, data: bytes) -> list[Frame]:
        """Return all frames that are whole now. Of a JSON header only code, opaque and flag have been read."""
        if self.error is not None:
            raise self.error
        if self._held:
            self._chunks.append(data)
            self._held += len(data)
            if self._held < self._needed and self._needed > 8:
                return []
            data = b"".join(self._chunks)
        frames, end, problem = scan(data, 0)
        if problem:
            self._fail(RemoteProtocolError(problem), bool(frames))
            return frames
        self._held = len(data) - end
        self._chunks = [data[end:] if end else data] if self._held else []
        self._needed = bytes_needed(data, end) if self._held else 8
        return frames

    def receive_data(self, data: bytes) -> list[Command]:
        """Return all commands that are whole now."""
        commands: list[Command] = []
        for frame in self.receive_frames(data):
            try:
                commands.append(decode_command(frame))
            except RemoteProtocolError as problem:
                self._fail(problem, bool(commands))
                break
        return commands

    def fail(self, error: RemoteProtocolError) -> None:
        """Set the error that decoding a frame raised. No further bytes are then read."""
        # The traceback would keep this machine and the decoded values alive until a garbage collection.
        error.__context__ = None
        self.error = error.with_traceback(None)
        self._chunks = []
        self._held = 0

    def _fail(self, error: RemoteProtocolError, given: bool) -> None:
        self.fail(error)
        if not given:
            raise error
