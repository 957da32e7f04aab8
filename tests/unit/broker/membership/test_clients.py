"""The client registry: who joins, leaves and expires, and who is told."""

from collections.abc import Hashable

from aerobee.broker.membership.clients import Clients
from aerobee.broker.membership.members import (
    BROADCASTING,
    Client,
    CloseClient,
    ConsumerGroupGone,
    GroupHeartbeat,
    NotifyIdsChanged,
    SubscriptionConflict,
)
from aerobee.broker.membership.subscriptions import parse_subscription


def client(name: str, channel: Hashable | None = None) -> Client:
    return Client(channel if channel is not None else f"channel-{name}", name)


def consumer(group: str = "g", version: int = 1, model: str = "CLUSTERING", **topics: str) -> GroupHeartbeat:
    subscriptions = tuple(parse_subscription(topic, tags, version=version) for topic, tags in topics.items())
    return GroupHeartbeat(group, message_model=model, subscriptions=subscriptions)


def test_joining_tells_every_member_and_a_repeated_heartbeat_nobody() -> None:
    clients = Clients()
    assert clients.register_consumer(consumer(t="*"), client("a"), 0.0) == (
        True,
        [NotifyIdsChanged("g", ("channel-a",))],
    )
    changed, effects = clients.register_consumer(consumer(t="*"), client("b"), 1.0)
    assert changed
    assert effects == [NotifyIdsChanged("g", ("channel-a", "channel-b"))]
    assert clients.register_consumer(consumer(t="*"), client("b"), 2.0) == (False, [])
    assert clients.consumer_ids("g") == ["a", "b"]
    clients.validate()


def test_leaving_by_word_and_by_lost_connection_tells_the_rest() -> None:
    clients = Clients()
    for name in "abc":
        clients.register_consumer(consumer(t="*"), client(name), 0.0)
    assert clients.unregister_consumer("g", "channel-a") == [NotifyIdsChanged("g", ("channel-b", "channel-c"))]
    assert clients.unregister_consumer("g", "channel-a") == []
    assert clients.channel_closed("channel-b") == [NotifyIdsChanged("g", ("channel-c",))]
    assert clients.channel_closed("channel-b") == []
    assert clients.channel_closed("channel-c") == [ConsumerGroupGone("g")]
    assert clients.group("g") is None
    assert clients.groups_of_topic("t") == []
    clients.validate()


def test_one_connection_may_hold_many_roles() -> None:
    clients = Clients()
    one = client("a")
    clients.register_producer("p1", one, 0.0)
    clients.register_producer("p2", one, 0.0)
    clients.register_consumer(consumer("g1", t="*"), one, 0.0)
    clients.register_consumer(consumer("g2", u="*"), one, 0.0)
    clients.validate()
    assert clients.channel_closed("channel-a") == [ConsumerGroupGone("g1"), ConsumerGroupGone("g2")]
    assert clients.producers() == {}
    assert clients.producer_by_id("a") is None
    clients.validate()


def test_silence_of_more_than_120_s_expires_closes_and_tells() -> None:
    clients = Clients()
    clients.register_consumer(consumer(t="*"), client("a"), 0.0)
    clients.register_consumer(consumer(t="*"), client("b"), 100.0)
    clients.register_producer("p", client("c"), 0.0)
    assert clients.expire(120.0) == []
    assert clients.expire(121.0) == [
        CloseClient("channel-c", "c", "p"),
        CloseClient("channel-a", "a", "g"),
        NotifyIdsChanged("g", ("channel-b",)),
    ]
    assert clients.channel_closed("channel-a") == [], "the close that follows finds nothing left"
    assert clients.expire(221.0) == [CloseClient("channel-b", "b", "g"), ConsumerGroupGone("g")]
    clients.validate()


def test_broadcasting_groups_are_not_told() -> None:
    clients = Clients()
    clients.register_consumer(consumer(model=BROADCASTING, t="*"), client("a"), 0.0)
    assert clients.register_consumer(consumer(model=BROADCASTING, t="*"), client("b"), 0.0) == (True, [])
    assert clients.channel_closed("channel-a") == []


def test_notification_can_be_off_for_a_group_or_the_broker() -> None:
    clients = Clients()
    assert clients.register_consumer(consumer(t="*"), client("a"), 0.0, notify=False) == (True, [])
    silent = Clients(notify=False)
    assert silent.register_consumer(consumer(t="*"), client("a"), 0.0) == (True, [])
    silent.register_consumer(consumer(t="*"), client("b"), 0.0)
    assert silent.channel_closed("channel-a") == []


def test_topics_coming_and_going_are_a_change_a_newer_expression_is_not() -> None:
    clients = Clients()
    clients.register_consumer(consumer(t="*"), client("a"), 0.0)
    assert clients.register_consumer(consumer(t="A", version=2), client("a"), 1.0) == (False, [])
    found = clients.subscription("g", "t")
    assert found is not None and found.expression == "A"
    assert clients.register_consumer(consumer(t="B", version=1), client("a"), 1.0) == (False, [])
    found = clients.subscription("g", "t")
    assert found is not None and found.expression == "A", "an older version does not replace"
    changed, _ = clients.register_consumer(consumer(t="A", u="*", version=2), client("a"), 2.0)
    assert changed
    assert clients.groups_of_topic("u") == ["g"]
    changed, _ = clients.register_consumer(consumer(u="*", version=2), client("a"), 3.0)
    assert changed
    assert clients.groups_of_topic("t") == []
    clients.validate()


