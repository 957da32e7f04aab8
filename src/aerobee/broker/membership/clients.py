"""The registry of clients: producers and consumers by group, with their heartbeats, expiry and changes.

It owns the registry and decides which members of a group are told that its membership changed. A channel is any
hashable value of the driver's (its connection). Time is monotonic seconds. Every event returns effects; the
driver performs them and decides nothing.

As in Apache, a group has one subscription table, and the last heartbeat wins: members that subscribe
differently take each other's topics away. That is the most frequent mistake of users, so a log line names both
clients once for each change (`SubscriptionConflict`).

RocketMQ: ConsumerManager, ConsumerGroupInfo, ProducerManager, ClientHousekeepingService,
DefaultConsumerIdsChangeListener.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from aerobee.broker.membership.members import (
    Client,
    CloseClient,
    ConsumerGroup,
    ConsumerGroupGone,
    Effect,
    GroupClient,
    GroupHeartbeat,
    SubscriptionConflict,
    differences_of,
)
from aerobee.broker.membership.subscriptions import CarriedSubscriptions, Subscription
from aerobee.errors import InvalidArgumentError

EXPIRY_S = 120.0
SCAN_INTERVAL_S = 10.0
SUBSCRIPTION_EXPIRY_S = 600.0
# Bounds for one connection: groups, and the memory of all their subscriptions in bytes.
GROUPS_PER_CHANNEL_MAX = 4096
SUBSCRIPTIONS_SIZE_MAX = 16 << 20
# Topics that are compared when a member's subscriptions change, only for a warning.
COMPARED_MAX = 4096


@dataclass(slots=True)
class _Roles:
    producers: dict[str, None] = field(default_factory=dict)
    # The memory of the subscriptions of each group.
    consumers: dict[str, int] = field(default_factory=dict)
    size: int = 0
    # The ids that it has given itself as a producer, with the number of groups. Replies find it by these.
    client_ids: dict[str, int] = field(default_factory=dict)

    def require_room(self, group: str, size: int = 0) -> None:
        """Raise where one more group, or its subscriptions, would be too much for one connection."""
        if group not in self.producers and group not in self.consumers:
            count = len(self.producers) + len(self.consumers)
            if count >= GROUPS_PER_CHANNEL_MAX:
                raise InvalidArgumentError(
                    f"a connection may have {GROUPS_PER_CHANNEL_MAX} groups: {group} is too many"
                )
        if size and self.size - self.consumers.get(group, 0) + size > SUBSCRIPTIONS_SIZE_MAX:
            raise InvalidArgumentError(
                f"the subscriptions of one connection take more than {SUBSCRIPTIONS_SIZE_MAX} bytes: group {group}"
            )

    def subscribed(self, group: str, size: int) -> None:
        self.size += size - self.consumers.get(group, 0)
        self.consumers[group] = size


class Clients:
    """The registry of one broker."""

    def __init__(
        self,
        expiry_s: float = EXPIRY_S,
        subscription_expiry_s: float = SUBSCRIPTION_EXPIRY_S,
        *,
        notify: bool = True,
    ) -> None:
        self.expiry_s = expiry_s
        self.notify = notify
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Hashable, GroupClient]] = {}
        # Where replies for a client id go.
        self._reply_to: dict[str, Client] = {}
        self._roles: dict[Hashable, _Roles] = {}
        self._topic_groups: dict[str, dict[str, None]] = {}
        self._carried = CarriedSubscriptions(subscription_expiry_s)
        # Called with each pull that carried its own subscription, so it is the table's method itself.
        self.compensate = self._carried.note
        self._turn = 0

    # Producers

    def register_producer(self, group: str, client: Client, now_s: float) -> bool:
        """Note a heartbeat of a producer. Tell whether it is new. RocketMQ: ProducerManager.registerProducer."""
        member = self._producers.get(group, {}).get(client.channel)
        if member is not None:
            member.seen_s = now_s
            return False
        roles = self._roles_of(client.channel, group)
        self._producers.setdefault(group, {})[client.channel] = GroupClient(client, now_s)
        holder = self._reply_to.get(client.client_id)
        # Everybody may call himself anything. Replies to a user who is there must not go to another one.
        if holder is None or holder.user == client.user:
            self._reply_to[client.client_id] = client
        roles.producers[group] = None
        roles.client_ids[client.client_id] = roles.client_ids.get(client.client_id, 0) + 1
        return True

    def _roles_of(self, channel: Hashable, group: str, size: int = 0) -> _Roles:
        roles = self._roles.get(channel) or _Roles()
        roles.require_room(group, size)
        self._roles[channel] = roles
        return roles

    def unregister_producer(self, group: str, channel: Hashable) -> bool:
        """Forget a producer that says goodbye. Tell whether it was known."""
        members = self._producers.get(group)
        member = None if members is None else members.pop(channel, None)
        if members is None or member is None:
            return False
        if not members:
            del self._producers[group]
        roles = self._roles[channel]
        del roles.producers[group]
        # A client with several producer groups is reachable until its last one leaves (Apache forgets it at
        # the first, and replies to it fail until its next heartbeat).
        client_id = member.client.client_id
        roles.client_ids[client_id] -= 1
        if not roles.client_ids[client_id]:
            del roles.client_ids[client_id]
            holder = self._reply_to.get(client_id)
            if holder is not None and holder.channel == channel:
                del self._reply_to[client_id]
        self._drop_roles(channel)
        return True

    def producer_channel(self, group: str, usable: Callable[[Hashable], bool]) -> Hashable | None:
        """Return a usable member of the group, another one each time. RocketMQ: getAvailableChannel."""
        channels = list(self._producers.get(group, ()))
        self._turn += 1
        for step in range(len(channels)):
            channel = channels[(self._turn + step) % len(channels)]
            if usable(channel):
                return channel
        return None

    def producer_by_id(self, client_id: str) -> Hashable | None:
        """Return where to push a reply to a request of this client. RocketMQ: ProducerManager.findChannel."""
        found = self._reply_to.get(client_id)
        return None if found is None else found.channel

    def producers(self) -> Mapping[str, Mapping[Hashable, GroupClient]]:
        """Return the producers by group."""
        return self._producers

    # Consumers

    def register_consumer(
        self,
        data: GroupHeartbeat,
        client: Client,
        now_s: float,
        *,
        notify: bool = True,
        with_subscriptions: bool = True,
    ) -> tuple[bool, list[Effect]]:
        """Note a heartbeat of a consumer. Return whether anything changed, and what to do.

        `notify` is the group's notifyConsumerIdsChangedEnable. Without subscriptions (heartbeat V2 whose
        fingerprint is known) the table stays. RocketMQ: ConsumerManager.registerConsumer(WithoutSub).
        """
        size = sum(one.size() for one in data.subscriptions) if with_subscriptions else 0
        roles = self._roles_of(client.channel, data.group, size)
        group = self._consumers.get(data.group)
        if group is None:
            group = self._consumers[data.group] = ConsumerGroup(data.group)
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        member = group.members.get(client.channel)
        joined = member is None
        if member is None:
            member = group.members[client.channel] = GroupClient(client, now_s)
            roles.subscribed(data.group, size)
        elif member.client.client_id != client.client_id:
            member.client = client
        member.seen_s = now_s
        effects: list[Effect] = []
        changed = joined
        if with_subscriptions:
            roles.subscribed(data.group, size)
            changed = self._subscribe(group, data.subscriptions) or joined
            effects += self._compare(group, member, data.subscriptions)
        if changed and notify and self.notify:
            effects = group.changed() + effects
        return changed, effects

    def unregister_consumer(self, group: str, channel: Hashable, *, notify: bool = True) -> list[Effect]:
        """Forget a consumer that says goodbye. RocketMQ: ConsumerManager.unregisterConsumer."""
        return self._leave(group, channel, notify=notify)

    def heartbeat_changed(self, group: str, fingerprint: int) -> bool:
        """Note the fingerprint of a heartbeat V2, after registering; whether the group's last one was
        another.

        The answer goes out as ext field IS_SUB_CHANGE: true asks the client for a full heartbeat. RocketMQ:
        ClientManageProcessor.heartBeatV2.
        """
        found = self._consumers.get(group)
        if found is None:
            return False
        known, found.fingerprint = found.fingerprint, fingerprint
        return known not in (0, fingerprint)

    def group(self, name: str) -> ConsumerGroup | None:
        """Return the group, if it has members."""
        return self._consumers.get(name)

    def groups(self) -> Mapping[str, ConsumerGroup]:
        """Return every consumer group that has members."""
        return self._consumers

    def consumer_ids(self, group: str) -> list[str]:
        """Return the client ids of the members, in the order of joining."""
        found = self._consumers.get(group)
        return [] if found is None else found.client_ids()

    def subscription(self, group: str, topic: str, *, compensated: bool = True) -> Subscription | None:
        """Return what the group subscribes to in the topic, else what its last pull without a heartbeat carried."""
        found = self._consumers.get(group)
        subscription = None if found is None else found.subscriptions.get(topic)
        if subscription is None and compensated:
            subscription = self._carried.find(group, topic)
        return subscription

    def groups_of_topic(self, topic: str) -> list[str]:
        """Return groups with members that subscribe to the topic. RocketMQ: ConsumerManager.queryTopicConsumeByWho."""
        return list(self._topic_groups.get(topic, ()))

    # Both

    def channel_closed(self, channel: Hashable) -> list[Effect]:
        """Forget a connection that is gone, with every role it had. RocketMQ: doChannelCloseEvent."""
        roles = self._roles.get(channel)
        if roles is None:
            return []
        for group in list(roles.producers):
            self.unregister_producer(group, channel)
        effects: list[Effect] = []
        for group in list(roles.consumers):
            effects += self._leave(group, channel, notify=True)
        return effects

    def expire(self, now_s: float) -> list[Effect]:
        """Every 10 s: clients without a heartbeat for 120 s leave and their connections close.

        Apache leaves the rest of the group to find out at its next rebalance (20 s); here it is told at once.
        RocketMQ: ProducerManager.scanNotActiveChannel, ConsumerManager.scanNotActiveChannel.
        """
        effects: list[Effect] = []
        for name, members in list(self._producers.items()):
            for channel, member in list(members.items()):
                if now_s - member.seen_s > self.expiry_s:
                    self.unregister_producer(name, channel)
                    effects.append(CloseClient(channel, member.client.client_id, name))
        for name, group in list(self._consumers.items()):
            for channel, member in list(group.members.items()):
                if now_s - member.seen_s > self.expiry_s:
                    effects.append(CloseClient(channel, member.client.client_id, name))
                    effects += self._leave(name, channel, notify=True)
        self._carried.expire(now_s)
        return effects

    def validate(self) -> None:
        """Assert that every index says the same."""
        roles: dict[Hashable, tuple[set[str], set[str]]] = {}
        for name, members in self._producers.items():
            assert members, f"empty producer group {name}"
            for channel in members:
                roles.setdefault(channel, (set(), set()))[0].add(name)
        topics: dict[str, set[str]] = {}
        for name, group in self._consumers.items():
            assert group.members, f"empty consumer group {name}"
            for channel in group.members:
                roles.setdefault(channel, (set(), set()))[1].add(name)
            for topic in group.subscriptions:
                topics.setdefault(topic, set()).add(name)
        kept = {c: (set(r.producers), set(r.consumers)) for c, r in self._roles.items()}
        assert kept == roles, "roles of a channel"
        assert {t: set(g) for t, g in self._topic_groups.items()} == topics, "groups of a topic"
        assert all(one.channel in roles for one in self._reply_to.values()), "producer channel"

    def _leave(self, name: str, channel: Hashable, *, notify: bool) -> list[Effect]:
        group = self._consumers.get(name)
        if group is None or channel not in group.members:
            return []
        del group.members[channel]
        roles = self._roles[channel]
        roles.size -= roles.consumers.pop(name)
        self._drop_roles(channel)
        if group.members:
            return group.changed() if notify and self.notify else []
        del self._consumers[name]
        self._untopic(name, group.subscriptions)
        return [ConsumerGroupGone(name)]

    def _subscribe(self, group: ConsumerGroup, subscriptions: Iterable[Subscription]) -> bool:
        """Tell whether topics came or went; a newer version of one replaces it silently. RocketMQ:
        ConsumerGroupInfo.updateSubscription.
        """
        wanted = {subscription.topic: subscription for subscription in subscriptions}
        changed = False
        for topic, subscription in wanted.items():
            old = group.subscriptions.get(topic)
            if old is None:
                changed = True
                self._topic_groups.setdefault(topic, {})[group.name] = None
            if old is None or subscription.version > old.version:
                group.subscriptions[topic] = subscription
        gone = [topic for topic in group.subscriptions if topic not in wanted]
        for topic in gone:
            del group.subscriptions[topic]
        self._untopic(group.name, gone)
        return changed or bool(gone)

    def _compare(self, group: ConsumerGroup, member: GroupClient, new: Iterable[Subscription]) -> list[Effect]:
        wanted = {subscription.topic: subscription for subscription in new}
        before = member.subscriptions
        member.subscriptions = wanted
        # A member that subscribes to nothing assigns its queues itself.
        if not wanted or (before and not differences_of(before, wanted)):
            return []
        looked_at = 0
        for other in group.members.values():
            if looked_at > COMPARED_MAX:
                break
            same = other.client.client_id == member.client.client_id  # its old connection
            if same or not other.subscriptions:
                continue
            looked_at += len(wanted) + len(other.subscriptions)
            differences = differences_of(wanted, other.subscriptions)
            if differences:
                mine, theirs = member.client.client_id, other.client.client_id
                return [SubscriptionConflict(group.name, mine, theirs, tuple(differences))]
        return []

    def _untopic(self, group: str, topics: Iterable[str]) -> None:
        for topic in topics:
            groups = self._topic_groups[topic]
            del groups[group]
            if not groups:
                del self._topic_groups[topic]

    def _drop_roles(self, channel: Hashable) -> None:
        roles = self._roles[channel]
        if not roles.producers and not roles.consumers:
            del self._roles[channel]
