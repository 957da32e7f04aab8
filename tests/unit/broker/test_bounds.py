"""What clients bring is bounded by memory, and given back."""

from __future__ import annotations

import pytest

from aerobee.broker.log.arrivals import EXPIRED_MAX, TAGS_PER_PART, LongPolls
from aerobee.broker.membership import subscriptions
from aerobee.broker.membership.clients import GROUPS_PER_CHANNEL_MAX, Clients
from aerobee.broker.membership.filters import FILTERS_MAX, ConsumerFilters
from aerobee.broker.membership.locks import LOCKS_MAX, GroupLocks
from aerobee.broker.membership.members import Client, GroupHeartbeat
from aerobee.broker.membership.subscriptions import SQL92, CarriedSubscriptions, Subscription, parse_subscription
from aerobee.errors import InvalidArgumentError
from aerobee.testing.clock import VirtualClock

LONG = "||".join(f"tag-{number}" for number in range(3000))


def test_parsed_subscriptions_are_kept_by_their_size() -> None:
    first = parse_subscription("t", "A||B")
    assert parse_subscription("t", "A||B") is first
    for number in range(30_000):
        parse_subscription(f"topic-{number}", "A||B")
    kept = sum(one.size() for one in subscriptions._parsed.values())
    assert kept <= subscriptions._CACHE_SIZE_MAX
    assert parse_subscription("t", LONG) is not parse_subscription("t", LONG), "too large to be kept"


@pytest.mark.parametrize("expression", ["x" * 40_000, "||".join(map(str, range(9000)))])
def test_a_subscription_that_is_too_long_is_refused(expression: str) -> None:
    with pytest.raises(InvalidArgumentError, match="too long"):
        parse_subscription("t", expression)
    with pytest.raises(InvalidArgumentError, match="too long"):
        Subscription.from_json({"topic": "t", "subString": expression, "tagsSet": expression.split("||")})


def test_carried_subscriptions_make_room() -> None:
    carried = CarriedSubscriptions(600)
    large = [Subscription(f"t{number}", LONG, frozenset(LONG.split("||"))) for number in range(100)]
    for one in large:
        carried.note("g", one, 1.0)
    assert carried.find("g", "t0") is None
    assert carried.find("g", "t99") is large[99]
    carried.expire(1000.0)
    assert carried.find("g", "t99") is None


def test_a_connection_has_so_many_groups_and_so_much_to_subscribe_to() -> None:
    clients = Clients()
    client = Client("channel", "client")
    for number in range(GROUPS_PER_CHANNEL_MAX):
        clients.register_producer(f"g{number}", client, 1.0)
    with pytest.raises(InvalidArgumentError, match="groups"):
        clients.register_producer("one more", client, 1.0)
    clients.validate()
    clients.channel_closed("channel")
    large = tuple(Subscription(f"t{number}", LONG, frozenset(LONG.split("||"))) for number in range(40))
    with pytest.raises(InvalidArgumentError, match="bytes"):
        clients.register_consumer(GroupHeartbeat("g", subscriptions=large), client, 1.0)
    clients.register_consumer(GroupHeartbeat("g", subscriptions=large[:20]), client, 1.0)
    with pytest.raises(InvalidArgumentError, match="bytes"):
        clients.register_consumer(GroupHeartbeat("h", subscriptions=large[:20]), client, 1.0)
    # Anew, not on top.
    clients.register_consumer(GroupHeartbeat("g", subscriptions=large[20:40]), client, 1.0)
    clients.validate()
    clients.channel_closed("channel")
    clients.validate()
    assert not clients._roles and not clients._reply_to


def test_a_client_that_changes_its_id_leaves_none_behind() -> None:
    clients = Clients()
    for number in range(5):
        clients.register_producer(f"g{number}", Client("channel", f"id{number}"), 1.0)
    assert clients.producer_by_id("id0") == "channel"
    clients.channel_closed("channel")
    assert all(clients.producer_by_id(f"id{number}") is None for number in range(5))


def test_dead_filters_make_room_for_living_ones() -> None:
    filters = ConsumerFilters(None, VirtualClock(lambda: 0.0, wall_ms=1_000_000))
    for number in range(FILTERS_MAX):
        filters.register(f"g{number}", [Subscription("t", "a = 1", version=1, expression_type=SQL92)])
    new = Subscription("u", "a = 1", version=1, expression_type=SQL92)
    filters.register("late", [new])
    assert filters.get("u", "late") is None
    filters.unregister("g0")
    filters.register("late", [new])
    assert filters.get("u", "late") is not None
    assert filters.get("t", "g0") is None
    assert filters.get("t", "g1") is not None


def test_locks_are_bounded_and_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    locks: GroupLocks[int] = GroupLocks()
    monkeypatch.setattr("aerobee.broker.membership.locks.LOCKS_MAX", 10)
    assert LOCKS_MAX > 10
    assert locks.lock("g", range(20), "c", 0.0) == list(range(10))
    assert locks.lock("h", range(5), "c", 1.0) == []
    assert locks.unlock("g", [3], "c") == [3]
    assert locks.lock("h", range(5), "c", 1.0) == [0]
    assert locks.lock("h", range(5), "c", 61.5) == [0, 1, 2, 3, 4]


def test_a_held_pull_with_many_tags_counts_as_several() -> None:
    polls: LongPolls[int] = LongPolls(held_max=10, held_per_channel_max=5)
    tags = frozenset(range(TAGS_PER_PART * 4))
    assert polls.suspend(b"t", 0, 0, 1, channel="a", now_s=0, timeout_s=1, tag_codes=tags)
    polls.validate()
    assert not polls.suspend(b"t", 0, 0, 2, channel="a", now_s=0, timeout_s=1)
    assert polls.suspend(b"t", 0, 0, 3, channel="b", now_s=0, timeout_s=1)
    polls.channel_closed("a")
    assert polls.suspend(b"t", 0, 0, 4, channel="a", now_s=0, timeout_s=1)
    polls.validate()


def test_pulls_expire_in_parts() -> None:
    polls: LongPolls[int] = LongPolls()
    for number in range(EXPIRED_MAX + 3):
        polls.suspend(b"t", number, 0, number, channel="a", now_s=0, timeout_s=1)
    assert len(polls.expire(2.0)) == EXPIRED_MAX
    polls.validate()
    assert polls.expire(2.0) == [EXPIRED_MAX, EXPIRED_MAX + 1, EXPIRED_MAX + 2]
    assert polls.expire(2.0) == []
    polls.validate()
