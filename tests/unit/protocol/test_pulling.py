"""The one-step decode of pulls says what the general decode says, or nothing."""

import pytest

from aerobee.errors import RemoteProtocolError
from aerobee.hot.wire.frame import Frame, scan_frames
from aerobee.protocol.command import Command, decode_command, encode_command, request
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.protocol.pulling import decode_pull

HEADER = PullMessageRequestHeader(
    consumer_group="g",
    topic="orders",
    queue_id=3,
    queue_offset=1 << 40,
    max_msg_nums=32,
    sys_flag=6,
    commit_offset=0,
    suspend_timeout_millis=15_000,
    subscription='a || "b"',
    sub_version=7,
    expression_type="TAG",
)


def frame_of(command: Command) -> Frame:
    frames, _ = scan_frames(encode_command(command))
    return frames[0]


@pytest.mark.parametrize("codec", [0, 1])
def test_it_decodes_what_the_general_way_decodes(codec: int) -> None:
    command = request(11, HEADER, opaque=99, codec=codec)
    command.ext["unknown"] = "x"
    frame = frame_of(command)
    assert decode_pull(frame) == decode_header(PullMessageRequestHeader, decode_command(frame)) == HEADER
    assert (frame.opaque, frame.flag) == (99, 0)


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize(
    ("name", "value"), [("queueId", None), ("queueId", "x"), ("queueId", "9" * 12), ("queueId", "03")]
)
def test_what_it_cannot_read_it_leaves_to_the_general_way(codec: int, name: str, value: str | None) -> None:
    command = request(11, HEADER, opaque=1, codec=codec)
    if value is None:
        del command.ext[name]
    else:
        command.ext[name] = value
    assert decode_pull(frame_of(command)) is None


def test_a_header_with_two_codes_breaks_the_connection() -> None:
    frame = frame_of(request(11, HEADER, opaque=1))
    frame.code = 12
    with pytest.raises(RemoteProtocolError):
        decode_pull(frame)
