"""A consumer as a member of its group: it tells brokers its subscriptions and keeps its share of the queues up to date.

RocketMQ: RebalanceImpl, RebalanceService, MQClientInstance.findConsumerIdList.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from aerobee.client.consumer.allocation import Allocation
from aerobee.client.consumer.rebalance import Change, RebalancePace, difference, share
from aerobee.client.consumer.subscription import newer
from aerobee.client.core import ClientCore
from aerobee.errors import AerobeeError
from aerobee.errors.codes import TopicNotExistError
from aerobee.model.names import is_retry_topic
from aerobee.model.queue import MessageQueue
from aerobee.model.route import TopicRoute
from aerobee.net.link import Link
from aerobee.protocol.bodies.groups import ConsumerList
from aerobee.protocol.bodies.heartbeat import BROADCASTING, ConsumerData, SubscriptionData
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command
from aerobee.protocol.headers.group import GetConsumerListByGroupRequestHeader
from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.stdlog import get_log

_log = get_log("client.member")

# Called with the queues that a consumer got (`on_assigned`) or lost (`on_revoked`).
OnQueues = Callable[[list[MessageQueue]], Awaitable[None] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """How a consumer takes part in its group."""

    group: str  # as on the wire
    consume_type: str
    message_model: str
    consume_from_where: str
    allocation: Allocation
    unit_mode: bool = False


class QueueOwner(Protocol):
    """The engine that consumes the queues of a member's share."""

    def owned(self) -> Iterable[MessageQueue]:
        """Return the queues that it consumes now."""

    async def change(self, topic: str, change: Change) -> None:
        """Give up some queues and take others. A queue that cannot be taken now (it is locked) is offered again."""


