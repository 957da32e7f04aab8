"""The client registry under any order of events: its indexes agree, and nobody who must know is left out."""

from __future__ import annotations

from collections.abc import Hashable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aerobee.broker.membership.clients import Clients
from aerobee.broker.membership.members import Client, Effect, GroupHeartbeat, NotifyIdsChanged
from aerobee.broker.membership.subscriptions import parse_subscription

GROUPS = st.sampled_from(["g1", "g2"])
CHANNELS = st.integers(0, 3)


class ClientMachine(RuleBasedStateMachine):
    """`told` is what each channel believes its group's members to be; a notice makes it ask again."""

    def __init__(self) -> None:
        super().__init__()
        self.clients = Clients()
        self.now = 0.0
        self.told: dict[tuple[str, Hashable], list[str]] = {}

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, NotifyIdsChanged):
                for channel in effect.channels:
                    self.told[effect.group, channel] = self.clients.consumer_ids(effect.group)

    @rule(group=GROUPS, channel=CHANNELS, topics=st.sets(st.sampled_from("tuv"), min_size=1))
    def consume(self, group: str, channel: int, topics: set[str]) -> None:
        data = GroupHeartbeat(group, subscriptions=tuple(parse_subscription(t, "*") for t in sorted(topics)))
        _, effects = self.clients.register_consumer(data, Client(channel, f"c{channel}"), self.now)
        self.perform(effects)

    @rule(group=GROUPS, channel=CHANNELS)
    def produce(self, group: str, channel: int) -> None:
        self.clients.register_producer(group, Client(channel, f"c{channel}"), self.now)

    @rule(group=GROUPS, channel=CHANNELS)
    def leave(self, group: str, channel: int) -> None:
        self.clients.unregister_producer(group, channel)
        self.perform(self.clients.unregister_consumer(group, channel))

    @rule(channel=CHANNELS)
    def close(self, channel: int) -> None:
        self.perform(self.clients.channel_closed(channel))
        for group in ("g1", "g2"):
            assert f"c{channel}" not in self.clients.consumer_ids(group)
        assert self.clients.producer_by_id(f"c{channel}") is None

    @rule(step=st.floats(0, 100))
    def pass_time(self, step: float) -> None:
        self.now += step
        self.perform(self.clients.expire(self.now))

    @invariant()
    def every_member_knows_the_members(self) -> None:
        self.clients.validate()
        for name, group in self.clients.groups().items():
            for channel in group.members:
                assert self.told[name, channel] == group.client_ids()


ClientMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestClients = ClientMachine.TestCase
