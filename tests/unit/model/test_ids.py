import pytest

from aerobee.errors import InvalidArgumentError
from aerobee.model.ids import decode_offset_message_id, offset_message_id_of, unique_message_id


@pytest.mark.parametrize(
    ("host", "message_id"),
    [  # Written by release 5.5.0: MessageDecoder.createMessageId.
        ("10.0.0.9:10911", "0A00000900002A9F00000000075BCD15"),
        ("[2001:db8::1]:10911", "20010DB800000000000000000000000100002A9F00000000075BCD15"),
    ],
)
def test_offset_ids_are_apaches(host: str, message_id: str) -> None:
    assert offset_message_id_of(host, 123_456_789) == message_id
    for text in (message_id, message_id.lower()):
        where = decode_offset_message_id(text)
        assert (where.host, where.physical_offset) == (host, 123_456_789)


def test_unique_id_is_a_function_of_its_parts() -> None:
    made = unique_message_id(b"\1\2\3\4", 0x51234, 0xCAFEBABE, 1_000, 500_000, 0x70007)
    assert made == "010203041234CAFEBABE00079D380007"
    assert len(unique_message_id(bytes(16), 1, 1, 0, 0, 0)) == 56


def test_a_clock_set_back_a_little_counts_as_the_month_start() -> None:
    assert unique_message_id(bytes(4), 1, 1, 10_000_000, 9_999_999, 0)[20:28] == "00000000"
    back = unique_message_id(bytes(4), 1, 1, 10_000_000, 9_000_000, 0)[20:28]
    assert back == f"{(1 << 32) - 1_000_000:08X}"


@pytest.mark.parametrize("text", ["", "0A", "0A" * 15, "G" * 32, " 0A" * 10 + "00", "0A 0" * 8, "\u0661" * 32])
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        decode_offset_message_id(text)


def test_bad_parts() -> None:
    with pytest.raises(InvalidArgumentError):
        unique_message_id(b"123", 1, 1, 0, 0, 0)
    with pytest.raises(InvalidArgumentError):
        offset_message_id_of("1.2.3.4:1", 1 << 63)