def test_members_that_subscribe_differently_are_named_once_per_change() -> None:
    clients = Clients()
    clients.register_consumer(consumer(t="A"), client("a"), 0.0)
    _, effects = clients.register_consumer(consumer(t="B"), client("b"), 1.0)
    conflict = SubscriptionConflict("g", "b", "a", (("t", "B", "A"),))
    assert conflict in effects
    assert "client b and client a" in str(conflict) and "topic t: B against A" in str(conflict)
    for now in range(2, 10):
        _, effects = clients.register_consumer(consumer(t="A", version=now), client("a"), float(now))
        assert effects == [], "heartbeats that repeat say nothing new"
        _, effects = clients.register_consumer(consumer(t="B", version=now), client("b"), float(now))
        assert effects == []
    _, effects = clients.register_consumer(consumer(u="B", version=11), client("b"), 11.0)
    assert SubscriptionConflict("g", "b", "a", (("t", None, "A"), ("u", "B", None))) in effects
    _, effects = clients.register_consumer(consumer(t="A", version=12), client("b"), 12.0)
    assert not any(isinstance(effect, SubscriptionConflict) for effect in effects), "they agree again"


def test_the_same_client_on_a_new_connection_is_no_conflict_and_neither_is_one_without_subscription() -> None:
    clients = Clients()
    clients.register_consumer(consumer(t="A"), client("a", "old"), 0.0)
    _, effects = clients.register_consumer(consumer(t="B"), client("a", "new"), 1.0)
    assert effects == [NotifyIdsChanged("g", ("old", "new"))]
    _, effects = clients.register_consumer(consumer(), client("assigns"), 2.0)
    assert not any(isinstance(effect, SubscriptionConflict) for effect in effects)


def test_a_heartbeat_without_subscriptions_keeps_the_table() -> None:
    clients = Clients()
    clients.register_consumer(consumer(t="A"), client("a"), 0.0)
    assert clients.register_consumer(consumer(), client("a"), 1.0, with_subscriptions=False) == (False, [])
    assert clients.subscription("g", "t") is not None
    changed, effects = clients.register_consumer(consumer(), client("b"), 1.0, with_subscriptions=False)
    assert changed and effects == [NotifyIdsChanged("g", ("channel-a", "channel-b"))]


def test_a_fingerprint_that_differs_asks_for_a_full_heartbeat() -> None:
    clients = Clients()
    assert not clients.heartbeat_changed("g", 5), "unknown group"
    clients.register_consumer(consumer(t="A"), client("a"), 0.0)
    assert not clients.heartbeat_changed("g", 5)
    assert not clients.heartbeat_changed("g", 5)
    assert clients.heartbeat_changed("g", 6)


def test_a_new_client_id_on_a_known_channel_replaces_the_old() -> None:
    clients = Clients()
    clients.register_consumer(consumer(t="A"), client("a", "x"), 0.0)
    assert clients.register_consumer(consumer(t="A"), client("a2", "x"), 0.0) == (False, [])
    assert clients.consumer_ids("g") == ["a2"]


def test_pulls_that_carry_their_subscription_are_remembered_ten_minutes() -> None:
    clients = Clients()
    clients.compensate("g", parse_subscription("t", "A"), 0.0)
    assert clients.subscription("g", "t") is not None
    assert clients.subscription("g", "t", compensated=False) is None
    clients.expire(600.0)
    assert clients.subscription("g", "t") is not None
    clients.expire(600.1)
    assert clients.subscription("g", "t") is None


def test_a_producer_is_found_for_replies_and_checks_in_turn() -> None:
    clients = Clients()
    assert clients.register_producer("p", client("a"), 0.0)
    assert clients.register_producer("p", client("b"), 0.0)
    assert not clients.register_producer("p", client("b"), 1.0)
    assert clients.producer_by_id("a") == "channel-a"
    asked = [clients.producer_channel("p", lambda _: True) for _ in range(4)]
    assert sorted(map(str, asked)) == ["channel-a", "channel-a", "channel-b", "channel-b"]
    assert clients.producer_channel("p", lambda channel: channel == "channel-a") == "channel-a"
    assert clients.producer_channel("p", lambda _: False) is None
    assert clients.producer_channel("none", lambda _: True) is None


def test_a_producer_with_two_groups_stays_reachable_until_the_last_leaves() -> None:
    clients = Clients()
    clients.register_producer("p1", client("a"), 0.0)
    clients.register_producer("p2", client("a"), 0.0)
    assert clients.unregister_producer("p1", "channel-a")
    assert not clients.unregister_producer("p1", "channel-a")
    assert clients.producer_by_id("a") == "channel-a"
    clients.unregister_producer("p2", "channel-a")
    assert clients.producer_by_id("a") is None
    clients.validate()


def test_a_reconnected_producer_survives_the_close_of_its_old_channel() -> None:
    clients = Clients()
    clients.register_producer("p", client("a", "old"), 0.0)
    clients.register_producer("p", client("a", "new"), 1.0)
    clients.channel_closed("old")
    assert clients.producer_by_id("a") == "new"
    clients.validate()
