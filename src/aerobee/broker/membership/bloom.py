"""The bit positions that Apache gives each (group, topic) with a filter, as `consumerFilter.json` holds them.

Bit maps themselves (enableCalcFilterBitMap) are not kept here; the positions are written because Apache's broker throws
away a file of filters whose positions are not its own. RocketMQ: BloomFilter, ConsumerFilterManager.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

_MASK: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


@dataclass(frozen=True, slots=True)
class Bloom:
    """A Bloom filter of `bits`, of which each key has `hashes`. RocketMQ: BloomFilter.createByFn."""

    bits: int
    hashes: int

    @classmethod
    def sized(cls, error_percent: int = 20, keys: int = 32) -> Bloom:
        """Return a filter for so many keys at this rate of false hits."""
        rate = error_percent / 100
        hashes = math.ceil(math.log(rate) / math.log(0.5))
        bits = math.ceil(keys * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        return cls(8 * math.ceil(bits / 8), hashes)

    def data_of(self, group: str, topic: str) -> dict[str, Any]:
        """Return Apache's BloomFilterData."""
        value = murmur3_64(f"{group}#{topic}".encode())
        low, high = value & 0xFFFFFFFF, value >> 32
        positions = []
        for number in range(1, self.hashes + 1):
            mixed = (low + number * high) & 0xFFFFFFFF
            # As a Java int, with a negative one's bits flipped.
            positions.append((mixed if mixed < 1 << 31 else ~mixed & 0xFFFFFFFF) % self.bits)
        return {"bitNum": self.bits, "bitPos": positions}


def murmur3_64(data: bytes) -> int:
    """Return the first 64 bits of MurmurHash3 x64 128 with seed 0."""
    one = two = 0
    whole = len(data) & ~15
    for at in range(0, whole, 16):
        one ^= _mix_one(int.from_bytes(data[at : at + 8], "little"))
        one = (_rotated(one, 27) + two) * 5 + 0x52DCE729 & _MASK
        two ^= _mix_two(int.from_bytes(data[at + 8 : at + 16], "little"))
        two = (_rotated(two, 31) + one) * 5 + 0x38495AB5 & _MASK
    two ^= _mix_two(int.from_bytes(data[whole + 8 :], "little"))
    one ^= _mix_one(int.from_bytes(data[whole : whole + 8], "little"))
    one ^= len(data)
    two ^= len(data)
    one = one + two & _MASK
    two = two + one & _MASK
    return _final(one) + _final(two) & _MASK


def _mix_one(value: int) -> int:
    return _rotated(value * _C1 & _MASK, 31) * _C2 & _MASK


def _mix_two(value: int) -> int:
    return _rotated(value * _C2 & _MASK, 33) * _C1 & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _final(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
