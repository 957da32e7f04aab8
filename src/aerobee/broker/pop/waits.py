"""Pops that found nothing and wait: for a message, or for their time.

A message wakes one pop that waits for any queue of its topic and one that waits for its queue, in each group, the one
whose time ends first. A retry copy wakes those of the topic it comes from. RocketMQ: PopLongPollingService.

The sink that finds them joins the log's dispatch only while somebody waits: without POP a message passes nothing new.
"""

from __future__ import annotations

import asyncio
import heapq
from bisect import insort
from collections.abc import Collection
from typing import Final, Protocol

from aerobee.hot.log.record import Draft
from aerobee.store.dispatch import Dispatcher, Sink

# RocketMQ: BrokerConfig.maxPopPollingSize, popPollingSize.
WAITING_MAX: Final = 100_000
WAITING_PER_KEY_MAX: Final = 1_024
ANY_QUEUE: Final = -1
# So many expired waits are answered in one call.
_EXPIRED_MAX: Final = 500
# Of so many that are turned away, one lets all be looked through for clients that are gone.
_FULL_EVERY: Final = 256
# So many ended waits are kept in the order of time before they are looked for.
_DEAD_MIN: Final = 1_000


class Waiting(Protocol):
    """What waits. It is run again when it is woken, and told when its time is over."""

    def is_gone(self) -> bool: ...
    def wake(self) -> None: ...
    def expire(self) -> None: ...


class _Wait:
    def __init__(self, key: tuple[str, str, int], until_s: float, number: int, tags: frozenset[int] | None) -> None:
        self.key = key
        self.until_s = until_s
        self.number = number
        self.tags = tags
        self.request: Waiting | None = None

    def __lt__(self, other: _Wait) -> bool:
        return (self.until_s, self.number) < (other.until_s, other.number)


