"""The messages that one group holds of one queue: who may give which back, and until when.

A window covers the offsets from `base` to `taken`. For each there are its deadline, the time of the pop that took it
(the *pop time*, which is the only key of a lease: RocketMQ's handles carry it) and a state of one byte. That is 17
bytes a message, in packed arrays. Below `base` nothing is held, but for *stragglers*: where few of very many are left,
they move into a table, so that one slow message does not hold the memory of all behind it.

Everything here is pure: the time is an argument, and nothing is stored.
"""

from __future__ import annotations

import heapq
import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import Final

from aerobee.broker.pop.entries import Key

# What a message is. The third is for messages that nobody has: their reader was gone before it was answered.
FREE: Final = 0
HELD: Final = 1
RETURNED: Final = 2
# Its time is over, and its copy is on its way into the log.
REVIVING: Final = 3
_STATE: Final = 3
_HELD_STATE: Final = b"\x01"
# The next try does not count: CHANGE_MESSAGE_INVISIBLETIME with `suspend`.
_SUSPENDED: Final = 4

# A window with so many messages, of which fewer than one in _SPARSE are held, gives those away as stragglers.
LONG: Final = 65_536
_SPARSE: Final = 16
_TRIM_FROM: Final = 4_096
# A queue of which so many are in flight answers as if it were empty.
IN_FLIGHT_MAX: Final = 2_000_000
# Acknowledgements beyond `taken` that are remembered: of takes that a crash has lost.
AHEAD_MAX: Final = 10_000
# A journal that was cut may lack so many takes at most; the messages in the gap are given out again.
_GAP_MAX: Final = 1_000_000


class Straggler:
    """A held message below its window."""

    __slots__ = ("deadline", "pop_time", "state")

    def __init__(self, deadline: int, pop_time: int, state: int) -> None:
        self.deadline = deadline
        self.pop_time = pop_time
        self.state = state


