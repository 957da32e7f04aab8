"""The server's side of one HTTP/2 connection (RFC 9113): bytes in, events and bytes out. It does no I/O.

What a peer may cost is bounded here. A header block has at most 16 KiB and four CONTINUATION frames; frames that ask
for work and bring none (resets, pings, settings, empty data) are counted by the second; a stream may send 64 KiB until
its owner asks for more, and all streams together at most 16 MiB beyond that; what waits for the peer's windows is
counted in `queued`. A peer that breaks a rule is told by GOAWAY, and `error` is set: the driver writes what is left and
closes.

Late frames of streams that this side has ended are passed over, as they may have been on their way.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_be
from mypy_extensions import i64

from aerobee.errors import RemoteProtocolError
from aerobee.hot.h2 import frames
from aerobee.hot.h2.frames import HEAD_SIZE, PAYLOAD_MAX, PREFACE, WINDOW, WINDOW_MAX, frame, word, write_head
from aerobee.hot.h2.hpack import ORDINARY, Field, HpackDecoder
from aerobee.protocol.http2streams import (
    CONNECTION_WINDOW,
    CONTINUATIONS_MAX,
    CUT,
    DATA,
    ENDED,
    EXTRA_MAX,
    HEADER_BYTES_MAX,
    IDLE_FRAMES_MAX,
    OPENED,
    PINGS_MAX,
    REFUSED_MAX,
    RESET,
    RESETS_MAX,
    SETTINGS_MAX,
    STREAMS_MAX,
    UPDATES_PER_DATA,
    Budget,
    Stream,
    StreamEvent,
    ViolationError,
    check_setting,
    is_request,
)

_CLOSED_KEPT: Final = 1_000


class Http2Connection:
    """The machine of one connection: `receive` takes bytes and returns events, `output` what is to be written."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.error: ViolationError | None = None
        self.streams: dict[int, Stream] = {}
        self.last_stream: int = 0
        # No stream above this number is served any more; -1 while all are.
        self.draining_from: int = -1
        # Bytes that wait for the peer's windows.
        self.queued: i64 = 0
        self._buffer: bytes = b""
        self._has_preface: bool = False
        self._has_settings: bool = False
        self._now_s: float = now_s
        self._events: list[StreamEvent] = []
        self._out: list[bytes] = []
        self._decoder = HpackDecoder(HEADER_BYTES_MAX)
        # An unfinished header block: its stream, flags, parts, size and number of CONTINUATION frames.
        self._block_stream: int = 0
        self._block_flags: int = 0
        self._block_depends_on_itself: bool = False
        self._block: list[bytes] = []
        self._block_size: i64 = 0
        self._continuations: int = 0
        self._send_window: i64 = WINDOW
        self._first_send_window: i64 = WINDOW
        self._receive_window: i64 = CONNECTION_WINDOW
        self._extra: i64 = 0
        # Streams that wait for the window of the connection, and those that want to receive more.
        self._blocked: dict[int, Stream] = {}
        self._wanting: dict[int, Stream] = {}
        self._closed: dict[int, int] = {}
        self._resets = Budget(RESETS_MAX, now_s)
        self._pings = Budget(PINGS_MAX, now_s)
        self._settings = Budget(SETTINGS_MAX, now_s)
        self._idle_frames = Budget(IDLE_FRAMES_MAX, now_s)
        self._refusals = Budget(REFUSED_MAX, now_s)
        settings = b"".join(
            number.to_bytes(2, "big") + word(value)
            for number, value in (
                (frames.SET_MAX_CONCURRENT_STREAMS, STREAMS_MAX),
                (frames.SET_MAX_HEADER_LIST_SIZE, HEADER_BYTES_MAX),
            )
        )
        self._out.append(frame(frames.SETTINGS, 0, 0, settings))
        self._out.append(frame(frames.WINDOW_UPDATE, 0, 0, word(CONNECTION_WINDOW - WINDOW)))

    # -- in

    def receive(self, data: bytes, now_s: float) -> list[StreamEvent]:
        """Take received bytes and return what they bring about. After an error nothing is read any more."""
        if self.error is not None:
            return []
        self._now_s = now_s
        try:
            self._receive(self._buffer + data if self._buffer else data)
        except ViolationError as violation:
            self._fail(violation)
        except RemoteProtocolError as error:
            self._fail(ViolationError(frames.COMPRESSION_ERROR, error.message))
        events, self._events = self._events, []
        return events

    def _fail(self, violation: ViolationError) -> None:
        self.error = violation
        self._buffer = b""
        self._block = []
        payload = word(self.last_stream) + word(violation.code) + violation.reason.encode()[:200]
        self._out.append(frame(frames.GOAWAY, 0, 0, payload))

    def _receive(self, data: bytes) -> None:
        size: i64 = len(data)
        at: i64 = 0
        if not self._has_preface:
            if not data.startswith(PREFACE):
                if PREFACE.startswith(data):
                    self._buffer = data
                    return
                raise ViolationError(frames.PROTOCOL_ERROR, "the connection does not begin as HTTP/2 does")
            self._has_preface = True
            at = len(PREFACE)
        while size - at >= HEAD_SIZE:
            first: i64 = i64(read_i32_be(data, at)) & 0xFFFFFFFF
            length: i64 = first >> 8
            kind: i64 = first & 0xFF
            if length > PAYLOAD_MAX:
                raise ViolationError(frames.FRAME_SIZE_ERROR, f"a frame of {length} bytes")
            start: i64 = at + HEAD_SIZE
            end: i64 = start + length
            if end > size:
                break
            flags: i64 = data[at + 4]
            number: i64 = i64(read_i32_be(data, at + 5)) & 0x7FFFFFFF
            self._on_frame(int(kind), int(flags), int(number), data[int(start) : int(end)])
            at = end
        self._buffer = data[int(at) :] if at < size else b""

    def _on_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._block_stream and (kind != frames.CONTINUATION or number != self._block_stream):
            raise ViolationError(frames.PROTOCOL_ERROR, "a header block is interrupted")
        if not self._has_settings:
            if kind != frames.SETTINGS or flags & frames.ACK:
                raise ViolationError(frames.PROTOCOL_ERROR, "the first frame is not SETTINGS")
            self._has_settings = True
        if kind == frames.DATA:
            self._on_data(flags, number, payload)
        elif kind == frames.HEADERS:
            self._on_headers(flags, number, payload)
        elif kind == frames.WINDOW_UPDATE:
            self._on_window_update(number, payload)
        elif kind == frames.SETTINGS:
            self._on_settings(flags, number, payload)
        elif kind == frames.PING:
            self._on_ping(flags, number, payload)
        elif kind == frames.RST_STREAM:
            self._on_reset(number, payload)
        elif kind == frames.CONTINUATION:
            self._on_continuation(flags, number, payload)
        else:
            self._on_rare(kind, number, payload)

    def _on_rare(self, kind: int, number: int, payload: bytes) -> None:
        self._spend_idle()
        if kind == frames.PRIORITY:
            if not number:
                raise ViolationError(frames.PROTOCOL_ERROR, "PRIORITY without a stream")
            if len(payload) != 5:
                raise ViolationError(frames.FRAME_SIZE_ERROR, "PRIORITY of a wrong size")
            if read_i32_be(payload, 0) & 0x7FFFFFFF == number:
                self._refuse(number, frames.PROTOCOL_ERROR)
        elif kind == frames.PUSH_PROMISE:
            raise ViolationError(frames.PROTOCOL_ERROR, "a client does not push")
        elif kind == frames.GOAWAY:
            if number:
                raise ViolationError(frames.PROTOCOL_ERROR, "GOAWAY of a stream")
            if len(payload) < 8:
                raise ViolationError(frames.FRAME_SIZE_ERROR, "a short GOAWAY")

    def _spend_idle(self) -> None:
        if not self._idle_frames.spend(self._now_s):
            raise ViolationError(frames.ENHANCE_YOUR_CALM, "too many frames without work")

    # -- requests

    def _unpadded(self, flags: int, payload: bytes) -> bytes:
        if not flags & frames.PADDED:
            return payload
        if not payload or payload[0] >= len(payload):
            raise ViolationError(frames.PROTOCOL_ERROR, "more padding than payload")
        return payload[1 : len(payload) - payload[0]]

    def _on_data(self, flags: int, number: int, payload: bytes) -> None:
        if not number or (number > self.last_stream and not self._is_drained(number)):
            raise ViolationError(frames.PROTOCOL_ERROR, "DATA of a stream that was not opened")
        size: i64 = len(payload)
        self._receive_window -= size
        if self._receive_window < 0:
            raise ViolationError(frames.FLOW_CONTROL_ERROR, "more data than the connection's window")
        if self._receive_window < CONNECTION_WINDOW // 2:
            self._out.append(frame(frames.WINDOW_UPDATE, 0, 0, word(CONNECTION_WINDOW - self._receive_window)))
            self._receive_window = CONNECTION_WINDOW
        data = self._unpadded(flags, payload)
        if not data and not flags & frames.END_STREAM:
            self._spend_idle()
        stream = self.streams.get(number)
        if stream is None or stream.has_ended:
            self._late(number, stream)
            return
        stream.receive_window -= size
        if stream.receive_window < 0:
            self.reset(stream, frames.FLOW_CONTROL_ERROR)
            return
        stream.received += len(data)
        if flags & frames.END_STREAM:
            stream.has_ended = True
            if stream.announced >= 0 and stream.received != stream.announced:
                self._malformed(stream)
                return
        elif stream.announced >= 0 and stream.received > stream.announced:
            self._malformed(stream)
            return
        self._events.append(StreamEvent(DATA, stream, data))

    def _late(self, number: int, stream: Stream | None) -> None:
        """Answer data of a stream that has ended, unless this side ended it."""
        self._spend_idle()
        if stream is not None:
            self.reset(stream, frames.STREAM_CLOSED)
            self._events.append(StreamEvent(RESET, stream, b"", frames.STREAM_CLOSED))
        elif self._closed.get(number) != CUT and not self._is_drained(number):
            self._refuse(number, frames.STREAM_CLOSED)

    def _malformed(self, stream: Stream) -> None:
        self.reset(stream, frames.PROTOCOL_ERROR)
        self._events.append(StreamEvent(RESET, stream, b"", frames.PROTOCOL_ERROR))

    def _on_headers(self, flags: int, number: int, payload: bytes) -> None:
        if number & 1 == 0:
            raise ViolationError(frames.PROTOCOL_ERROR, "HEADERS of a stream that no client opens")
        block = self._unpadded(flags, payload)
        self._block_depends_on_itself = False
        if flags & frames.HAS_PRIORITY:
            if len(block) < 5:
                raise ViolationError(frames.FRAME_SIZE_ERROR, "HEADERS too short for their priority")
            self._block_depends_on_itself = read_i32_be(block, 0) & 0x7FFFFFFF == number
            block = block[5:]
        if flags & frames.END_HEADERS:
            self._on_block(number, flags, block)
            return
        self._block_stream, self._block_flags, self._block = number, flags, [block]
        self._block_size = len(block)
        self._continuations = 0

    def _on_continuation(self, flags: int, number: int, payload: bytes) -> None:
        if not self._block_stream:
            raise ViolationError(frames.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._continuations += 1
        self._block_size += len(payload)
        if self._continuations > CONTINUATIONS_MAX or self._block_size > HEADER_BYTES_MAX + PAYLOAD_MAX:
            raise ViolationError(frames.ENHANCE_YOUR_CALM, "too large a header block")
        self._block.append(payload)
        if flags & frames.END_HEADERS:
            block, self._block = b"".join(self._block), []
            self._block_stream = 0
            self._on_block(number, self._block_flags, block)

    def _on_block(self, number: int, flags: int, block: bytes) -> None:
        """Take a whole header block. It is decoded in any case: the table of the decoder is that of the peer."""
        fields = self._decoder.decode(block)
        if number <= self.last_stream:
            self._on_trailers(number, flags, fields)
            return
        if self._is_drained(number):
            return
        self.last_stream = number
        if self._block_depends_on_itself:
            self._refuse(number, frames.PROTOCOL_ERROR)
            return
        if len(self.streams) >= STREAMS_MAX:
            if not self._refusals.spend(self._now_s):
                raise ViolationError(frames.ENHANCE_YOUR_CALM, "too many streams")
            self._refuse(number, frames.REFUSED_STREAM)
            return
        stream = Stream(number, self._first_send_window)
        stream.fields = fields
        stream.is_too_large = self._decoder.is_too_large
        stream.has_ended = flags & frames.END_STREAM != 0
        if not stream.is_too_large and not is_request(stream):
            self._refuse(number, frames.PROTOCOL_ERROR)
            return
        self.streams[number] = stream
        self._events.append(StreamEvent(OPENED, stream))

    def _on_trailers(self, number: int, flags: int, fields: list[Field]) -> None:
        stream = self.streams.get(number)
        if stream is None:
            how = self._closed.get(number, 0)
            if how == CUT:
                return
            if how == ENDED:
                raise ViolationError(frames.STREAM_CLOSED, "HEADERS of a stream that has ended")
            raise ViolationError(frames.PROTOCOL_ERROR, "streams are opened in the order of their numbers")
        if stream.has_ended:
            self._late(number, stream)
            return
        is_plain = all(one.kind == ORDINARY for one in fields)
        if not flags & frames.END_STREAM or not is_plain or 0 <= stream.announced != stream.received:
            self._malformed(stream)
            return
        stream.has_ended = True
        self._events.append(StreamEvent(DATA, stream))

    def _is_drained(self, number: int) -> bool:
        return 0 <= self.draining_from < number

    # -- the rest of what comes

    def _on_reset(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ViolationError(frames.FRAME_SIZE_ERROR, "RST_STREAM of a wrong size")
        if not number or (number > self.last_stream and not self._is_drained(number)):
            raise ViolationError(frames.PROTOCOL_ERROR, "RST_STREAM of a stream that was not opened")
        if not self._resets.spend(self._now_s):
            raise ViolationError(frames.ENHANCE_YOUR_CALM, "too many resets")
        stream = self.streams.get(number)
        if stream is not None:
            self._end(stream, ENDED)
            self._events.append(StreamEvent(RESET, stream, b"", read_i32_be(payload, 0) & 0xFFFF))

    def _on_ping(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise ViolationError(frames.PROTOCOL_ERROR, "PING of a stream")
        if len(payload) != 8:
            raise ViolationError(frames.FRAME_SIZE_ERROR, "PING of a wrong size")
        if not self._pings.spend(self._now_s):
            raise ViolationError(frames.ENHANCE_YOUR_CALM, "too many pings")
        if not flags & frames.ACK:
            self._out.append(frame(frames.PING, frames.ACK, 0, payload))

    def _on_settings(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise ViolationError(frames.PROTOCOL_ERROR, "SETTINGS of a stream")
        if len(payload) % 6 or (flags & frames.ACK and payload):
            raise ViolationError(frames.FRAME_SIZE_ERROR, "SETTINGS of a wrong size")
        if not self._settings.spend(self._now_s):
            raise ViolationError(frames.ENHANCE_YOUR_CALM, "too many settings")
        if flags & frames.ACK:
            return
        first_window: i64 = -1
        for at in range(0, len(payload), 6):
            name, value = (payload[at] << 8) | payload[at + 1], i64(read_i32_be(payload, at + 2)) & 0xFFFFFFFF
            if name == frames.SET_INITIAL_WINDOW_SIZE:
                first_window = value
            check_setting(name, value)
        if first_window >= 0:
            # The last one of a frame counts: a frame has room for 2,730, and each would change every stream.
            self._change_windows(first_window)
        self._out.append(frame(frames.SETTINGS, frames.ACK, 0))
        self._pump_all()

    def _change_windows(self, first: i64) -> None:
        change: i64 = first - self._first_send_window
        self._first_send_window = first
        for stream in self.streams.values():
            stream.send_window += change
            if stream.send_window > WINDOW_MAX:
                raise ViolationError(frames.FLOW_CONTROL_ERROR, "a window grows too large")
            if stream.out_size and stream.send_window > 0:
                self._blocked[stream.number] = stream

    def _on_window_update(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ViolationError(frames.FRAME_SIZE_ERROR, "WINDOW_UPDATE of a wrong size")
        if number > self.last_stream and not self._is_drained(number):
            raise ViolationError(frames.PROTOCOL_ERROR, "WINDOW_UPDATE of a stream that was not opened")
        self._spend_idle()
        size: i64 = i64(read_i32_be(payload, 0)) & WINDOW_MAX
        if not number:
            self._send_window += size
            if not size:
                raise ViolationError(frames.PROTOCOL_ERROR, "WINDOW_UPDATE by nothing")
            if self._send_window > WINDOW_MAX:
                raise ViolationError(frames.FLOW_CONTROL_ERROR, "the window of the connection is too large")
            self._pump_all()
            return
        stream = self.streams.get(number)
        if stream is None:
            return
        stream.send_window += size
        if not size or stream.send_window > WINDOW_MAX:
            code = frames.FLOW_CONTROL_ERROR if size else frames.PROTOCOL_ERROR
            self.reset(stream, code)
            self._events.append(StreamEvent(RESET, stream, b"", code))
        else:
            self._pump(stream)

    # -- windows for what is received

    def want(self, stream: Stream, size: int) -> None:
        """Let the peer send `size` bytes more on a stream, now or when others have finished."""
        stream.wanted = size
        if stream.receive_window < size and not (stream.is_closed or stream.has_ended):
            self._wanting[stream.number] = stream
            self._grant()

    def _grant(self) -> None:
        while self._wanting:
            stream = next(iter(self._wanting.values()))
            missing: i64 = stream.wanted - stream.receive_window
            if self._extra and self._extra + missing > EXTRA_MAX:
                return
            del self._wanting[stream.number]
            if missing <= 0:
                continue
            stream.extra += missing
            self._extra += missing
            stream.receive_window += missing
            self._out.append(frame(frames.WINDOW_UPDATE, 0, stream.number, word(missing)))

    def consumed(self, stream: Stream) -> None:
        """Take back what a stream got beyond its first window: its owner has no unfinished message of it."""
        self._give_back(stream)
        if not (stream.is_closed or stream.has_ended) and stream.receive_window < WINDOW // 2:
            missing: i64 = WINDOW - stream.receive_window
            stream.receive_window = WINDOW
            self._out.append(frame(frames.WINDOW_UPDATE, 0, stream.number, word(missing)))

    def _give_back(self, stream: Stream) -> None:
        if stream.extra or stream.wanted:
            self._extra -= stream.extra
            stream.extra = stream.wanted = 0
            self._wanting.pop(stream.number, None)
            if self._wanting:
                self._grant()

    # -- out

    def output(self) -> bytes:
        """Return the bytes that are to be written now."""
        out = self._out
        if not out:
            return b""
        self._out = []
        return out[0] if len(out) == 1 else b"".join(out)

    def send_headers(self, stream: Stream, block: bytes, *, ends: bool = False) -> None:
        """Send a header block, the first of an answer. It has at most 16 KiB."""
        if stream.is_closed:
            return
        flags = frames.END_HEADERS | (frames.END_STREAM if ends else 0)
        self._out.append(frame(frames.HEADERS, flags, stream.number, block))
        if ends:
            self._finish(stream)

    def send_data(self, stream: Stream, data: bytes, *, ends: bool = False, trailers: bytes = b"") -> None:
        """Send data, and end the answer with `ends` or `trailers` (a header block). What does not fit the peer's
        windows waits."""
        if stream.is_closed or stream.ends:
            return
        size: i64 = len(data)
        if size:
            stream.out.append(data)
            stream.out_size += size
            self.queued += size
        stream.ends = ends or bool(trailers)
        stream.trailers = trailers
        self._pump(stream)

    def answer(self, stream: Stream, head: bytes, data: bytes, trailers: bytes) -> None:
        """Send a whole answer: head, data and trailers."""
        size: i64 = len(data)
        if stream.is_closed:
            return
        if size > PAYLOAD_MAX or size > stream.send_window or size > self._send_window or self._blocked:
            self.send_headers(stream, head)
            self.send_data(stream, data, trailers=trailers)
            return
        number = stream.number
        self._send_window -= size
        out = BytesWriter()
        write_head(out, len(head), frames.HEADERS, frames.END_HEADERS, number)
        out.write(head)
        write_head(out, len(data), frames.DATA, 0, number)
        out.write(data)
        write_head(out, len(trailers), frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, number)
        out.write(trailers)
        self._out.append(out.getvalue())
        self._earn()
        self._finish(stream)

    def _earn(self) -> None:
        self._idle_frames.earn(UPDATES_PER_DATA)
        self._pings.earn(1)

    def _pump(self, stream: Stream) -> None:
        """Send what fits both windows."""
        while stream.out:
            piece = stream.out[0]
            left: i64 = len(piece) - stream.out_at
            size: i64 = min(left, stream.send_window, self._send_window, PAYLOAD_MAX)
            if size <= 0:
                break
            is_last = stream.ends and not stream.trailers and size == stream.out_size
            whole = size == left and not stream.out_at
            part = piece if whole else piece[stream.out_at : stream.out_at + size]
            self._out.append(frame(frames.DATA, frames.END_STREAM if is_last else 0, stream.number, part))
            self._earn()
            stream.send_window -= size
            self._send_window -= size
            stream.out_size -= size
            self.queued -= size
            stream.out_at += size
            if size == left:
                stream.out.pop(0)
                stream.out_at = 0
            if is_last:
                self._finish(stream)
                return
        if stream.out:
            if stream.send_window > 0:
                self._blocked[stream.number] = stream
            else:
                self._blocked.pop(stream.number, None)
            return
        self._blocked.pop(stream.number, None)
        if stream.ends and not stream.is_closed:
            kind, flags = (frames.HEADERS, frames.END_HEADERS) if stream.trailers else (frames.DATA, 0)
            self._out.append(frame(kind, flags | frames.END_STREAM, stream.number, stream.trailers))
            self._finish(stream)

    def _pump_all(self) -> None:
        if self._blocked and self._send_window > 0:
            for stream in list(self._blocked.values()):
                if self._send_window <= 0:
                    break
                self._pump(stream)

    # -- ends

    def _finish(self, stream: Stream) -> None:
        """Close a stream whose answer was sent whole."""
        self._resets.earn(1)
        if stream.has_ended:
            self._end(stream, ENDED)
        else:
            # The peer need not send the rest of its request.
            self._out.append(frame(frames.RST_STREAM, 0, stream.number, word(frames.NO_ERROR)))
            self._end(stream, CUT)

    def _end(self, stream: Stream, how: int) -> None:
        if stream.is_closed:
            return
        stream.is_closed = True
        self.queued -= stream.out_size
        stream.out = []
        stream.out_size = 0
        self._give_back(stream)
        self._blocked.pop(stream.number, None)
        self.streams.pop(stream.number, None)
        self._remember(stream.number, how)

    def _remember(self, number: int, how: int) -> None:
        self._closed[number] = how
        if len(self._closed) > 2 * _CLOSED_KEPT:
            for old in list(self._closed)[:_CLOSED_KEPT]:
                del self._closed[old]

    def reset(self, stream: Stream, code: int) -> None:
        """End a stream at once."""
        if not stream.is_closed:
            self._out.append(frame(frames.RST_STREAM, 0, stream.number, word(code)))
            self._end(stream, CUT)

    def _refuse(self, number: int, code: int) -> None:
        """End a stream that nobody was told of."""
        stream = self.streams.get(number)
        if stream is not None:
            self._malformed(stream)
            return
        self._out.append(frame(frames.RST_STREAM, 0, number, word(code)))
        self._remember(number, CUT if number > self.last_stream or code != frames.STREAM_CLOSED else ENDED)

    def drain(self) -> None:
        """Tell the peer that no further request is taken. Those under way are answered."""
        if self.draining_from < 0:
            self.draining_from = self.last_stream
            self._out.append(frame(frames.GOAWAY, 0, 0, word(self.last_stream) + word(frames.NO_ERROR)))
