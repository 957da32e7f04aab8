"""Pops of topics whose queues are priorities. RocketMQ: PopMessageProcessor (usePriorityMode)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from aerobee.model.topic import TopicConfig
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.popkit import ack, bodies, pop, store

_QUEUES = 4


def _with_priorities(kit: BrokerKit, factor: str = "", **settings: object) -> None:
    kit.state.catalog.put_topic(TopicConfig("T", _QUEUES, _QUEUES, attributes={"message.type": "PRIORITY"}))
    group = kit.state.catalog.group("G")
    assert group is not None
    if factor:
        kit.state.catalog.put_group(replace(group, attributes={"priority.factor": factor}))
    kit.state.config = replace(kit.state.config, **settings)  # type: ignore[arg-type]


async def _order(kit: BrokerKit) -> list[int]:
    """Return the queues in the order in which pops of one message at a time take from them."""
    found: list[int] = []
    while messages := await pop(kit, count=1):
        found += [one.queue_id for one in messages]
    return found


def _fill(kit: BrokerKit, each: int) -> None:
    for queue_id in range(_QUEUES):
        store(kit, each, queue_id)


def test_the_highest_comes_first() -> None:
    async def main(kit: BrokerKit) -> None:
        _with_priorities(kit)
        _fill(kit, 20)
        assert await _order(kit) == [3] * 20 + [2] * 20 + [1] * 20 + [0] * 20

    run_broker(main)


def test_one_answer_has_the_highest_first() -> None:
    async def main(kit: BrokerKit) -> None:
        _with_priorities(kit)
        _fill(kit, 2)
        assert [one.queue_id for one in await pop(kit)] == [3, 3, 2, 2, 1, 1, 0, 0]

    run_broker(main)


def test_a_higher_one_overtakes() -> None:
    async def main(kit: BrokerKit) -> None:
        _with_priorities(kit)
        store(kit, 10, 0)
        assert [one.queue_id for one in await pop(kit, count=2)] == [0, 0]
        store(kit, 1, 3)
        assert [one.queue_id for one in await pop(kit, count=2)] == [3, 0]

    run_broker(main)


def test_the_lowest_first_where_the_broker_says_so() -> None:
    async def main(kit: BrokerKit) -> None:
        _with_priorities(kit, priority_order_asc=False)
        _fill(kit, 5)
        assert await _order(kit) == sorted([0, 1, 2, 3] * 5)

    run_broker(main)


@pytest.mark.parametrize(
    ("factor", "least", "most"), [("100", 40, 40), ("0", 1, 25), ("60", 20, 36), ("x", 40, 40), ("101", 40, 40)]
)
def test_the_factor_of_a_group(factor: str, least: int, most: int) -> None:
    """So many of 100 pops go by priority. The others begin at a queue that chance chooses."""

    async def main(kit: BrokerKit) -> None:
        _with_priorities(kit, factor)
        _fill(kit, 60)
        found = [(await pop(kit, count=1))[0].queue_id for _ in range(40)]
        assert least <= found.count(3) <= most

    run_broker(main)


@pytest.mark.parametrize("attributes", [{}, {"message.type": "NORMAL"}, {"message.type": "MIXED"}])
def test_other_topics_give_all_queues_their_turn(attributes: Mapping[str, str]) -> None:
    async def main(kit: BrokerKit) -> None:
        _with_priorities(kit)
        kit.state.catalog.put_topic(TopicConfig("T", _QUEUES, _QUEUES, attributes=attributes))
        _fill(kit, 60)
        assert {(await pop(kit, count=1))[0].queue_id for _ in range(40)} == {0, 1, 2, 3}

    run_broker(main)


def test_a_topic_that_is_never_empty_gives_retries_too() -> None:
    """At Apache's broker they would wait for ever, unless popFromRetryProbabilityForPriority is set."""

    async def main(kit: BrokerKit) -> None:
        _with_priorities(kit)
        store(kit, 1, 3)
        await pop(kit, invisible_ms=1_000)
        await kit.pass_time(2, 0.05)
        found = []
        for _ in range(100):
            # There is always more of the highest priority than a pop takes.
            store(kit, 2, 3)
            found += [one.topic for one in await pop(kit, count=1)]
        assert found.count("%RETRY%G_T") == 1, "it comes, and once"
        assert found.index("%RETRY%G_T") < 50

    run_broker(main)


def test_retries_come_last_where_the_broker_says_so() -> None:
    async def main(kit: BrokerKit) -> None:
        _with_priorities(kit, pop_from_retry_probability_for_priority=0)
        store(kit, 1, 3)
        await pop(kit, invisible_ms=1_000)
        await kit.pass_time(2, 0.05)
        _fill(kit, 8)
        first = [(await pop(kit, count=1))[0] for _ in range(4 * 8)]
        assert {one.topic for one in first} == {"T"}
        (last,) = await pop(kit, count=1)
        assert (last.topic, last.record.reconsume_times) == ("%RETRY%G_T", 1)
        assert await ack(kit, last) == 0

    run_broker(main)


def test_retries_come_first_where_the_broker_says_so() -> None:
    async def main(kit: BrokerKit) -> None:
        _with_priorities(kit, pop_from_retry_probability_for_priority=100)
        store(kit, 1, 3)
        await pop(kit, invisible_ms=1_000)
        await kit.pass_time(2, 0.05)
        _fill(kit, 8)
        (first,) = await pop(kit, count=1)
        assert first.topic == "%RETRY%G_T"

    run_broker(main)


@pytest.mark.parametrize(("percent", "first"), [(0, "T"), (100, "%RETRY%G_T")])
def test_how_often_retries_come_first_without_priorities(percent: int, first: str) -> None:
    async def main(kit: BrokerKit) -> None:
        _with_priorities(kit, "0", pop_from_retry_probability=percent)
        store(kit, 10, 3)
        await pop(kit, count=10, invisible_ms=1_000)
        await kit.pass_time(2, 0.05)
        store(kit, 10, 3)
        assert {(await pop(kit, count=1))[0].topic for _ in range(10)} == {first}

    run_broker(main)


def test_order_counts_more_than_priority() -> None:
    """A pop in order takes each queue in its turn, as with any topic."""

    async def main(kit: BrokerKit) -> None:
        _with_priorities(kit)
        _fill(kit, 3)
        queues = {(await pop(kit, count=1, order=True, attempt_id=f"a{number}"))[0].queue_id for number in range(4)}
        assert queues == {0, 1, 2, 3}

    run_broker(main)


def test_one_queue_that_is_named() -> None:
    async def main(kit: BrokerKit) -> None:
        _with_priorities(kit)
        _fill(kit, 2)
        assert len(await bodies(kit, queue_id=1)) == 2
        assert await bodies(kit, queue_id=1) == []

    run_broker(main)
