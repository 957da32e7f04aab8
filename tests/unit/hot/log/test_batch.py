import pytest

from aerobee.errors import InvalidArgumentError, RemoteProtocolError
from aerobee.hot.log.batch import decode_batch, encode_batch, split_batch
from aerobee.hot.log.layout import PART_FIXED_SIZE

PARTS = [(5, b"hello, log", b"k\x01v\x02WAIT\x01true\x02"), (0, b"two", b"WAIT\x01true\x02")]
# Written by release 5.5.0: MessageDecoder.encodeMessages.
APACHE = (
    "0000002E0000000000000000000000050000000A68656C6C6F2C206C6F67000E6B017602574149540174727565020000"
    "00230000000000000000000000000000000374776F000A57414954017472756502"
)


def test_the_bytes_are_apaches() -> None:
    assert encode_batch(PARTS).hex().upper() == APACHE
    assert decode_batch(bytes.fromhex(APACHE), 100) == PARTS


def test_no_truncation_raises_anything_else() -> None:
    whole = encode_batch(PARTS)
    first = PART_FIXED_SIZE + len(PARTS[0][1]) + len(PARTS[0][2])
    for end in range(len(whole)):
        if end in (0, first):
            assert decode_batch(whole[:end], 100) == PARTS[: end > 0]
        else:
            with pytest.raises(RemoteProtocolError):
                decode_batch(whole[:end], 100)


def test_negative_lengths_and_counts_are_refused() -> None:
    whole = bytearray(encode_batch(PARTS))
    for at in (16, 30):
        hurt = bytearray(whole)
        hurt[at] |= 0x80
        with pytest.raises(RemoteProtocolError):
            decode_batch(bytes(hurt), 100)
    with pytest.raises(RemoteProtocolError):
        decode_batch(bytes(whole), 1)


def test_what_does_not_fit_is_refused() -> None:
    for part in ((1 << 31, b"", b""), (0, b"", b"p" * 32768)):
        with pytest.raises(InvalidArgumentError):
            encode_batch([part])


def test_split_keeps_both_bounds() -> None:
    assert split_batch([], 100, 10) == []
    assert split_batch([60, 40, 1, 99, 100], 100, 10) == [(0, 2), (2, 4), (4, 5)]
    assert split_batch([1] * 5, 100, 2) == [(0, 2), (2, 4), (4, 5)]
    with pytest.raises(InvalidArgumentError):
        split_batch([101], 100, 2)
