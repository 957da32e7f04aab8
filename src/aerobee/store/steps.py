"""Reads that may be cold, written once: a generator asks for bytes of the log and is resumed with them.

Owns the two ways to run one: now, on the caller's thread (tools, tests, what is hot anyway), or through the
disk's reader thread while the event loop goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Final, TypeAlias, TypeVar

from aerobee.errors import StoreError
from aerobee.runtime.seams import Disk
from aerobee.store.segments import Segments

T = TypeVar("T")
# Yields (physical offset, size), receives the bytes: fewer at a segment's end, none where the log has none.
Steps: TypeAlias = Generator[tuple[int, int], bytes, T]
# Reads nothing: a place where a long work that may read little lets others go first.
REST: Final = (0, 0)
# Goes on with what it is given, later.
Rest: TypeAlias = Callable[[Callable[[], None]], None]


def run_now(steps: Steps[T], segments: Segments) -> T:
    """All reads on this thread."""
    try:
        offset, size = next(steps)
        while True:
            offset, size = steps.send(segments.read(offset, size))
    except StopIteration as stop:
        result: T = stop.value
        return result
    except OSError as error:
        raise StoreError(f"the log cannot be read: {error}") from error


def run_cold(
    steps: Steps[T],
    segments: Segments,
    disk: Disk,
    done: Callable[[T | StoreError], None],
    rest: Rest | None = None,
) -> None:
    """Each read through the reader thread; `done` on this thread, at once where nothing had to be read.

    `rest` lets others go first at each REST; without it there is none.
    """
    ready: list[bytes | OSError] = []
    running = started = False

    def arrived(outcome: bytes | OSError) -> None:
        ready.append(outcome)
        if not running:
            go_on()

    def go_on() -> None:
        # A disk that answers inside the call (tests, tools) must not deepen the stack with each read.
        nonlocal running
        running = True
        try:
            while ready:
                outcome = ready.pop()
                if isinstance(outcome, OSError):
                    steps.close()
                    done(StoreError(f"the log cannot be read: {outcome}"))
                    return
                try:
                    ask(steps.send(outcome) if outcome or started else next(steps))
                except StopIteration as stop:
                    done(stop.value)
                    return
        finally:
            running = False

    def ask(wanted: tuple[int, int]) -> None:
        nonlocal started
        started = True
        if wanted[1] == 0 and rest is not None:
            rest(partial(arrived, b""))
            return
        place = segments.file_at(wanted[0])
        if place is None:
            ready.append(b"")
            return
        file, at = place
        disk.read(file, at, min(wanted[1], segments.segment_size - at), arrived)

    ready.append(b"")
    go_on()
