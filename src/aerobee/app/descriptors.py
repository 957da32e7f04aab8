"""How a process shares out what it may have open: a part for the store, the rest for connections.

A crowd of clients must not take the descriptors by which the log goes on: a connection beyond its share is refused, and
those that are there notice nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aerobee.net.limits import ConnectionLimits

# State files while they are replaced, directories while they are synced, name servers, certificates, threads.
_SPARE: Final = 32
_QUEUE_FILES: Final = range(16, 512 + 1)
_QUEUES_AT_ONCE: Final = range(4, 32 + 1)
# So few clients are served in any case; then a shortage refuses what it must, until it is over.
_CONNECTIONS_LEAST: Final = 16


@dataclass(frozen=True, slots=True)
class Shares:
    """What each may have open."""

    connections: int
    # Of consume queues: files kept open, and queues written in one step.
    queue_files: int
    queues_at_once: int


def shares(limit: int | None, in_use: int = 0, *, with_store: bool = True) -> Shares:
    """Return the shares of a process that may have `limit` files open (None: any number) and has `in_use` open."""
    connections_max = ConnectionLimits().connections_max
    if limit is None:
        return Shares(connections_max, _QUEUE_FILES[-1], _QUEUES_AT_ONCE[-1])
    queue_files = _within(limit // 8, _QUEUE_FILES)
    at_once = _within(queue_files // 4, _QUEUES_AT_ONCE)
    # What is open now grows with the log. A queue that is written may have two files open beside those kept.
    taken = in_use + in_use // 4 + _SPARE + (queue_files + 2 * at_once if with_store else 0)
    return Shares(max(_CONNECTIONS_LEAST, min(connections_max, limit - taken)), queue_files, at_once)


def _within(value: int, bounds: range) -> int:
    return max(bounds[0], min(bounds[-1], value))
