"""Headers as clients write them are read in place; all others are left to the general decode."""

import struct

import pytest

from aerobee.hot.wire.frame import Frame, scan_frames
from aerobee.hot.wire.send import scan_json_send

PROPERTIES = b'KEYS\\u0001k\\u0002UNIQ_KEY\\u00017F00000100002A139A55000000000001\\u0002q\\u0001\\"\\\\\\/\\u0002'
EXT = (
    b'"extFields":{"a":"group","b":"topic","c":"TBW102","d":"4","e":"-3","f":"1","g":"1794741186680","h":"5",'
    b'"i":"' + PROPERTIES + b'","j":"2","k":"true","l":"16","m":"false","n":"","nsd":"x"}'
)
JAVA = (
    b'{"code":310,' + EXT + b',"flag":2,"language":"JAVA","opaque":-5,"serializeTypeCurrentRPC":"JSON","version":513}'
)
GO = b'{"code":310,"language":"GO","version":317,"opaque":-5,"flag":2,"remark":"",' + EXT + b"}"


def framed(header: bytes, body: bytes = b"sixteen or more bytes") -> Frame:
    data = struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body
    return scan_frames(data, 0)[0][0]


@pytest.mark.parametrize("header", [JAVA, GO])
def test_headers_of_known_writers_are_read_in_place(header: bytes) -> None:
    frame = framed(header)
    frame.opaque = frame.flag = 0
    send = scan_json_send(frame)
    assert send is not None
    assert (frame.opaque, frame.flag) == (-5, 2)
    assert (send.producer_group, send.topic, send.default_topic) == ("group", "topic", "TBW102")
    assert (send.default_topic_queue_nums, send.queue_id, send.sys_flag) == (4, -3, 1)
    assert (send.born_timestamp, send.flag) == (1794741186680, 5)
    unique = b"UNIQ_KEY\x017F00000100002A139A55000000000001\x02"
    assert send.properties == b"KEYS\x01k\x02" + unique + b'q\x01"\\/\x02'
    assert (send.reconsume_times, send.unit_mode, send.max_reconsume_times) == (2, True, 16)
    assert (send.batch, send.broker_name) == (False, "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"a":"group"', b'"a":"gr\xc3\xbcppe"'),  # no ASCII
        (b'"d":"4"', b'"d":4'),  # a number without quotes
        (b'"d":"4"', b'"d":"+4"'),
        (b'"d":"4"', b'"d":"04"'),
        (b'"e":"-3"', b'"e":"2147483648"'),
        (b'"e":"-3",', b""),  # a needed field is missing
        (b'"k":"true"', b'"k":"True"'),
        (b'"l":"16"', b'"l":"16","l":"17"'),  # twice
        (b'"flag":2', b'"flag":2,"flag":2'),
        (b'"flag":2', b'"flag": 2'),
        (b"{", b"{ "),
        (b'\\"', b"\\u0022"),
        (b'"code":310', b'"code":310,"code":311'),
    ],
)
def test_what_is_written_otherwise_is_left_to_the_general_decode(old: bytes, new: bytes) -> None:
    assert old in JAVA
    assert scan_json_send(framed(JAVA.replace(old, new, 1))) is None


def test_a_header_never_goes_on_in_the_body() -> None:
    frame = framed(JAVA, b"0" * 40)
    for cut in range(frame.header_pos, frame.body_pos):
        assert scan_json_send(Frame(frame.buf, 0, 310, 0, 0, frame.header_pos, cut, frame.end)) is None


def test_a_number_that_is_not_read_here_leaves_the_frame_its_guess() -> None:
    header = JAVA.replace(b'"opaque":-5', b'"opaque":007')
    data = struct.pack(">ii", 4 + len(header) + 20, len(header)) + header + bytes(20)
    frame = scan_frames(data)[0][0]
    assert (scan_json_send(frame), frame.opaque, frame.flag) == (None, 7, 2)
