"""Answers written from the prepared form are those of the plain encoder, byte for byte."""

import pytest
from librt.strings import BytesWriter

from aerobee.hot.wire.extfields import encode_send_answer
from aerobee.hot.wire.sendanswer import SendAnswerForm

V4 = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
V6 = bytes(range(16)) + b"\x00\x00\x2a\x9f"


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("host", [V4, V6])
@pytest.mark.parametrize("transaction_id", ["", "7F00000100002A139A55000000000001", 'a"b\\c ü', "\ud800"])
def test_the_form_writes_what_the_encoder_writes(codec: int, host: bytes, transaction_id: str) -> None:
    form = SendAnswerForm(host, 'region "x"', True, 12, "OTHER", 481)
    out, expected = BytesWriter(), b""
    for number in (0, 1, 255, 256, 65535, 65536, 1 << 30, (1 << 40) + 7, (1 << 62) - 1):
        form.write(out, codec, number & 0x7FFFFFFF, number & 7, number * 3 & (1 << 62) - 1, number, transaction_id)
        message_id = (host + number.to_bytes(8, "big")).hex().upper()
        expected += encode_send_answer(
            codec,
            number & 0x7FFFFFFF,
            message_id,
            number & 7,
            number * 3 & (1 << 62) - 1,
            transaction_id,
            'region "x"',
            True,
            12,
            "OTHER",
            481,
        )
    assert out.getvalue() == expected


@pytest.mark.parametrize(
    "opaque", [0, 9, 999, 1000, 1001, 1999, 2000, 999_999, 1_000_000, 0x7FFFFFFF, -1, -1000, -0x80000000]
)
@pytest.mark.parametrize("codec", [0, 1])
def test_every_number_has_its_digits_whatever_the_one_before_had(opaque: int, codec: int) -> None:
    form = SendAnswerForm(V4, "r", False, 12, "OTHER", 481)
    for before in (0, 1000, 1_000_999, opaque):
        for queue_id, offset in ((0, 999), (999, 1000), (1000, 1999), (0x7FFFFFFF, 10**18)):
            out = BytesWriter()
            form.write(out, codec, before, 1, before & 0xFFFF, 5, "")
            out.truncate(0)
            form.write(out, codec, opaque, queue_id, offset, 5, "U")
            message_id = (V4 + bytes(7) + b"\x05").hex().upper()
            assert out.getvalue() == encode_send_answer(
                codec, opaque, message_id, queue_id, offset, "U", "r", False, 12, "OTHER", 481
            )
