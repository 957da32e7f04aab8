"""A consumer that pops as a member of its group: brokers know it by its heartbeats, and nothing is shared out."""

from __future__ import annotations

from collections.abc import Iterable

from aerobee.client.core import ClientCore
from aerobee.model.names import pop_retry_topic
from aerobee.protocol.bodies.heartbeat import CLUSTERING, CONSUME_ACTIVELY, ConsumerData, SubscriptionData


class PopMember:
    """One consumer of one group, over a core."""

    def __init__(self, core: ClientCore, group: str, from_where: str) -> None:
        self._core = core
        self.group = group
        self._from_where = from_where
        self.subscriptions: dict[str, SubscriptionData] = {}

    def topics(self) -> Iterable[str]:
        return list(self.subscriptions)

    def heartbeat_data(self) -> ConsumerData:
        """Return the group's subscriptions, also to its retry topics."""
        own = list(self.subscriptions.values())
        retries = [SubscriptionData(pop_retry_topic(one.topic, self.group), "*") for one in own]
        return ConsumerData(self.group, CONSUME_ACTIVELY, CLUSTERING, self._from_where, tuple([*own, *retries]), False)

    def join(self) -> None:
        """Join the core, and with the next heartbeat the group."""
        self._core.add_consumer(self.group, self)

    async def leave(self) -> None:
        """Leave the group."""
        if self._core.consumers.get(self.group) is self:
            await self._core.remove_consumer(self.group)
