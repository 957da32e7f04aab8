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


def _iterate(items: Sequence[tuple[T, int]]) -> list[T]:
    """Return items by bucket, and within a bucket as they were added. The table doubles when it is 3/4 full."""
    capacity = 16
    while len(items) > capacity * 3 // 4:
        capacity *= 2
    mask = capacity - 1
    return [item for item, _ in sorted(items, key=lambda pair: (pair[1] ^ pair[1] >> 16) & mask)]
