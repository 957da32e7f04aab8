"""Retention by topic: messages older than a topic's own time are not served, though the log still keeps them.

The setting is Apache's attribute `reserve.time`, in hours. All topics share one log, so nothing is deleted before
`fileReservedTime`: each queue of such a topic gets a lower bound for everything that reads it. A bound is looked up
again when the first message that is served comes of age. Queues of other topics are not touched. RocketMQ:
TopicAttributes.TOPIC_RESERVE_TIME_ATTRIBUTE, which only its tiered storage obeys.
"""

from __future__ import annotations

import heapq
from typing import Final

from aerobee.broker.topics import Catalog, retention_hours
from aerobee.errors import StoreError
from aerobee.runtime.seams import Clock
from aerobee.store.lookup import first_stored_since
from aerobee.store.messagestore import MessageStore
from aerobee.store.queues import ConsumeQueue
from aerobee.store.steps import Steps
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

_log = get_log("broker.store")
_HOUR_MS: Final = 3_600_000
# New queues of topics with the setting are looked for this often. What is in them is young.
_SEARCH_INTERVAL_MS: Final = 60_000
_RETRY_MS: Final = 1_000


class VisibilityDriver:
    """Keeps the lower bounds of queues whose topics have a retention of their own."""

    def __init__(self, store: MessageStore, catalog: Catalog, clock: Clock) -> None:
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._warn = RateLimitedLog(_log, clock)
        # The topics with the setting, and the version of the table of which that is true.
        self._hours: dict[bytes, int] = {}
        self._seen: object = None
        self._search_at_ms = 0
        # The setting by which each bound was looked up (0: not yet), and when it is to be looked up again.
        self._bounds: dict[ConsumeQueue, tuple[int, int]] = {}
        # The same times in order. An entry of another time than the bound's is void.
        self._due: list[tuple[int, bytes, int]] = []
        self._is_looking = False

    def open(self) -> None:
        """Find all bounds now, before anybody is served."""
        now_ms = self._clock.now_ms()
        self._search(now_ms)
        self._store.run(self._round(now_ms))

    def tick(self, now_ms: int) -> None:
        """Move the bounds that are due, unless that is still being done."""
        if self._is_looking or not self._store.is_open:
            return
        self._search(now_ms)
        if self._due and self._due[0][0] <= now_ms:
            self._is_looking = True
            self._store.run(self._round(now_ms), self._looked)

    def _search(self, now_ms: int) -> None:
        """Learn which topics have the setting now, and which queues these have."""
        version = self._catalog.topic_table.version
        if version != self._seen:
            self._seen, self._search_at_ms = version, now_ms
            hours = {name: retention_hours(config) for name, config in self._catalog.topic_table.topics.items()}
            self._hours = {name.encode(): wanted for name, wanted in hours.items() if wanted is not None}
        if now_ms < self._search_at_ms or not (self._hours or self._bounds):
            return
        self._search_at_ms = now_ms + _SEARCH_INTERVAL_MS
        bounds, self._bounds = self._bounds, {}
        for queue in self._store.queues:
            wanted, known = self._hours.get(queue.topic), bounds.get(queue)
            if wanted is None:
                if known is not None:
                    queue.hide_below(0)
            elif known is not None and known[0] == wanted:
                self._bounds[queue] = known
            else:
                self._look_again(queue, 0 if known is None else known[0], now_ms)

    def _look_again(self, queue: ConsumeQueue, hours: int, again_ms: int) -> None:
        self._bounds[queue] = hours, again_ms
        heapq.heappush(self._due, (again_ms, queue.topic, queue.queue_id))

    def _round(self, now_ms: int) -> Steps[None]:
        """Look up every bound that is due."""
        while self._due and self._due[0][0] <= now_ms:
            due_ms, topic, queue_id = heapq.heappop(self._due)
            queue, hours = self._store.queues.find(topic, queue_id), self._hours.get(topic)
            if queue is None or hours is None or self._bounds.get(queue, (0, -1))[1] != due_ms:
                continue
            # With a longer time than before, messages come into view again.
            known, start, generation = self._bounds[queue][0], self._store.log_start, self._store.generation
            low = queue.min_for(start) if known == hours else queue.kept_for(start)
            first, stored = yield from first_stored_since(queue, low, now_ms - hours * _HOUR_MS)
            if self._store.queues.find(topic, queue_id) is not queue or self._hours.get(topic) != hours:
                continue  # deleted meanwhile, or with another setting, which the next search sees
            if self._store.generation != generation:
                self._look_again(queue, 0, now_ms + 1)  # the log was cut meanwhile
                continue
            if queue.hidden != first:
                queue.hide_below(first)
            # What comes into a queue without young messages is stored from now on.
            again_ms = (stored if stored >= 0 else now_ms) + hours * _HOUR_MS + 1
            self._look_again(queue, hours, max(again_ms, now_ms + 1))

    def _looked(self, outcome: StoreError | None) -> None:
        self._is_looking = False
        if outcome is not None:
            # Nobody knows which queue it was, so all are looked at by the next search.
            self._bounds = dict.fromkeys(self._bounds, (0, -1))
            self._search_at_ms = self._clock.now_ms() + _RETRY_MS
            self._warn.warning(
                "visibility",
                "the age of messages cannot be read, so topics with reserve.time may serve older ones",
                reason=outcome,
            )
