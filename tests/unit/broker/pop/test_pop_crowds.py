"""POP with very many queues, groups, waiting pops and changes: nobody is held up, and nothing is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aerobee.broker.pop import waits as pop_waits
from aerobee.hot.log.javahash import tags_code
from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import ResponseCode
from aerobee.testing.brokerkit import BrokerKit, run_broker, settle
from aerobee.testing.popkit import (
    RETRY,
    ack,
    bodies,
    change,
    notification,
    pop,
    pop_request,
    popped,
    store,
    with_topic,
)
from aerobee.testing.storekit import draft

_MANY = 12_000


def _with_many_queues(kit: BrokerKit) -> None:
    """Make a topic whose pops begin at its last queue."""
    kit.state.catalog.put_topic(TopicConfig("T", _MANY, _MANY, attributes={"message.type": "PRIORITY"}))
    assert kit.state.catalog.group("G") is not None


@pytest.mark.parametrize("what", ["pop", "notification"])
def test_a_look_at_very_many_queues_goes_by_turns(what: str) -> None:
    """Others are answered meanwhile. What comes to a queue that was visited before is found at once."""

    async def main(kit: BrokerKit) -> None:
        _with_many_queues(kit)
        client = kit.connect()
        kit.state.catalog.put_topic(TopicConfig("other", 1, 1))
        asked = pop_request(kit, poll_ms=10_000, opaque=5)
        if what == "notification":
            asked = notification(kit, poll_ms=10_000, opaque=5)
        client.send(asked)
        windows = kit.broker.pop.table.windows
        assert what != "pop" or len(windows) < _MANY / 4, "one turn visits some queues only"
        assert await bodies(kit, topic="other") == []
        store(kit, 1, _MANY - 1 if what == "pop" else 0)
        began_ms = kit.clock.now_ms()
        while not (answers := await client.answers()):
            await kit.pass_time(0.01)
        assert kit.clock.now_ms() - began_ms < 5_000
        (answer,) = answers
        assert answer.code == 0
        if what == "pop":
            assert [one.queue_id for one in popped(answer)] == [_MANY - 1]
        else:
            assert answer.ext["hasMsg"] == "true"
        await kit.pass_time(12, 0.5)
        assert await client.answers() == [], "one answer"

    run_broker(main)


def test_a_pop_whose_queue_went_while_it_waited_takes_nothing_from_it() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit, 4)
        client = kit.connect()
        client.send(pop_request(kit, queue_id=3, poll_ms=5_000))
        await kit.pass_time(0.1)
        kit.state.catalog.put_topic(TopicConfig("T", 2, 4))
        store(kit, 1, 3)
        await kit.pass_time(6, 0.5)
        (answer,) = await client.answers()
        assert answer.code == ResponseCode.POLLING_TIMEOUT
        kit.state.catalog.put_topic(TopicConfig("T", 4, 4))
        assert len(await bodies(kit, queue_id=3)) == 1

    run_broker(main)


def test_without_room_for_a_retry_topic_messages_stay_held() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 3)
        catalog = kit.state.catalog
        rules = catalog.topic_rules
        assert len(await pop(kit, invisible_ms=1_000)) == 3
        catalog.topic_rules = replace(rules, topics_max=1)
        await kit.pass_time(15, 0.05)
        assert kit.broker.pop.table.in_flight == 3
        assert catalog.find(RETRY) is None
        catalog.topic_rules = rules
        await kit.pass_time(15, 0.05)
        assert sorted(await bodies(kit)) == [b"0", b"1", b"2"]

    run_broker(main)


@pytest.mark.parametrize("first", [0, 1])
def test_one_answer_in_order_has_one_time(first: int) -> None:
    """Two queues in one answer, and one of them was popped in the same millisecond: every acknowledgement counts."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit, 2)
        store(kit, 1, first)
        (one,) = await pop(kit, order=True, attempt_id="a")
        assert await ack(kit, one) == 0
        store(kit, 1, 0)
        store(kit, 1, 1)
        came = 0
        for attempt in range(20):
            for message in await pop(kit, order=True, attempt_id=f"b{attempt}", invisible_ms=1_000):
                assert await ack(kit, message) == 0
                came += 1
        assert came == 2
        await kit.pass_time(3, 0.05)
        assert await bodies(kit, order=True, attempt_id="c") == []

    run_broker(main)


def test_changes_in_order_without_end_take_no_memory() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 1)
        (one,) = await pop(kit, order=True, attempt_id="a")
        for number in range(2_500):
            await change(kit, one, 100_000_000 - number)
        assert len(kit.broker.pop.orders._locks) < 1_100
        await change(kit, one, 1_000)
        client = kit.connect()
        client.send(pop_request(kit, order=True, attempt_id="b", poll_ms=5_000))
        await kit.pass_time(2, 0.05)
        (answer,) = await client.answers()
        assert len(popped(answer)) == 1, "the end of the lock wakes who waits"

    run_broker(main)


class _Waiting:
    """A pop that waits."""

    def __init__(self) -> None:
        self.woken = 0
        self.is_over = False

    def is_gone(self) -> bool:
        return self.is_over

    def wake(self) -> None:
        self.woken += 1

    def expire(self) -> None:
        """Hear that the broker stops."""


def _hold(kit: BrokerKit, tags: str = "", group: str = "G", until_s: float = 1e9) -> _Waiting | None:
    one = _Waiting()
    wanted = {tags_code(tags)} if tags else None
    return one if kit.broker.pop.waits.hold(one, "T", group, -1, (), wanted, until_s) else None


def test_a_burst_wakes_each_pop_once() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        waiting = [_hold(kit) for _ in range(100)]
        kit.store.append([draft(b"x", b"T", 0) for _ in range(1_000)])
        await settle()
        assert [one.woken for one in waiting if one is not None] == [1] * 100
        assert len(kit.broker.pop.waits) == 0

    run_broker(main)


def test_a_message_wakes_the_first_whose_tags_fit() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        other, late, early = _hold(kit, "B", until_s=1e8), _hold(kit, "A", until_s=3e8), _hold(kit, until_s=2e8)
        assert other is not None and late is not None and early is not None
        store(kit, 1, tags="A")
        await settle()
        assert (other.woken, late.woken, early.woken) == (0, 0, 1)
        store(kit, 1, tags="A")
        await settle()
        assert (other.woken, late.woken, early.woken) == (0, 1, 1)

    run_broker(main)


def test_places_of_clients_that_are_gone_are_given_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client that took every place and left must not leave the others to poll in a busy loop."""
    monkeypatch.setattr(pop_waits, "WAITING_MAX", 50)

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        held = [_hold(kit, group=f"g{number}") for number in range(50)]
        assert _hold(kit, group="late") is None
        for one in held[:40]:
            assert one is not None
            one.is_over = True
        found = [_hold(kit, group=f"new{number}") for number in range(400)]
        assert sum(one is not None for one in found) == 40

    run_broker(main)
