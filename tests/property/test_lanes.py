"""The lane of a queue under any order of answers, refusals and lost answers: a broker never stores a message after a
later one of the same queue, and a numbered one is stored once."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from aerobee.client.producer.lanes import Lane


@dataclass(eq=False)
class Send:
    """A send of the test. `outcome` is what the broker answered to its last try."""

    number: int
    turn: int = -1
    after: int = -1
    outcome: str = ""


class Broker:
    """Stores what arrives, in the order of arrival. It checks the order of numbered messages as Aerobee's does."""

    def __init__(self, *, checks: bool) -> None:
        self.checks = checks
        self.stored: list[int] = []

    def write(self, send: Send, *, refuse: bool) -> str:
        if self.checks and send.number in self.stored:
            return "stored"
        last = self.stored[-1] if self.stored else -1
        if refuse or (self.checks and (last < send.after or send.number < last)):
            return "refused"
        self.stored.append(send.number)
        return "stored"


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["send", "send", "answer", "lose", "give up", "try"]), st.integers(0, 9), st.booleans()),
    max_size=80,
)


def play(actions: list[tuple[str, int, bool]], *, numbered: bool) -> tuple[Broker, list[int], Lane[Send]]:
    """Return the broker, the numbers that were acknowledged, and the lane."""
    lane: Lane[Send] = Lane(numbered=numbered)
    broker = Broker(checks=numbered)
    acked: list[int] = []
    on_way: list[Send] = []
    count = 0

    def write(send: Send, refuse: bool) -> None:
        before = lane.before(send)
        send.after = -1 if before is None else before.number
        send.outcome = broker.write(send, refuse=refuse)
        on_way.append(send)

    def released(refuse: bool) -> None:
        if lane.is_idle:
            for late in lane.overtaken():
                lane.ended(late, stored=False)
        if lane.is_held:
            first = lane.next()
            if first is not None:
                write(first, refuse)
        while not lane.is_held and (send := lane.next()) is not None:
            write(send, refuse)

    def answer(send: Send, outcome: str, refuse: bool) -> None:
        on_way.remove(send)
        if outcome == "stored":
            acked.append(send.number)
            lane.ended(send, stored=True)
            if lane.goes_on():
                released(refuse)
        elif outcome == "refused" or numbered:
            lane.returned(send)
        else:
            lane.ended(send, stored=True)  # its answer is lost: it may be stored

    for kind, which, refuse in actions:
        if kind == "send":
            send = Send(count)
            count += 1
            if lane.join(send):
                write(send, refuse)
        elif kind in ("answer", "lose") and on_way:
            send = on_way[which % len(on_way)]
            answer(send, send.outcome if kind == "answer" else "lost", refuse)
        elif kind == "give up" and lane.waiting:
            lane.ended(lane.waiting[which % len(lane.waiting)], stored=False)
        elif kind == "try":
            released(refuse)
    for _ in range(5 * (count + 1)):  # the faults end: everything is answered
        while on_way:
            answer(on_way[0], on_way[0].outcome, refuse=False)
        released(refuse=False)
    return broker, acked, lane


@given(actions=ACTIONS)
def test_nothing_is_stored_after_a_later_message_of_its_queue(actions: list[tuple[str, int, bool]]) -> None:
    broker, acked, lane = play(actions, numbered=False)
    assert broker.stored == sorted(set(broker.stored))
    assert set(acked) <= set(broker.stored)
    assert lane.is_empty, "something waits for ever"


@given(actions=ACTIONS)
def test_numbered_messages_are_stored_once_and_in_order(actions: list[tuple[str, int, bool]]) -> None:
    broker, acked, lane = play(actions, numbered=True)
    assert broker.stored == sorted(set(broker.stored))
    assert set(acked) <= set(broker.stored)
    assert lane.is_empty, "something waits for ever"
