"""Which queues a topic was declared with, and how often stale routes are asked for: machines."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from aerobee.client.core.declaredqueues import DeclaredQueues
from aerobee.client.core.refreshpace import LAST_S, RefreshPace
from aerobee.client.core.routes import RouteCache
from aerobee.model.queue import MessageQueue
from aerobee.model.route import BrokerData, QueueData, TopicRoute, TopicRouteData
from aerobee.testing.entropy import SeededEntropy

READ, READ_WRITE = 4, 6


def data(*groups: tuple[str, int, int, bool], order: str | None = None) -> TopicRouteData:
    """Return a route: (broker, queues, permission, whether it has a master) of each group."""
    return TopicRouteData(
        tuple(QueueData(name, count, count, perm) for name, count, perm, _ in groups),
        tuple(BrokerData("C", name, {0: f"{name}:1"} if master else {1: f"{name}:2"}) for name, _, _, master in groups),
        order,
    )


def learnt(*routes: TopicRouteData) -> list[str]:
    declared = DeclaredQueues()
    for one in routes:
        declared.learn(TopicRoute.of("t", one))
    return [f"{queue.broker_name}{queue.queue_id}" for queue in declared.of("t")]


def test_queues_of_a_group_that_is_away_stay_declared() -> None:
    both = data(("a", 2, READ_WRITE, True), ("b", 1, READ_WRITE, True))
    assert learnt(both) == ["a0", "a1", "b0"]
    assert learnt(both, data(("b", 1, READ_WRITE, True))) == ["a0", "a1", "b0"]
    assert learnt(both, data()) == ["a0", "a1", "b0"]
    assert learnt(data(("b", 1, READ_WRITE, True)), both) == ["a0", "a1", "b0"]


def test_a_group_without_a_master_keeps_its_queues_whatever_its_permission_says() -> None:
    both = data(("a", 1, READ_WRITE, True), ("b", 1, READ_WRITE, True))
    assert learnt(both, data(("a", 1, READ_WRITE, True), ("b", 1, READ_WRITE, False))) == ["a0", "b0"]
    # RocketMQ: RouteInfoManager takes the permission away while a slave acts as master.
    assert learnt(both, data(("a", 1, READ_WRITE, True), ("b", 1, READ, False))) == ["a0", "b0"]


def test_what_a_master_declares_counts_at_once() -> None:
    both = data(("a", 2, READ_WRITE, True), ("b", 2, READ_WRITE, True))
    assert learnt(both, data(("a", 3, READ_WRITE, True))) == ["a0", "a1", "a2", "b0", "b1"]
    assert learnt(both, data(("a", 1, READ_WRITE, True))) == ["a0", "b0", "b1"]
    assert learnt(both, data(("a", 2, READ, True), ("b", 2, READ_WRITE, True))) == ["b0", "b1"]


def test_the_order_configuration_names_every_queue() -> None:
    assert learnt(data(("a", 8, READ_WRITE, True), order="a:1;z:2")) == ["a0", "z0", "z1"]


def test_name_servers_tell_of_groups_that_were_away_before_and_of_those_forgotten() -> None:
    declared = DeclaredQueues()
    declared.heard("t", {"b": 2})
    assert declared.of("t") == (MessageQueue("t", "b", 0), MessageQueue("t", "b", 1))
    declared.learn(TopicRoute.of("t", data(("a", 1, READ_WRITE, True), ("b", 3, READ_WRITE, True))))
    declared.heard("t", {"b": 2})
    assert [queue.broker_name for queue in declared.of("t")] == ["a", "b", "b", "b"], (
        "what the group said itself counts"
    )
    declared.heard("t", {"b": 0})
    assert declared.of("t") == (MessageQueue("t", "a", 0),)
    declared.learn(TopicRoute.of("ordered", data(("a", 8, READ_WRITE, True), order="a:1")))
    declared.heard("ordered", {"b": 2})
    assert declared.of("ordered") == (MessageQueue("ordered", "a", 0),)


def test_a_guessed_route_declares_nothing_and_the_real_one_that_is_equal_does() -> None:
    cache, route = RouteCache(), data(("a", 1, READ_WRITE, True))
    assert cache.put("t", route, guessed=True) is not None
    assert cache.declared.of("t") == ()
    assert cache.put("t", route) is None
    assert cache.declared.of("t") == (MessageQueue("t", "a", 0),)
    cache.remove("t")
    assert cache.declared.of("t"), "every broker of the topic may be away"


@given(times=st.lists(st.floats(0.0, 0.3), min_size=20, max_size=200), seed=st.integers(0, 2**32))
def test_a_stale_route_is_asked_for_at_once_and_then_at_a_growing_pace(times: list[float], seed: int) -> None:
    pace = RefreshPace(SeededEntropy(seed))
    now_s, asked = 0.0, []
    for passed_s in times:
        if pace.is_due("t", now_s):
            asked.append(now_s)
        now_s += passed_s
    assert asked[0] == 0.0
    assert len(asked) <= 14 + now_s / (LAST_S / 2), "a storm"
    gaps = [after - before for before, after in pairwise(asked)]
    assert all(gap <= 1.5 * LAST_S + 0.3 for gap in gaps)
    pace.changed("t")
    assert pace.is_due("t", now_s), "the next doubt is a new one"


def test_many_clients_do_not_ask_together() -> None:
    """A thousand clients that lose a broker at the same moment ask 1,000 times at once, then about once a second."""
    paces = [RefreshPace(SeededEntropy(seed)) for seed in range(1000)]
    per_tick = [sum(pace.is_due("t", tick * 0.05) for pace in paces) for tick in range(200)]
    assert per_tick[0] == 1000
    assert max(per_tick[60:]) <= 200, "they were drawn apart within three seconds"
