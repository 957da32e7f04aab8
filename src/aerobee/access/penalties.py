"""What wrong signatures lead to: after ten from an address within 10 s, connections that send more of them are closed.

The wait begins at 1 s and doubles up to 60. It holds for wrong signatures only: many clients share an address, and the
right ones among them are served.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from aerobee.runtime.bases import Clock

FAILURES_MAX: Final = 10
WINDOW_S: Final = 10.0
WAIT_S: Final = 1.0
WAIT_MAX_S: Final = 60.0
_ADDRESSES_MAX: Final = 10_000


class Closable(Protocol):
    """A connection."""

    def close(self) -> None: ...
    def abort(self) -> None: ...


class _Record:
    __slots__ = ("failures", "until_s", "wait_s")

    def __init__(self) -> None:
        self.failures: deque[float] = deque(maxlen=FAILURES_MAX)
        self.until_s = 0.0
        self.wait_s = WAIT_S


class Penalties:
    """Wrong signatures by address."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: dict[str, _Record] = {}

    def failed(self, channel: Closable, source: str) -> bool:
        """Count a wrong signature. Close the connection where there were too many, and tell whether it was closed."""
        now_s = self._clock.monotonic()
        record = self._records.get(source)
        if record is None:
            if len(self._records) >= _ADDRESSES_MAX:
                self._forget(now_s)
            record = self._records[source] = _Record()
        if now_s < record.until_s:
            channel.abort()
            return True
        record.failures.append(now_s)
        if len(record.failures) < FAILURES_MAX or now_s - record.failures[0] > WINDOW_S:
            return False
        # A long time without a wait makes the next one short again.
        record.wait_s = WAIT_S if now_s > record.until_s + WAIT_MAX_S else min(record.wait_s * 2, WAIT_MAX_S)
        record.until_s = now_s + record.wait_s
        record.failures.clear()
        channel.abort()
        return True

    def _forget(self, now_s: float) -> None:
        old = [one for one, record in self._records.items() if now_s > record.until_s + WINDOW_S]
        for source in old or list(self._records):
            del self._records[source]
