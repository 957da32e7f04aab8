"""The body of a batch send: messages one after the other, each with its own flag, body and properties.

RocketMQ: MessageDecoder.encodeMessage, decodeMessage(s); MessageExtEncoder.encode(MessageExtBatch).
"""

from librt.strings import BytesWriter, read_i16_be, read_i32_be, write_i16_be, write_i32_be
from mypy_extensions import i16, i32, i64

from aerobee.errors import InvalidArgumentError, RemoteProtocolError
from aerobee.hot.log.layout import (
    PART_BODY_POS,
    PART_BODY_SIZE_POS,
    PART_FIXED_SIZE,
    PART_FLAG_POS,
    PROPERTIES_LENGTH_SIZE,
    PROPERTIES_SIZE_MAX,
)


def encode_batch(parts: list[tuple[int, bytes, bytes]]) -> bytes:
    """Return the batch body of messages given as (flag, body, properties)."""
    out = BytesWriter()
    for flag, body, properties in parts:
        if not -0x80000000 <= flag <= 0x7FFFFFFF:
            raise InvalidArgumentError(f"flag {flag} does not fit 32 bits")
        if len(properties) > PROPERTIES_SIZE_MAX:
            raise InvalidArgumentError(f"properties of {len(properties)} bytes exceed {PROPERTIES_SIZE_MAX}")
        size = PART_FIXED_SIZE + len(body) + len(properties)
        if size > 0x7FFFFFFF:
            raise InvalidArgumentError(f"a message of {size} bytes does not fit a batch")
        write_i32_be(out, i32(size))
        write_i32_be(out, 0)
        write_i32_be(out, 0)
        write_i32_be(out, i32(flag))
        write_i32_be(out, i32(len(body)))
        out.write(body)
        write_i16_be(out, i16(len(properties)))
        out.write(properties)
    return out.getvalue()


def decode_batch(buf: bytes, count_max: int) -> list[tuple[int, bytes, bytes]]:
    """Return (flag, body, properties) of each message. Raises RemoteProtocolError for what is no batch body.

    Apache's broker goes by the inner lengths and does not read the total size. So this function accepts a wrong total
    size too.
    """
    parts: list[tuple[int, bytes, bytes]] = []
    pos: i64 = 0
    end: i64 = len(buf)
    while pos < end:
        if len(parts) >= count_max:
            raise RemoteProtocolError(f"a batch of more than {count_max} messages")
        if end - pos < PART_FIXED_SIZE:
            raise RemoteProtocolError(f"batch body ends inside message {len(parts)}")
        flag: i64 = i64(read_i32_be(buf, pos + PART_FLAG_POS))
        body_size: i64 = i64(read_i32_be(buf, pos + PART_BODY_SIZE_POS))
        body_at: i64 = pos + PART_BODY_POS
        if body_size < 0 or body_at + body_size + PROPERTIES_LENGTH_SIZE > end:
            raise RemoteProtocolError(f"batch message {len(parts)}: body of {body_size} bytes")
        properties_size: i64 = i64(read_i16_be(buf, body_at + body_size))
        properties_at: i64 = body_at + body_size + PROPERTIES_LENGTH_SIZE
        if properties_size < 0 or properties_at + properties_size > end:
            raise RemoteProtocolError(f"batch message {len(parts)}: properties of {properties_size} bytes")
        pos = properties_at + properties_size
        parts.append((flag, buf[body_at : body_at + body_size], buf[properties_at:pos]))
    return parts


def split_batch(sizes: list[int], bytes_max: int, count_max: int) -> list[tuple[int, int]]:
    """Return (first, end) indexes that cut messages into batches within both limits.

    Each of `sizes` is PART_FIXED_SIZE and the sizes of body and properties. Raises InvalidArgumentError for a message
    that is too large for any batch.
    """
    cuts: list[tuple[int, int]] = []
    begin = 0
    total: i64 = 0
    for i in range(len(sizes)):
        size: i64 = sizes[i]
        if size > bytes_max:
            raise InvalidArgumentError(f"message {i} of {size} bytes exceeds the batch limit of {bytes_max}")
        if i > begin and (total + size > bytes_max or i - begin >= count_max):
            cuts.append((begin, i))
            begin = i
            total = 0
        total += size
    if len(sizes) > begin:
        cuts.append((begin, len(sizes)))
    return cuts
