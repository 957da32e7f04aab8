"""How often routes that proved stale are asked for again: a machine. Time is an argument.

The first question is asked at once, so that a new master is found within a second. The next ones come at growing
intervals, drawn apart, so that a thousand clients of a broker that died do not ask together.
"""

from __future__ import annotations

from typing import Final

from aerobee.runtime.seams import Entropy

FIRST_S: Final = 0.1
LAST_S: Final = 1.0
_GROWTH: Final = 1.25
# After this time without a question the next one is a first one.
_FORGET_S: Final = 5.0
_TOPICS_MAX: Final = 10_000


class RefreshPace:
    """The questions about the routes of one client."""

    def __init__(self, entropy: Entropy, *, last_s: float = LAST_S) -> None:
        self._entropy = entropy
        self._last_s = last_s
        # By topic: when the next question is allowed, and the interval after it.
        self._next: dict[str, tuple[float, float]] = {}

    def is_due(self, topic: str, now_s: float) -> bool:
        """Tell whether the route may be asked for now. Who hears yes asks."""
        next_s, interval_s = self._next.get(topic, (now_s, FIRST_S))
        if now_s < next_s:
            return False
        if now_s - next_s > _FORGET_S:
            interval_s = FIRST_S
        if len(self._next) >= _TOPICS_MAX:
            self._next.clear()
        wait_s = interval_s * (0.5 + self._entropy.uniform())
        self._next[topic] = (now_s + wait_s, min(interval_s * _GROWTH, self._last_s))
        return True

    def changed(self, topic: str) -> None:
        """Note that the route has changed: the next doubt about it is a new one."""
        self._next.pop(topic, None)
