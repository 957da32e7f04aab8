"""Stored records without the parts that a reader does not need, for answers to readers of whole queues."""

from typing import Final

from librt.strings import BytesWriter, read_i32_be, write_i16_be, write_i32_be
from mypy_extensions import i32, i64

from aerobee.hot.log.layout import (
    BODY_LENGTH_SIZE,
    BORNHOST_V6,
    INNER_BATCH,
    NEED_UNWRAP,
    PROPERTIES_LENGTH_SIZE,
    RECORD_BODY_POS,
    RECORD_MAGIC_POS,
    RECORD_SIZE_POS,
    RECORD_SYS_FLAG_POS,
    STOREHOST_V6,
    V6_HOST_EXTRA,
)
from aerobee.hot.log.record import measure

# The parts that a record may be asked for with.
BODY: Final = 1
PROPERTIES: Final = 2
ALL_PARTS: Final = BODY | PROPERTIES


def lean_records(buf: bytes, parts: int) -> bytes:
    """Return whole records with an empty body or no properties where `parts` does not name these.

    All else, also the checksum of the body and the flags, stays as it is stored; the total size is that of what is
    left. A record that holds a batch is kept whole, because its messages are in its body. Bytes from the first that
    begin no whole record on are kept: whoever reads the answer has to judge them.
    """
    out = BytesWriter()
    keeps_body = (parts & BODY) != 0
    keeps_properties = (parts & PROPERTIES) != 0
    end: i64 = len(buf)
    pos: i64 = 0
    while pos < end:
        size, topic_at, topic_size, properties_size = measure(buf, pos, end, -1)
        if size <= 0:
            out.write(buf[pos:end])
            break
        flags: i64 = i64(read_i32_be(buf, pos + RECORD_SYS_FLAG_POS))
        if (flags & INNER_BATCH) != 0 and (flags & NEED_UNWRAP) != 0:
            out.write(buf[pos : pos + size])
            pos += size
            continue
        body_at: i64 = pos + RECORD_BODY_POS
        if flags & BORNHOST_V6:
            body_at += V6_HOST_EXTRA
        if flags & STOREHOST_V6:
            body_at += V6_HOST_EXTRA
        body_size: i64 = 0 if keeps_body else i64(read_i32_be(buf, body_at - BODY_LENGTH_SIZE))
        left_size: i64 = size - body_size
        if not keeps_properties:
            left_size -= properties_size
        write_i32_be(out, i32(left_size))
        properties_at: i64 = topic_at + topic_size
        if keeps_body:
            out.write(buf[pos + RECORD_MAGIC_POS : properties_at])
        else:
            out.write(buf[pos + RECORD_MAGIC_POS : body_at - BODY_LENGTH_SIZE])
            write_i32_be(out, 0)
            out.write(buf[body_at + body_size : properties_at])
        if keeps_properties:
            out.write(buf[properties_at : pos + size])
        else:
            write_i16_be(out, 0)
        pos += size
    return out.getvalue()


assert RECORD_SIZE_POS == 0 and RECORD_MAGIC_POS == 4 and PROPERTIES_LENGTH_SIZE == 2
