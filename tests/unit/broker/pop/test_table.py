"""The machine of POP against a model of one dictionary, and against its own journal."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aerobee.broker.pop import window as windows
from aerobee.broker.pop.entries import Key, Writer, read_entries
from aerobee.broker.pop.snapshot import decode_picture, encode_picture
from aerobee.broker.pop.table import BUCKET_MS, PopTable
from aerobee.broker.pop.window import FREE, HELD, RETURNED, REVIVING

KEY = Key("T", "G", 0)


@dataclass
class _Held:
    state: int
    pop_time: int
    deadline: int
    suspended: bool = False


class PopStory(RuleBasedStateMachine):
    """One queue of one group. `journal` is all that survives a crash."""

    @initialize(start=st.integers(0, 5))
    def begin(self, start: int) -> None:
        self.table = PopTable()
        self.table.committed = lambda key: start
        self.start = start
        self.table.window(KEY, start)
        self.journal: list[bytes] = []
        self.picture: tuple[list[bytes], int] | None = None
        self.model: dict[int, _Held] = {}
        self.taken = start
        self.reset_time = 0
        self.now = 1_000_000

    @property
    def window(self) -> windows.Window:
        return self.table.windows[KEY]

    def _say(self, writer: Writer) -> None:
        self.journal.append(writer.body())

    @rule(held=st.lists(st.booleans(), min_size=0, max_size=12), invisible=st.integers(0, 5_000))
    def take(self, held: list[bool], invisible: int) -> None:
        start, following = self.taken, self.taken + len(held)
        offsets = tuple(start + place for place, is_held in enumerate(held) if is_held)
        ahead = set(self.window.ahead)
        pop_time = self.window.next_pop_time(self.now)
        found = range(start, following) if all(held) else offsets
        self.table.take(self.window, start, following, found, pop_time, pop_time + invisible)
        writer = Writer()
        writer.take(KEY, pop_time, pop_time + invisible, start, following, found)
        self._say(writer)
        for offset in offsets:
            if offset not in ahead:
                self.model[offset] = _Held(HELD, pop_time, pop_time + invisible)
        self.taken = following

    @rule(count=st.integers(1, 4), invisible=st.integers(1, 5_000))
    def take_returned(self, count: int, invisible: int) -> None:
        first, found = self.window.returned_run(count)
        returned = sorted(offset for offset, one in self.model.items() if one.state == RETURNED)
        assert (first < 0) == (not returned)
        if first < 0:
            return
        assert first == returned[0] and list(range(first, first + found)) == returned[:found]
        pop_time = self.window.next_pop_time(self.now)
        offsets = range(first, first + found)
        self.table.take(self.window, first, first, offsets, pop_time, pop_time + invisible)
        writer = Writer()
        writer.take(KEY, pop_time, pop_time + invisible, first, first, offsets)
        self._say(writer)
        for offset in offsets:
            self.model[offset] = _Held(HELD, pop_time, pop_time + invisible)

    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(max(0, self.taken - 15), self.taken + 3))
        one = self.model.get(offset)
        pop_time = data.draw(st.sampled_from([one.pop_time if one else 7, 7, self.now + 10_000_000]))
        named = self.table.ack(self.window, offset, pop_time)
        changed = named >= 0
        if changed:
            writer = Writer()
            writer.ack(KEY, named, offset, 1)
            self._say(writer)
        if one is not None and one.state == RETURNED:
            assert changed == (pop_time > self.reset_time)
        elif one is not None:
            assert changed == (pop_time == one.pop_time)
        elif offset < self.taken:
            assert not changed
        if changed:
            self.model.pop(offset, None)

    @rule(data=st.data(), count=st.integers(0, 14))
    def ack_run(self, data: st.DataObject, count: int) -> None:
        first = data.draw(st.integers(max(0, self.taken - 15), self.taken + 1))
        one = self.model.get(first)
        pop_time = data.draw(st.sampled_from([one.pop_time if one else 7, 7, self.now + 10_000_000]))
        run = [self.model.get(offset) for offset in range(first, first + count)]
        plain = all(each is not None and each.state == HELD and not each.suspended for each in run)
        right = count > 0 and plain and all(each is not None and each.pop_time == pop_time for each in run)
        done = self.window.ack_run(first, count, pop_time)
        # Stragglers are acknowledged one by one.
        assert done == right or (right and first in self.window.stragglers)
        if done:
            writer = Writer()
            writer.ack(KEY, pop_time, first, count)
            self._say(writer)
            for offset in range(first, first + count):
                del self.model[offset]

    @precondition(lambda self: self.model)
    @rule(data=st.data(), invisible=st.integers(0, 9_000), suspend=st.booleans(), right=st.booleans())
    def change(self, data: st.DataObject, invisible: int, suspend: bool, right: bool) -> None:
        offset = data.draw(st.sampled_from(sorted(self.model)))
        one = self.model[offset]
        pop_time, deadline = one.pop_time if right else 7, self.now + invisible
        changed = self.table.change(self.window, offset, pop_time, deadline, suspend=suspend)
        assert changed == (right and one.state == HELD)
        if changed:
            writer = Writer()
            writer.change(KEY, pop_time, offset, deadline, suspend=suspend)
            self._say(writer)
            one.deadline, one.suspended = deadline, suspend

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.model)))
        one = self.model[offset]
        assert self.window.give_back(offset, one.pop_time) == (one.state == HELD)
        if one.state == HELD:
            one.state, one.suspended = RETURNED, False

    @rule(step=st.integers(0, 3_000))
    def time_passes(self, step: int) -> None:
        self.now += step
        found = {offset for due in self.table.due(self.now, 10_000) for offset in due.offsets}
        sure = {o for o, one in self.model.items() if one.state == HELD and one.deadline <= self.now - BUCKET_MS}
        most = {o for o, one in self.model.items() if one.state == HELD and one.deadline <= self.now}
        assert sure <= found <= most
        for offset in found:
            self.model[offset].state = REVIVING

    @precondition(lambda self: any(one.state == REVIVING for one in self.model.values()))
    @rule(works=st.booleans())
    def revive(self, works: bool) -> None:
        offsets = tuple(sorted(offset for offset, one in self.model.items() if one.state == REVIVING))
        if works:
            self.table.revived(self.window, offsets)
            writer = Writer()
            writer.done(KEY, offsets, self.now)
            self._say(writer)
            for offset in offsets:
                del self.model[offset]
        else:
            for offset in offsets:
                self.table.revive_later(self.window, offset, self.now + 500)
                self.model[offset].state, self.model[offset].deadline = HELD, self.now + 500

    @rule(back=st.integers(0, 10))
    def reset(self, back: int) -> None:
        offset = max(0, self.taken - back)
        self.table.reset(self.window, offset, self.now)
        writer = Writer()
        writer.reset(KEY, offset, self.window.reset_time)
        self._say(writer)
        self.model.clear()
        self.taken, self.reset_time = offset, self.window.reset_time

    @rule()
    def spread(self) -> None:
        self.table.stragglers += self.window.spread()

    @rule()
    def take_picture(self) -> None:
        self.picture = encode_picture(self.table, len(self.journal)), len(self.journal)

    @rule(with_picture=st.booleans())
    def crash(self, with_picture: bool) -> None:
        """What a start knows: everything but returns, and copies that were on their way."""
        at = 0
        if with_picture and self.picture is not None:
            table, at = decode_picture(b"".join(self.picture[0]))
            table.look_at_all()
        else:
            table = PopTable()
        table.committed = lambda key: self.start
        for body in self.journal[at:]:
            for entry in read_entries(body):
                table.learn(entry)
        table.window(KEY, self.start)
        returned = {offset for offset in self.model if table.windows[KEY].state_of(offset) == RETURNED}
        self.table = table
        for offset, one in self.model.items():
            one.state = RETURNED if offset in returned else HELD
            lease = self.window.lease_of(offset)
            if lease is not None:
                # A copy that was to be tried again has its old time.
                one.deadline = lease[1]
                one.suspended = self.window.is_suspended(offset)

    @invariant()
    def is_as_the_model(self) -> None:
        window = self.window
        assert window.taken == self.taken
        assert window.in_flight == len(self.model)
        assert window.safe <= min(self.model, default=self.taken)
        assert not self.model or window.safe == min(self.model) or window.stragglers or window.base == window.safe
        for offset in range(max(0, self.taken - 40), self.taken + 2):
            one = self.model.get(offset)
            assert window.state_of(offset) == (FREE if one is None else one.state), offset
            if one is not None and one.state == HELD:
                assert window.lease_of(offset) == (one.pop_time, one.deadline)
                assert window.is_suspended(offset) == one.suspended
        assert self.table.stragglers == len(window.stragglers)


PopStory.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPopStory = PopStory.TestCase


def test_one_slow_message() -> None:
    """The first of very many is never acknowledged: memory stays small, and the window moves."""
    table = PopTable()
    window = table.window(KEY, 0)
    now = 1_000_000
    table.take(window, 0, 1, range(1), window.next_pop_time(now), now + 3_600_000)
    for start in range(1, 300_001, 1_000):
        pop_time = window.next_pop_time(now)
        table.take(window, start, start + 1_000, range(start, start + 1_000), pop_time, pop_time + 60_000)
        for offset in range(start, start + 1_000):
            assert table.ack(window, offset, pop_time) == pop_time
    assert window.in_flight == 1
    assert window.base > 200_000
    assert window.safe == 0
    assert len(window.packed()[2]) < 70_000


@pytest.mark.parametrize(("size", "bytes_max"), [(1, 20), (32, 20)])
def test_million_in_flight(size: int, bytes_max: int) -> None:
    """Messages held: at most 20 bytes each, popped one by one or by 32."""
    count = 200_000
    table = PopTable()
    window = table.window(KEY, 0)
    for start in range(0, count, size):
        pop_time = window.next_pop_time(1_000_000 + start // 20)
        table.take(window, start, start + size, range(start, start + size), pop_time, pop_time + 60_000)
    assert window.in_flight == count
    assert table.size_in_bytes <= count * bytes_max
    for start in range(0, count, size):
        for offset in range(start, start + size):
            assert table.ack(window, offset, window.lease_of(offset)[0]) >= 0  # type: ignore[index]
    while table.next_due_ms >= 0:
        assert not table.due(1_000_000 + count + 120_000, count)
    assert (window.in_flight, window.safe) == (0, count)
    assert table.size_in_bytes < 10_000, "given back"


def test_a_record_that_is_none() -> None:
    for body in (b"", b"\x02", b"\x01\x01", b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x01\x00\x00\x01\x00"):
        with pytest.raises(ValueError):
            list(read_entries(body))


def test_an_ack_is_small() -> None:
    """A take of 32 and its acknowledgements, one by one, in one record."""
    writer = Writer()
    writer.take(
        Key("orders", "billing", 3),
        1_794_799_288_586,
        1_794_799_348_586,
        10_000_000,
        10_000_032,
        range(10_000_000, 10_000_032),
    )
    before = len(writer.body())
    for offset in range(10_000_000, 10_000_032):
        writer.ack(Key("orders", "billing", 3), 1_794_799_288_586, offset, 1)
    names = len("orders") + len("billing") + 2 + 1
    assert before <= 24 + 2 + names + 6
    assert (len(writer.body()) - before) / 32 <= 10
    assert writer.size >= len(writer.body()) - 8


def test_an_ack_of_a_whole_pop_is_as_small_as_one() -> None:
    writer, key = Writer(), Key("orders", "billing", 3)
    writer.ack(key, 1_794_799_288_586, 10_000_000, 1)
    one = len(writer.body())
    writer.ack(key, 1_794_799_288_586, 10_000_001, 32)
    assert len(writer.body()) - one <= 10
    assert [(entry.pop_time, entry.offsets) for entry in read_entries(writer.body())] == [
        (1_794_799_288_586, range(10_000_000, 10_000_001)),
        (1_794_799_288_586, range(10_000_001, 10_000_033)),
    ]