class PopWaits(Sink):
    """All waiting pops of a broker."""

    name = "pop"

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        # By the tags that they want: a message is compared with each choice of tags once.
        self._keys: dict[tuple[str, str, int], dict[frozenset[int] | None, list[_Wait]]] = {}
        # The groups that wait for a topic, under its name and under those of its retry topics.
        self._topics: dict[bytes, dict[tuple[str, str], int]] = {}
        # The topics under which a key is found.
        self._names: dict[tuple[str, str, int], list[bytes]] = {}
        self._order: list[_Wait] = []
        self._count = 0
        self._number = 0
        self._has_joined = False
        self._woken: list[tuple[tuple[str, str, int], Waiting]] = []
        # How many were turned away because all places are taken.
        self._full = 0
        self._is_scheduled = False

    def __len__(self) -> int:
        return self._count

    def count_of(self, topic: str, group: str, queue_id: int) -> int:
        """Return how many pops of a key wait. RocketMQ: POLLING_INFO."""
        return _count(self._keys.get((topic, group, queue_id), {}))

    def hold(
        self,
        request: Waiting,
        topic: str,
        group: str,
        queue_id: int,
        retry_topics: Collection[str],
        tags: Collection[int] | None,
        until_s: float,
    ) -> bool:
        """Let a pop wait. Return False where too many do."""
        key = (topic, group, queue_id)
        if self._is_full(key):
            return False
        self._number += 1
        wanted = None if tags is None else frozenset(tags)
        wait = _Wait(key, until_s, self._number, wanted)
        wait.request = request
        waits = self._keys.get(key)
        if waits is None:
            waits = self._keys[key] = {}
            names = self._names[key] = [name.encode() for name in (topic, *retry_topics)]
            for name in names:
                groups = self._topics.setdefault(name, {})
                groups[topic, group] = groups.get((topic, group), 0) + 1
        insort(waits.setdefault(wanted, []), wait)
        if len(self._order) >= 2 * self._count + _DEAD_MIN:
            # Those that were woken early would stay for the rest of their time.
            self._order = [one for one in self._order if one.request is not None]
            heapq.heapify(self._order)
        heapq.heappush(self._order, wait)
        self._count += 1
        if not self._has_joined:
            self._has_joined = True
            self._dispatcher.join(self)
        return True

    def _is_full(self, key: tuple[str, str, int]) -> bool:
        """Tell whether no more can wait, after those were dropped whose clients are gone."""
        if _count(self._keys.get(key, {})) >= WAITING_PER_KEY_MAX:
            self._drop_gone([key])
            if _count(self._keys.get(key, {})) >= WAITING_PER_KEY_MAX:
                return True
        if self._count >= WAITING_MAX:
            if self._full % _FULL_EVERY == 0:
                self._drop_gone(list(self._keys))
            self._full += 1
        return self._count >= WAITING_MAX

    def _drop_gone(self, keys: list[tuple[str, str, int]]) -> None:
        for key in keys:
            for wait in _all(self._keys.get(key, {})):
                if wait.request is not None and wait.request.is_gone():
                    self._remove(wait)

    def _remove(self, wait: _Wait) -> None:
        found = self._keys[wait.key]
        waits = found[wait.tags]
        waits.remove(wait)
        wait.request = None
        self._count -= 1
        if waits:
            return
        del found[wait.tags]
        if found:
            return
        del self._keys[wait.key]
        topic, group, _ = wait.key
        for name in self._names.pop(wait.key):
            groups = self._topics[name]
            groups[topic, group] -= 1
            if not groups[topic, group]:
                del groups[topic, group]
                if not groups:
                    del self._topics[name]

    # -- waking

    def position(self) -> int:
        """Return that nothing is kept."""
        return -1

    def dispatch(self, drafts: list[Draft]) -> None:
        """Find who waits for the messages; they are run when whoever stored these is done."""
        topics = self._topics
        for draft in drafts:
            groups = topics.get(draft.topic)
            if groups:
                for topic, group in list(groups):
                    # A retry copy has a queue of its own: whoever waits for any queue of the topic may have it.
                    self._find(topic, group, draft.queue_id, draft.tags_code)
        self._schedule()

    def _find(self, topic: str, group: str, queue_id: int, tags_code: int | None) -> None:
        for number in (ANY_QUEUE, queue_id):
            firsts = [
                waits[0]
                for tags, waits in self._keys.get((topic, group, number), {}).items()
                if tags_code is None or tags is None or tags_code in tags
            ]
            if firsts:
                wait = min(firsts)
                assert wait.request is not None
                self._woken.append((wait.key, wait.request))
                self._remove(wait)

    def _schedule(self) -> None:
        if self._woken and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def wake(self, topic: str, group: str, queue_id: int = ANY_QUEUE) -> None:
        """Wake the next pop of a key: there is more, or something was given back."""
        if self._count:
            self._find(topic, group, queue_id, None)
            self._schedule()

    def _run(self) -> None:
        self._is_scheduled = False
        woken, self._woken = self._woken, []
        for key, request in woken:
            if request.is_gone():
                # What woke it is for the next one.
                self.wake(*key)
            else:
                request.wake()
        self._leave()

    def expire(self, now_s: float) -> None:
        """Tell those whose time is over."""
        order = self._order
        told = 0
        while order and (order[0].request is None or order[0].until_s <= now_s) and told < _EXPIRED_MAX:
            wait = heapq.heappop(order)
            request = wait.request
            if request is not None:
                self._remove(wait)
                request.expire()
                told += 1
        self._leave()

    def drain(self) -> None:
        """Tell everybody that waits: the broker stops, or may not act any more."""
        woken, self._woken = self._woken, []
        for _, told in woken:
            told.expire()
        for waits in list(self._keys.values()):
            for wait in _all(waits):
                request = wait.request
                if request is not None:
                    self._remove(wait)
                    request.expire()
        self._leave()

    def _leave(self) -> None:
        if self._has_joined and not self._count:
            self._has_joined = False
            self._dispatcher.leave(self)
            self._order.clear()


def _count(waits: dict[frozenset[int] | None, list[_Wait]]) -> int:
    return sum(map(len, waits.values()))


def _all(waits: dict[frozenset[int] | None, list[_Wait]]) -> list[_Wait]:
    return [wait for some in waits.values() for wait in some]
