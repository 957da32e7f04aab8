"""How connections begin: plain, TLS and PROXY headers of both versions, whole or in any pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.errors import RemoteProtocolError
from aerobee.protocol.greeting import Greeted, Greeting

FRAME = b"\x00\x00\x00\x0c\x00\x00\x00\x08{}      "
HELLO = b"\x16\x03\x01\x00\x05hello"
SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V4 = bytes([192, 0, 2, 1, 192, 0, 2, 2, 0xC3, 0x50, 0x2A, 0x9F])
V6 = bytes.fromhex("20010db8000000000000000000000001" * 2) + bytes([0xC3, 0x50, 0x2A, 0x9F])


def v2(command: int, family: int, addresses: bytes, tlvs: bytes = b"") -> bytes:
    rest = addresses + tlvs
    return SIGNATURE + bytes([0x20 | command, family]) + len(rest).to_bytes(2, "big") + rest


GOOD = {
    "none": (b"", None),
    "v1 TCP4": (b"PROXY TCP4 192.0.2.1 192.0.2.2 50000 10911\r\n", ("192.0.2.1", 50000)),
    "v1 TCP6": (b"PROXY TCP6 2001:db8::1 2001:db8::2 50000 10911\r\n", ("2001:db8::1", 50000)),
    "v1 UNKNOWN": (b"PROXY UNKNOWN\r\n", None),
    "v1 UNKNOWN with words": (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", None),
    "v1 of 107 bytes": (b"PROXY UNKNOWN " + b"x" * 91 + b"\r\n", None),
    "v2 IPv4": (v2(1, 0x11, V4), ("192.0.2.1", 50000)),
    "v2 IPv4 with TLVs": (v2(1, 0x11, V4, b"\x01\x00\x02h2\x04\x00\x00"), ("192.0.2.1", 50000)),
    "v2 IPv6": (v2(1, 0x21, V6), ("2001:db8::1", 50000)),
    "v2 UNIX": (v2(1, 0x31, b"/run/a".ljust(108, b"\0") * 2), None),
    "v2 unspecified": (v2(1, 0x00, b""), None),
    "v2 LOCAL": (v2(0, 0x00, b""), None),
    "v2 LOCAL with addresses": (v2(0, 0x11, V4), None),
    "v2 of 536 bytes": (v2(1, 0x11, V4, bytes(508)), ("192.0.2.1", 50000)),
}
BAD = {
    "v1 without end": (b"PROXY UNKNOWN " + b"x" * 92 + b"\r\n", "no line end within 107 bytes"),
    "v1 of another family": (b"PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n", "is not PROXY TCP4"),
    "v1 with too few words": (b"PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n", "is not PROXY TCP4"),
    "v1 with a name": (b"PROXY TCP4 localhost 192.0.2.2 1 2\r\n", "'localhost' is not an IPv4 address"),
    "v1 with the other family's address": (b"PROXY TCP6 ::1 192.0.2.2 1 2\r\n", "is not an IPv6 address"),
    "v1 with a scope": (b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", "is not an IPv6 address"),
    "v1 with a large port": (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n", "'65536' is not a port"),
    "v1 with a negative port": (b"PROXY TCP4 192.0.2.1 192.0.2.2 -1 2\r\n", "'-1' is not a port"),
    "v1 with foreign digits": ("PROXY TCP4 192.0.2.1 192.0.2.2 ² 2\r\n".encode("latin-1"), "is not a port"),
    "v2 of version 3": (SIGNATURE + b"\x31\x11\x00\x0c" + V4, "version 3"),
    "v2 of command 2": (v2(2, 0x11, V4), "command 2"),
    "v2 of family 4": (v2(1, 0x41, V4), "address family 4"),
    "v2 of transport 3": (v2(1, 0x13, V4), "transport 3"),
    "v2 too short for its addresses": (v2(1, 0x21, V4), "12 bytes do not hold its addresses"),
    "v2 of 537 bytes": (v2(1, 0x11, V4, bytes(509)), "537 bytes, more than 536"),
}


def feed(pieces: list[bytes]) -> Greeted | None:
    """What a driver sees: the rest holds everything that follows the header."""
    greeting = Greeting()
    for number, piece in enumerate(pieces):
        greeted = greeting.receive_data(piece)
        if greeted is not None:
            return Greeted(greeted.is_tls, greeted.source, greeted.rest + b"".join(pieces[number + 1 :]))
    return None


@st.composite
def cut(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The same bytes in any number of reads, none of them empty."""
    at = draw(st.sets(st.integers(1, max(1, len(data) - 1))))
    bounds = [0, *sorted(one for one in at if one < len(data)), len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]


@pytest.mark.parametrize("name", GOOD)
@given(data=st.data())
def test_every_greeting_in_any_pieces(name: str, data: st.DataObject) -> None:
    header, source = GOOD[name]
    for rest in (FRAME, HELLO):
        assert feed(data.draw(cut(header + rest))) == Greeted(rest is HELLO, source, rest)


@pytest.mark.parametrize("name", BAD)
@given(data=st.data())
def test_every_bad_header_in_any_pieces(name: str, data: st.DataObject) -> None:
    header, reason = BAD[name]
    with pytest.raises(RemoteProtocolError, match=r"^PROXY header: ") as caught:
        feed(data.draw(cut(header + FRAME)))
    assert reason in caught.value.message


@given(st.binary(min_size=1, max_size=600), st.data())
def test_any_bytes_end_the_same_in_any_pieces(junk: bytes, data: st.DataObject) -> None:
    begun = data.draw(st.sampled_from([b"", b"P", b"PROXY ", SIGNATURE[:5], SIGNATURE, SIGNATURE + b"\x21\x11\x00"]))

    def outcome(pieces: list[bytes]) -> Greeted | str | None:
        try:
            return feed(pieces)
        except RemoteProtocolError as error:
            return error.message

    assert outcome(data.draw(cut(begun + junk))) == outcome([begun + junk])


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n", b"\xff" * 8, b"PROXIED", b"\r\n\r\nQUIT", b"\n"])
def test_what_is_nothing_goes_to_the_frame_reader(junk: bytes) -> None:
    assert feed([junk]) == Greeted(False, None, junk)


@pytest.mark.parametrize("name", GOOD)
def test_a_header_alone_decides_nothing_yet(name: str) -> None:
    header, _ = GOOD[name]
    assert Greeting().receive_data(header) is None


def test_a_second_header_is_no_header() -> None:
    line = b"PROXY TCP4 192.0.2.1 192.0.2.2 50000 10911\r\n"
    assert feed([line + line]) == Greeted(False, ("192.0.2.1", 50000), line)
