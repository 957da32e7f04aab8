"""Delayed delivery under failures and crashes: never early, never lost, and with marks never twice."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aerobee.broker.delay.levels import DelayLevels
from aerobee.broker.delay.schedule import DelayedUnit, DelaySchedule, delivery_mark

LEVELS = DelayLevels.parse("1s 10s")


class DelayMachine(RuleBasedStateMachine):
    """The log is a list of marks; the saved table is older than the log, as on a disk."""

    def __init__(self) -> None:
        super().__init__()
        self.schedule = DelaySchedule(LEVELS, in_flight_max=5)
        self.now = 1_000_000
        self.queues: dict[int, list[DelayedUnit]] = {1: [], 2: []}
        self.log: list[int] = []
        self.saved: tuple[dict[int, int], int] = ({}, 0)
        self.flying: list[tuple[int, DelayedUnit]] = []

    @rule(level=st.sampled_from([1, 2]), count=st.integers(1, 4))
    def send(self, level: int, count: int) -> None:
        queue = self.queues[level]
        for _ in range(count):
            at = len(queue)
            queue.append(DelayedUnit(at, at * 100, 100, LEVELS.deliver_ms(level, self.now)))

    @rule(step_ms=st.integers(0, 12_000))
    def pass_time(self, step_ms: int) -> None:
        self.now += step_ms

    @rule(level=st.sampled_from([1, 2]), read=st.integers(0, 8))
    def plan(self, level: int, read: int) -> None:
        first = self.schedule.next_offset(level)
        queue = self.queues[level]
        plan = self.schedule.plan(level, queue[first : first + read], self.now, len(queue))
        assert all(unit.deliver_ms <= self.now for unit in plan.deliver), "early"
        self.flying += [(level, unit) for unit in plan.deliver]

    @rule(data=st.data(), works=st.booleans())
    def report(self, data: st.DataObject, works: bool) -> None:
        if not self.flying:
            return
        level, unit = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        if works:
            self.log.append(delivery_mark(level, unit.queue_offset))
            self.schedule.delivered(level, unit.queue_offset, len(self.log) - 1)
        else:
            self.schedule.failed(level, unit.queue_offset)

    @rule()
    def save(self) -> None:
        self.saved = (self.schedule.offsets(), self.schedule.rescan_from(len(self.log)))

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """Deliveries on their way are in the log or not; their reports are lost."""
        for level, unit in self.flying:
            if data.draw(st.booleans()):
                self.log.append(delivery_mark(level, unit.queue_offset))
        self.flying = []
        table, position = self.saved
        self.schedule = DelaySchedule(LEVELS, table, in_flight_max=5)
        self.schedule.seen([(self.log[at], at) for at in range(position, len(self.log))])

    @invariant()
    def sound(self) -> None:
        self.schedule.validate()
        assert len(self.log) == len(set(self.log)), "twice"

    def teardown(self) -> None:
        """Left alone, everything is delivered."""
        for level, unit in self.flying:
            self.log.append(delivery_mark(level, unit.queue_offset))
            self.schedule.delivered(level, unit.queue_offset, len(self.log) - 1)
        self.now += 20_000
        for level, queue in self.queues.items():
            for _ in range(2 * len(queue) + 1):
                first = self.schedule.next_offset(level)
                for unit in self.schedule.plan(level, queue[first : first + 3], self.now).deliver:
                    self.log.append(delivery_mark(level, unit.queue_offset))
                    self.schedule.delivered(level, unit.queue_offset, len(self.log) - 1)
        wanted = sorted(delivery_mark(level, u.queue_offset) for level, q in self.queues.items() for u in q)
        assert sorted(self.log) == wanted


DelayMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestDelays = DelayMachine.TestCase
