"""What was stored, counted: one addition per message on the send path, the statistics themselves later.

RocketMQ: SendMessageProcessor.handlePutMessageResult (incTopicPutNums, incTopicPutSize, incBrokerPutNums).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aerobee.broker.stats import (
    BROKER_PUT_NUMS,
    BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC,
    QUEUE_PUT_NUMS,
    QUEUE_PUT_SIZE,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
    BrokerStats,
)
from aerobee.hot.log.record import Draft

# Queues brought into the statistics in one tick, and how long counts are gathered at least before the next are begun.
_TICK_KEYS: Final = 128
_GATHER_MS: Final = 100
_RECENT: Final = 16


class _Count:
    """What one queue took."""

    def __init__(self, topic: bytes, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.messages: int = 0
        self.size: int = 0


class PutCounts:
    """Gathers by topic and queue; `tick` and `flush` bring it into the statistics."""

    def __init__(self, stats: BrokerStats, is_system: Callable[[str], bool]) -> None:
        self._stats = stats
        self._is_system = is_system
        self._counts: dict[tuple[bytes, int], _Count] = {}
        # Those met last, by the low bits of their queue's id: found there at a fifth of what asking the table costs.
        self._recent: list[_Count | None] = [None] * _RECENT
        self._taken_at_ms = 0
        # Being brought in, meanwhile others are gathered.
        self._taken: dict[tuple[bytes, int], _Count] = {}

    def stored(self, drafts: list[Draft]) -> None:
        """Everything of one write. `stored` of Puts."""
        recent = self._recent
        for draft in drafts:
            queue_id = draft.queue_id
            count = recent[queue_id % _RECENT]
            if count is None or count.queue_id != queue_id or count.topic != draft.topic:
                count = self._counts.get((draft.topic, queue_id))
                if count is None:
                    count = self._counts[(draft.topic, queue_id)] = _Count(draft.topic, queue_id)
                recent[queue_id % _RECENT] = count
            count.messages += 1
            count.size += draft.size

    def _take(self) -> None:
        self._taken, self._counts = self._counts, {}
        self._recent = [None] * _RECENT

    def tick(self, now_ms: int) -> None:
        """So many queues at a time: with 10,000 topics in use each is brought in every second or two instead of every
        tick, which cost more than storing its message."""
        if not self._taken:
            if not self._counts or 0 <= now_ms - self._taken_at_ms < _GATHER_MS:
                return
            self._taken_at_ms = now_ms
            self._take()
        self._bring_in(_TICK_KEYS, now_ms)

    def flush(self, now_ms: int) -> None:
        """Everything."""
        self._bring_in(len(self._taken), now_ms)
        self._take()
        self._bring_in(len(self._taken), now_ms)

    def _bring_in(self, keys_max: int, now_ms: int) -> None:
        taken, stats = self._taken, self._stats
        all_count = plain_count = 0
        while taken and keys_max > 0:
            keys_max -= 1
            (name, queue_id), found = taken.popitem()
            topic, count, size = name.decode("utf-8", "replace"), found.messages, found.size
            stats.add(TOPIC_PUT_NUMS, topic, count, now_ms, count)
            stats.add(TOPIC_PUT_SIZE, topic, size, now_ms, count)
            all_count += count
            if not self._is_system(topic):
                plain_count += count
            if stats.per_queue:
                stats.add(QUEUE_PUT_NUMS, f"{topic}@{queue_id}", count, now_ms, count)
                stats.add(QUEUE_PUT_SIZE, f"{topic}@{queue_id}", size, now_ms, count)
        if all_count:
            stats.add(BROKER_PUT_NUMS, stats.cluster, all_count, now_ms, 0)
        if plain_count:
            stats.add(BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC, stats.cluster, plain_count, now_ms, 0)
