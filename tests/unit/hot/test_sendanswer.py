"""Answers written from the prepared form are those of the plain encoder, byte for byte."""

import pytest
from librt.strings import BytesWriter

from aerobee.hot.extfields import encode_send_answer
from aerobee.hot.sendanswer import SendAnswerForm

V4 = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
V6 = bytes(range(16)) + b"\x00\x00\x2a\x9f"


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("host", [V4, V6])
@pytest.mark.parametrize("transaction_id", ["", "7F00000100002A139A55000000000001", 'a"b\\c ü'])
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
