"""Streams of HTTP/2 and what is counted of a peer: the values that the connection of `http2` works with."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from aerobee.hot.h2 import frames
from aerobee.hot.h2.frames import WINDOW
from aerobee.hot.h2.hpack import BAD_NAME, CONTENT_LENGTH, ORDINARY, PATH, STATUS, TE, Field
from aerobee.model.numbers import int_or

STREAMS_MAX: Final = 1_000
HEADER_BYTES_MAX: Final = 16_384
CONTINUATIONS_MAX: Final = 4
# Windows: of the connection, and what all streams together get beyond their first 64 KiB.
CONNECTION_WINDOW: Final = 16 << 20
EXTRA_MAX: Final = 16 << 20

# Frames without work behind them, by the second; the same number may come at once.
RESETS_MAX: Final = 100
PINGS_MAX: Final = 100
SETTINGS_MAX: Final = 100
IDLE_FRAMES_MAX: Final = 1_000
REFUSED_MAX: Final = 1_000
# A peer may answer each frame of data with updates of both windows.
UPDATES_PER_DATA: Final = 3

OPENED: Final = 0
DATA: Final = 1
RESET: Final = 2

# How a stream ended: by the rules, or by a reset of this side, after which late frames may come.
ENDED: Final = 1
CUT: Final = 2


class ViolationError(Exception):
    """The peer broke a rule of the connection."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Stream:
    """One request and its answer."""

    def __init__(self, number: int, send_window: i64) -> None:
        self.number: int = number
        self.fields: list[Field] = []
        # Whether its header fields were more than is taken. They are not complete then.
        self.is_too_large: bool = False
        # Whether the peer has sent everything.
        self.has_ended: bool = False
        self.is_closed: bool = False
        # What belongs to the stream; the owner of the connection sets it.
        self.call: object = None
        self.send_window: i64 = send_window
        self.receive_window: i64 = WINDOW
        # Bytes granted beyond the first window, and how many more are wanted.
        self.extra: i64 = 0
        self.wanted: i64 = 0
        # The content-length that the peer announced, -1 without one, and what came.
        self.announced: i64 = -1
        self.received: i64 = 0
        # What waits for a window. `out_at` is the position in the first piece.
        self.out: list[bytes] = []
        self.out_at: i64 = 0
        self.out_size: i64 = 0
        self.ends: bool = False
        self.trailers: bytes = b""


class StreamEvent:
    """What happened to a stream: it was OPENED, brought DATA, or was RESET. `code` is the reason of a reset."""

    def __init__(self, kind: int, stream: Stream, data: bytes = b"", code: int = 0) -> None:
        self.kind: int = kind
        self.stream: Stream = stream
        self.data: bytes = data
        self.code: int = code
        # Whether the peer had sent everything when this happened: later frames may have been read already.
        self.ended: bool = stream.has_ended


class Budget:
    """How many frames of a kind may still come: so many by the second, and more where they were earned."""

    def __init__(self, per_s: int, now_s: float) -> None:
        self._per_s: float = per_s * 1.0
        self._left: float = self._per_s
        self._at_s: float = now_s

    def earn(self, count: int) -> None:
        self._left += count

    def spend(self, now_s: float) -> bool:
        """Take one; return whether there was one left."""
        self._left -= 1.0
        if self._left >= 0.0:
            return True
        fresh = min((now_s - self._at_s) * self._per_s, self._per_s)
        self._at_s = now_s
        if fresh < 1.0:
            return False
        self._left = fresh - 1.0
        return True


def check_setting(name: int, value: i64) -> None:
    """Raise ViolationError for a setting with a value that it cannot have. RFC 9113, section 6.5.2."""
    if name == frames.SET_INITIAL_WINDOW_SIZE:
        if value > frames.WINDOW_MAX:
            raise ViolationError(frames.FLOW_CONTROL_ERROR, f"a window of {value} bytes")
    elif name == frames.SET_MAX_FRAME_SIZE:
        if not frames.PAYLOAD_MAX <= value <= 0xFFFFFF:
            raise ViolationError(frames.PROTOCOL_ERROR, f"frames of {value} bytes")
    elif name == frames.SET_ENABLE_PUSH and value > 1:
        raise ViolationError(frames.PROTOCOL_ERROR, "ENABLE_PUSH is 0 or 1")


def is_request(stream: Stream) -> bool:
    """Tell whether the fields are those of a request. RFC 9113, sections 8.2 and 8.3."""
    seen = 0
    is_ordinary = False
    for field in stream.fields:
        kind = field.kind
        if kind == ORDINARY:
            is_ordinary = True
        elif kind < STATUS:
            bit = 1 << kind
            if is_ordinary or seen & bit or (kind == PATH and not field.value):
                return False
            seen |= bit
        elif kind == CONTENT_LENGTH:
            is_ordinary = True
            stream.announced = int_or(field.value.decode("latin-1"), -2, 0, 1 << 40)
            if stream.announced == -2 or (stream.has_ended and stream.announced > 0):
                return False
        elif kind >= BAD_NAME and not (kind == TE and field.value == b"trailers"):
            return False
        elif kind == STATUS:
            return False
        else:
            is_ordinary = True
    # :method, :scheme and :path.
    return seen & 0b1110 == 0b1110
