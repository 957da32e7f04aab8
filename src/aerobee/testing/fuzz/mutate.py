"""A seeded mutator: the same seed gives the same bytes on every machine and in every version of Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aerobee.testing.entropy import SeededEntropy

# Pieces that readers often get wrong: bounds of lengths, separators, words of JSON, half of a UTF-8 character.
_TOKENS: Final = (
    b"\x00", b"\xff", b"\x7f", b"\x80", b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00", b"\x7f\xff", b"\x80\x00", b"\x01", b"\x02", b'"', b"{", b"}", b"[", b"]", b":", b",",
    b"\\", b"\\u0000", b"\\ud800", b"null", b"true", b"-1", b"0", b"9" * 25, b"9" * 5000, b"1e999", b"-0.0",
    b"NaN", b"Infinity", b"{{", b"[[[[[[[[", b"\xed\xa0\x80", b"\xc3", b"\xf0\x9f", b"/", b"..", b"\n",
    b"%RETRY%", b" " * 40, b"'", b"(", b")", b"NOT ", b"||",
)  # fmt: skip
_SIZE_MAX: Final = 70_000


class Mutator:
    """A maker of inputs from sample inputs. Now and then it gives a sample itself or random bytes."""

    def __init__(self, seeds: Sequence[bytes], entropy: SeededEntropy) -> None:
        if not seeds:
            raise ValueError("a mutator needs at least one seed")
        self._seeds = seeds
        self._entropy = entropy

    def next(self) -> bytes:
        """Return the next input."""
        below = self._entropy.below
        seed = self._seeds[below(len(self._seeds))]
        kind = below(64)
        if kind == 0:
            return self._entropy.token(below(64))
        data = bytearray(seed)
        for _ in range(1 + below(4)):
            self._change(data)
        return bytes(data[:_SIZE_MAX])

    def _change(self, data: bytearray) -> None:
        below = self._entropy.below
        size = len(data)
        at = below(size + 1)
        kind = below(8)
        if kind == 0 and size:
            data[at % size] ^= 1 << below(8)
        elif kind == 1 and size:
            data[at % size] = below(256)
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            del data[at : at + 1 + below(16)]
        elif kind == 4:
            data[at:at] = _TOKENS[below(len(_TOKENS))]
        elif kind == 5:
            token = _TOKENS[below(len(_TOKENS))]
            data[at : at + len(token)] = token
        elif kind == 6:
            other = self._seeds[below(len(self._seeds))]
            begin = below(len(other) + 1)
            data[at:at] = other[begin : begin + below(64)]
        else:
            data[at:at] = data[at : at + 1 + below(32)] * (1 + below(4))
