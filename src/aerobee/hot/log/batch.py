"""The body of a batch send: messages laid end to end, each with its own flag, body and properties.

    total size 4, magic 4 (0), body CRC 4 (0), flag 4, body length 4, body, properties length 2, properties

RocketMQ: MessageDecoder.encodeMessage, decodeMessage(s); MessageExtEncoder.encode(MessageExtBatch).
"""

from librt.strings import BytesWriter, read_i16_be, read_i32_be, write_i16_be, write_i32_be
from mypy_extensions import i16, i32, i64

from aerobee.errors import InvalidArgumentError, RemoteProtocolError
from aerobee.hot.log.layout import PART_FIXED_SIZE as PART_FIXED_SIZE
from aerobee.hot.log.layout import PROPERTIES_SIZE_MAX


def encode_batch(parts: list[tuple[int, bytes, bytes]]) -> bytes:
    """A batch body from (flag, body, properties) of each message."""
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
    """(flag, body, properties) of each message of a batch body; RemoteProtocolError when it is not one.

    Apache's broker reads by the inner lengths and never looks at the total size, so a sender's wrong total
    passes here too.
    """
    parts: list[tuple[int, bytes, bytes]] = []
    pos: i64 = 0
    end: i64 = len(buf)
    while pos < end:
        if len(parts) >= count_max:
            raise RemoteProtocolError(f"a batch of more than {count_max} messages")
        if end - pos < PART_FIXED_SIZE:
            raise RemoteProtocolError(f"batch body ends inside message {len(parts)}")
        flag: i64 = i64(read_i32_be(buf, pos + 12))
        body_size: i64 = i64(read_i32_be(buf, pos + 16))
        body_at: i64 = pos + 20
        if body_size < 0 or body_at + body_size + 2 > end:
            raise RemoteProtocolError(f"batch message {len(parts)}: body of {body_size} bytes")
        properties_size: i64 = i64(read_i16_be(buf, body_at + body_size))
        properties_at: i64 = body_at + body_size + 2
        if properties_size < 0 or properties_at + properties_size > end:
            raise RemoteProtocolError(f"batch message {len(parts)}: properties of {properties_size} bytes")
        pos = properties_at + properties_size
        parts.append((flag, buf[body_at : body_at + body_size], buf[properties_at:pos]))
    return parts


def split_batch(sizes: list[int], bytes_max: int, count_max: int) -> list[tuple[int, int]]:
    """Cut messages into batches: (first, end) indexes such that no batch exceeds either bound.

    `sizes` are PART_FIXED_SIZE + body + properties each. A message too large by itself is refused.
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
