"""What keeps one failing part of a broker from ending the others: a guard around each, and a pause after a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from aerobee.errors import StoreFencedError
from aerobee.runtime.seams import Clock
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

PAUSE_MIN_S: Final = 0.1
PAUSE_MAX_S: Final = 10.0

# Called at every tick with the monotonic time in seconds and the wall-clock time in milliseconds.
Work = Callable[[float, int], None]


@dataclass(slots=True)
class _Failing:
    """A part whose last try failed."""

    pause_s: float
    again_s: float


class Supervisor:
    """Runs parts. One that fails is left alone for a while, longer after each failure, and then tried again."""

    def __init__(self, clock: Clock, fence: Callable[[StoreFencedError], None]) -> None:
        """`fence` hears of a failed sync that a part ran into: it ends all acknowledgements, whoever met it."""
        self._clock = clock
        self._fence = fence
        self._log = RateLimitedLog(get_log("broker"), clock)
        self._failing: dict[str, _Failing] = {}
        # Since the start.
        self.failures = 0

    @property
    def failing(self) -> list[str]:
        """Parts whose last try failed."""
        return sorted(self._failing)

    def run(self, name: str, work: Work, now_s: float, now_ms: int) -> None:
        """Do a part's work, unless it failed shortly before."""
        failing = self._failing.get(name)
        if failing is not None and now_s < failing.again_s:
            return
        failures = self.failures
        with self.guard(name):
            work(now_s, now_ms)
        if self.failures == failures:
            self._failing.pop(name, None)
            return
        pause_s = PAUSE_MIN_S if failing is None else min(2 * failing.pause_s, PAUSE_MAX_S)
        self._failing[name] = _Failing(pause_s, now_s + pause_s)

    @contextmanager
    def guard(self, name: str) -> Iterator[None]:
        """Let no failure of what runs inside get out: it is told, with its traceback, and counted.

        This is the one place that takes any Exception. What a part can meet in earnest (a bad record, a full disk, a
        reset connection) it handles itself. What comes here nobody foresaw: a fault of ours, or too little memory.
        Ending the process would turn a fault of one part into an outage of all, and, where a record or a state of the
        store is the cause, into one that no restart ends. What ends a task or a process is no Exception and passes.
        """
        try:
            yield
        except StoreFencedError as error:
            self.failures += 1
            self._fence(error)
            self._log.error(name, "a part of the broker met a fenced store", part=name, reason=error.message)
        except Exception as error:  # noqa: BLE001 - the one place, see above
            self.failures += 1
            self._log.error(
                name, "a part of the broker failed: the others go on, it is tried again",
                part=name, reason=repr(error), exc_info=error,
                hint="this is a fault of Aerobee: please report it with this traceback",
            )  # fmt: skip

    def told(self) -> dict[str, str]:
        """What a broker's runtime info says of it."""
        return {"partFailures": str(self.failures), "partsFailing": ",".join(self.failing)}
