"""`python -m aerobee.testing.killtarget DIR`: store messages and print what was acknowledged, until killed.

The process writes to real files through RealDisk, as a broker does. Each line on stdout is the number of a message that
the store has acknowledged.
"""

from __future__ import annotations

import queue
import sys
from collections.abc import Callable

from aerobee.errors import StoreError
from aerobee.model.numbers import parse_int
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.disk import RealDisk
from aerobee.store.index import MessageIndex
from aerobee.store.messagestore import MessageStore
from aerobee.testing.recordcases import draft_of
from aerobee.testing.storeshapes import Shape

UNDER_WAY_MAX = 8


def shape_of(sync_flush: bool) -> Shape:
    return Shape(
        sync_flush=sync_flush,
        segment_size=65536,
        units_per_file=50,
        with_index=True,
        late_syncs=True,
        queue_count=1,
        topic_count=1,
    )


def run(directory: str, sync_flush: bool, first: int) -> None:
    """Store messages numbered from `first` on, several under way at a time."""
    posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    disk = RealDisk(posted.put)
    config = shape_of(sync_flush).config()
    store = MessageStore(directory, config, disk, SystemClock(), (MessageIndex(disk, directory, config),))
    store.open()
    number, told = first, first

    def tell(count: int, error: StoreError | None) -> None:
        nonlocal told
        if error is None:
            told = max(told, count + 1)
            sys.stdout.write(f"{count}\n")
            sys.stdout.flush()

    while True:
        while number < told + UNDER_WAY_MAX:
            body = b"%d " % number + bytes(number * 37 % 900)
            end = store.append([draft_of(body, properties={"KEYS": f"k{number}", "UNIQ_KEY": f"u{number}"})])
            store.on_safe(end, lambda error, count=number: tell(count, error))  # type: ignore[misc]
            number += 1
        store.tick()
        while told + UNDER_WAY_MAX <= number:
            posted.get()()


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2] == "sync", parse_int(sys.argv[3]))
