import pytest

from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.host import decode_host, encode_host


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("1.2.3.4:10911", "01020304" "00002a9f"),
        ("255.255.255.255:0", "ffffffff" "00000000"),
        ("[2001:db8::1]:65535", "20010db8000000000000000000000001" "0000ffff"),
        ("[::1]:80", "00000000000000000000000000000001" "00000050"),
    ],
)  # fmt: skip
def test_both_ways(text: str, raw: str) -> None:
    assert encode_host(text).hex() == raw
    assert decode_host(bytes.fromhex(raw)) == text


def test_other_spellings() -> None:
    assert encode_host("0:0:0:0:0:0:0:1:80") == encode_host("[::1]:80") == encode_host("::1", 80)
    assert encode_host("[::ffff:1.2.3.4]:80") == encode_host("1.2.3.4:80") == encode_host("1.2.3.4", 80)
    assert encode_host("fe80::1%eth0", 80) == encode_host("[fe80::1]:80")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1.2.3.4",
        "1.2.3.4:",
        ":80",
        "1.2.3:80",
        "host:80",
        "1.2.3.4:65536",
        "1.2.3.4:-1",
        "[::g]:1",
        "1.2.3.4:\u0662",
    ],
)
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        encode_host(text)


def test_damaged_hosts() -> None:
    assert decode_host(b"\1\2\3\4\xff\xff\xff\xff") == "1.2.3.4:-1"
    with pytest.raises(InvalidArgumentError):
        decode_host(b"\1\2\3\4")
    with pytest.raises(InvalidArgumentError):
        encode_host("1.2.3.4", 70000)
