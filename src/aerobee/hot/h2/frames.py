"""Frames of HTTP/2 (RFC 9113, section 4): their heads, types, flags and error codes.

0  3  length of the payload
3  1  type
4  1  flags
5  4  stream, without its highest bit
9  .  payload
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_be

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_SIZE: Final = 9
# The largest payload that is received, and that is sent: the one that every peer accepts.
PAYLOAD_MAX: Final = 16_384
WINDOW: Final = 65_535
WINDOW_MAX: Final = 0x7FFFFFFF

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
HAS_PRIORITY: Final = 0x20

NO_ERROR: Final = 0
PROTOCOL_ERROR: Final = 1
INTERNAL_ERROR: Final = 2
FLOW_CONTROL_ERROR: Final = 3
SETTINGS_TIMEOUT: Final = 4
STREAM_CLOSED: Final = 5
FRAME_SIZE_ERROR: Final = 6
REFUSED_STREAM: Final = 7
CANCEL: Final = 8
COMPRESSION_ERROR: Final = 9
ENHANCE_YOUR_CALM: Final = 11

SET_HEADER_TABLE_SIZE: Final = 1
SET_ENABLE_PUSH: Final = 2
SET_MAX_CONCURRENT_STREAMS: Final = 3
SET_INITIAL_WINDOW_SIZE: Final = 4
SET_MAX_FRAME_SIZE: Final = 5
SET_MAX_HEADER_LIST_SIZE: Final = 6


def write_head(out: BytesWriter, size: int, kind: int, flags: int, stream: int) -> None:
    """Write the head of a frame."""
    write_i32_be(out, (size << 8) | kind)
    out.append(flags)
    write_i32_be(out, stream)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return one whole frame."""
    out = BytesWriter()
    write_head(out, len(payload), kind, flags, stream)
    out.write(payload)
    return out.getvalue()


def word(number: int) -> bytes:
    """Return four bytes."""
    return number.to_bytes(4, "big")
