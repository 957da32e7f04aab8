"""Arrow arrays made from many small pieces of a buffer, as sound UTF-8 and without an object for each piece."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view

from aerobee.model.numbers import INT32_MAX, plain_int
from pyspark_rocketmq.columns.rows import Bytes, Ints, Mask

_GATHERED_SIZE_MAX: Final = 24
_EQUAL_SIZE_MAX: Final = 64
# From so many pieces on, Arrow takes them. For fewer, the import of its functions costs more than it saves.
_TAKEN_COUNT_MIN: Final = 512
# Up to about this size, a slice that is a copy is faster to make than one that is a view.
_COPIED_SIZE_MAX: Final = 512


def offsets_of(sizes: Ints) -> Ints:
    """Return Arrow's offsets: 0, then the running sum."""
    result = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=result[1:])
    return result


def gather(buf: bytes, at: Ints, sizes: Ints) -> bytes:
    """Return the pieces joined. Short pieces are copied through an index of their bytes, long ones by slices."""
    found: Bytes
    if not len(at):
        return b""
    total = plain_int(sizes.sum())
    width = plain_int(sizes[0])
    if 0 < width <= _EQUAL_SIZE_MAX and total == width * len(at) and (sizes == width).all():
        found = sliding_window_view(np.frombuffer(buf, np.uint8), width)[at]
        return found.tobytes()
    if total <= _GATHERED_SIZE_MAX * len(at):
        starts = np.cumsum(sizes) - sizes
        index = np.repeat(at - starts, sizes)
        index += np.arange(total)
        found = np.frombuffer(buf, np.uint8)[index]
        return found.tobytes()
    view = buf if total <= _COPIED_SIZE_MAX * len(at) else memoryview(buf)
    return b"".join([view[start:stop] for start, stop in zip(at.tolist(), (at + sizes).tolist(), strict=True)])


def binary_at(buf: bytes, at: Ints, sizes: Ints) -> pa.Array:
    """Return the BINARY array of pieces of a buffer."""
    count, ends = len(at), at + sizes
    if count < _TAKEN_COUNT_MIN or len(buf) > INT32_MAX or (at[1:] < ends[:-1]).any():
        return binary_array(gather(buf, at, sizes), sizes)
    # The buffer as an array of the pieces and of what lies between them. Arrow takes every other element of it.
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[:-1:2], offsets[1::2], offsets[-1] = at, ends, ends[-1]
    whole = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(buf)])
    return whole.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def binary_array(data: bytes, sizes: Ints, validity: Mask | None = None) -> pa.Array:
    """Return joined pieces as a BINARY array."""
    return _array(pa.binary(), data, sizes, validity)


def string_array(data: bytes, sizes: Ints, validity: Mask | None = None) -> pa.Array:
    """Return joined pieces as a STRING array. Bytes that are no UTF-8 become U+FFFD, as in `Message`."""
    if not data.isascii() and not _is_sound(data, sizes):
        ends = np.cumsum(sizes)
        pieces = [
            data[start:stop].decode("utf-8", "replace").encode()
            for start, stop in zip((ends - sizes).tolist(), ends.tolist(), strict=True)
        ]
        data, sizes = b"".join(pieces), np.array([len(piece) for piece in pieces], np.int64)
    return _array(pa.string(), data, sizes, validity)


def strings_at(buf: bytes, at: Ints, sizes: Ints, validity: Mask | None = None) -> pa.Array:
    """Return the STRING array of pieces of a buffer. The size must be 0 where `validity` is False."""
    return string_array(gather(buf, at, sizes), sizes, validity)


def _is_sound(data: bytes, sizes: Ints) -> bool:
    """Tell whether every piece is UTF-8: the whole must be, and no piece may begin inside a character."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    ends = np.cumsum(sizes)
    starts = (ends - sizes)[sizes > 0]
    first: Bytes = np.frombuffer(data, np.uint8)[starts]
    return not bool(((first & 0xC0) == 0x80).any())


def _array(kind: pa.DataType, data: bytes, sizes: Ints, validity: Mask | None) -> pa.Array:
    offsets = offsets_of(sizes).astype(np.int32)
    bitmap = None
    if validity is not None and not validity.all():
        bitmap = pa.py_buffer(np.packbits(validity, bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, len(sizes), [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)])
