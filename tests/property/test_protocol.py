"""The protocol for any command, any chunking, any bytes."""

import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.errors import RemoteProtocolError
from aerobee.hot.wire.frame import scan
from aerobee.model.dialect import DialectError, ObjectKey, dumps, loads
from aerobee.protocol.bodies.offsets import ConsumeStats
from aerobee.protocol.bodies.register import RegisterBrokerBody
from aerobee.protocol.codes import BINARY, JSON, LANGUAGES
from aerobee.protocol.command import Command, decode_frame, encode_command
from aerobee.protocol.connection import Connection
from aerobee.protocol.headers.base import InvalidHeaderError
from aerobee.protocol.sending import decode_send

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ints = st.integers(-(2**31), 2**31 - 1)


@st.composite
def commands(draw: st.DrawFn) -> Command:
    codec = draw(st.sampled_from([JSON, BINARY]))
    # A binary header has no empty texts: Apache reads them as absent.
    least = 1 if codec == BINARY else 0
    words = st.text(st.characters(exclude_categories=["Cs"]), min_size=least, max_size=20)
    names = st.one_of(words, st.sampled_from(["opaque", "flag", "code", "topic", 'x"flag']))
    return Command(
        draw(st.integers(-32768, 32767) if codec == BINARY else ints),
        draw(ints),
        draw(ints),
        draw(st.dictionaries(names, words, max_size=20)),
        draw(st.binary(max_size=64)),
        draw(st.none() | words),
        draw(st.sampled_from(LANGUAGES)),
        draw(st.integers(-32768, 32767)),
        codec,
    )


@given(commands())
def test_any_command_survives(command: Command) -> None:
    data = encode_command(command)
    frames, end, problem = scan(data, 0)
    assert (len(frames), end, problem) == (1, len(data), "")
    assert (frames[0].code, frames[0].opaque, frames[0].flag) == (command.code, command.opaque, command.flag)
    assert decode_frame(data) == command


@given(st.lists(commands(), max_size=4), st.lists(st.integers(1, 50), max_size=40), st.booleans())
def test_any_chunking_gives_the_same_commands(sent: list[Command], cuts: list[int], bad_end: bool) -> None:
    data = b"".join(map(encode_command, sent)) + (struct.pack(">II", 2, 0) if bad_end else b"")
    connection = Connection()
    got: list[Command] = []
    at = 0
    try:
        for size in [*cuts, len(data) + 1]:
            got += connection.receive_data(data[at : at + size])
            at += size
    except RemoteProtocolError:
        assert bad_end
    assert got == sent
    assert (connection.error is not None) == bad_end


def damaged(data: bytes, at: int, byte: int) -> bytes:
    at %= len(data)
    return data[:at] + bytes([byte]) + data[at + 1 :]


@given(st.binary(max_size=200))
def test_random_bytes_only_ever_raise_the_protocols_error(data: bytes) -> None:
    connection = Connection()
    try:
        connection.receive_data(data)
    except RemoteProtocolError:
        assert connection.error is not None


@settings(max_examples=300)
@given(commands(), st.integers(0, 10_000), st.integers(0, 255))
def test_one_wrong_byte_only_ever_raises_the_protocols_error(command: Command, at: int, byte: int) -> None:
    data = damaged(encode_command(command), at, byte)
    connection = Connection()
    try:
        connection.receive_data(data)
    except RemoteProtocolError:
        assert connection.error is not None
    for frame in scan(data, 0)[0]:
        try:
            decode_send(frame)
        except (RemoteProtocolError, InvalidHeaderError):
            continue


scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts
flat_keys = st.dictionaries(texts, st.integers(0, 9) | texts, min_size=1, max_size=3).map(ObjectKey.of)
keys = texts | st.integers(-(2**63), 2**63 - 1) | flat_keys
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return [without_nulls(v) for v in value] if isinstance(value, list) else value


@given(documents, st.booleans())
def test_any_document_survives_the_dialect(value: Any, pretty: bool) -> None:
    assert loads(dumps(value, pretty=pretty)) == without_nulls(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_double_survives_the_dialect(value: float) -> None:
    assert loads(dumps([value])) == [value]


@given(st.one_of(st.binary(max_size=60), st.text('{}[]:,"0123a\\. ', max_size=60).map(str.encode)))
def test_any_text_only_ever_raises_the_dialects_error(data: bytes) -> None:
    for read in (loads, ConsumeStats.decode, RegisterBrokerBody.decode):
        try:
            read(data)
        except DialectError:
            continue


@given(st.binary(max_size=60), st.integers(0, 600))
def test_any_compressed_register_body_only_ever_raises_the_dialects_error(data: bytes, version: int) -> None:
    import zlib

    for body in (data, zlib.compress(data), zlib.compress(struct.pack(">I", 2) + b"{}" + data)):
        try:
            RegisterBrokerBody.decode_compressed(body, version)
        except DialectError:
            continue
