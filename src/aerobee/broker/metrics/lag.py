"""How far each group is behind on each topic, worked out while somebody asks, in pieces, at most every ten seconds.

RocketMQ: ConsumerLagCalculator. Unlike Apache's it also tells of groups that have no members at the moment: those are
the ones that an alert is for. Messages that a filter skips count, too (Apache estimates them away).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aerobee.broker.answers import breath
from aerobee.broker.state import BrokerState
from aerobee.errors import StoreError
from aerobee.model.names import is_retry_topic
from aerobee.store.sent import hidden_below
from aerobee.store.steps import Steps

# How long a table is used.
KEPT_S: Final = 10.0
# How long a table is renewed after it was asked for.
_ASKED_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Backlog:
    """A group on a topic: sums over the queues of this broker; times are those of the oldest message, 0 for none."""

    group: str
    topic: str
    lag: int
    ready: int
    inflight: int
    unconsumed_ms: int
    unpulled_ms: int


class LagTable:
    """The lag of every group."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.table: tuple[Backlog, ...] = ()
        self._due_s = 0.0
        self._asked_until_s = 0.0
        self._is_running = False
        # Store times by place: they do not change. Renewed with each table.
        self._times: dict[tuple[str, int, int], int] = {}

    def asked(self) -> tuple[Backlog, ...]:
        """Return the newest table, and keep it new from now on for a while."""
        self._asked_until_s = self._state.clock.monotonic() + _ASKED_S
        self.tick(self._state.clock.monotonic())
        return self.table

    def tick(self, now_s: float) -> None:
        """Begin a new table if the last one is old and somebody asks for it."""
        if self._is_running or now_s < self._due_s or now_s > self._asked_until_s:
            return
        self._is_running = True
        self._state.store.run(self._steps(), self._done, _rest)

    def _done(self, outcome: tuple[Backlog, ...] | StoreError) -> None:
        self._is_running = False
        self._due_s = self._state.clock.monotonic() + KEPT_S
        if not isinstance(outcome, StoreError):
            self.table = outcome

    def _pairs(self) -> list[tuple[str, str]]:
        found = {(group, topic) for group, topics in self._state.offsets.topics_by_group().items() for topic in topics}
        found.update((name, topic) for name, one in self._state.clients.groups().items() for topic in one.subscriptions)
        return sorted(pair for pair in found if not is_retry_topic(pair[1]))

    def _steps(self) -> Steps[tuple[Backlog, ...]]:
        found: list[Backlog] = []
        times: dict[tuple[str, int, int], int] = {}
        number = 0
        for group, topic in self._pairs():
            config = self._state.catalog.find(topic)
            if config is None:
                continue
            lag = ready = inflight = unconsumed_ms = unpulled_ms = 0
            for queue_id in range(config.write_queue_nums):
                number += 1
                # Ten queues take a tenth of a millisecond, or more where times are read.
                if number % 10 == 0:
                    yield from breath(99)
                end = max(0, self._state.store.max_offset(topic.encode(), queue_id))
                done = self._state.offsets.query(group, topic, queue_id)
                hidden = hidden_below(self._state.store, topic.encode(), queue_id)
                done = end if done < 0 else max(hidden, min(done, end))
                pulled = min(end, max(done, self._state.offsets.pulled(group, topic, queue_id)))
                lag, ready, inflight = lag + end - done, ready + end - pulled, inflight + pulled - done
                if done < end:
                    at_ms = yield from self._time(times, topic, queue_id, done)
                    unconsumed_ms = _older(unconsumed_ms, at_ms)
                if pulled < end:
                    at_ms = yield from self._time(times, topic, queue_id, pulled)
                    unpulled_ms = _older(unpulled_ms, at_ms)
            found.append(Backlog(group, topic, lag, ready, inflight, unconsumed_ms, unpulled_ms))
        self._times = times
        return tuple(found)

    def _time(self, times: dict[tuple[str, int, int], int], topic: str, queue_id: int, offset: int) -> Steps[int]:
        """Return when the message at an offset, or the first that is left behind it, was stored."""
        offset = max(offset, self._state.store.min_offset(topic.encode(), queue_id))
        key = (topic, queue_id, offset)
        at_ms = times.get(key) or self._times.get(key)
        if at_ms is None:
            at_ms = max(0, (yield from self._state.store.store_time(topic.encode(), queue_id, offset)))
        times[key] = at_ms
        return at_ms


def _rest(go_on: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(go_on)


def _older(a_ms: int, b_ms: int) -> int:
    return min(a_ms, b_ms) if a_ms and b_ms else a_ms or b_ms
