"""Commands in both codecs: the bytes Apache writes, and what other clients write besides."""

import json
import struct

import pytest

from aerobee.errors import LocalProtocolError, RemoteProtocolError
from aerobee.protocol.codes import BINARY, JSON, RequestCode, ResponseCode
from aerobee.protocol.command import Command, decode_frame, encode_command, encode_head, request, response
from aerobee.protocol.headers.pop import AckMessageRequestHeader


def json_frame(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def test_json_keys_are_sorted_and_absent_ones_left_out() -> None:
    command = Command(10, 1, language="JAVA", version=0)
    assert encode_command(command)[8:] == (
        b'{"code":10,"flag":0,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":0}'
    )
    command = Command(10, 1, 1, {"k": "\x01/é"}, b"body", 'a"b', "JAVA", 0)
    assert (
        encode_command(command)[8:]
        == (
            '{"code":10,"extFields":{"k":"\\u0001/é"},"flag":1,"language":"JAVA","opaque":1,"remark":"a\\"b",'
            '"serializeTypeCurrentRPC":"JSON","version":0}body'
        ).encode()
    )


@pytest.mark.parametrize("codec", [JSON, BINARY])
def test_a_lone_surrogate_becomes_a_question_mark(codec: int) -> None:
    command = Command(10, ext={"k\ud800": "v\ud800"}, remark="\udfff", codec=codec)
    back = decode_frame(encode_command(command))
    assert (back.ext, back.remark) == ({"k?": "v?"}, "?")


def test_a_lone_surrogate_of_a_peer_becomes_a_question_mark() -> None:
    """Java's JSON reads the escape of half a pair, and writes a question mark for it."""
    fields = rb'{"k\udc00":"v\ud800\u00e9","c":"\ud83d\ude00"}'
    header = rb'{"code":10,"extFields":' + fields + rb',"flag":0,"opaque":7,"remark":"\ud800"}'
    back = decode_frame(json_frame(header, b"body"))
    assert (back.ext, back.remark) == ({"k?": "v?\u00e9", "c": "\U0001f600"}, "?")
    assert (back.code, back.opaque, back.body) == (10, 7, b"body")


def test_a_code_beyond_a_short_goes_as_json() -> None:
    header = AckMessageRequestHeader(consumer_group="g", topic="t", queue_id=0, extra_info="x", offset=1)
    sent = request(RequestCode.ACK_MESSAGE, header, opaque=1, codec=BINARY)
    assert sent.codec == JSON
    with pytest.raises(LocalProtocolError, match="use JSON"):
        encode_command(Command(RequestCode.ACK_MESSAGE, codec=BINARY))


def test_an_answer_has_its_requests_opaque_and_codec() -> None:
    asked = request(11, opaque=-9, oneway=True, codec=BINARY)
    assert asked.is_oneway and not asked.is_response
    answer = response(asked, ResponseCode.PULL_NOT_FOUND, remark="why")
    assert (answer.opaque, answer.codec, answer.is_response, answer.is_oneway) == (-9, BINARY, True, False)


def test_a_head_announces_the_body_that_follows() -> None:
    command = Command(10, body=b"12345")
    assert encode_head(command, 5) + b"12345" == encode_command(command)


def test_a_frame_beyond_the_limit_is_our_own_fault() -> None:
    with pytest.raises(LocalProtocolError, match="too large"):
        encode_head(Command(10), 16_777_213)
    with pytest.raises(LocalProtocolError, match="codec 2"):
        encode_command(Command(10, codec=2))
    with pytest.raises(LocalProtocolError, match="name of an ext field"):
        encode_command(Command(10, ext={"k" * 40_000: "v"}, codec=BINARY))


def test_ext_values_that_are_no_texts_are_taken_as_fastjson_takes_them() -> None:
    header = {
        "code": 34,
        "extFields": {"a": 1, "b": True, "c": None, "d": "x"},
        "language": 9,
        "remark": None,
    }
    back = decode_frame(json_frame(json.dumps(header).encode(), b"b"))
    assert (back.ext, back.language, back.body) == ({"a": "1", "b": "true", "d": "x"}, "GO", b"b")
    assert decode_frame(json_frame(b'{"code":34,"language":99}')).language == "OTHER"


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b'{"code":34,"flag":0,"opaque":0,"extFields":[1]}', "not a command"),
        (b'{"code":34,"flag":0,"opaque":0,"extFields":{"a":{}}}', "not a command"),
        (b'{"code":34,"flag":0,"opaque":0,"code":35}', "two codes"),
        (b'{"code":34,"flag":0,"opaque":0,', "not JSON"),
        (b'{"code":34,"flag":0,"opaque":0,"x":' + b"[" * 100_000 + b"}", "not JSON"),
        (b'{"code":34,"flag":0,"opaque":0,"remark":"\xff"}', "not JSON"),
        (b'{"code":34,"flag":0,"opaque":0,"remark":"\\ud800\xff"}', "not JSON"),
        (rb'{"code":34,"flag":0,"opaque":0,"remark":"\ud800"', "not JSON"),
        (rb'{"code":34,"flag":0,"opaque":0,"remark":"\ud800","code":35}', "two codes"),
        (rb'{"code":34,"flag":0,"opaque":0,"remark":"\ud800","x":' + b"[" * 100_000 + b"}", "not JSON"),
        (rb'{"code":34,"flag":0,"opaque":0,"remark":"\ud800","extFields":{"a":1e999}}', "not a command"),
    ],
)
def test_a_header_that_deceives_the_peek_is_refused(header: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        decode_frame(json_frame(header))


def test_too_many_ext_fields_are_refused() -> None:
    header = {"code": 34, "flag": 0, "opaque": 0, "extFields": {str(i): "" for i in range(1025)}}
    with pytest.raises(RemoteProtocolError, match="more than 1024"):
        decode_frame(json_frame(json.dumps(header).encode()))


def test_decode_frame_wants_exactly_one() -> None:
    data = encode_command(Command(10))
    with pytest.raises(RemoteProtocolError, match="2 frames"):
        decode_frame(data * 2)
    with pytest.raises(RemoteProtocolError, match="left over"):
        decode_frame(data[:-1])
