"""The connection machine: chunks do not matter, and an error is for good."""

import struct

import pytest

from aerobee.errors import RemoteProtocolError
from aerobee.protocol.command import Command, encode_command
from aerobee.protocol.connection import Connection

ONE = encode_command(Command(10, 1, body=b"x" * 100))
TWO = encode_command(Command(11, 2, ext={"topic": "t"}, codec=1))


def test_byte_by_byte() -> None:
    connection = Connection()
    codes = [command.code for byte in ONE + TWO for command in connection.receive_data(bytes([byte]))]
    assert codes == [10, 11] and connection.held == 0


def test_what_is_not_whole_is_held() -> None:
    connection = Connection()
    assert [c.code for c in connection.receive_data(ONE + TWO[:9])] == [10]
    assert connection.held == 9
    assert [c.code for c in connection.receive_data(TWO[9:] + ONE)] == [11, 10]


def test_commands_before_an_error_are_given_and_then_it_is_for_good() -> None:
    connection = Connection()
    assert len(connection.receive_data(ONE + struct.pack(">II", 1, 0))) == 1
    assert "frame length 1" in str(connection.error)
    for data in (ONE, b""):
        with pytest.raises(RemoteProtocolError, match="frame length 1"):
            connection.receive_data(data)
    assert connection.held == 0


def test_an_error_with_nothing_before_it_is_raised_at_once() -> None:
    connection = Connection()
    with pytest.raises(RemoteProtocolError):
        connection.receive_data(b"GET / HTTP/1.1\r\n")
    assert connection.error is not None


def test_a_header_that_does_not_decode_is_an_error_too() -> None:
    header = b'{"code":1,"flag":0,"opaque":0,"extFields":7}'
    bad = struct.pack(">II", 4 + len(header), len(header)) + header
    connection = Connection()
    assert [c.code for c in connection.receive_data(TWO + bad + ONE)] == [11]
    assert connection.error is not None
    with pytest.raises(RemoteProtocolError):
        Connection().receive_data(bad)


def test_the_owner_can_fail_it() -> None:
    connection = Connection()
    connection.receive_data(ONE[:20])
    connection.fail(RemoteProtocolError("bad"))
    with pytest.raises(RemoteProtocolError, match="bad"):
        connection.receive_frames(ONE[20:])


def test_a_large_frame_is_joined_once() -> None:
    body = bytes(1 << 20)
    data = encode_command(Command(10, body=body))
    connection = Connection()
    got = []
    for at in range(0, len(data), 1000):
        got += connection.receive_data(data[at : at + 1000])
    assert [len(command.body) for command in got] == [1 << 20]
