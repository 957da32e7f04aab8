"""What a broker does by the clock: parts that run when they are due, each guarded from the failures of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from aerobee.errors import StoreFencedError
from aerobee.runtime.seams import Clock
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

PAUSE_MIN_S: Final = 0.1
PAUSE_MAX_S: Final = 10.0

# Called with the monotonic time in seconds and the wall-clock time in milliseconds.
Work = Callable[[float, int], None]


class Part:
    """One thing that is done at every tick, or at most once in `every_s` seconds."""

    __slots__ = ("every_s", "name", "next_s", "pause_s", "work")

    def __init__(self, name: str, work: Work, every_s: float, next_s: float) -> None:
        self.name = name
        self.work = work
        self.every_s = every_s
        self.next_s = next_s
        # How long it is left alone since its last failure; 0 where its last run went well.
        self.pause_s = 0.0


class Supervisor:
    """Runs parts in their order. A part that fails is left alone for a while, longer after each failure."""

    def __init__(self, clock: Clock, fence: Callable[[StoreFencedError], None]) -> None:
        """`fence` is told of a failed sync that a part met. It ends all acknowledgements, whichever part met it."""
        self._clock = clock
        self._fence = fence
        self._log = RateLimitedLog(get_log("broker"), clock)
        self.parts: list[Part] = []
        # Failures since the start.
        self.failures = 0

    def add(self, name: str, work: Work, *, every_s: float = 0.0) -> None:
        """Run `work` at every tick from now on; with `every_s`, once in so many seconds."""
        self.parts.append(Part(name, work, every_s, self._clock.monotonic() + every_s))

    def due(self, now_s: float) -> Iterator[Part]:
        """Yield the parts that are to run now; each is next due when its interval has passed."""
        for part in self.parts:
            if now_s >= part.next_s:
                part.next_s = now_s + part.every_s
                yield part

    def tick(self, now_s: float, now_ms: int) -> None:
        """Run what is due. Whatever happens to one part, the others run."""
        for part in self.due(now_s):
            try:
                part.work(now_s, now_ms)
            except Exception as error:  # noqa: BLE001 - see `_failed`
                self._failed(part.name, error)
                part.pause_s = min(max(PAUSE_MIN_S, 2 * part.pause_s), PAUSE_MAX_S)
                part.next_s = now_s + max(part.every_s, part.pause_s)
            else:
                part.pause_s = 0.0

    @contextmanager
    def guard(self, name: str) -> Iterator[None]:
        """Log and count a failure of what runs inside, and let it go no further."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - see `_failed`
            self._failed(name, error)

    def _failed(self, name: str, error: Exception) -> None:
        """Log and count a failure.

        This is the only place that catches every Exception. A part handles the errors that it must expect: a bad
        record, a full disk, a reset connection. The errors that arrive here are bugs, or a lack of memory. To end the
        process would turn the failure of one part into an outage of all. If a record or a state of the store is the
        cause, a restart would not help either. A cancelled task or an exit is not an Exception, and passes.
        """
        self.failures += 1
        if isinstance(error, StoreFencedError):
            self._fence(error)
            self._log.error(name, "a part of the broker met a fenced store", part=name, reason=error.message)
            return
        self._log.error(
            name, "a part of the broker failed; the other parts continue, and this one is tried again",
            part=name, reason=repr(error), exc_info=error,
            hint="this is a fault of Aerobee: please report it with this traceback",
        )  # fmt: skip

    @property
    def failing(self) -> list[str]:
        """The parts whose last run failed."""
        return sorted(part.name for part in self.parts if part.pause_s)

    def told(self) -> dict[str, str]:
        """Return what the broker's runtime info says of the parts."""
        return {"partFailures": str(self.failures), "partsFailing": ",".join(self.failing)}