class GroupMember:
    """One consumer of one group, over a core."""

    def __init__(self, core: ClientCore, membership: Membership, owner: QueueOwner) -> None:
        self.core = core
        self.membership = membership
        self.subscriptions: dict[str, SubscriptionData] = {}
        # Returns other topics whose routes the core keeps fresh.
        self.more_topics: Callable[[], Iterable[str]] = tuple
        self.started = False
        self._owner = owner
        self._tasks = Tasks(failed=self._failed)
        self._wake = asyncio.Event()
        self._pace = RebalancePace()
        self._missing: set[str] = set()
        # The members of the group when a broker was last asked for them.
        self._known: set[str] = set()

    # -- what the core asks

    def topics(self) -> list[str]:
        """Return the topics (names on the wire) whose routes the core keeps fresh."""
        return [*self.subscriptions, *self.more_topics()]

    def heartbeat_data(self) -> ConsumerData:
        own = self.membership
        return ConsumerData(
            own.group,
            own.consume_type,
            own.message_model,
            own.consume_from_where,
            tuple(self.subscriptions.values()),
            own.unit_mode,
        )

    # -- life

    def join(self) -> None:
        """Join the core, and with the next heartbeat the group. A second call does nothing."""
        if self.core.consumers.get(self.membership.group) is not self:
            self.core.add_consumer(self.membership.group, self)

    async def start(self) -> None:
        """Start. Every broker of the topics knows the group when this returns; the first share follows at once."""
        core = self.core
        self.started = True
        self.join()
        for topic in list(self.subscriptions):
            await self._route(topic)
        core.route_changed.append(self._route_changed)
        core.on_push(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self.membership.group, self._ids_changed)
        await core.heartbeat()
        self._tasks.start(self._keep_balanced(), name=f"rebalance {self.membership.group}")

    async def stop(self) -> None:
        """Stop changing the share. The member stays in the group, so that it can finish its work."""
        await self._tasks.close()
        if self._route_changed in self.core.route_changed:
            self.core.route_changed.remove(self._route_changed)

    async def leave(self) -> None:
        """Leave the group. Brokers tell the other members."""
        if self.core.consumers.get(self.membership.group) is self:
            await self.core.remove_consumer(self.membership.group)

    def has_company(self) -> bool:
        """Tell whether the group had other members when a broker was last asked."""
        return len(self._known) > 1

    def wake(self) -> None:
        """Look at the share now."""
        self._pace.woken()
        self._wake.set()

    async def subscribed(self) -> None:
        """Tell brokers that the subscriptions changed while running."""
        for topic in list(self.subscriptions):
            await self._route(topic)
        await self.core.heartbeat()
        self.wake()

    def _failed(self, name: str, error: BaseException) -> None:
        _log.error("a task failed", task=name, exc_info=error)

    def _route_changed(self, route: TopicRoute) -> None:
        if route.topic in self.subscriptions:
            self.wake()

    def _ids_changed(self, link: Link, command: Command) -> None:
        _log.debug("the members of the group changed", group=self.membership.group, broker=link.address)
        self.wake()

    # -- the share

    async def _keep_balanced(self) -> None:
        while True:
            # Cleared before the look: what happens during the look asks for another one.
            self._wake.clear()
            balanced = await self.rebalance()
            try:
                async with asyncio.timeout(self._pace.wait_s(balanced)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def rebalance(self) -> bool:
        """Work out the share of every topic and apply it. Return whether this member has all that it should have."""
        balanced = True
        for topic in list(self.subscriptions):
            try:
                balanced &= await self._rebalance_topic(topic)
            except AerobeeError as error:
                _log.warning(
                    "the share could not be worked out", group=self.membership.group, topic=topic, reason=str(error)
                )
                balanced = False
        for topic in {queue.topic for queue in self._owner.owned()} - set(self.subscriptions):
            await self._owner.change(topic, difference(topic, self._owner.owned(), ()))
        return balanced

    async def _rebalance_topic(self, topic: str) -> bool:
        route = await self._route(topic)
        if route is None:
            return False
        if self.membership.message_model == BROADCASTING:
            wanted = list(route.read_queues)
        else:
            clients = await self._clients(route)
            if clients is None:
                return False
            wanted = share(self.membership.allocation, self.core.client_id, route.read_queues, clients)
        change = difference(topic, self._owner.owned(), wanted)
        if change:
            _log.info(
                "the share changed",
                group=self.membership.group,
                topic=topic,
                revoked=len(change.revoked),
                assigned=len(change.assigned),
            )
            await self._renew_version(topic)
            await self._owner.change(topic, change)
        return {queue for queue in self._owner.owned() if queue.topic == topic} == set(wanted)

    async def _renew_version(self, topic: str) -> None:
        """Give the subscription a new version: brokers keep the newest one, which must be that of the present consumer.

        RocketMQ: RebalancePushImpl.messageQueueChanged.
        """
        data = self.subscriptions.get(topic)
        if data is not None:
            self.subscriptions[topic] = newer(data, self.core.clock.now_ms())
            await self.core.heartbeat()

    async def _route(self, topic: str) -> TopicRoute | None:
        """Return a route, None where there is none yet. The first heartbeat creates the retry topic."""
        try:
            route = await self.core.route(topic)
        except TopicNotExistError as error:
            if topic not in self._missing and not is_retry_topic(topic):
                self._missing.add(topic)
                _log.warning("the consumer waits for a topic", topic=topic, reason=str(error))
            return None
        except AerobeeError as error:
            _log.warning("the route could not be asked for", topic=topic, reason=str(error))
            return None
        self._missing.discard(topic)
        return route

    async def _clients(self, route: TopicRoute) -> list[str] | None:
        """Return the members of the group, as a broker of the topic knows them; None where none answers.

        A broker that was just started knows only the members that came back to it. With that list alone, the first of
        them would consume everything. So where a member known before is missing, the other brokers are asked too.
        """
        core = self.core
        found: set[str] = set()
        names = [broker.broker_name for broker in route.data.broker_datas]
        start = core.entropy.below(len(names)) if names else 0
        for name in names[start:] + names[:start]:
            address = core.routes.address(name)
            if address is None:
                continue
            try:
                clients = await self._clients_at(address)
                if core.client_id not in clients:
                    # The broker forgot this client, or never knew it.
                    await core.heartbeat_at(address)
                    clients = await self._clients_at(address)
                found.update(clients)
                if self._known <= found:
                    break
            except AerobeeError as error:
                _log.warning(
                    "a broker did not say who is in the group",
                    group=self.membership.group,
                    broker=address,
                    reason=str(error),
                )
                # This client is the first of the group for a broker that knows no member.
                await core.heartbeat_at(address)
        if found:
            self._known = found
        return sorted(found) or None

    async def _clients_at(self, address: str) -> list[str]:
        await self.core.known_to(address)
        header = GetConsumerListByGroupRequestHeader(consumer_group=self.membership.group)
        answer = await self.core.ask(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        return list(ConsumerList.decode(answer.body).consumer_id_list)


async def call_back(callback: OnQueues | None, queues: list[MessageQueue]) -> None:
    """Call on_assigned or on_revoked. What it raises is logged and changes nothing."""
    if callback is None or not queues:
        return
    try:
        result = callback(queues)
        if inspect.isawaitable(result):
            await result
    except Exception as error:  # noqa: BLE001 - a callback must not stop the rebalancing
        _log.error("on_assigned or on_revoked raised", exc_info=error)
