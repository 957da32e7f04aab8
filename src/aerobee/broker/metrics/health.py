"""Whether a broker is alive, and whether it is ready for clients, with the reasons where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aerobee.broker.state import BrokerState
from aerobee.model.topic import PERM_WRITE

# A loop that did not turn for so long does not live.
STALE_S: Final = 5.0


class Health:
    """The health of one broker. `unregistered` tells which name servers do not know it, in words; empty for none."""

    def __init__(
        self,
        state: Callable[[], BrokerState],
        beat_s: Callable[[], float],
        unregistered: Callable[[], str],
        stopping: Callable[[], bool],
    ) -> None:
        self._state = state
        self._beat_s = beat_s
        self._unregistered = unregistered
        self._stopping = stopping

    def problem(self) -> str:
        """Return why the process should be restarted, or an empty text."""
        silent_s = self._state().clock.monotonic() - self._beat_s()
        return f"nothing was done by the clock for {silent_s:.0f} s" if silent_s > STALE_S else ""

    def reasons(self) -> list[str]:
        """Return why clients should not be sent here, in words that begin with one word for each kind."""
        state = self._state()
        store = state.store
        found = [self.problem(), self._unregistered()]
        if self._stopping():
            found.append("stopping: the broker is about to end")
        if store.fenced is not None:
            found.append(f"fenced: {store.fenced.message}")
        if store.full is not None:
            found.append(f"disk full: {store.full}")
        if not state.config.broker_permission & PERM_WRITE:
            found.append("draining: brokerPermission forbids sends (aerobee cluster undrain allows them)")
        return [one for one in found if one]
