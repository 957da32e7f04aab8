"""The cluster behind the service: routes, settings of topics and groups, and requests to brokers.

`ClusterBackend` speaks RocketMQ's remoting protocol, so it serves any cluster, Apache's too. In the broker's own
process its connections to that broker pass through memory (`net/loopback.py`).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from aerobee.errors import AerobeeError, TransportError
from aerobee.errors.codes import GroupNotExistError, TopicNotExistError
from aerobee.model.dialect import loads_object
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.route import TopicRouteData
from aerobee.model.topic import PERM_READ, PERM_WRITE, TopicConfig
from aerobee.net.client import PushHandler, RemotingClient, Sign
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.group import GetSubscriptionGroupConfigRequestHeader
from aerobee.protocol.headers.route import GetRouteInfoRequestHeader
from aerobee.protocol.headers.topic import GetTopicConfigRequestHeader
from aerobee.protocol.v2.enums import Code
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

    def pick(self) -> WriteQueue:
        """Return the next queue, round and round."""
        self.next_queue = (self.next_queue + 1) % len(self.write)
        return self.write[self.next_queue]

    def may_read(self, broker: str) -> bool:
        """Tell whether the topic may be read on a broker."""
        return any(one.broker_name == broker and one.perm & PERM_READ for one in self.data.queue_datas)


class Backend(Protocol):
    """What the service needs of a cluster."""

    # Requests for which brokers take the service's word that the user of a client may send them.
    trusted_codes: frozenset[int]

    async def find_route(self, topic: str) -> Route | None: ...
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

    def connect(self, peer: Peer, pushed: Mapping[int, PushHandler]) -> RemotingClient:
        return RemotingClient(pushed, net=self._net_for(peer), tls=self._tls, sign=self._sign)

    async def close(self) -> None:
        await self.client.close()

    async def find_route(self, topic: str) -> Route | None:
        """Return the route, at most two seconds old; None for a topic that nobody has. Misses are not remembered."""
        kept = self._routes.get(topic)
        now_s = self._now_s()
        if kept is not None and now_s - kept[0] < _FRESH_S:
            return kept[1]
        try:
            data = await self._ask_route(topic)
        except AerobeeError:
            if kept is not None:
                return kept[1]
            data = self._own_route(topic)
            if data is None:
                raise
        if data is None:
            data = self._own_route(topic)
        if data is None or not data.queue_datas:
            self._routes.pop(topic, None)
            return None
        if kept is not None and kept[1].data == data:
            route = kept[1]
        else:
            route = Route(data)
        self._keep(self._routes, topic, (now_s, route))
        return route

    @staticmethod
    def _keep(table: dict[str, T], key: str, value: T) -> None:
        if len(table) >= _KEPT_MAX:
            table.clear()
        table[key] = value

    async def _ask_route(self, topic: str) -> TopicRouteData | None:
        failure: AerobeeError | None = None
        for namesrv in self._namesrvs():
            header = GetRouteInfoRequestHeader(topic=topic)
            command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, opaque=self.client.next_opaque())
            try:
                answer = await self.client.ask(namesrv, command)
            except TopicNotExistError:
                return None
            except AerobeeError as error:
                failure = error
                continue
            return TopicRouteData.from_json(loads_object(answer.body))
        if failure is not None:
            raise failure
        return None

    async def message_type(self, topic: str, route: Route) -> str:
        """Return the type that a topic was made for, or "" where none is set."""
        kept = self._types.get(topic)
        if kept is not None and self._now_s() - kept[0] < _FRESH_S:
            return kept[1]
        header = GetTopicConfigRequestHeader(topic=topic)
        config = await self._first(
            route.addresses.values(),
            lambda: request(RequestCode.GET_TOPIC_CONFIG, header, opaque=self.client.next_opaque()),
        )
        found = ""
        if config is not None:
            found = TopicConfig.from_json(loads_object(config.body)).attributes.get(_TYPE_ATTRIBUTE, "").upper()
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
            route = await self.find_route(topic)
            if route is not None:
                addresses.update(dict.fromkeys(route.addresses.values()))
        if not addresses:
            return SubscriptionGroupConfig(group)
        header = GetSubscriptionGroupConfigRequestHeader(group=group)
        answer = await self._first(
            addresses,
            lambda: request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header, opaque=self.client.next_opaque()),
        )
        if answer is None or not answer.body:
            return None
        found = SubscriptionGroupConfig.from_json(loads_object(answer.body))
        self._keep(self._groups, group, (self._now_s(), found))
        return found

    async def _first(self, addresses: Iterable[str], command: Callable[[], Command]) -> Command | None:
        """Return the first answer of a broker that has what is asked for; None if none of those that answer has it."""
        failure: TransportError | None = None
        for address in list(addresses):
            try:
                return await self.client.ask(address, command())
            except (TopicNotExistError, GroupNotExistError):
                continue
            except TransportError as error:
                failure = error
            except AerobeeError:
                continue
        if failure is not None:
            raise failure
        return None


async def route_or_refuse(backend: Backend, topic: str) -> Route:
    """Return the route of a topic that has to exist."""
    route = await backend.find_route(topic)
    if route is None:
        raise RefusedCallError(Code.TOPIC_NOT_FOUND, f"topic {topic} does not exist")
    return route
