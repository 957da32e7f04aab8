"""Compressed message bodies: zlib, LZ4 frame and Zstandard. Three bits of the sys flag say which.

The output is bounded while it is made: a small body that decompresses to gigabytes is refused after `size_max` bytes.
RocketMQ: CompressionType, ZlibCompressor, Lz4Compressor, ZstdCompressor.
"""

import enum
import zlib

import lz4.frame
import zstandard

from aerobee.errors import InvalidArgumentError, RemoteProtocolError
from aerobee.hot.log.layout import COMPRESSED, COMPRESSION_MASK

# The level of zlib and zstd streams.
LEVEL = 5
# The most bytes one message may decompress to when the caller names no limit: 16 times the largest message.
UNFOLDED_SIZE_MAX = 64 << 20


class CompressionType(enum.IntEnum):
    """The value in bits 8 to 10 of the sys flag; 0 is what senders before 5.0 wrote for zlib."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def flag(self) -> int:
        """The bits of the sys flag that mark a body compressed in this way."""
        return self.value << 8 | COMPRESSED


class DecompressionError(RemoteProtocolError):
    """A body is marked as compressed but cannot be decompressed within its bound."""


class UnfoldedTooLargeError(DecompressionError):
    """A body decompresses to more than there is room for."""


def compression_of(sys_flag: int) -> CompressionType | None:
    """Return how a body is compressed, or None when it is not."""
    if not sys_flag & COMPRESSED:
        return None
    value = (sys_flag & COMPRESSION_MASK) >> 8
    if value == 0:
        return CompressionType.ZLIB
    try:
        return CompressionType(value)
    except ValueError:
        raise DecompressionError(f"unknown compression type {value} in sys flag {sys_flag:#x}") from None


def parse_compression(name: str) -> CompressionType:
    """Return the type named LZ4, ZSTD or ZLIB, in any case. RocketMQ: CompressionType.of."""
    try:
        return CompressionType[name.strip().upper()]
    except KeyError:
        raise InvalidArgumentError(f"compression {name!r} is none of LZ4, ZSTD, ZLIB") from None


def compress(body: bytes, kind: CompressionType, level: int = LEVEL) -> bytes:
    """Compress a body. The caller sets `kind.flag` in the message's sys flag."""
    if kind is CompressionType.ZLIB:
        return zlib.compress(body, level)
    if kind is CompressionType.ZSTD:
        return zstandard.ZstdCompressor(level=level).compress(body)
    # Java's LZ4FrameOutputStream writes independent 4 MiB blocks and no content size.
    folded: bytes = lz4.frame.compress(
        body, block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False, store_size=False
    )
    return folded


def decompress(body: bytes, sys_flag: int, size_max: int = UNFOLDED_SIZE_MAX) -> bytes:
    """Return the body as it was before compression; return it unchanged when the flag says that it is plain."""
    kind = compression_of(sys_flag)
    if kind is None:
        return body
    try:
        if kind is CompressionType.ZLIB:
            plain, whole = _unzlib(body, size_max)
        elif kind is CompressionType.ZSTD:
            plain, whole = _unzstd(body, size_max)
        else:
            plain, whole = _unlz4(body, size_max)
    except (zlib.error, zstandard.ZstdError, RuntimeError, EOFError) as error:
        raise DecompressionError(f"the body is not {kind.name}: {error}") from error
    if len(plain) > size_max:
        raise UnfoldedTooLargeError(f"the body decompresses to more than {size_max} bytes")
    if not whole:
        raise DecompressionError(f"the {kind.name} body ends early")
    return plain


def opening(body: bytes, sys_flag: int, size: int) -> bytes:
    """Return the first bytes of a body as it was before compression, at most so many. No more than these are made.

    The beginning of a body that is not what its flag says is returned as it is stored.
    """
    try:
        kind = compression_of(sys_flag)
        if kind is None or not body or size <= 0:
            return body[:size]
        if kind is CompressionType.ZLIB:
            return zlib.decompressobj().decompress(body, size)
        if kind is CompressionType.ZSTD:
            return bytes(zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(body).read(size))
        return bytes(lz4.frame.LZ4FrameDecompressor().decompress(body, max_length=size))
    except (DecompressionError, zlib.error, zstandard.ZstdError, RuntimeError, EOFError):
        return body[:size]


def _unzlib(body: bytes, size_max: int) -> tuple[bytes, bool]:
    stream = zlib.decompressobj()
    # One byte above the bound tells "exactly full" from "more to come".
    plain = stream.decompress(body, size_max + 1)
    return plain, stream.eof


def _unlz4(body: bytes, size_max: int) -> tuple[bytes, bool]:
    stream = lz4.frame.LZ4FrameDecompressor()
    plain: bytes = stream.decompress(body, max_length=size_max + 1)
    return plain, bool(stream.eof)


def _unzstd(body: bytes, size_max: int) -> tuple[bytes, bool]:
    # A frame may ask for a window of gigabytes. zstd itself allows 2^27 by default.
    stream = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(body)
    pieces: list[bytes] = []
    total = 0
    while total <= size_max:
        piece = stream.read(min(1 << 20, size_max + 1 - total))
        if not piece:
            break
        pieces.append(piece)
        total += len(piece)
    return b"".join(pieces), _zstd_frame_ends(body)


def _zstd_frame_ends(body: bytes) -> bool:
    """Return whether the frame has its last block: the reader takes the end of input for the end of data."""
    checksum_size = 4 if zstandard.get_frame_parameters(body).has_checksum else 0
    at = zstandard.frame_header_size(body)
    while at + 3 <= len(body):
        # A block header is little-endian: last 1 bit, type 2 bits, size 21 bits. Type 1 repeats one byte.
        header = int.from_bytes(body[at : at + 3], "little")
        at += 3 + (1 if header >> 1 & 3 == 1 else header >> 3)
        if header & 1:
            return at + checksum_size <= len(body)
    return False
