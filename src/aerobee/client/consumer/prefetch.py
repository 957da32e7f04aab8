"""How much a consumer holds of messages pulled ahead, over all its queues: a machine that counts bytes.

Above the limit a queue is pulled only when it holds nothing: one that stands still (paused, or an ordered one whose
handler fails) must not starve the others. So a consumer holds at most the limit and one answer of a broker for each
queue. RocketMQ: DefaultMQPushConsumer.pullThresholdSizeForTopic, which is off by default and cut into equal shares.
"""

from __future__ import annotations

from collections.abc import Callable

Wake = Callable[[], None]


class Prefetch:
    """The bytes held and those that are expected, and who waits for room."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._waiting: dict[Wake, None] = {}

    @property
    def is_full(self) -> bool:
        return self.held_bytes >= self.limit_bytes

    def take(self, count: int) -> None:
        self.held_bytes += count

    def give(self, count: int) -> None:
        """These are held no more."""
        self.held_bytes -= count
        if self._waiting and not self.is_full:
            waiting, self._waiting = self._waiting, {}
            for wake in waiting:
                wake()

    def wait(self, wake: Wake) -> None:
        """Call `wake` once when there is room."""
        self._waiting[wake] = None

    def forget(self, wake: Wake) -> None:
        self._waiting.pop(wake, None)
