"""Ext fields of the binary codec, and a send read from them in place."""

import struct

import pytest

from aerobee.errors import RemoteProtocolError
from aerobee.hot.wire.frame import EXT_FIELDS_MAX, Frame, ext_fields, scan_frames
from aerobee.hot.wire.send import scan_binary_send


def ext(*pairs: tuple[bytes, bytes]) -> bytes:
    return b"".join(struct.pack(">H", len(k)) + k + struct.pack(">I", len(v)) + v for k, v in pairs)


def framed(fields: bytes, remark: bytes = b"") -> Frame:
    header = struct.pack(">hBhiiI", 310, 0, 513, 7, 0, len(remark)) + remark + struct.pack(">I", len(fields)) + fields
    data = struct.pack(">II", 4 + len(header), 1 << 24 | len(header)) + header
    return scan_frames(data, 0)[0][0]


SEND = (
    (b"a", b"group"),
    (b"b", b"topic"),
    (b"c", b"TBW102"),
    (b"d", b"4"),
    (b"e", b"-3"),
    (b"f", b"1"),
    (b"g", b"1794741186680"),
    (b"h", b"5"),
    (b"i", b"K\x01V\x02"),
    (b"j", b"2"),
    (b"k", b"TRUE"),
    (b"l", b"16"),
    (b"m", b"true"),
    (b"n", b"broker-a"),
)


def test_an_empty_value_is_absent_and_the_last_of_twins_wins() -> None:
    frame = framed(ext((b"x", b"1"), (b"y", b""), (b"", b"z"), (b"x", b"2")), b"remark")
    assert ext_fields(frame) == {"x": "2"}


@pytest.mark.parametrize(
    "fields",
    [
        b"\x00",
        struct.pack(">H", 5) + b"ab",
        struct.pack(">h", -1) + b"abcdef",
        ext((b"a", b"1"))[:-1],
        struct.pack(">H", 1) + b"a" + struct.pack(">i", -1),
        struct.pack(">H", 1) + b"a" + struct.pack(">i", 2**31 - 1),
    ],
)
def test_lengths_that_leave_the_header_are_refused(fields: bytes) -> None:
    frame = framed(fields)
    for read in (ext_fields, scan_binary_send):
        with pytest.raises(RemoteProtocolError, match="does not fit the header"):
            read(frame)


def test_the_number_of_fields_is_bounded() -> None:
    assert len(ext_fields(framed(ext((b"x", b"1")) * EXT_FIELDS_MAX))) == 1
    with pytest.raises(RemoteProtocolError, match="more than 1024"):
        ext_fields(framed(ext((b"x", b"1")) * (EXT_FIELDS_MAX + 1)))


def test_a_send_is_read_by_its_letters() -> None:
    send = scan_binary_send(framed(ext(*SEND, (b"other", b"x"), (b"z", b"9"))))
    assert send is not None
    assert (send.producer_group, send.topic, send.default_topic) == ("group", "topic", "TBW102")
    assert (send.default_topic_queue_nums, send.queue_id, send.sys_flag) == (4, -3, 1)
    assert (send.born_timestamp, send.flag, send.properties) == (1794741186680, 5, b"K\x01V\x02")
    assert (send.reconsume_times, send.unit_mode, send.max_reconsume_times) == (2, True, 16)
    assert (send.batch, send.broker_name) == (True, "broker-a")


def test_absent_optional_fields_have_their_defaults() -> None:
    needed = [pair for pair in SEND if pair[0] in b"abefgh"]
    send = scan_binary_send(framed(ext(*needed)))
    assert send is not None
    assert (send.properties, send.max_reconsume_times, send.batch, send.broker_name) == (b"", -1, False, "")


@pytest.mark.parametrize("letter", [b"a", b"b", b"e", b"f", b"g", b"h"])
def test_a_missing_field_sends_it_to_the_slow_way(letter: bytes) -> None:
    assert scan_binary_send(framed(ext(*(pair for pair in SEND if pair[0] != letter)))) is None


@pytest.mark.parametrize("value", [b"+1", b"1x", b"-", b"2147483648", b"1" * 19, b"\xff"])
def test_a_number_that_is_not_plain_sends_it_to_the_slow_way(value: bytes) -> None:
    assert scan_binary_send(framed(ext(*SEND, (b"e", value)))) is None
