"""What was stored, counted: one addition per message on the send path, the statistics themselves later.

RocketMQ: SendMessageProcessor.handlePutMessageResult (incTopicPutNums, incTopicPutSize, incBrokerPutNums).
"""

from __future__ import annotations

from collections.abc import Callable

from aerobee.broker.stats import (
    BROKER_PUT_NUMS,
    BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC,
    QUEUE_PUT_NUMS,
    QUEUE_PUT_SIZE,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
    BrokerStats,
)
from aerobee.hot.record import Draft


class PutCounts:
    """Gathers by topic and queue; `flush` brings it into the statistics."""

    def __init__(self, stats: BrokerStats, is_system: Callable[[str], bool]) -> None:
        self._stats = stats
        self._is_system = is_system
        self._nums: dict[tuple[bytes, int], int] = {}
        self._sizes: dict[tuple[bytes, int], int] = {}

    def stored(self, drafts: list[Draft]) -> None:
        """Everything of one write. `stored` of Puts."""
        nums, sizes = self._nums, self._sizes
        for draft in drafts:
            key = (draft.topic, draft.queue_id)
            nums[key] = nums.get(key, 0) + 1
            sizes[key] = sizes.get(key, 0) + draft.size

    def flush(self, now_ms: int) -> None:
        """Call often enough that a 10 s sample is not visibly late."""
        if not self._nums:
            return
        nums, self._nums = self._nums, {}
        sizes, self._sizes = self._sizes, {}
        stats = self._stats
        for (name, queue_id), count in nums.items():
            topic, size = name.decode("utf-8", "replace"), sizes[name, queue_id]
            stats.add(TOPIC_PUT_NUMS, topic, count, now_ms, count)
            stats.add(TOPIC_PUT_SIZE, topic, size, now_ms, count)
            stats.add(BROKER_PUT_NUMS, stats.cluster, count, now_ms, 0)
            if not self._is_system(topic):
                stats.add(BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC, stats.cluster, count, now_ms, 0)
            if stats.per_queue:
                stats.add(QUEUE_PUT_NUMS, f"{topic}@{queue_id}", count, now_ms, count)
                stats.add(QUEUE_PUT_SIZE, f"{topic}@{queue_id}", size, now_ms, count)
