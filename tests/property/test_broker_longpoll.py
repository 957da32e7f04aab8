"""Long polling against a plain list: the same pulls woken and expired, whatever the order of events."""

from __future__ import annotations

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aerobee.broker.log.arrivals import BUCKET_S, LongPolls


class LongPollMachine(RuleBasedStateMachine):
    """`waiting` is the model: (queue, offset, tags, channel, deadline, name)."""

    def __init__(self) -> None:
        super().__init__()
        self.polls: LongPolls[int] = LongPolls(held_max=8, held_per_channel_max=4)
        self.waiting: list[tuple[int, int, frozenset[int] | None, int, float, int]] = []
        self.now = 0.0
        self.names = 0

    @rule(
        queue=st.integers(0, 2),
        offset=st.integers(0, 3),
        tags=st.none() | st.frozensets(st.integers(-1, 1), min_size=1),
        channel=st.integers(0, 3),
        timeout=st.floats(0, 20),
    )
    def suspend(self, queue: int, offset: int, tags: frozenset[int] | None, channel: int, timeout: float) -> None:
        self.names += 1
        held = self.polls.suspend(
            b"t",
            queue,
            offset,
            self.names,
            channel=channel,
            now_s=self.now,
            timeout_s=timeout,
            tag_codes=tags,
        )
        room = len(self.waiting) < 8 and sum(w[3] == channel for w in self.waiting) < 4
        assert held == (timeout > 0 and room)
        if held:
            self.waiting.append((queue, offset, tags, channel, self.now + timeout, self.names))

    @rule(queue=st.integers(0, 2), end=st.integers(0, 4), tag=st.none() | st.integers(-1, 1))
    def arrive(self, queue: int, end: int, tag: int | None) -> None:
        woken = [
            w for w in self.waiting if w[0] == queue and w[1] < end and (tag is None or w[2] is None or tag in w[2])
        ]
        assert self.polls.arrived(b"t", queue, end, tag) == [w[5] for w in woken]
        self.waiting = [w for w in self.waiting if w not in woken]

    @rule(step=st.floats(0, 10))
    def pass_time(self, step: float) -> None:
        self.now += step
        expired = self.polls.expire(self.now)
        deadlines = {w[5]: w[4] for w in self.waiting}
        assert all(deadlines[name] <= self.now + 1e-6 for name in expired), "early"
        self.waiting = [w for w in self.waiting if w[5] not in expired]
        assert all(w[4] > self.now - BUCKET_S - 1e-6 for w in self.waiting), "late"
        order = [deadlines[name] for name in expired]
        assert all(b > a - BUCKET_S - 1e-6 for a, b in itertools.pairwise(order)), "out of order"

    @rule(channel=st.integers(0, 3))
    def close(self, channel: int) -> None:
        gone = [w for w in self.waiting if w[3] == channel]
        assert self.polls.channel_closed(channel) == len(gone)
        self.waiting = [w for w in self.waiting if w not in gone]

    @invariant()
    def sound(self) -> None:
        self.polls.validate()
        assert len(self.polls) == len(self.waiting)


LongPollMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLongPolls = LongPollMachine.TestCase