class Window:
    """What one group holds of one queue."""

    def __init__(self, number: int, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Begin at `offset`: everything below is consumed. `number` is the window's place in its table."""
        self.number = number
        self.topic = topic
        self.group = group
        self.queue_id = queue_id
        self.key = Key(topic, group, queue_id)
        # The offset of the arrays' entry `_head`.
        self.base = offset
        # Everything below was handed out or skipped.
        self.taken = offset
        # How many messages are held, with stragglers.
        self.in_flight = 0
        self.stragglers: dict[int, Straggler] = {}
        # Offsets beyond `taken` that were acknowledged.
        self.ahead: set[int] = set()
        # Pop times do not go back, and are above `floor`: the same message is never held twice under one time. Those
        # at or below `reset_time` were reset away.
        self.last_pop_time = 0
        self.floor = 0
        self.reset_time = 0
        # A read is under way: nobody else takes from the queue meanwhile.
        self.is_reading = False
        # The position that was last told to the table of consume offsets; -1 before.
        self.told = -1
        self._head = 0
        self._deadlines = array("q")
        self._pop_times = array("q")
        self._states = bytearray()
        # Offsets that were returned, lowest first. One that is no longer is passed over when it is met.
        self._returned: list[int] = []

    # -- where things stand

    @property
    def safe(self) -> int:
        """Return the offset below which nothing is held: what another broker may go on from."""
        return min(self.base, min(self.stragglers)) if self.stragglers else self.base

    @property
    def is_full(self) -> bool:
        return len(self._states) - self._head >= IN_FLIGHT_MAX

    @property
    def ahead_is_full(self) -> bool:
        return len(self.ahead) >= AHEAD_MAX

    @property
    def size_in_bytes(self) -> int:
        """Return about how much memory the leases take."""
        arrays = sys.getsizeof(self._deadlines) + sys.getsizeof(self._pop_times) + sys.getsizeof(self._states)
        return arrays + 150 * len(self.stragglers) + 40 * len(self._returned)

    def next_pop_time(self, now_ms: int) -> int:
        """Return the least time that a pop of this window may have now."""
        return max(now_ms, self.last_pop_time, self.floor + 1)

    def state_of(self, offset: int) -> int:
        """Return the state of a message; FREE for what is below the window or beyond it."""
        if offset < self.base:
            straggler = self.stragglers.get(offset)
            return FREE if straggler is None else straggler.state & _STATE
        if offset >= self.taken:
            return FREE
        return self._states[self._head + offset - self.base] & _STATE

    def is_suspended(self, offset: int) -> bool:
        """Tell whether the next try of a message does not count."""
        if offset < self.base:
            straggler = self.stragglers.get(offset)
            return straggler is not None and straggler.state & _SUSPENDED != 0
        return offset < self.taken and self._states[self._head + offset - self.base] & _SUSPENDED != 0

    def lease_of(self, offset: int) -> tuple[int, int] | None:
        """Return pop time and deadline of a message that somebody holds."""
        if self.state_of(offset) != HELD:
            return None
        if offset < self.base:
            straggler = self.stragglers[offset]
            return straggler.pop_time, straggler.deadline
        place = self._head + offset - self.base
        return self._pop_times[place], self._deadlines[place]

    def held(self) -> Iterator[tuple[int, int, int]]:
        """Yield offset, pop time and deadline of everything that somebody holds, lowest first."""
        for offset in sorted(self.stragglers):
            one = self.stragglers[offset]
            if one.state & _STATE in (HELD, REVIVING):
                yield offset, one.pop_time, one.deadline
        for place in range(self._head, len(self._states)):
            if self._states[place] & _STATE in (HELD, REVIVING):
                yield self.base + place - self._head, self._pop_times[place], self._deadlines[place]

    # -- taking

    def take(self, start: int, following: int, offsets: Iterable[int], pop_time: int, deadline: int) -> None:
        """Hold `offsets`, all from `start` on, for a pop; skip what else lies between `start` and `following`.

        A take is repeated when a journal is read again. What was consumed since and is below the window stays so.
        """
        self.last_pop_time = max(self.last_pop_time, pop_time)
        if start > self.taken:
            if start - self.taken > _GAP_MAX:
                return
            self._skip(self.taken, start, RETURNED)
        if following > self.taken:
            if (
                isinstance(offsets, range) and not self.ahead
                and offsets.start == self.taken and offsets.stop == following
            ):  # fmt: skip
                self._hold_all(following, pop_time, deadline)
                return
            self._extend(following, pop_time, deadline)
        states, head, base, times, deadlines = self._states, self._head, self.base, self._pop_times, self._deadlines
        for offset in offsets:
            if offset < base:
                self._retake_straggler(offset, pop_time, deadline)
                continue
            place = head + offset - base
            if offset in self.ahead:
                self.ahead.discard(offset)
                continue
            if states[place] & _STATE == FREE:
                self.in_flight += 1
            states[place] = HELD
            times[place] = pop_time
            deadlines[place] = deadline
        self._trim()

    def _hold_all(self, following: int, pop_time: int, deadline: int) -> None:
        """Hold everything from `taken` on: the usual take, which needs no look at a message."""
        count = following - self.taken
        self._states += _HELD_STATE * count
        self._pop_times += array("q", [pop_time]) * count
        self._deadlines += array("q", [deadline]) * count
        self.taken = following
        self.in_flight += count

    def _extend(self, following: int, pop_time: int, deadline: int) -> None:
        count = following - self.taken
        self._states.extend(bytes(count))
        self._pop_times.extend(array("q", [pop_time]) * count)
        self._deadlines.extend(array("q", [deadline]) * count)
        self.taken = following

    def _skip(self, start: int, end: int, state: int) -> None:
        self._extend(end, 0, 0)
        if state == RETURNED:
            place = self._head + start - self.base
            self._states[place : place + end - start] = bytes([RETURNED]) * (end - start)
            self.in_flight += end - start
            for offset in range(start, end):
                heapq.heappush(self._returned, offset)

    def _retake_straggler(self, offset: int, pop_time: int, deadline: int) -> None:
        straggler = self.stragglers.get(offset)
        if straggler is not None:
            straggler.state, straggler.pop_time, straggler.deadline = HELD, pop_time, deadline

    def returned_run(self, count_max: int) -> tuple[int, int]:
        """Return the first offset that was returned, and how many follow it without a gap; (-1, 0) for none."""
        returned = self._returned
        while returned and self.state_of(returned[0]) != RETURNED:
            heapq.heappop(returned)
        if not returned:
            return -1, 0
        first, count = returned[0], 1
        while count < count_max and self.state_of(first + count) == RETURNED:
            count += 1
        return first, count

    # -- giving back

    def ack(self, offset: int, pop_time: int) -> int:
        """Acknowledge a message for the pop that took it. Return the pop time that the journal must name for it; -1
        where nothing changed. A message that was returned can be acknowledged by any pop since the last reset."""
        if offset >= self.taken:
            # A crash has lost the take, or this is nonsense, which does no harm in so small a set.
            if pop_time <= self.reset_time or offset in self.ahead or len(self.ahead) >= AHEAD_MAX:
                return -1
            self.ahead.add(offset)
            return pop_time
        if offset < self.base:
            straggler = self.stragglers.get(offset)
            if straggler is None or not self._may_ack(straggler.state, straggler.pop_time, pop_time):
                return -1
            del self.stragglers[offset]
            self.in_flight -= 1
            return straggler.pop_time or pop_time
        place = self._head + offset - self.base
        if not self._may_ack(self._states[place], self._pop_times[place], pop_time):
            return -1
        held_by = self._pop_times[place]
        self._states[place] = FREE
        self.in_flight -= 1
        if place == self._head:
            self._trim()
        return held_by or pop_time

    def ack_run(self, first: int, count: int, pop_time: int) -> bool:
        """Acknowledge messages that follow each other and are all held by that pop. Return False, and do nothing, where
        one of them is not: `ack` then decides about each."""
        place = self._head + first - self.base
        end = place + count
        if count <= 0 or first < self.base or first + count > self.taken:
            return False
        # Nothing but HELD will do: messages on their way back, or returned, or whose next try does not count, are rare.
        times = self._pop_times
        if times[place] != pop_time or self._states[place:end] != _HELD_STATE * count:
            return False
        if times[place:end] != times[place : place + 1] * count:
            return False
        self._states[place:end] = bytes(count)
        self.in_flight -= count
        if place == self._head:
            self._head = end
            self.base = first + count
            self._trim()
        return True

    def _may_ack(self, state: int, held_by: int, pop_time: int) -> bool:
        kind = state & _STATE
        if kind == RETURNED:
            return pop_time > self.reset_time
        return kind != FREE and held_by == pop_time

    def change(self, offset: int, pop_time: int, deadline: int, *, suspend: bool) -> int:
        """Hide a message until another time. Return its deadline before; -1 where that pop does not hold it."""
        state = HELD | (_SUSPENDED if suspend else 0)
        if offset < self.base:
            straggler = self.stragglers.get(offset)
            if straggler is None or straggler.state & _STATE != HELD or straggler.pop_time != pop_time:
                return -1
            before = straggler.deadline
            straggler.deadline, straggler.state = deadline, state
            return before
        if offset >= self.taken:
            return -1
        place = self._head + offset - self.base
        if self._states[place] & _STATE != HELD or self._pop_times[place] != pop_time:
            return -1
        before = self._deadlines[place]
        self._deadlines[place] = deadline
        self._states[place] = state
        return before

    def give_back(self, offset: int, pop_time: int) -> bool:
        """Return a message that its pop could not deliver: the next pop takes it first, and no try is counted."""
        lease = self.lease_of(offset)
        if lease is None or lease[0] != pop_time:
            return False
        self._set_state(offset, RETURNED)
        self.floor = max(self.floor, pop_time)
        heapq.heappush(self._returned, offset)
        return True

    def _set_state(self, offset: int, state: int) -> None:
        if offset < self.base:
            self.stragglers[offset].state = state
        else:
            self._states[self._head + offset - self.base] = state

    # -- time

    def due(self, first: int, span: int, now_ms: int) -> tuple[list[int], int]:
        """Return those of some messages whose time is over, now REVIVING, and the earliest deadline of the others that
        somebody holds, -1 for none."""
        found: list[int] = []
        later = -1
        for offset in range(max(first, self.base), min(first + span, self.taken)):
            place = self._head + offset - self.base
            state = self._states[place]
            if state & _STATE != HELD:
                continue
            deadline = self._deadlines[place]
            if deadline <= now_ms:
                self._states[place] = REVIVING | state & _SUSPENDED
                found.append(offset)
            elif later < 0 or deadline < later:
                later = deadline
        if self.stragglers and first < self.base:
            later = self._due_stragglers(first, span, now_ms, found, later)
        return found, later

    def _due_stragglers(self, first: int, span: int, now_ms: int, found: list[int], later: int) -> int:
        for offset in range(first, min(first + span, self.base)):
            one = self.stragglers.get(offset)
            if one is None or one.state & _STATE != HELD:
                continue
            if one.deadline <= now_ms:
                one.state = REVIVING | one.state & _SUSPENDED
                found.append(offset)
            elif later < 0 or one.deadline < later:
                later = one.deadline
        return later

    def pop_time_of(self, offset: int) -> int:
        """Return the pop that took a message that is held or on its way back; 0 where it is neither."""
        if offset < self.base:
            straggler = self.stragglers.get(offset)
            return 0 if straggler is None else straggler.pop_time
        return self._pop_times[self._head + offset - self.base] if offset < self.taken else 0

    def revived(self, offset: int) -> None:
        """Let a message go whose copy is stored, or that can never be read again."""
        if self.state_of(offset) == FREE:
            return
        if offset < self.base:
            del self.stragglers[offset]
        else:
            self._states[self._head + offset - self.base] = FREE
        self.in_flight -= 1
        self._trim()

    def revive_later(self, offset: int, deadline: int) -> int:
        """Hold a message on whose copy could not be stored. Return its pop time; -1 where it was acknowledged since."""
        if self.state_of(offset) != REVIVING:
            return -1
        suspended = _SUSPENDED if self.is_suspended(offset) else 0
        self._set_state(offset, HELD | suspended)
        if offset < self.base:
            self.stragglers[offset].deadline = deadline
            return self.stragglers[offset].pop_time
        place = self._head + offset - self.base
        self._deadlines[place] = deadline
        return self._pop_times[place]

    # -- moving

    def reset(self, offset: int, at_ms: int) -> None:
        """Go on from an offset, and forget everything that is held. Leases from before have no effect any more."""
        self.reset_time = max(at_ms, self.last_pop_time)
        self.last_pop_time = self.floor = self.reset_time
        self.base = self.taken = offset
        self.in_flight = 0
        self.stragglers.clear()
        self.ahead.clear()
        self._head = 0
        self._deadlines, self._pop_times, self._states = array("q"), array("q"), bytearray()
        self._returned = []

    def _trim(self) -> None:
        """Let the lowest offsets go that nobody holds; give stragglers away where the rest is nearly all free."""
        states, head, end = self._states, self._head, len(self._states)
        start = head
        while head < end and states[head] & _STATE == FREE:
            head += 1
        self.base += head - start
        self._head = head
        if head == end:
            self._head = 0
            del self._deadlines[:], self._pop_times[:], states[:]
        elif head >= _TRIM_FROM and head * 2 >= end:
            del self._deadlines[:head], self._pop_times[:head], states[:head]
            self._head = 0

    def is_sparse(self) -> bool:
        """Tell whether the window is long and nearly empty."""
        length = len(self._states) - self._head
        return length >= LONG and (self.in_flight - len(self.stragglers)) * _SPARSE < length

    def pass_over(self, following: int) -> int:
        """Skip everything from `taken` to an offset, however far that is. What is held moves into the table of
        stragglers; return how many were moved."""
        moved = self.spread()
        self.base = self.taken = following
        self.ahead = {offset for offset in self.ahead if offset >= following}
        return moved

    def spread(self) -> int:
        """Move what is held into the table of stragglers; return how many were moved."""
        moved = 0
        for place in range(self._head, len(self._states)):
            state = self._states[place]
            if state & _STATE != FREE:
                offset = self.base + place - self._head
                self.stragglers[offset] = Straggler(self._deadlines[place], self._pop_times[place], state)
                moved += 1
        self.base = self.taken
        self._head = 0
        self._deadlines, self._pop_times, self._states = array("q"), array("q"), bytearray()
        return moved

    # -- a picture of it

    def packed(self) -> tuple[bytes, bytes, bytes]:
        """Return deadlines, pop times and states from `base` on, as bytes of this machine's order."""
        head = self._head
        if not head:
            return self._deadlines.tobytes(), self._pop_times.tobytes(), bytes(self._states)
        return self._deadlines[head:].tobytes(), self._pop_times[head:].tobytes(), bytes(self._states[head:])

    def unpack(self, deadlines: bytes, pop_times: bytes, states: bytes) -> None:
        """Take up what `packed` returned. A copy that was on its way is looked for again by its deadline."""
        count = len(states)
        if len(deadlines) != 8 * count or len(pop_times) != 8 * count:
            raise ValueError(f"{count} states, {len(deadlines)} bytes of deadlines, {len(pop_times)} of times")
        self._deadlines, self._pop_times = array("q", deadlines), array("q", pop_times)
        self._states = bytearray(after_a_start(states))
        self._head = 0
        self.taken = self.base + count
        self.in_flight = count - self._states.count(FREE) - self._states.count(_SUSPENDED) + len(self.stragglers)
        place = self._states.find(RETURNED)
        while place >= 0:
            self._returned.append(self.base + place)
            place = self._states.find(RETURNED, place + 1)

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield (first, span, earliest deadline) for each run of held messages of one pop. A window of
        which this was asked has just been restored: pop times that it does not know may have been used."""
        self.floor = max(self.floor, self.last_pop_time)
        for offset, one in self.stragglers.items():
            if one.state & _STATE == HELD:
                yield offset, 1, one.deadline
        states, times, deadlines = self._states, self._pop_times, self._deadlines
        place, end = self._head, len(states)
        while place < end:
            if states[place] & _STATE != HELD:
                place += 1
                continue
            first, pop_time, deadline = place, times[place], deadlines[place]
            while place < end and states[place] & _STATE == HELD and times[place] == pop_time:
                deadline = min(deadline, deadlines[place])
                place += 1
            yield self.base + first - self._head, place - first, deadline


_AFTER_A_START: Final = bytes(
    HELD | state & _SUSPENDED if state & _STATE == REVIVING else state for state in range(256)
)


def after_a_start(states: bytes) -> bytes:
    """Return states as a start finds them: a copy that was on its way is gone, so the message is held."""
    return states.translate(_AFTER_A_START)
