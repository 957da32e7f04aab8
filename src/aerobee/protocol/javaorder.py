"""The order in which Java's HashMap and HashSet iterate, so that our frames equal Apache's byte for byte.

A reader does not care for the order of ext fields. It lets tests compare a recorded frame of Apache as bytes.
RocketMQ: RemotingCommand.getClazzFields (a HashSet of fields), extFields (a HashMap).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

from aerobee.hot.log.javahash import extend_hash

T = TypeVar("T", bound=Hashable)

_CACHE_MAX = 4096
_cache: dict[tuple[str, ...], tuple[str, ...]] = {}


def map_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names in the order in which a new HashMap iterates them."""
    known = _cache.get(names)
    if known is None:
        known = tuple(_iterate([(n, extend_hash(0, n)) for n in names]))
        if len(_cache) >= _CACHE_MAX:
            _cache.clear()
        _cache[names] = known
    return known


def field_order(fields: Sequence[tuple[str, str]]) -> list[str]:
    """Return the names of (class, field name) pairs as a HashSet of reflection Fields iterates them."""
    return _iterate([(name, extend_hash(0, owner) ^ extend_hash(0, name)) for owner, name in fields])


def hashed_order(items: Sequence[tuple[T, int]]) -> list[T]:
    """Return items with their unsigned hash codes in the order in which a new HashMap iterates them."""
    return _iterate(items)


def roomy_order(names: Sequence[str], capacity: int) -> list[str]:
    """Return names in the order of a HashMap that was made for `capacity` entries, a power of two."""
    return _iterate([(name, extend_hash(0, name)) for name in names], capacity)


def properties_order(names: Sequence[str]) -> list[str]:
    """Return names in the order in which a Properties that got them one by one iterates them.

    It is a ConcurrentHashMap. When that grows, it turns around a part of each bucket (ConcurrentHashMap.transfer).
    """
    size, count = 16, 0
    buckets: dict[int, list[tuple[int, str]]] = {}
    for name in dict.fromkeys(names):
        code = extend_hash(0, name)
        code ^= code >> 16
        buckets.setdefault(code & (size - 1), []).append((code, name))
        count += 1
        while count >= size - (size >> 2):
            buckets = _transferred(buckets, size)
            size *= 2
    return [name for index in sorted(buckets) for _, name in buckets[index]]


def _transferred(buckets: dict[int, list[tuple[int, str]]], size: int) -> dict[int, list[tuple[int, str]]]:
    grown: dict[int, list[tuple[int, str]]] = {}
    for index, bucket in buckets.items():
        last = len(bucket) - 1
        while last and bucket[last - 1][0] & size == bucket[last][0] & size:
            last -= 1
        halves: dict[int, list[tuple[int, str]]] = {bucket[last][0] & size: bucket[last:]}
        for entry in bucket[:last]:
            halves.setdefault(entry[0] & size, []).insert(0, entry)
        grown |= {index + half: entries for half, entries in halves.items()}
    return grown


def _iterate(items: Sequence[tuple[T, int]], capacity: int = 16) -> list[T]:
    """Return items by bucket, and within a bucket as they were added. The table doubles when it is 3/4 full."""
    while len(items) > capacity * 3 // 4:
        capacity *= 2
    mask = capacity - 1
    return [item for item, _ in sorted(items, key=lambda pair: (pair[1] ^ pair[1] >> 16) & mask)]
