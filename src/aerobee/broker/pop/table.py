"""The machine of POP: every window of a broker, what of it is due, and how it all follows from a journal.

An event is either a call of this class, with its time, or an entry of the journal that tells of the same event.
Both leave the same state: that is how a start, and a follower that takes over, know what every consumer holds.
"""

from __future__ import annotations

import heapq
import sys
from array import array
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from aerobee.broker.pop import entries
from aerobee.broker.pop.entries import Key, PopEntry
from aerobee.broker.pop.window import LONG, Window

# Leases that end within the same tenth of a second are looked for together.
BUCKET_MS: Final = 100
STRAGGLERS_MAX: Final = 100_000
# A take is described by two numbers; the first holds its window and its span.
_SPAN_BITS: Final = 32
_SPAN_MASK: Final = (1 << _SPAN_BITS) - 1
# How many of the last takes of a bucket a new one is compared with, and how many messages are looked at in one piece.
_NEIGHBOURS: Final = 8
_PART_MAX: Final = 1_024
# The buckets may hold so many entries more than messages are held, before they are made anew: who shortens the time of
# a message again and again leaves one each time.
_LOOKS_SPARE: Final = 20_000
# Takes that are looked at in one call: what is due after a stop of a day must not hold up the loop.
_LOOKS_MAX: Final = 20_000


class DueLease(NamedTuple):
    """Messages of one window whose time is over."""

    window: Window
    offsets: list[int]


