"""Answers written from the prepared form are those of the general encoder, byte for byte."""

import pytest
from librt.strings import BytesWriter

from aerobee.protocol.codes import BINARY, FLAG_RESPONSE, JSON
from aerobee.protocol.command import Command, encode_command
from aerobee.protocol.headers.base import encode_header
from aerobee.protocol.headers.send import SendMessageResponseHeader
from aerobee.protocol.sending import send_answer_form

V4 = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
V6 = bytes(range(16)) + b"\x00\x00\x2a\x9f"
# The order of Apache's HashMap(256).
JSON_ORDER = ("queueId", "transactionId", "msgId", "TRACE_ON", "MSG_REGION", "queueOffset")


def answer(
    codec: int, opaque: int, host: bytes, place: int, queue_id: int, offset: int, transaction_id: str, trace_on: bool
) -> bytes:
    header = SendMessageResponseHeader(
        msg_id=(host + place.to_bytes(8, "big")).hex().upper(),
        queue_id=queue_id,
        queue_offset=offset,
        transaction_id=transaction_id or None,
    )
    ext = encode_header(header, binary=codec == BINARY)
    ext |= {"TRACE_ON": str(trace_on).lower(), "MSG_REGION": 'region "x"'}
    if codec == JSON:
        ext = {name: ext[name] for name in JSON_ORDER if name in ext}
    return encode_command(Command(0, opaque, FLAG_RESPONSE, ext, codec=codec))


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("host", [V4, V6])
@pytest.mark.parametrize("transaction_id", ["", "7F00000100002A139A55000000000001", 'a"b\\c ü', "\ud800"])
def test_the_form_writes_what_the_encoder_writes(codec: int, host: bytes, transaction_id: str) -> None:
    form = send_answer_form(host, 'region "x"', True)
    out, expected = BytesWriter(), b""
    for number in (0, 1, 255, 256, 65535, 65536, 1 << 30, (1 << 40) + 7, (1 << 62) - 1):
        opaque, queue_id, offset = number & 0x7FFFFFFF, number & 7, number * 3 & (1 << 62) - 1
        form.write(out, codec, opaque, queue_id, offset, number, transaction_id)
        expected += answer(codec, opaque, host, number, queue_id, offset, transaction_id, True)
    assert out.getvalue() == expected


@pytest.mark.parametrize(
    "opaque", [0, 9, 999, 1000, 1001, 1999, 2000, 999_999, 1_000_000, 0x7FFFFFFF, -1, -1000, -0x80000000]
)
@pytest.mark.parametrize("codec", [0, 1])
def test_every_number_has_its_digits_whatever_the_one_before_had(opaque: int, codec: int) -> None:
    form = send_answer_form(V4, 'region "x"', False)
    for before in (0, 1000, 1_000_999, opaque):
        for queue_id, offset in ((0, 999), (999, 1000), (1000, 1999), (0x7FFFFFFF, 10**18)):
            out = BytesWriter()
            form.write(out, codec, before, 1, before & 0xFFFF, 5, "")
            out.truncate(0)
            form.write(out, codec, opaque, queue_id, offset, 5, "U")
            assert out.getvalue() == answer(codec, opaque, V4, 5, queue_id, offset, "U", False)
