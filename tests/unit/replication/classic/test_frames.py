"""The bytes of the HA protocol, whole and in pieces."""

from __future__ import annotations

import struct

import pytest

from aerobee.errors import RemoteProtocolError
from aerobee.replication.classic.frames import (
    ClassicWords,
    LearnerWords,
    Reports,
    Transfer,
    encode_head,
    encode_report,
)


def in_pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def test_a_report_is_eight_bytes() -> None:
    assert encode_report(0x0102030405060708) == bytes(range(1, 9))
    assert encode_head(1, 2) == b"\0\0\0\0\0\0\0\1\0\0\0\2"


@pytest.mark.parametrize("size", [1, 3, 7, 8, 9, 100])
def test_reports_stay_aligned_however_they_arrive(size: int) -> None:
    reports = Reports()
    sent = b"".join(encode_report(offset) for offset in (5, 2**40, -1))
    assert [one for piece in in_pieces(sent, size) for one in reports.feed(piece)] == [5, 2**40, -1]


@pytest.mark.parametrize("size", [1, 11, 12, 13, 1000])
def test_transfers_are_whole_however_they_arrive(size: int) -> None:
    words = ClassicWords()
    sent = encode_head(10, 3) + b"abc" + encode_head(13, 0) + encode_head(13, 1) + b"d"
    found = [one for piece in in_pieces(sent, size) for one in words.feed(piece)]
    assert found == [Transfer(10, b"abc"), Transfer(13, b""), Transfer(13, b"d")]


@pytest.mark.parametrize(("offset", "size"), [(0, -1), (0, 4 * 1024 * 1024 - 11), (-1, 0), (0, 2**31 - 1)])
def test_an_impossible_transfer_is_refused_by_its_head(offset: int, size: int) -> None:
    with pytest.raises(RemoteProtocolError):
        ClassicWords().feed(encode_head(offset, size))


def learner_transfer(offset: int, data: bytes, confirmed: int = 0) -> bytes:
    return struct.pack(">iiqiqq", 2, len(data), offset, 3, 100, confirmed) + data


@pytest.mark.parametrize("size", [1, 16, 20, 36, 1000])
def test_a_learner_greets_before_it_reports(size: int) -> None:
    words = LearnerWords(7)
    assert words.greeting() == struct.pack(">ihhq", 1, 0, 1, 7)
    assert words.report(5) == struct.pack(">iq", 2, 5)
    greeting = struct.pack(">iiqi", 1, 24, 500, 2) + struct.pack(">iqiq", 1, 0, 2, 100)
    assert not [one for piece in in_pieces(greeting, size) for one in words.feed(piece)]
    assert words.is_greeted
    assert words.epochs == [(1, 0), (2, 100)]
    sent = learner_transfer(5, b"abc", 4) + learner_transfer(8, b"")
    found = [one for piece in in_pieces(sent, size) for one in words.feed(piece)]
    assert found == [Transfer(5, b"abc"), Transfer(8, b"")]
    assert words.confirmed == 4


@pytest.mark.parametrize("bad", [struct.pack(">iiqi", 1, 12_012, 0, 0), struct.pack(">iiqi", 2, 0, 0, 0), bytes(20)])
def test_a_learner_refuses_a_master_that_does_not_greet(bad: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        LearnerWords(1).feed(bad)