class PopTable:
    """All windows, and when what is held in them is due."""

    def __init__(self) -> None:
        self.windows: dict[Key, Window] = {}
        self._numbered: list[Window | None] = []
        # By tenth of a second: two numbers for each take, or for each message that got an earlier time.
        self._buckets: dict[int, array[int]] = {}
        self._order: list[int] = []
        # How many takes the buckets hold, and when they are looked through.
        self._looks = 0
        self._looks_max = _LOOKS_SPARE
        self.stragglers = 0
        # The states of queues that are read in order, as the journal tells them.
        self.orders: dict[Key, bytes] = {}
        # Where a window begins that a journal speaks of first in the middle: the group's saved position.
        self.committed: Callable[[Key], int | None] = lambda key: None

    # -- windows

    def window(self, key: Key, offset: int) -> Window:
        """Return the window; one that is new begins at `offset`."""
        found = self.windows.get(key)
        if found is None:
            found = Window(len(self._numbered), key.topic, key.group, key.queue_id, offset)
            self.windows[key] = found
            self._numbered.append(found)
        return found

    def _drop(self, key: Key) -> None:
        window = self.windows.pop(key, None)
        if window is not None:
            self._numbered[window.number] = None
            self.stragglers -= len(window.stragglers)

    def forget_topic(self, topic: str) -> list[Key]:
        """Forget a deleted topic."""
        return self._forget([key for key in (*self.windows, *self.orders) if key.topic == topic])

    def forget_group(self, group: str) -> list[Key]:
        """Forget a deleted group."""
        return self._forget([key for key in (*self.windows, *self.orders) if key.group == group])

    def _forget(self, keys: list[Key]) -> list[Key]:
        for key in keys:
            self._drop(key)
            self.orders.pop(key, None)
        return keys

    @property
    def in_flight(self) -> int:
        return sum(window.in_flight for window in self.windows.values())

    @property
    def size_in_bytes(self) -> int:
        """Return about how much memory the leases take."""
        buckets = sum(sys.getsizeof(bucket) for bucket in self._buckets.values())
        return buckets + sum(window.size_in_bytes for window in self.windows.values())

    # -- events

    def take(
        self,
        window: Window,
        start: int,
        following: int,
        offsets: tuple[int, ...] | range,
        pop_time: int,
        deadline: int,
    ) -> None:
        """Hold messages for a pop, and look again when its time is over."""
        if not offsets and following - window.taken >= LONG:
            # So much would be skipped that it must not cost memory: an offset that a client commits may be any number.
            if window.in_flight > STRAGGLERS_MAX:
                return
            window.last_pop_time = max(window.last_pop_time, pop_time)
            self.stragglers += window.pass_over(following)
            return
        window.take(start, following, offsets, pop_time, deadline)
        if offsets:
            first = offsets[0]
            self._look_at(window, first, offsets[-1] + 1 - first, deadline)
            if self._looks > self._looks_max:
                self._sweep()
        if window.is_sparse() and self.stragglers + window.in_flight <= STRAGGLERS_MAX:
            self.stragglers += window.spread()

    def ack(self, window: Window, offset: int, pop_time: int) -> int:
        """Acknowledge one message. Return the pop time that the journal must name for it; -1 for no change."""
        strays = len(window.stragglers)
        named = window.ack(offset, pop_time)
        self.stragglers += len(window.stragglers) - strays
        return named

    def change(self, window: Window, offset: int, pop_time: int, deadline: int, *, suspend: bool) -> bool:
        """Hide a message until another time. Return whether that pop holds it."""
        before = window.change(offset, pop_time, deadline, suspend=suspend)
        if before < 0:
            return False
        # A later time is found when the earlier one has come.
        if deadline < before:
            self._look_at(window, offset, 1, deadline)
            if self._looks > self._looks_max:
                self._sweep()
        return True

    def revived(self, window: Window, offsets: Iterable[int]) -> None:
        """Let messages go whose copies are stored."""
        strays = len(window.stragglers)
        for offset in offsets:
            window.revived(offset)
        self.stragglers += len(window.stragglers) - strays

    def revive_later(self, window: Window, offset: int, deadline: int) -> None:
        """Hold on to a message whose copy could not be stored, and look again then."""
        if window.revive_later(offset, deadline) >= 0:
            self._look_at(window, offset, 1, deadline)

    def reset(self, window: Window, offset: int, at_ms: int) -> None:
        self.stragglers -= len(window.stragglers)
        window.reset(offset, at_ms)

    # -- time

    def _look_at(self, window: Window, first: int, span: int, deadline: int) -> None:
        """Look for these messages when that time has come. Takes that follow each other are one."""
        number = -(-deadline // BUCKET_MS)
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = array("q")
            heapq.heappush(self._order, number)
        place = len(bucket) - 2
        while place >= 0 and place >= len(bucket) - 2 * _NEIGHBOURS:
            packed = bucket[place]
            if packed >> _SPAN_BITS == window.number and bucket[place + 1] + (packed & _SPAN_MASK) == first:
                bucket[place] = packed + span
                return
            place -= 2
        bucket.append(window.number << _SPAN_BITS | span)
        bucket.append(first)
        self._looks += 1

    def _sweep(self) -> None:
        """Make the buckets anew where most of what they hold is out of date."""
        held = self.in_flight
        if self._looks > held + _LOOKS_SPARE:
            self.look_at_all()
        self._looks_max = max(2 * self._looks, held) + _LOOKS_SPARE

    @property
    def next_due_ms(self) -> int:
        """Return when something may be due; -1 for never."""
        return self._order[0] * BUCKET_MS if self._order else -1

    def due(self, now_ms: int, count_max: int) -> list[DueLease]:
        """Return messages whose time is over, about `count_max` at most; they are on their way back from now on."""
        found: list[DueLease] = []
        count = looks = 0
        while self._order and self._order[0] * BUCKET_MS <= now_ms and count < count_max and looks < _LOOKS_MAX:
            number = self._order[0]
            bucket = self._buckets[number]
            while bucket and count < count_max and looks < _LOOKS_MAX:
                first, packed = bucket.pop(), bucket.pop()
                self._looks -= 1
                looks += 1
                window = self._numbered[packed >> _SPAN_BITS]
                if window is None:
                    continue
                span = packed & _SPAN_MASK
                if span > _PART_MAX:
                    bucket.append(packed - _PART_MAX)
                    bucket.append(first + _PART_MAX)
                    self._looks += 1
                    span = _PART_MAX
                offsets, later = window.due(first, span, now_ms)
                looks += span >> 4
                if later >= 0:
                    self._look_at(window, first, span, later)
                if offsets:
                    found.append(DueLease(window, offsets))
                    count += len(offsets)
            if not bucket:
                heapq.heappop(self._order)
                del self._buckets[number]
        return found

    # -- the journal

    def learn(self, entry: PopEntry) -> None:
        """Take up what an entry says."""
        kind, key = entry.kind, entry.key
        if kind == entries.TAKE:
            self._learn_take(entry)
        elif kind == entries.ORDER:
            if entry.text:
                self.orders[key] = entry.text
            else:
                self.orders.pop(key, None)
        elif kind == entries.FORGET_TOPIC:
            self.forget_topic(key.topic)
        elif kind == entries.FORGET_GROUP:
            self.forget_group(key.group)
        elif kind == entries.RESET:
            window = self.window(key, entry.offsets[0])
            self.reset(window, entry.offsets[0], entry.pop_time)
        else:
            self._learn_of_held(entry)

    def _learn_take(self, entry: PopEntry) -> None:
        key = entry.key
        window = self.windows.get(key)
        if window is None:
            # Takes that the journal lacks are repeated. What the table of offsets says was consumed by all means.
            saved = self.committed(key)
            window = self.window(key, entry.start if saved is None else min(entry.start, saved))
        self.take(window, entry.start, entry.following, entry.offsets, entry.pop_time, entry.deadline)

    def _learn_of_held(self, entry: PopEntry) -> None:
        window = self.windows.get(entry.key)
        if window is None:
            return
        if entry.kind == entries.ACK:
            offsets = entry.offsets
            if isinstance(offsets, range) and window.ack_run(offsets.start, len(offsets), entry.pop_time):
                return
            for offset in offsets:
                self.ack(window, offset, entry.pop_time)
        elif entry.kind == entries.CHANGE:
            self.change(window, entry.offsets[0], entry.pop_time, entry.deadline, suspend=entry.suspend)
        else:
            self.revived(window, entry.offsets)

    def look_at_all(self) -> None:
        """Look for everything that is held by its deadline, after a picture was taken up."""
        self._buckets.clear()
        self._order.clear()
        self._looks = 0
        for window in self.windows.values():
            for first, span, deadline in window.runs():
                self._look_at(window, first, span, deadline)
