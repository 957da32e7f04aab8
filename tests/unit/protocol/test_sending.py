"""A send is the same object whatever codec brought it."""

from typing import Any

import pytest

from aerobee.errors import RemoteProtocolError
from aerobee.hot.wire.frame import Frame, scan_frames
from aerobee.hot.wire.send import SendFields
from aerobee.protocol.codes import BINARY, JSON, RequestCode
from aerobee.protocol.command import Command, encode_command, request
from aerobee.protocol.headers.base import InvalidHeaderError
from aerobee.protocol.headers.pull import PullMessageResponseHeader
from aerobee.protocol.headers.send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from aerobee.protocol.pulling import pull_answer
from aerobee.protocol.sending import decode_send

FIELDS: dict[str, Any] = {
    "producer_group": "grüppe",
    "topic": "topic",
    "default_topic": "TBW102",
    "default_topic_queue_nums": 4,
    "queue_id": -1,
    "sys_flag": 4,
    "born_timestamp": 1794741186680,
    "flag": 7,
    "properties": "K\x01V\x02",
    "reconsume_times": 3,
    "unit_mode": True,
    "max_reconsume_times": 16,
    "batch": True,
}
V2 = SendMessageRequestHeaderV2(**FIELDS, broker_name="b")
V1 = SendMessageRequestHeader(**FIELDS, bname="b")


def framed(command: Command) -> Frame:
    return scan_frames(encode_command(command), 0)[0][0]


def values(send: SendFields) -> tuple[object, ...]:
    names = "producer_group topic default_topic default_topic_queue_nums queue_id sys_flag born_timestamp flag"
    more = "properties reconsume_times unit_mode max_reconsume_times batch broker_name"
    return tuple(getattr(send, name) for name in f"{names} {more}".split())


@pytest.mark.parametrize("codec", [JSON, BINARY])
@pytest.mark.parametrize(
    ("code", "header"), [(310, V2), (320, V2), (325, V2), (RequestCode.SEND_MESSAGE, V1), (324, V1)]
)
def test_both_codecs_and_versions_give_the_same_fields(codec: int, code: int, header: SendMessageRequestHeader) -> None:
    send = decode_send(framed(request(code, header, b"body", opaque=9, codec=codec)))
    expected = (
        "grüppe",
        "topic",
        "TBW102",
        4,
        -1,
        4,
        1794741186680,
        7,
        b"K\x01V\x02",
        3,
        True,
        16,
        True,
        "b",
    )
    assert values(send) == expected


@pytest.mark.parametrize("codec", [JSON, BINARY])
def test_what_java_parses_is_parsed(codec: int) -> None:
    command = request(310, V2, opaque=9, codec=codec)
    command.ext |= {"e": "+007", "k": "yes", "j": ""}
    send = decode_send(framed(command))
    assert (send.queue_id, send.unit_mode, send.reconsume_times) == (7, False, 0)


@pytest.mark.parametrize("codec", [JSON, BINARY])
@pytest.mark.parametrize(("name", "value"), [("b", None), ("e", "x"), ("e", "99999999999"), ("g", "1e400")])
def test_the_field_at_fault_is_named(codec: int, name: str, value: str | None) -> None:
    command = request(310, V2, opaque=9, codec=codec)
    if value is None:
        del command.ext[name]
    else:
        command.ext[name] = value
    with pytest.raises(InvalidHeaderError, match=f"<{name}>"):
        decode_send(framed(command))


def test_two_codes_in_one_header_are_refused() -> None:
    data = encode_command(request(310, V2, opaque=9))
    twice = data[8:-1] + b',"code":34}'
    head = (len(twice) + 4).to_bytes(4, "big") + len(twice).to_bytes(4, "big")
    with pytest.raises(RemoteProtocolError, match="two codes"):
        decode_send(scan_frames(head + twice, 0)[0][0])


@pytest.mark.parametrize("codec", [JSON, BINARY])
@pytest.mark.parametrize("flags", [(-1, -1), (0, 1)])
def test_pull_answer_equals_the_general_encoder(codec: int, flags: tuple[int, int]) -> None:
    from aerobee.protocol.command import response

    header = PullMessageResponseHeader(
        suggest_which_broker_id=1,
        next_begin_offset=35,
        min_offset=2,
        max_offset=99,
        topic_sys_flag=None if flags[0] < 0 else flags[0],
        group_sys_flag=None if flags[1] < 0 else flags[1],
    )
    asked = request(11, opaque=77, codec=codec)
    expected = encode_command(response(asked, 0, header, b"records", "FOUND"))
    head = pull_answer(
        codec,
        0,
        77,
        (35, 2, 99),
        suggest_which_broker_id=1,
        topic_sys_flag=flags[0],
        group_sys_flag=flags[1],
        remark="FOUND",
        body_size=7,
    )
    assert head + b"records" == expected
