"""How a process divides its open-file limit: a share for the store, the rest for connections.

Many clients must not use up the descriptors that the log needs. A connection beyond the share is refused, and the
connections that exist are not affected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aerobee.net.limits import ConnectionLimits

# For state files being replaced, directories being synced, name servers, certificates and threads.
_SPARE: Final = 32
_QUEUE_FILES: Final = range(16, 512 + 1)
_QUEUES_AT_ONCE: Final = range(4, 32 + 1)
# This many clients are served in any case. Whatever then exceeds the limit is refused until files are closed.
_CONNECTIONS_LEAST: Final = 16


@dataclass(frozen=True, slots=True)
class Shares:
    """How many files each part may have open."""

    connections: int
    # Consume queue files that stay open, and queues that are written in one step.
    queue_files: int
    queues_at_once: int


def shares(limit: int | None, in_use: int = 0, *, with_store: bool = True) -> Shares:
    """Return the shares of a process that has `in_use` files open and may have `limit` (None means any number)."""
    connections_max = ConnectionLimits().connections_max
    if limit is None:
        return Shares(connections_max, _QUEUE_FILES[-1], _QUEUES_AT_ONCE[-1])
    queue_files = _within(limit // 8, _QUEUE_FILES)
    at_once = _within(queue_files // 4, _QUEUES_AT_ONCE)
    # The files in use grow with the log. A queue that is written may have two more files open than those kept.
    taken = in_use + in_use // 4 + _SPARE + (queue_files + 2 * at_once if with_store else 0)
    return Shares(max(_CONNECTIONS_LEAST, min(connections_max, limit - taken)), queue_files, at_once)


def _within(value: int, bounds: range) -> int:
    return max(bounds[0], min(bounds[-1], value))
