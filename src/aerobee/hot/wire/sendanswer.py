"""The answer to a stored send, written many times a second: all that is equal in every answer is prepared once.

RocketMQ: SendMessageProcessor.handlePutMessageResult with MSG_REGION and TRACE_ON of sendMessage.
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from aerobee.hot.wire.frame import CODEC_BINARY, json_text, write_field

_HEX: Final = [b"%02X" % i for i in range(256)]
# A message id ends with the physical offset; what stands above its last two bytes changes rarely.
_LOW: Final = 0xFFFF
_BELOW_1000: Final = [b"%d" % i for i in range(1000)]
_THREE_DIGITS: Final = [b"%03d" % i for i in range(1000)]


class Digits:
    """A number in decimal, in two pieces: numbers that follow each other share all but the last three digits."""

    def __init__(self) -> None:
        self.head: bytes = b""
        self.rest: bytes = b""
        self._high: i64 = -1
        self._high_text: bytes = b""

    def use(self, number: i64) -> i64:
        """Set both pieces; how many digits they have."""
        if number >= 1000:
            high: i64 = number // 1000
            if high != self._high:
                self._high = high
                self._high_text = str(high).encode()
            self.head = self._high_text
            self.rest = _THREE_DIGITS[number % 1000]
        elif number >= 0:
            self.head = b""
            self.rest = _BELOW_1000[number]
        else:
            self.head = str(number).encode()
            self.rest = b""
        return len(self.head) + len(self.rest)


def _json_content(text: str) -> bytes:
    """What stands between the quotes of `json_text`."""
    if text.isalnum():
        data = text.encode()
        if len(data) == len(text):
            return data
    return json_text(text)[1:-1].encode()


class SendAnswerForm:
    """The parts of an answer, for one broker."""

    def __init__(
        self, store_host: bytes, region: str, trace_on: bool, language: int, language_name: str, version: int
    ) -> None:
        self.store_host = store_host
        self.trace_on = trace_on
        trace = "true" if trace_on else "false"
        # The order is that of Apache's HashMap(256) of these names.
        self._start: bytes = b'{"code":0,"extFields":{"queueId":"'
        self._middle: bytes = f'","TRACE_ON":"{trace}","MSG_REGION":{json_text(region)},"queueOffset":"'.encode()
        self._flag: bytes = f'"}},"flag":1,"language":"{language_name}","opaque":'.encode()
        self._end: bytes = f',"serializeTypeCurrentRPC":"JSON","version":{version}}}'.encode()
        self._fixed: i64 = len(self._start) + len(self._middle) + len(self._flag) + len(self._end)
        self._binary_start: bytes = b"\x00\x00" + bytes((language,)) + version.to_bytes(2, "big")
        fields = BytesWriter()
        write_field(fields, b"TRACE_ON", trace.encode())
        write_field(fields, b"MSG_REGION", region.encode("utf-8", "replace"))
        self._binary_end: bytes = fields.getvalue()
        self._high: i64 = -1
        self._id: bytes = b""
        self._opaque = Digits()
        self._offset = Digits()

    def write(
        self,
        out: BytesWriter,
        codec: int,
        opaque: int,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        transaction_id: str,
    ) -> None:
        """One whole frame. '' for transaction_id leaves it out."""
        high: i64 = physical_offset >> 16
        if high != self._high:
            self._high = high
            self._id = self.store_host.hex().upper().encode() + b"%012X" % (physical_offset >> 16)
        queue = _BELOW_1000[queue_id] if 0 <= queue_id < 1000 else str(queue_id).encode()
        low: i64 = physical_offset & _LOW
        if codec == CODEC_BINARY:
            self._write_binary(out, opaque, queue, queue_offset, low, transaction_id)
        else:
            self._write_json(out, opaque, queue, queue_offset, low, transaction_id)

    def _write_json(
        self, out: BytesWriter, opaque: int, queue: bytes, queue_offset: int, low: i64, transaction_id: str
    ) -> None:
        size: i64 = self._fixed + len(queue) + len(self._id) + 15
        size += self._offset.use(queue_offset) + self._opaque.use(opaque)
        transaction = b""
        if transaction_id:
            transaction = _json_content(transaction_id)
            size += len(transaction) + 19
        write_i32_be(out, i32(size + 4))
        write_i32_be(out, i32(size))
        out.write(self._start)
        out.write(queue)
        if transaction_id:
            out.write(b'","transactionId":"')
            out.write(transaction)
        out.write(b'","msgId":"')
        out.write(self._id)
        out.write(_HEX[low >> 8])
        out.write(_HEX[low & 0xFF])
        out.write(self._middle)
        out.write(self._offset.head)
        out.write(self._offset.rest)
        out.write(self._flag)
        out.write(self._opaque.head)
        out.write(self._opaque.rest)
        out.write(self._end)

    def _write_binary(
        self, out: BytesWriter, opaque: int, queue: bytes, queue_offset: int, low: i64, transaction_id: str
    ) -> None:
        id_size: i64 = len(self._id) + 4
        offset_size: i64 = self._offset.use(queue_offset)
        fields: i64 = 11 + id_size + 13 + len(queue) + 17 + offset_size + len(self._binary_end)
        transaction = b""
        if transaction_id:
            transaction = transaction_id.encode("utf-8", "replace")
            fields += 19 + len(transaction)
        write_i32_be(out, i32(fields + 25))
        write_i32_be(out, i32((CODEC_BINARY << 24) | (fields + 21)))
        out.write(self._binary_start)
        write_i32_be(out, i32(opaque))
        write_i64_be(out, 1 << 32)  # flag: an answer; remark: none
        write_i32_be(out, i32(fields))
        out.write(b"\x00\x05msgId")
        write_i32_be(out, i32(id_size))
        out.write(self._id)
        out.write(_HEX[low >> 8])
        out.write(_HEX[low & 0xFF])
        out.write(b"\x00\x07queueId")
        write_i32_be(out, i32(len(queue)))
        out.write(queue)
        out.write(b"\x00\x0bqueueOffset")
        write_i32_be(out, i32(offset_size))
        out.write(self._offset.head)
        out.write(self._offset.rest)
        if transaction_id:
            out.write(b"\x00\x0dtransactionId")
            write_i32_be(out, i32(len(transaction)))
            out.write(transaction)
        out.write(self._binary_end)
