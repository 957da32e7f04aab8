"""HTTP/1.1 as etcd's gateway speaks it: whole, in pieces, and what is refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.coordination.http import (
    HEAD_BYTES_MAX,
    AnswerReader,
    HttpRequest,
    RequestReader,
    encode_answer,
    encode_chunk,
    encode_request,
    encode_stream_head,
)
from aerobee.errors import RemoteProtocolError


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


def read_all(reader: RequestReader, chunks: list[bytes]) -> list[HttpRequest]:
    found: list[HttpRequest] = []
    for chunk in chunks:
        reader.receive(chunk)
        while (request := reader.next()) is not None:
            found.append(request)
    return found


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=4), st.lists(st.integers(0, 1000)))
def test_requests_in_any_pieces(bodies: list[bytes], cuts: list[int]) -> None:
    data = b"".join(encode_request("/v3/kv/txn", "h:1", body, "token") for body in bodies)
    found = read_all(RequestReader(1000), pieces(data, cuts))
    assert [request.body for request in found] == bodies
    assert {(request.method, request.path, request.headers["authorization"]) for request in found} == {
        ("POST", "/v3/kv/txn", "token")
    }


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=4), st.lists(st.integers(0, 1000)))
def test_answers_in_any_pieces(chunks: list[bytes], cuts: list[int]) -> None:
    data = encode_answer(404, b"whole") + encode_stream_head() + b"".join(map(encode_chunk, chunks)) + b"0\r\n\r\n"
    reader = AnswerReader(1000)
    parts = [part for piece in pieces(data, cuts) for part in reader.receive(piece)]
    assert (parts[0].status, parts[0].data, parts[0].is_last) == (404, b"whole", True)
    assert [part.data for part in parts[1:]] == [*chunks, b""]
    assert [part.is_last for part in parts[1:]] == [False] * len(chunks) + [True]


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length : 1\r\n\r\n",
        b"POST / HTTP/1.1\r\n folded\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"x" * HEAD_BYTES_MAX,
        b"POST / HTTP/1.1\r\n\r\n" + b"x" * (HEAD_BYTES_MAX + 1000),
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    ],
)
def test_requests_without_sense_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_all(RequestReader(1000), [data])


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 x OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 99999 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 300,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"9" * 5000 + b"\r\n",
        b"x" * (HEAD_BYTES_MAX + 1001),
    ],
)
def test_answers_without_sense_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        AnswerReader(1000).receive(data)
