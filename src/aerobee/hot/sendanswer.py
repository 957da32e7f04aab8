"""The answer to a stored send, written many times a second: all that is equal in every answer is prepared once.

RocketMQ: SendMessageProcessor.handlePutMessageResult with MSG_REGION and TRACE_ON of sendMessage.
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_be
from mypy_extensions import i32, i64

from aerobee.hot.extfields import encode_send_answer
from aerobee.hot.frame import CODEC_BINARY, json_text

_HEX: Final = [b"%02X" % i for i in range(256)]
# A message id ends with the physical offset; what stands above its last two bytes changes rarely.
_LOW: Final = 0xFFFF


class SendAnswerForm:
    """The parts of an answer, for one broker."""

    def __init__(
        self, store_host: bytes, region: str, trace_on: bool, language: int, language_name: str, version: int
    ) -> None:
        self.store_host = store_host
        self.region = region
        self.trace_on = trace_on
        self.language = language
        self.language_name = language_name
        self.version = version
        trace = "true" if trace_on else "false"
        # The order is that of Apache's HashMap(256) of these names.
        self._start: bytes = b'{"code":0,"extFields":{"queueId":"'
        self._middle: bytes = f'","TRACE_ON":"{trace}","MSG_REGION":{json_text(region)},"queueOffset":"'.encode()
        self._flag: bytes = f'"}},"flag":1,"language":"{language_name}","opaque":'.encode()
        self._end: bytes = f',"serializeTypeCurrentRPC":"JSON","version":{version}}}'.encode()
        self._fixed: i64 = len(self._start) + len(self._middle) + len(self._flag) + len(self._end)
        self._high: i64 = -1
        self._id: bytes = b""

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
        low: i64 = physical_offset & _LOW
        if codec == CODEC_BINARY:
            message_id = (self._id + _HEX[low >> 8] + _HEX[low & 0xFF]).decode()
            out.write(
                encode_send_answer(
                    codec,
                    opaque,
                    message_id,
                    queue_id,
                    queue_offset,
                    transaction_id,
                    self.region,
                    self.trace_on,
                    self.language,
                    self.language_name,
                    self.version,
                )
            )
            return
        queue = str(queue_id).encode()
        offset = str(queue_offset).encode()
        number = str(opaque).encode()
        transaction = b""
        if transaction_id:
            transaction = json_text(transaction_id).encode()
        size: i64 = self._fixed + len(queue) + len(offset) + len(number) + len(self._id) + 15
        if transaction_id:
            size += len(transaction) + 17
        write_i32_be(out, i32(size + 4))
        write_i32_be(out, i32(size))
        out.write(self._start)
        out.write(queue)
        out.write(b'",')
        if transaction_id:
            out.write(b'"transactionId":')
            out.write(transaction)
            out.write(b",")
        out.write(b'"msgId":"')
        out.write(self._id)
        out.write(_HEX[low >> 8])
        out.write(_HEX[low & 0xFF])
        out.write(self._middle)
        out.write(offset)
        out.write(self._flag)
        out.write(number)
        out.write(self._end)
