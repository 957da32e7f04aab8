"""The order in which Java's HashMap and HashSet iterate, so that our frames equal Apache's byte for byte.

Order of ext fields means nothing to a reader; it means that a recorded frame can be compared as bytes.
RocketMQ: RemotingCommand.getClazzFields (a HashSet of fields), extFields (a HashMap).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)

_CACHE_MAX = 4096
_cache: dict[tuple[str, ...], tuple[str, ...]] = {}


def map_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names put one by one into a new HashMap, as it iterates them."""
    known = _cache.get(names)
    if known is None:
        known = tuple(_iterate([(n, _string_hash(n)) for n in names], 16))
        if len(_cache) >= _CACHE_MAX:
            _cache.clear()
        _cache[names] = known
    return known


def map_order_sized(names: Sequence[str], capacity: int) -> list[str]:
    """As map_order, for `new HashMap<>(capacity)`."""
    return _iterate([(n, _string_hash(n)) for n in names], capacity)


def field_order(fields: Sequence[tuple[str, str]]) -> list[str]:
    """Names of (declaring class, field name) pairs as a HashSet of reflection Fields iterates them."""
    return _iterate([(name, _string_hash(owner) ^ _string_hash(name)) for owner, name in fields], 16)


def _string_hash(text: str) -> int:
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value


def _iterate(items: Sequence[tuple[T, int]], capacity: int) -> list[T]:
    """Buckets in order; within one, insertion order (a split keeps it). The table doubles when 3/4 full."""
    size = len(items)
    while size > capacity * 3 // 4:
        capacity *= 2
    mask = capacity - 1
    return [item for item, _ in sorted(items, key=lambda pair: (pair[1] ^ pair[1] >> 16) & mask)]
