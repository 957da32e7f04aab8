"""Frames in both codecs against Apache's: read to the same fields, written to the same bytes."""

import json
from pathlib import Path
from typing import Any

import pytest

from aerobee.hot.wire.frame import scan_frames
from aerobee.protocol.codes import BINARY, JSON
from aerobee.protocol.command import Command, decode_frame, encode_command, request, response
from aerobee.protocol.headers.base import Header, decode_header
from aerobee.protocol.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from aerobee.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from aerobee.protocol.headers.route import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader
from aerobee.protocol.headers.send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)

FRAMES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "frames.json").read_bytes())
HEADERS: dict[str, type[Header]] = {
    "send_v2": SendMessageRequestHeaderV2,
    "send_oneway": SendMessageRequestHeaderV2,
    "send_v1": SendMessageRequestHeader,
    "send_response": SendMessageResponseHeader,
    "pull": PullMessageRequestHeader,
    "pull_response": PullMessageResponseHeader,
    "query_offset": QueryConsumerOffsetRequestHeader,
    "update_offset_oneway": UpdateConsumerOffsetRequestHeader,
    "route": GetRouteInfoRequestHeader,
    "register_broker": RegisterBrokerRequestHeader,
    "register_broker_compressed": RegisterBrokerRequestHeader,
}


def name_of(row: dict[str, Any]) -> str:
    return f"{row['name']}-{row['codec']}"


@pytest.mark.parametrize("row", FRAMES, ids=name_of)
def test_read_as_apache_reads(row: dict[str, Any]) -> None:
    command = decode_frame(bytes.fromhex(row["frame"]))
    # Apache reads an empty value of the binary codec as null, which to its headers is an absent field.
    ext = {name: value for name, value in (row["ext"] or {}).items() if value is not None}
    assert command == Command(
        code=row["code"],
        opaque=row["opaque"],
        flag=row["flag"],
        ext=ext,
        body=bytes.fromhex(row["body"]),
        remark=row["remark"],
        language=row["language"],
        version=row["version"],
        codec=JSON if row["codec"] == "JSON" else BINARY,
    )


@pytest.mark.parametrize("row", FRAMES, ids=name_of)
def test_written_as_apache_writes(row: dict[str, Any]) -> None:
    frame = bytes.fromhex(row["frame"])
    command = decode_frame(frame)
    if row["name"] == "ext_text":
        # The empty value is written in both codecs, though read in one only: take the fields from that one.
        (other,) = (each for each in FRAMES if (each["name"], each["codec"]) == ("ext_text", "JSON"))
        command.ext = decode_frame(bytes.fromhex(other["frame"])).ext
        assert command.ext["empty"] == ""
    assert encode_command(command) == frame


@pytest.mark.parametrize("row", [row for row in FRAMES if row["name"] in HEADERS], ids=name_of)
def test_typed_header_gives_the_same_bytes(row: dict[str, Any]) -> None:
    """Through the header class: types, names, order and absent fields are Apache's."""
    frame = bytes.fromhex(row["frame"])
    read = decode_frame(frame)
    header = decode_header(HEADERS[row["name"]], read)
    if read.is_response:
        asked = Command(code=0, opaque=read.opaque, codec=read.codec)
        written = response(asked, read.code, header, read.body, read.remark)
    else:
        written = request(read.code, header, read.body, opaque=read.opaque, oneway=read.is_oneway, codec=read.codec)
    written.language, written.version = read.language, read.version
    assert decode_frame(encode_command(written)) == read
    assert encode_command(written) == frame


def test_many_frames_of_one_read() -> None:
    stream = b"".join(bytes.fromhex(row["frame"]) for row in FRAMES)
    frames, consumed = scan_frames(stream)
    assert consumed == len(stream)
    assert [(frame.code, frame.opaque, frame.flag) for frame in frames] == [
        (row["code"], row["opaque"], row["flag"]) for row in FRAMES
    ]
    assert [frame.body().hex() for frame in frames] == [row["body"] for row in FRAMES]
