"""The pull's header read in place: what it gives is what the general decode gives, or nothing."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.errors import RemoteProtocolError
from aerobee.hot.wire.frame import Frame, scan_frames
from aerobee.hot.wire.pull import PullFields, scan_json_pull
from aerobee.protocol.command import encode_command, request
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.protocol.pulling import decode_pull, pull_fields, read_pull

NAMES = (
    "consumer_group",
    "topic",
    "queue_id",
    "queue_offset",
    "max_msg_nums",
    "sys_flag",
    "commit_offset",
    "suspend_timeout_millis",
    "subscription",
    "sub_version",
    "expression_type",
    "max_msg_bytes",
)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-9, 1000)
TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30) | st.sampled_from(
    ("*", "TAG", "a || b")
)
HEADERS = st.builds(
    PullMessageRequestHeader,
    consumer_group=TEXT,
    topic=TEXT,
    queue_id=INT32,
    queue_offset=INT64,
    max_msg_nums=INT32,
    sys_flag=INT32,
    commit_offset=INT64,
    suspend_timeout_millis=INT64,
    subscription=st.none() | TEXT,
    sub_version=INT64,
    expression_type=st.none() | TEXT,
    max_msg_bytes=st.none() | INT32,
    bname=st.none() | TEXT,
    request_source=st.none() | INT32,
    nsd=st.none() | st.booleans(),
)


def values(pull: PullFields) -> tuple[object, ...]:
    return tuple(getattr(pull, name) for name in NAMES)


def frame_of(data: bytes) -> Frame:
    return scan_frames(data)[0][0]


def header_frame(header: bytes) -> Frame:
    return frame_of((len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)


def usual(**changes: str) -> dict[str, str]:
    ext = {
        "consumerGroup": "group",
        "topic": "orders",
        "queueId": "3",
        "queueOffset": "4711",
        "maxMsgNums": "32",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subscription": "*",
        "subVersion": "1700000000000",
        "expressionType": "TAG",
        "maxMsgBytes": "262144",
    }
    return ext | changes


def written(ext: dict[str, str], **outer: object) -> bytes:
    fields = {"code": 11, "extFields": ext, "flag": 0, "language": "JAVA", "opaque": 7, "version": 1} | outer
    return msgspec.json.encode(fields)


@given(HEADERS, st.integers(0, (1 << 31) - 1), st.binary(max_size=3))
def test_it_gives_what_the_general_decode_gives(header: PullMessageRequestHeader, opaque: int, body: bytes) -> None:
    data = encode_command(request(11, header, body, opaque=opaque))
    scanned, decoded = frame_of(data), frame_of(data)
    pull, general = scan_json_pull(scanned), decode_pull(decoded)
    assert general == header
    if pull is not None:
        assert values(pull) == values(pull_fields(header))
        assert (scanned.opaque, scanned.flag) == (decoded.opaque, decoded.flag) == (opaque, 0)
    read = read_pull(frame_of(data))
    assert read is not None
    assert values(read) == values(pull_fields(header))


def test_what_clients_write_is_read_in_any_order_and_with_names_unknown() -> None:
    forward = usual(bname="broker-a", other="x")
    backward = dict(reversed(forward.items()))
    for ext in (forward, backward):
        frame = header_frame(written(ext, opaque=99, flag=2))
        pull = scan_json_pull(frame)
        assert pull is not None
        assert values(pull) == (
            "group", "orders", 3, 4711, 32, 6, 0, 15_000, "*", 1_700_000_000_000, "TAG", 262_144,
        )  # fmt: skip
        assert (frame.opaque, frame.flag) == (99, 2)


def test_texts_met_before_are_the_same_objects() -> None:
    first, second = (scan_json_pull(header_frame(written(usual()))) for _ in range(2))
    assert first is not None and second is not None
    assert first.topic is second.topic
    assert first.consumer_group is second.consumer_group
    for number in range(5000):
        pull = scan_json_pull(header_frame(written(usual(topic=f"topic-{number}"))))
        assert pull is not None and pull.topic == f"topic-{number}"


@pytest.mark.parametrize(
    "changes",
    [
        {"queueId": "03"}, {"queueId": "-0"}, {"queueId": "x"}, {"queueId": ""}, {"queueId": "2147483648"},
        {"queueOffset": "9" * 19}, {"topic": "a\\b"}, {"topic": "ü"}, {"requestSource": "x"}, {"nsd": "maybe"},
    ],
)  # fmt: skip
def test_what_is_unusual_is_left_to_the_general_decode(changes: dict[str, str]) -> None:
    assert scan_json_pull(header_frame(written(usual(**changes)))) is None


def test_a_name_missing_or_twice_is_left_to_the_general_decode() -> None:
    for name in ("consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset",
                 "suspendTimeoutMillis", "subVersion"):  # fmt: skip
        ext = usual()
        del ext[name]
        assert scan_json_pull(header_frame(written(ext))) is None
    sound = written(usual())
    assert scan_json_pull(header_frame(sound)) is not None
    for part in (b'"topic":"orders"', b'"queueId":"3"'):
        assert scan_json_pull(header_frame(sound.replace(part, part + b"," + part))) is None
    assert scan_json_pull(header_frame(sound.replace(b'"flag":0', b'"flag":0,"flag":0'))) is None


def test_no_cut_and_no_other_byte_gives_anything_else_than_the_general_decode() -> None:
    sound = written(usual())
    for at in range(1, len(sound)):
        for changed in (sound[:at], sound[:at] + b" " + sound[at:], sound[:at] + b"\x00" + sound[at + 1 :],
                        sound[:at] + bytes((sound[at] ^ 1,)) + sound[at + 1 :]):  # fmt: skip
            try:
                frames = scan_frames((len(changed) + 4).to_bytes(4, "big") + len(changed).to_bytes(4, "big") + changed)[
                    0
                ]
                general = decode_pull(frames[0])
            except RemoteProtocolError:
                continue
            pull = scan_json_pull(header_frame(changed))
            if pull is not None:
                assert general is not None, changed
                assert values(pull) == values(pull_fields(general)), changed
