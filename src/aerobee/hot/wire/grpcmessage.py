"""Messages of the log as 5.x clients get them: from a record to the bytes of a ReceiveMessageResponse.

    ReceiveMessageResponse    2 message: 1 topic, 2 user property, 3 system properties, 4 body

`received` writes what `proxy.delivered.pb_message` and the tables of protobuf would write, and returns None for records
that are rare: those with a property that the message's type depends on, with a name twice, or with text that is no
UTF-8. RocketMQ: GrpcConverter.buildMessage.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from aerobee.hot.log.record import Record
from aerobee.hot.wire.protobuf import varint

# Properties that make another type of message, or that have a field of their own.
ACTED_UPON: Final = frozenset(
    (
        b"TRAN_MSG",
        b"DELAY",
        b"TIMER_DELAY_SEC",
        b"TIMER_DELAY_MS",
        b"TIMER_DELIVER_MS",
        b"_SYS_MSG_PRIORITY_",
        b"__LITE_TOPIC",
        b"DLQ_ORIGIN_TOPIC",
        b"DLQ_ORIGIN_MESSAGE_ID",
    )
)


class _Found:
    """What the properties of a message say."""

    def __init__(self) -> None:
        self.user = BytesWriter()
        self.names: list[bytes] = []
        self.tag: bytes = b""
        self.keys: bytes = b""
        self.message_id: bytes = b""
        self.group: bytes = b""
        self.trace: bytes = b""
        self.born_host: bytes = b""


def received(
    record: Record,
    topic: bytes,
    handle: bytes,
    digest: bytes,
    born_host: bytes,
    store_host: bytes,
    reserved: frozenset[bytes],
) -> bytes | None:
    """Return the response that carries a message whose body is not compressed. `digest` is the MD5 of the body in
    hexadecimal, `topic` the Resource, and `reserved` are the names that are no properties of a user."""
    if record.born_timestamp < 0 or record.store_timestamp < 0 or record.reconsume_times < 0 or record.queue_id < 0:
        return None
    found = _read(record.properties, reserved)
    if found is None:
        return None
    system = BytesWriter()
    if found.tag:
        _put(system, b"\x0a", found.tag)
    if found.keys:
        for key in found.keys.split(b" "):
            if key:
                _put(system, b"\x12", key)
    if found.message_id:
        _put(system, b"\x1a", found.message_id)
    system.write(b"\x22\x24\x08\x02\x12\x20")
    system.write(digest)
    system.write(b"\x28\x01\x30\x02" if found.group else b"\x28\x01\x30\x01")
    _put_time(system, b"\x3a", record.born_timestamp)
    _put(system, b"\x42", found.born_host or born_host)
    _put_time(system, b"\x4a", record.store_timestamp)
    _put(system, b"\x52", store_host)
    _put(system, b"\x62", handle)
    if record.queue_id:
        system.write(b"\x68")
        system.write(varint(record.queue_id))
    system.write(b"\x70")
    system.write(varint(record.queue_offset))
    system.write(b"\x80\x01")
    system.write(varint(record.reconsume_times + 1))
    if found.group:
        _put(system, b"\x8a\x01", found.group)
    if found.trace:
        _put(system, b"\x92\x01", found.trace)
    message = BytesWriter()
    _put(message, b"\x0a", topic)
    message.write(found.user.getvalue())
    _put(message, b"\x1a", system.getvalue())
    if record.body:
        _put(message, b"\x22", record.body)
    out = BytesWriter()
    _put(out, b"\x12", message.getvalue())
    return out.getvalue()


def _read(block: bytes, reserved: frozenset[bytes]) -> _Found | None:
    if not block.isascii():
        try:
            block.decode()
        except UnicodeDecodeError:
            return None
    found = _Found()
    at: i64 = 0
    size: i64 = len(block)
    while at < size:
        split: i64 = at
        while split < size and block[split] > 2:
            split += 1
        end: i64 = split
        while end < size and block[end] != 2:
            end += 1
        # As all readers of properties do, drop a pair without a name or a value.
        if split > at and end > split + 1 and block[split] == 1:
            name = block[int(at) : int(split)]
            if not _take(found, name, block[int(split + 1) : int(end)], reserved):
                return None
        at = end + 1
    return found


def _take(found: _Found, name: bytes, value: bytes, reserved: frozenset[bytes]) -> bool:
    """Take one property. Return False where its record has to go the long way."""
    if name not in reserved:
        if name[0] == 0x5F or name in found.names:
            return False
        found.names.append(name)
        entry = BytesWriter()
        _put(entry, b"\x0a", name)
        _put(entry, b"\x12", value)
        _put(found.user, b"\x12", entry.getvalue())
        return True
    if name == b"UNIQ_KEY":
        before, found.message_id = found.message_id, value
    elif name == b"TAGS":
        before, found.tag = found.tag, value
    elif name == b"KEYS":
        before, found.keys = found.keys, value
    elif name == b"__SHARDINGKEY":
        before, found.group = found.group, value
    elif name == b"TRACE_CONTEXT":
        before, found.trace = found.trace, value
    elif name == b"__BORNHOST":
        before, found.born_host = found.born_host, value
    else:
        return name not in ACTED_UPON
    return not before


def _put(out: BytesWriter, tag: bytes, data: bytes) -> None:
    out.write(tag)
    out.write(varint(len(data)))
    out.write(data)


def _put_time(out: BytesWriter, tag: bytes, milliseconds: int) -> None:
    inner = BytesWriter()
    seconds: i64 = i64(milliseconds) // 1000
    rest: i64 = i64(milliseconds) % 1000
    if seconds:
        inner.append(0x08)
        inner.write(varint(int(seconds)))
    if rest:
        inner.append(0x10)
        inner.write(varint(int(rest * 1_000_000)))
    _put(out, tag, inner.getvalue())
