"""Sends and acknowledgements of 5.x clients: from protobuf to a frame of the remoting protocol, and back.

The scanners understand what almost every call brings, and return None for all else: for what is rare, for what a rule
may refuse, and for what is no protobuf. The long way (protocol.v2, proxy) then looks at the same bytes and decides.
So nothing here says why something is refused. A text passes only where all of it is printable ASCII.

    SendMessageRequest    1 message: 1 topic, 2 user property, 3 system properties, 4 body
    AckMessageRequest     1 group, 2 topic, 3 entry: 1 message id, 2 receipt handle

RocketMQ: SendMessageActivity.buildMessageProperty, AckMessageActivity, ReceiptHandle.
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_be
from mypy_extensions import i32, i64

from aerobee.hot.wire.digits import whole
from aerobee.hot.wire.frame import (
    BINARY_EXT_POS,
    CODEC_BINARY,
    LENGTH_SIZE,
    Frame,
    ext_start,
    start_binary,
    value_start,
    value_stop,
    write_field,
)
from aerobee.hot.wire.protobuf import varint

_PRINTABLE: Final = bytes(range(0x20, 0x7F))
# What JSON would have to escape.
_NEEDS_ESCAPE: Final = b'"\\'
_BODY_MAX: Final = 4 << 20
_TEXTS_MAX: Final = 16 << 10
_USER_MAX: Final = 128
_GROUP_MAX: Final = 63
_ID_MAX: Final = 255
_HANDLE_MAX: Final = 4096
_BORN_MAX: Final = 1 << 53
_TRANSACTION: Final = 4
_GZIP: Final = 2

# Tags: number * 8 + wire type.
_ONE: Final = 0x0A
_TWO: Final = 0x12
_THREE: Final = 0x1A
_FOUR: Final = 0x22
_ENCODING: Final = 0x28
_TYPE: Final = 0x30
_BORN: Final = 0x3A
_BORN_HOST: Final = 0x42
_QUEUE_ID: Final = 0x68
_MESSAGE_GROUP: Final = 0x8A
_TRACE_CONTEXT: Final = 0x92

_QUEUE_OFFSET_NAME: Final = b"queueOffset"


class _Scan:
    """A position in the bytes of a call. `failed` is set once something is not understood."""

    def __init__(self, data: bytes) -> None:
        self.data: bytes = data
        self.at: i64 = 0
        self.failed: bool = False

    def number(self, end: i64) -> i64:
        """Read a number below 2^56, or fail."""
        data = self.data
        at: i64 = self.at
        value: i64 = 0
        shift: i64 = 0
        while at < end and shift < 56:
            byte: i64 = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.at = at
                return value
            shift += 7
        self.failed = True
        return 0

    def stop(self, end: i64) -> i64:
        """Read a length; return where what is so long ends, or fail."""
        size = self.number(end)
        if self.failed or size > end - self.at:
            self.failed = True
            return end
        return self.at + size

    def text(self, end: i64) -> bytes:
        """Read a text that is printable, does not begin with a blank and is not empty, or fail."""
        stop = self.stop(end)
        if self.failed:
            return b""
        found = self.data[int(self.at) : int(stop)]
        self.at = stop
        if not found or found[0] == 0x20 or found.translate(None, _PRINTABLE):
            self.failed = True
        return found

    def name(self, end: i64) -> bytes:
        """Read the name of a Resource, or fail."""
        stop = self.stop(end)
        found = b""
        while not self.failed and self.at < stop:
            tag: i64 = self.data[self.at]
            self.at += 1
            if tag == _TWO and not found:
                found = self.text(stop)
            elif tag == _ONE:
                self.text(stop)
            else:
                self.failed = True
        return found


class GrpcSend:
    """One ordinary message of a client, or one of a message group."""

    def __init__(self) -> None:
        self.topic: bytes = b""
        self.message_id: bytes = b""
        self.tag: bytes = b""
        self.keys: bytes = b""
        self.group: bytes = b""
        self.trace: bytes = b""
        self.born_host: bytes = b""
        # When it was made, in milliseconds; 0 where it does not say.
        self.born_ms: i64 = 0
        self.is_gzip: bool = False
        self.body: bytes = b""
        # The block of the user's properties.
        self.user: bytes = b""
        # Bytes of names, values, tag, keys, trace context and born host.
        self.size: i64 = 0


def scan_grpc_send(data: bytes, reserved: frozenset[bytes]) -> GrpcSend | None:
    """Return the message of a SendMessageRequest. `reserved` are the names that no user property may have."""
    scan = _Scan(data)
    size: i64 = len(data)
    if size < 2 or data[0] != _ONE:
        return None
    scan.at = 1
    if scan.stop(size) != size or scan.failed:
        return None
    found = GrpcSend()
    user = BytesWriter()
    names: list[bytes] = []
    has_system = False
    while not scan.failed and scan.at < size:
        tag: i64 = data[scan.at]
        scan.at += 1
        if tag == _TWO:
            _user_property(scan, size, found, user, names, reserved)
        elif tag == _ONE and not found.topic:
            found.topic = scan.name(size)
        elif tag == _THREE and not has_system:
            has_system = True
            _system(scan, scan.stop(size), found)
        elif tag == _FOUR and not found.body:
            stop = scan.stop(size)
            found.body = data[int(scan.at) : int(stop)]
            scan.at = stop
        else:
            return None
    if scan.failed or found.size > _TEXTS_MAX:
        return None
    if not found.topic or not found.message_id or not found.body or len(found.body) > _BODY_MAX:
        return None
    if len(found.message_id) > _ID_MAX:
        return None
    found.user = user.getvalue()
    return found


def _user_property(
    scan: _Scan, end: i64, found: GrpcSend, user: BytesWriter, names: list[bytes], reserved: frozenset[bytes]
) -> None:
    stop = scan.stop(end)
    if scan.failed or scan.at == stop or scan.data[scan.at] != _ONE:
        scan.failed = True
        return
    scan.at += 1
    name = scan.text(stop)
    if scan.failed or scan.at == stop or scan.data[scan.at] != _TWO:
        scan.failed = True
        return
    scan.at += 1
    size = scan.stop(stop) - scan.at
    value = scan.data[int(scan.at) : int(scan.at + size)]
    scan.at += size
    if scan.failed or scan.at != stop or not value or value.translate(None, _PRINTABLE):
        scan.failed = True
    elif (
        len(names) >= _USER_MAX
        or name in reserved
        or name in names
        or (name[0] == 0x5F and len(name) > 1 and name[1] == 0x5F)
    ):
        scan.failed = True
    else:
        names.append(name)
        found.size += len(name) + size
        user.write(name)
        user.append(1)
        user.write(value)
        user.append(2)


def _system(scan: _Scan, end: i64, found: GrpcSend) -> None:
    data = scan.data
    while not scan.failed and scan.at < end:
        tag: i64 = data[scan.at]
        scan.at += 1
        if tag == _THREE and not found.message_id:
            found.message_id = scan.text(end)
        elif tag == _ONE and not found.tag:
            found.tag = scan.text(end)
            found.size += len(found.tag)
            if b"|" in found.tag:
                scan.failed = True
        elif tag == _TWO:
            key = scan.text(end)
            found.size += len(key)
            found.keys = found.keys + b" " + key if found.keys else key
        elif tag == _FOUR:
            _digest(scan, scan.stop(end))
        elif tag == _ENCODING:
            # Of a number that is too large its lower half counts.
            found.is_gzip = scan.number(end) & 0xFFFFFFFF == _GZIP
        elif tag == _TYPE:
            if scan.number(end) & 0xFFFFFFFF == _TRANSACTION:
                scan.failed = True
        elif tag == _BORN and not found.born_ms:
            _born(scan, scan.stop(end), found)
        elif tag == _BORN_HOST and not found.born_host:
            found.born_host = scan.text(end)
            found.size += len(found.born_host)
        elif tag == _QUEUE_ID:
            scan.number(end)
        elif tag == _MESSAGE_GROUP and scan.at < end and data[scan.at] == 1 and not found.group:
            scan.at += 1
            found.group = scan.text(end)
            if len(found.group) > _GROUP_MAX:
                scan.failed = True
        elif tag == _TRACE_CONTEXT and scan.at < end and data[scan.at] == 1 and not found.trace:
            scan.at += 1
            found.trace = scan.text(end)
            found.size += len(found.trace)
        else:
            scan.failed = True


def _digest(scan: _Scan, end: i64) -> None:
    """Pass over a Digest."""
    while not scan.failed and scan.at < end:
        tag: i64 = scan.data[scan.at]
        scan.at += 1
        if tag == 0x08:
            scan.number(end)
        elif tag == _TWO:
            scan.text(end)
        else:
            scan.failed = True


def _born(scan: _Scan, end: i64, found: GrpcSend) -> None:
    seconds: i64 = 0
    nanos: i64 = 0
    while not scan.failed and scan.at < end:
        tag: i64 = scan.data[scan.at]
        scan.at += 1
        if tag == 0x08 and not seconds:
            seconds = scan.number(end)
        elif tag == 0x10 and not nanos:
            nanos = scan.number(end)
        else:
            scan.failed = True
    if seconds > _BORN_MAX // 1000 or nanos > 999_999_999:
        scan.failed = True
        return
    found.born_ms = seconds * 1000 + nanos // 1_000_000


class SendForm:
    """The frame of a send to one queue. The parts that all messages share are prepared once."""

    def __init__(self, topic: bytes, queue_id: int, code: int, language: int, version: int) -> None:
        self._code: int = code
        self._language: int = language
        self._version: int = version
        fields = BytesWriter()
        for name, value in (
            (b"a", topic), (b"b", topic), (b"c", b"TBW102"), (b"d", b"4"), (b"e", str(queue_id).encode()),
            (b"h", b"0"), (b"j", b"0"), (b"k", b"false"), (b"m", b"false"),
        ):  # fmt: skip
            write_field(fields, name, value)
        self._fields: bytes = fields.getvalue()
        self._group: bytes = b"PGROUP\x01" + topic + b"\x02"

    def frame(self, send: GrpcSend, opaque: int, now_ms: int) -> bytes:
        """Return the whole frame."""
        block = BytesWriter()
        block.write(send.user)
        _pair(block, b"UNIQ_KEY\x01", send.message_id)
        if send.tag:
            _pair(block, b"TAGS\x01", send.tag)
        if send.keys:
            _pair(block, b"KEYS\x01", send.keys)
        if send.group:
            _pair(block, b"__SHARDINGKEY\x01", send.group)
        if send.trace:
            _pair(block, b"TRACE_CONTEXT\x01", send.trace)
        if send.born_host:
            _pair(block, b"__BORNHOST\x01", send.born_host)
        block.write(self._group)
        fields = BytesWriter()
        fields.write(self._fields)
        write_field(fields, b"f", b"1" if send.is_gzip else b"0")
        born_ms: i64 = send.born_ms
        write_field(fields, b"g", str(int(born_ms)).encode() if born_ms else str(now_ms).encode())
        write_field(fields, b"i", block.getvalue())
        size: i64 = len(fields)
        head = size + BINARY_EXT_POS
        out = BytesWriter()
        length: i64 = head + LENGTH_SIZE + len(send.body)
        write_i32_be(out, i32(length))
        write_i32_be(out, i32((CODEC_BINARY << 24) | head))
        start_binary(out, self._code, self._language, self._version, opaque, 0)
        write_i32_be(out, 0)
        write_i32_be(out, i32(size))
        out.write(fields.getvalue())
        out.write(send.body)
        return out.getvalue()


def _pair(out: BytesWriter, name: bytes, value: bytes) -> None:
    out.write(name)
    out.write(value)
    out.append(2)


def queue_offset_of(frame: Frame) -> int:
    """Return the queue offset that the binary answer to a send names, or -1."""
    buf = frame.buf
    if frame.codec != CODEC_BINARY:
        return -1
    at: i64 = ext_start(frame)
    end: i64 = frame.body_pos
    while at < end:
        start: i64 = value_start(buf, at, end)
        stop: i64 = value_stop(buf, start, end)
        if start - at == 17 and buf[int(at + 2) : int(at + 13)] == _QUEUE_OFFSET_NAME:
            offset: i64 = whole(buf, start, stop)
            return int(offset)
        at = stop
    return -1


def send_answer(ok: bytes, message_id: bytes, queue_offset: int) -> bytes:
    """Return a SendMessageResponse of one message that is stored. `ok` is the field 1 that holds its status."""
    entry = BytesWriter()
    entry.write(ok)
    entry.append(_TWO)
    entry.write(varint(len(message_id)))
    entry.write(message_id)
    if queue_offset:
        entry.append(0x20)
        entry.write(varint(queue_offset))
    out = BytesWriter()
    out.write(ok)
    out.append(_TWO)
    out.write(varint(len(entry)))
    out.write(entry.getvalue())
    return out.getvalue()


class GrpcAck:
    """One acknowledgement of one message, with the parts of its handle."""

    def __init__(self) -> None:
        self.group: bytes = b""
        self.topic: bytes = b""
        self.message_id: bytes = b""
        self.handle: bytes = b""
        # The eight parts of the handle that brokers read.
        self.extra: bytes = b""
        self.pop_ms: int = 0
        self.hidden_ms: int = 0
        self.kind: int = 0
        self.broker: bytes = b""
        self.queue_id: int = 0
        self.offset: int = 0


def scan_grpc_ack(data: bytes) -> GrpcAck | None:
    """Return the acknowledgement of an AckMessageRequest."""
    scan = _Scan(data)
    size: i64 = len(data)
    found = GrpcAck()
    while not scan.failed and scan.at < size:
        tag: i64 = data[scan.at]
        scan.at += 1
        if tag == _ONE and not found.group:
            found.group = scan.name(size)
        elif tag == _TWO and not found.topic:
            found.topic = scan.name(size)
        elif tag == _THREE and not found.handle:
            end = scan.stop(size)
            while not scan.failed and scan.at < end:
                inner: i64 = data[scan.at]
                scan.at += 1
                if inner == _ONE and not found.message_id:
                    found.message_id = scan.text(end)
                elif inner == _TWO and not found.handle:
                    found.handle = scan.text(end)
                else:
                    return None
        else:
            return None
    if scan.failed or not found.group or not found.topic or not _read_handle(found):
        return None
    return found


def _read_handle(found: GrpcAck) -> bool:
    """Read the handle in place: eight parts with a blank between them, and perhaps more behind."""
    handle = found.handle
    size: i64 = len(handle)
    if size > _HANDLE_MAX or handle.translate(None, _NEEDS_ESCAPE) != handle:
        return False
    at: i64 = 0
    for place in range(8):
        end: i64 = at
        while end < size and handle[end] != 0x20:
            end += 1
        if place == 5:
            if end == at:
                return False
            found.broker = handle[int(at) : int(end)]
        else:
            value: i64 = whole(handle, at, end)
            if value < 0:
                return False
            if place == 1:
                found.pop_ms = int(value)
            elif place == 2:
                found.hidden_ms = int(value)
            elif place == 4:
                if end - at != 1:
                    return False
                found.kind = int(value)
            elif place == 6:
                found.queue_id = int(value)
            elif place == 7:
                found.offset = int(value)
        if place < 7:
            if end >= size:
                return False
            at = end + 1
        else:
            found.extra = handle if end == size else handle[: int(end)]
    return (
        found.kind <= 2 and found.queue_id <= 0x7FFFFFFF and found.pop_ms <= _BORN_MAX and found.hidden_ms <= _BORN_MAX
    )


class AckForm:
    """The frame of an acknowledgement of a group in a topic. The parts that all of them share are prepared once."""

    def __init__(self, group: bytes, topic: bytes, code: int, language: str, version: int) -> None:
        """Neither name has a character that JSON would escape."""
        self._start: bytes = b'{"code":%d,"extFields":{"consumerGroup":"%s","topic":"%s","extraInfo":"' % (
            code, group, topic
        )  # fmt: skip
        self._end: bytes = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % version
        self._flag: bytes = b'"},"flag":0,"language":"%s","opaque":' % language.encode()

    def frame(self, extra: bytes, queue_id: int, offset: int, opaque: int) -> bytes:
        """Return the whole frame."""
        head = BytesWriter()
        head.write(self._start)
        head.write(extra)
        head.write(b'","queueId":"')
        head.write(str(queue_id).encode())
        head.write(b'","offset":"')
        head.write(str(offset).encode())
        head.write(self._flag)
        head.write(str(opaque).encode())
        head.write(self._end)
        size = len(head)
        out = BytesWriter()
        write_i32_be(out, size + LENGTH_SIZE)
        write_i32_be(out, size)
        out.write(head.getvalue())
        return out.getvalue()


def ack_answer(ok: bytes, ack: GrpcAck) -> bytes:
    """Return an AckMessageResponse of one entry. `ok` is the status itself, without its field."""
    entry = BytesWriter()
    if ack.message_id:
        entry.append(_ONE)
        entry.write(varint(len(ack.message_id)))
        entry.write(ack.message_id)
    entry.append(_TWO)
    entry.write(varint(len(ack.handle)))
    entry.write(ack.handle)
    entry.append(_THREE)
    entry.write(varint(len(ok)))
    entry.write(ok)
    out = BytesWriter()
    out.append(_ONE)
    out.write(varint(len(ok)))
    out.write(ok)
    out.append(_TWO)
    out.write(varint(len(entry)))
    out.write(entry.getvalue())
    return out.getvalue()
