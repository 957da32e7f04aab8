import time

import pytest

from aerobee.errors import InvalidArgumentError
from aerobee.model.compression import (
    CompressionType,
    DecompressionError,
    compress,
    compression_of,
    decompress,
    opening,
    parse_compression,
)

BODY = bytes(b"rocketmq "[i % 9] for i in range(600))
# Written by release 5.5.0: Lz4Compressor, ZstdCompressor, ZlibCompressor at level 5.
APACHE = {
    CompressionType.LZ4: "04224D18607073150000009F726F636B65746D71200900FFFF39506F636B657400000000",
    CompressionType.ZSTD: "28B52FFD005884000048726F636B65746D712001004C589523010000",
    CompressionType.ZLIB: "785E2BCA4FCE4E2DC92D54281A658C32A8C7000018EAEB15",
}
EVERY = list(CompressionType)


@pytest.mark.parametrize("kind", EVERY)
def test_apaches_bodies_unfold(kind: CompressionType) -> None:
    assert decompress(bytes.fromhex(APACHE[kind]), kind.flag) == BODY


@pytest.mark.parametrize("kind", EVERY)
def test_round_trip(kind: CompressionType) -> None:
    for body in (b"", b"a", BODY, BODY * 2000):
        assert decompress(compress(body, kind), kind.flag) == body


def test_the_flag_says_which() -> None:
    assert compression_of(0) is None
    assert compression_of(0x300) is None
    assert compression_of(1) is CompressionType.ZLIB
    assert [compression_of(kind.flag | 0x30) for kind in EVERY] == EVERY
    assert decompress(b"plain", 0) == b"plain"
    with pytest.raises(DecompressionError):
        compression_of(0x401)


@pytest.mark.parametrize("kind", EVERY)
def test_the_bound_is_exact(kind: CompressionType) -> None:
    folded = compress(BODY, kind)
    assert decompress(folded, kind.flag, len(BODY)) == BODY
    with pytest.raises(DecompressionError):
        decompress(folded, kind.flag, len(BODY) - 1)


@pytest.mark.parametrize("kind", EVERY)
def test_a_bomb_is_refused_without_unfolding_it(kind: CompressionType) -> None:
    zeros = bytes(64 << 20)
    bomb = compress(zeros, kind, 1)
    begin = time.process_time()
    with pytest.raises(DecompressionError):
        decompress(bomb, kind.flag, 1 << 20)
    refused = time.process_time() - begin
    begin = time.process_time()
    decompress(bomb, kind.flag, 64 << 20)
    assert refused < time.process_time() - begin


@pytest.mark.parametrize("kind", EVERY)
def test_cut_or_garbage_never_raises_anything_else(kind: CompressionType) -> None:
    folded = compress(BODY, kind)
    for end in range(len(folded)):
        with pytest.raises(DecompressionError):
            decompress(folded[:end], kind.flag)
    for bit in range(len(folded) * 8):
        hurt = bytearray(folded)
        hurt[bit >> 3] ^= 1 << (bit & 7)
        try:
            decompress(bytes(hurt), kind.flag, 1 << 16)
        except DecompressionError:
            continue


@pytest.mark.parametrize("kind", EVERY)
def test_an_opening_is_the_beginning_of_what_was_folded_and_no_more(kind: CompressionType) -> None:
    folded = compress(BODY, kind)
    for size in (1, 7, 599, 600, 601, 1 << 20):
        assert opening(folded, kind.flag, size) == BODY[:size]
    assert opening(BODY, 0, 9) == BODY[:9] and opening(b"", kind.flag, 9) == b""
    assert opening(b"not folded at all", kind.flag, 9) == b"not folde" and opening(BODY, kind.flag | 7 << 8, 2) == b"ro"
    bomb = compress(bytes(64 << 20), kind, 1)
    begin = time.process_time()
    assert opening(bomb, kind.flag, 500) == bytes(500)
    opened = time.process_time() - begin
    begin = time.process_time()
    decompress(bomb, kind.flag)
    assert opened * 10 < time.process_time() - begin


def test_names() -> None:
    assert parse_compression(" zstd ") is CompressionType.ZSTD
    with pytest.raises(InvalidArgumentError):
        parse_compression("gzip")
