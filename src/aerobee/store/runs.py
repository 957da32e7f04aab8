"""Messages of a queue that are counted by their units alone: readers that need only offsets read no records.

Damage in the log is not seen. Whoever must know of it reads the records (`MessageStore.get_messages`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aerobee.errors import StoreError
from aerobee.hot.log.units import select_units
from aerobee.store.messagestore import MessageStore

# The records are not read, so their size is no limit.
_BYTES_MAX: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class CountedRun:
    """Messages at `first` and the offsets that follow. `size` is the sum of their bytes in the log."""

    first: int
    count: int
    size: int
    min_offset: int
    max_offset: int

    @property
    def stop(self) -> int:
        return self.first + self.count


def run_of(store: MessageStore, topic: bytes, queue_id: int, offset: int, count_max: int) -> CountedRun | None:
    """Return the messages from `offset` on, as far as one file of the queue holds their units.

    Return None where there is no message, where the units do not follow each other, or where they point to no record:
    only a read can tell then.
    """
    queue = store.queues.find(topic, queue_id)
    if queue is None:
        return None
    low, high = queue.min_for(store.log_start), queue.next_offset
    if not low <= offset < high:
        return None
    window = max(count_max, 1)
    try:
        units = queue.units(offset, window)
    except OSError as error:
        raise StoreError(f"queue {queue_id} of {topic!r} cannot be read: {error}") from error
    if not units:
        return None
    chosen = select_units(units, 0, None, window, _BYTES_MAX, store.log_start, store.log_end, window)
    if not chosen.count or chosen.first or chosen.scattered is not None:
        return None
    return CountedRun(offset, chosen.count, chosen.size_total, low, high)
