"""Frames: limits are checked before anything is kept, and both codecs are peeked alike."""

import struct

import pytest

from aerobee.errors import RemoteProtocolError
from aerobee.hot.wire.frame import FRAME_LENGTH_MAX, HEADER_LENGTH_MAX, bytes_needed, json_text, scan, scan_frames


def frame(header: bytes, body: bytes = b"", codec: int = 0) -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), codec << 24 | len(header)) + header + body


def binary(code: int = 10, opaque: int = 7, flag: int = 0, remark: bytes = b"", ext: bytes = b"") -> bytes:
    return struct.pack(">hBhiiI", code, 0, 513, opaque, flag, len(remark)) + remark + struct.pack(">I", len(ext)) + ext


JAVA = b'{"code":310,"extFields":{"flag":"9"},"flag":2,"language":"JAVA","opaque":-5,"version":513}'
GO = b'{"code":310,"language":"GO","version":317,"opaque":-5,"flag":2,"remark":"","extFields":{"flag":"9"}}'
SPACED = b'{"opaque": -5, "flag": 2, "code": 310}'


@pytest.mark.parametrize("header", [JAVA, GO, SPACED, b' {"code":310,"flag":2,"opaque":-5} '])
def test_json_header_is_peeked_whoever_wrote_it(header: bytes) -> None:
    frames, end = scan_frames(frame(header, b"body"), 0)
    assert end == 12 + len(header)
    assert [(f.code, f.opaque, f.flag, f.body()) for f in frames] == [(310, -5, 2, b"body")]
    assert frames[0].is_oneway() and not frames[0].is_response()


def test_a_name_inside_a_text_is_not_taken_for_the_field() -> None:
    header = b'{"code":10,"opaque":3,"flag":1,"remark":"\\"opaque\\":8 x\\"opaque\\":8,","x\\"flag":5}'
    only = scan_frames(frame(header), 0)[0][0]
    assert (only.opaque, only.flag) == (3, 1)


def test_absent_opaque_and_flag_are_zero() -> None:
    only = scan_frames(frame(b'{"code":34}'), 0)[0][0]
    assert (only.code, only.opaque, only.flag) == (34, 0, 0)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b'{"code":',
        b'{"code":"10"}',
        b'{"code":true}',
        b'{"code":1.5}',
        b'{"code":2147483648}',
        b'{"opaque":1}',
        b'{"code":1,"opaque":99999999999}',
        b"[" * 200_000,
    ],
)
def test_a_header_that_is_no_command_is_refused(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="not a JSON command"):
        scan_frames(frame(header), 0)


def test_binary_header_is_peeked() -> None:
    data = frame(binary(-1, -2, 3, b"why"), b"xy", 1)
    only = scan_frames(data, 0)[0][0]
    assert (only.code, only.opaque, only.flag, only.body()) == (-1, -2, 3, b"xy")
    assert only.is_response()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">iI", 3, 0), "frame length 3"),
        (struct.pack(">iI", -1, 0), "frame length -1"),
        (struct.pack(">iI", FRAME_LENGTH_MAX + 1, 0), "frame length 16777213"),
        (struct.pack(">II", 100, 97), "header length 97"),
        (struct.pack(">II", 100, 2 << 24), "codec 2"),
        (struct.pack(">II", 100, 0x80 << 24), "codec 128"),
        (struct.pack(">II", FRAME_LENGTH_MAX, HEADER_LENGTH_MAX + 1), "header length 1048577"),
        (b"\x7f\xff\xff\xff", "frame length"),
        (frame(binary()[:20], codec=1), "shorter than 21"),
        (frame(binary() + b"x", codec=1), "does not fill"),
        (frame(struct.pack(">hBhiiiI", 1, 0, 0, 0, 0, 5, 0), codec=1), "remark length 5"),
        (frame(struct.pack(">hBhiiiI", 1, 0, 0, 0, 0, -1, 0), codec=1), "remark length -1"),
    ],
)
def test_limits_speak_before_the_rest_has_come(data: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        scan_frames(data, 0)


def test_the_largest_length_word_is_waited_for() -> None:
    data = struct.pack(">II", FRAME_LENGTH_MAX, 0)
    assert scan_frames(data, 0) == ([], 0)
    assert bytes_needed(data, 0) == FRAME_LENGTH_MAX + 4
    assert bytes_needed(b"\0\0", 0) == 8


def test_frames_before_a_bad_one_are_given_first() -> None:
    good = frame(JAVA)
    data = good + good + struct.pack(">II", 2, 0)
    frames, end, problem = scan(data, 0)
    assert len(frames) == 2 and end == 2 * len(good) and "frame length 2" in problem
    assert len(scan_frames(data, 0)[0]) == 2
    with pytest.raises(RemoteProtocolError):
        scan_frames(data, end)


def test_text_is_escaped_as_fastjson_does() -> None:
    assert json_text("abc09") == '"abc09"'
    assert json_text('a"b\\c/\x01\n\u2028é\x7f') == '"a\\"b\\\\c/\\u0001\\n\u2028é\x7f"'
    assert json_text("x\ud800y") == '"x?y"'
