"""Reads that may be cold: a generator asks for bytes of the log and is resumed with them.

There are two ways to run one: now, on the caller's thread (tools, tests, what is hot anyway), or through the disk's
reader thread while the event loop goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Final, Generic, TypeAlias, TypeVar

from aerobee.errors import StoreError
from aerobee.runtime.seams import Disk
from aerobee.store.commitlog import Segments

T = TypeVar("T")
# Steps yield (physical offset, size) and receive the bytes: fewer at a segment's end, none where the log has none.
Steps: TypeAlias = Generator[tuple[int, int], bytes, T]
# A step that reads nothing: here long work lets others go first.
REST: Final = (0, 0)
# A function that calls what it is given, later.
Rest: TypeAlias = Callable[[Callable[[], None]], None]


def run_now(steps: Steps[T], segments: Segments) -> T:
    """Run all reads on this thread."""
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
    """Run each read through the reader thread, then call `done` on this thread, at once where nothing had to be read.

    `rest` lets others go first at each REST; without it nobody does.
    """
    _ColdRun(steps, segments, disk, done, rest).begin()


class _ColdRun(Generic[T]):
    """One run through the reader thread.

    It is an object because functions within a function hold each other, and with them the request they answer, until
    the collector looks at everything.
    """

    __slots__ = ("_disk", "_done", "_ready", "_rest", "_running", "_segments", "_started", "_steps")

    def __init__(
        self,
        steps: Steps[T],
        segments: Segments,
        disk: Disk,
        done: Callable[[T | StoreError], None],
        rest: Rest | None,
    ) -> None:
        self._steps = steps
        self._segments = segments
        self._disk = disk
        self._done = done
        self._rest = rest
        self._ready: list[bytes | OSError] = []
        self._running = self._started = False

    def begin(self) -> None:
        self._arrived(b"")

    def _arrived(self, outcome: bytes | OSError) -> None:
        self._ready.append(outcome)
        # A disk that answers inside the call (tests, tools) must not deepen the stack with each read.
        if not self._running:
            self._go_on()

    def _go_on(self) -> None:
        self._running = True
        try:
            while self._ready:
                outcome = self._ready.pop()
                if isinstance(outcome, OSError):
                    self._steps.close()
                    self._done(StoreError(f"the log cannot be read: {outcome}"))
                    return
                try:
                    self._ask(self._steps.send(outcome) if outcome or self._started else next(self._steps))
                except StopIteration as stop:
                    self._done(stop.value)
                    return
        finally:
            self._running = False

    def _ask(self, wanted: tuple[int, int]) -> None:
        self._started = True
        if wanted[1] == 0 and self._rest is not None:
            self._rest(partial(self._arrived, b""))
            return
        place = self._segments.file_at(wanted[0])
        if place is None:
            self._ready.append(b"")
            return
        file, at = place
        self._disk.read(file, at, min(wanted[1], self._segments.segment_size - at), self._arrived)
