"""The cluster behind the service: routes, settings of topics and groups, and requests to brokers.

`ClusterBackend` speaks RocketMQ's remoting protocol, so it serves any cluster, Apache's too. In the broker's own
process its connections to that broker pass through memory (`net/loopback.py`).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from aerobee.errors import AerobeeError, RequestTimeoutError, TransportError
from aerobee.errors.codes import TopicNotExistError
from aerobee.model.dialect import loads_object
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.route import TopicRouteData
from aerobee.model.topic import PERM_READ, PERM_WRITE, TopicConfig
from aerobee.net.client import RemotingClient, Sign
from aerobee.net.link import PushHandler
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.base import Header
from aerobee.protocol.headers.group import GetSubscriptionGroupConfigRequestHeader
from aerobee.protocol.headers.route import GetRouteInfoRequestHeader
from aerobee.protocol.headers.topic import GetTopicConfigRequestHeader
from aerobee.protocol.v2.enums import Code
from aerobee.proxy.lookups import SILENT, Lookups
from aerobee.proxy.status import RefusedCallError
from aerobee.runtime.seams import Net

_FRESH_S: Final = 2.0
_KEPT_MAX: Final = 20_000
_TYPE_ATTRIBUTE: Final = "message.type"

Peer = tuple[str, int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WriteQueue:
    """A queue of a topic."""

    broker: str
    queue_id: int


class Route:
    """Where a topic is."""

    def __init__(self, data: TopicRouteData) -> None:
        self.data = data
        self.addresses: dict[str, str] = {}
        # Master first, then slaves by their ids.
        self.readable: dict[str, str] = {}
        for broker in data.broker_datas:
            addresses = sorted((int_id, address) for int_id, address in broker.broker_addrs.items())
            if broker.master is not None:
                self.addresses[broker.broker_name] = broker.master
            if addresses:
                self.readable[broker.broker_name] = addresses[0][1]
        queues = sorted(data.queue_datas, key=lambda one: one.broker_name)
        self.write: list[WriteQueue] = [
            WriteQueue(one.broker_name, queue_id)
            for one in queues
            if one.perm & PERM_WRITE and one.broker_name in self.addresses
            for queue_id in range(one.write_queue_nums)
        ]
        self.next_queue = 0

    def pick(self, lookups: Lookups) -> WriteQueue:
        """Return the next queue, round and round. While there are others, those of brokers that do not answer are
        passed over; where none does, the one that was late the longest ago may answer again."""
        count = len(self.write)
        self.next_queue = at = (self.next_queue + 1) % count
        if lookups.late_until:
            least_s = float("inf")
            for place in (*range(at, count), *range(at)):
                late_s = lookups.late_s(self.addresses[self.write[place].broker])
                if late_s < least_s:
                    self.next_queue, least_s = place, late_s
                    if not late_s:
                        break
        return self.write[self.next_queue]

    def may_read(self, broker: str) -> bool:
        """Tell whether the topic may be read on a broker."""
        return any(one.broker_name == broker and one.perm & PERM_READ for one in self.data.queue_datas)


class Backend(Protocol):
    """What the service needs of a cluster."""

    # Requests for which brokers take the service's word that the user of a client may send them.
    trusted_codes: frozenset[int]
    # Which servers do not answer.
    lookups: Lookups

    async def find_route(self, topic: str) -> Route | None: ...
    async def find_known(self, topic: str) -> Route | None: ...
    async def message_type(self, topic: str, route: Route) -> str: ...
    def fresh(self, topic: str) -> tuple[Route, str | None, float] | None:
        """Return the route of a topic, its type where that is known, and until when both hold. None: ask again."""

    async def group(self, group: str, topics: Sequence[str]) -> SubscriptionGroupConfig | None: ...
    def connect(self, peer: Peer, pushed: Mapping[int, PushHandler]) -> RemotingClient:
        """Return connections to the brokers for one client, which has this address."""


class ClusterBackend:
    """A cluster that is reached by its name servers."""

    def __init__(
        self,
        namesrvs: Callable[[], Sequence[str]],
        now_s: Callable[[], float],
        net_for: Callable[[Peer], Net],
        *,
        tls: ssl.SSLContext | None = None,
        sign: Sign | None = None,
        own_route: Callable[[str], TopicRouteData | None] = lambda topic: None,
        trusted_codes: frozenset[int] = frozenset(),
    ) -> None:
        """`own_route` tells of topics that a broker of this process has and the name servers do not know yet."""
        self.trusted_codes = trusted_codes
        self._namesrvs = namesrvs
        self._now_s = now_s
        self._net_for = net_for
        self._tls = tls
        self._sign = sign
        self._own_route = own_route
        self.client = RemotingClient(net=net_for(("127.0.0.1", 0)), tls=tls, sign=sign)
        self._routes: dict[str, tuple[float, Route]] = {}
        self._types: dict[str, tuple[float, str]] = {}
        self._groups: dict[str, tuple[float, SubscriptionGroupConfig]] = {}
        # When topics were looked for that nobody has.
        self._missed: dict[str, float] = {}
        self.lookups = Lookups(now_s)
        self.lookups.probe = self._probe
        self.lookups.on_hung.append(lambda address: self.client.give_up(address, SILENT))

    async def _probe(self, address: str) -> None:
        """Ask a broker for the settings of a topic, which it has in memory. Any answer will do."""
        header = GetTopicConfigRequestHeader(topic="TBW102")
        command = request(RequestCode.GET_TOPIC_CONFIG, header, opaque=self.client.next_opaque())
        await self.client.call(address, command)

    def connect(self, peer: Peer, pushed: Mapping[int, PushHandler]) -> RemotingClient:
        return RemotingClient(pushed, net=self._net_for(peer), tls=self._tls, sign=self._sign)

    async def close(self) -> None:
        await self.lookups.close()
        await self.client.close()

    async def find_route(self, topic: str) -> Route | None:
        """Return the route, at most two seconds old; None for a topic that nobody has. Misses are not remembered."""
        kept = self._routes.get(topic)
        if kept is not None and self._now_s() - kept[0] < _FRESH_S:
            return kept[1]
        return await self.lookups.together(("route", topic), lambda: self._renew_route(topic))

    async def find_known(self, topic: str) -> Route | None:
        """Return the route as `find_route` does, for a topic that need not be there: a miss is remembered as long as a
        route. A client may name a thousand topics that nobody has, and a heartbeat looks for each."""
        missed_s = self._missed.get(topic)
        if missed_s is not None and topic not in self._routes and self._now_s() - missed_s < _FRESH_S:
            return None
        route = await self.find_route(topic)
        if route is None:
            self._keep(self._missed, topic, self._now_s())
        return route

    async def _renew_route(self, topic: str) -> Route | None:
        kept = self._routes.get(topic)
        try:
            data = await self._ask_route(topic)
        except AerobeeError:
            data = self._own_route(topic) if kept is None else kept[1].data
            if data is None:
                raise
        if data is None:
            data = self._own_route(topic)
        if data is None or not data.queue_datas:
            self._routes.pop(topic, None)
            return None
        route = kept[1] if kept is not None and kept[1].data == data else Route(data)
        self._keep(self._routes, topic, (self._now_s(), route))
        return route

    @staticmethod
    def _keep(table: dict[str, T], key: str, value: T) -> None:
        if len(table) >= _KEPT_MAX:
            table.clear()
        table[key] = value

    async def _ask_route(self, topic: str) -> TopicRouteData | None:
        async def ask(namesrv: str) -> TopicRouteData | bool:
            header = GetRouteInfoRequestHeader(topic=topic)
            command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, opaque=self.client.next_opaque())
            try:
                answer = await self.client.ask(namesrv, command)
            except TopicNotExistError:
                return False
            return TopicRouteData.from_json(loads_object(answer.body))

        found = await self.lookups.first(self._namesrvs(), ask)
        return found if isinstance(found, TopicRouteData) else None

    async def message_type(self, topic: str, route: Route) -> str:
        """Return the type that a topic was made for, or "" where none is set."""
        kept = self._types.get(topic)
        if kept is not None and self._now_s() - kept[0] < _FRESH_S:
            return kept[1]
        return await self.lookups.together(("type", topic), lambda: self._renew_type(topic, route)) or ""

    async def _renew_type(self, topic: str, route: Route) -> str:
        header, found = GetTopicConfigRequestHeader(topic=topic), ""
        try:
            config = await self._first(route.addresses.values(), RequestCode.GET_TOPIC_CONFIG, header)
            if config is not None:
                found = TopicConfig.from_json(loads_object(config.body)).attributes.get(_TYPE_ATTRIBUTE, "").upper()
        except TransportError:
            kept = self._types.get(topic)
            if kept is None:
                raise
            found = kept[1]
        self._keep(self._types, topic, (self._now_s(), found))
        return found

    def fresh(self, topic: str) -> tuple[Route, str | None, float] | None:
        """Return the route of a topic, its type where that is known, and until when both hold. None: ask again."""
        route, kind, now_s = self._routes.get(topic), self._types.get(topic), self._now_s()
        if route is None or now_s >= route[0] + _FRESH_S:
            return None
        if kind is None or now_s >= kind[0] + _FRESH_S:
            return route[1], None, route[0] + _FRESH_S
        return route[1], kind[1], min(route[0], kind[0]) + _FRESH_S

    async def group(self, group: str, topics: Sequence[str]) -> SubscriptionGroupConfig | None:
        """Return the settings of a group, or None where no broker of these topics knows it."""
        kept = self._groups.get(group)
        if kept is not None and self._now_s() - kept[0] < _FRESH_S:
            return kept[1]
        addresses: dict[str, None] = {}
        for topic in topics:
            route = await self.find_known(topic)
            if route is not None:
                addresses.update(dict.fromkeys(route.addresses.values()))
        if not addresses:
            return SubscriptionGroupConfig(group)
        return await self.lookups.together(("group", group), lambda: self._renew_group(group, addresses))

    async def _renew_group(self, group: str, addresses: Iterable[str]) -> SubscriptionGroupConfig | None:
        header = GetSubscriptionGroupConfigRequestHeader(group=group)
        try:
            answer = await self._first(addresses, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
        except TransportError:
            kept = self._groups.get(group)
            if kept is None:
                raise
            found = kept[1]
        else:
            if answer is None or not answer.body:
                return None
            found = SubscriptionGroupConfig.from_json(loads_object(answer.body))
        self._keep(self._groups, group, (self._now_s(), found))
        return found

    async def _first(self, addresses: Iterable[str], code: int, header: Header) -> Command | None:
        """Return the first answer of a broker that has what is asked for; None if none of those that answer has it."""

        async def ask(address: str) -> Command | None:
            if address in self.lookups.hung:
                raise RequestTimeoutError(SILENT, broker=address)
            try:
                return await self.client.ask(address, request(code, header, opaque=self.client.next_opaque()))
            except TransportError:
                raise
            except AerobeeError:
                return None

        return await self.lookups.first(addresses, ask)


async def route_or_refuse(backend: Backend, topic: str) -> Route:
    """Return the route of a topic that has to exist."""
    route = await backend.find_route(topic)
    if route is None:
        raise RefusedCallError(Code.TOPIC_NOT_FOUND, f"topic {topic} does not exist")
    return route
