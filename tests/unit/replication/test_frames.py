"""The frames of the dialect: what is written is read, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.errors import RemoteProtocolError
from aerobee.replication.frames import (
    ACK_SIZE,
    BODY_SIZE_MAX,
    DATA_HEAD_SIZE,
    MAGIC,
    OFFSET_MAX,
    Ack,
    Begin,
    Data,
    FrameReader,
    Hello,
    Refuse,
    Words,
    WordsKind,
    encode_ack,
    encode_data,
    encode_words,
)

DATA = Data(4096, 7, 4000, 1_000_001, b"records", True)
ACK = Ack(7, 4103, 4096, 1_000_001)
HELLO = Hello(
    cluster="c",
    group="g",
    id=2,
    incarnation="ab" * 16,
    epoch=7,
    epochs=[(1, 0), (7, 10)],
    start=0,
    end=90,
    segment_size=1,
)


def stream() -> bytes:
    return encode_words(WordsKind.HELLO, HELLO) + b"".join(encode_data(DATA)) + encode_ack(ACK)


def test_the_sizes_are_those_of_the_page() -> None:
    assert (DATA_HEAD_SIZE, ACK_SIZE) == (44, 40)
    assert encode_data(DATA)[0].hex() == (
        "00030001000000070000000000001000000000070000000000000fa000000000000f4241" + encode_data(DATA)[0][-8:].hex()
    )
    assert encode_words(WordsKind.BYE, Refuse(reason="x"))[:8] == MAGIC + b"\0\1\0\7"


@given(st.integers(1, 50))
def test_frames_are_read_however_they_are_cut(size: int) -> None:
    reader, data, found = FrameReader(), stream(), []
    for at in range(0, len(data), size):
        found += reader.feed(data[at : at + size])
    assert isinstance(found[0], Words)
    assert found[0].read(Hello) == HELLO
    assert found[1:] == [DATA, ACK]


@given(st.integers(0, len(stream()) - 1), st.integers(0, 7))
def test_a_flipped_bit_is_never_taken(at: int, bit: int) -> None:
    """Only the version of words is outside the checksums: another version is refused later."""
    wrong = bytearray(stream())
    wrong[at] ^= 1 << bit
    try:
        found = FrameReader().feed(bytes(wrong))
        hello = found[0]
        assert not isinstance(hello, Words) or hello.read(Hello) == HELLO
    except RemoteProtocolError:
        return
    assert 4 <= at < 8 or [DATA, ACK] != found[1:] or len(found) < 3 or at >= len(wrong) - 4


@given(st.binary(max_size=300))
def test_bytes_without_sense_raise_one_kind_of_error(data: bytes) -> None:
    try:
        for frame in FrameReader().feed(data):
            if isinstance(frame, Words):
                frame.read(Hello)
    except RemoteProtocolError:
        return


def test_sizes_are_refused_before_their_bytes_come() -> None:
    head = encode_data(Data(0, 1, 0, 0, b"x" * 10))[0]
    with pytest.raises(RemoteProtocolError, match="not allowed"):
        FrameReader(body_size_max=9).feed(head)
    words = bytearray(encode_words(WordsKind.HELLO, HELLO)[:16])
    words[8:12] = (BODY_SIZE_MAX).to_bytes(4, "big")
    with pytest.raises(RemoteProtocolError, match="not allowed"):
        FrameReader().feed(bytes(words))


@pytest.mark.parametrize("ack", [Ack(1, OFFSET_MAX + 1, 0, 0), Ack(1, -1, -1, 0), Ack(1, 5, 6, 0), Ack(1, 5, 5, -1)])
def test_an_ack_that_cannot_be_is_refused(ack: Ack) -> None:
    with pytest.raises(RemoteProtocolError, match="not allowed"):
        FrameReader().feed(encode_ack(ack))


@pytest.mark.parametrize(
    "body",
    [
        b'{"epoch":1,"written":-1,"stored":0}',
        b'{"epoch":1,"written":' + b"9" * 5000 + b',"stored":0}',
        b'{"epoch":1,"written":4611686018427387904,"stored":0}',
        b"[" * 5000,
        b'{"epoch":1}',
        b"",
    ],
)
def test_words_without_sense_are_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="no sense"):
        Words(1, WordsKind.BEGIN, body).read(Begin)
