"""The core that the producers and consumers of a process share: connections, routes, heartbeats, requests of brokers.

A broker sees one core as one client (`client_id`). The core sends heartbeats for the groups of its members (every 30 s,
and at once on each new connection), keeps the routes of their topics fresh, and hands the requests that brokers send
to the member they are for. RocketMQ: MQClientInstance, ClientRemotingProcessor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, Protocol

from aerobee.client.core.config import ClientConfig
from aerobee.client.core.errors import is_not_master
from aerobee.client.core.refreshpace import RefreshPace
from aerobee.client.core.routes import RouteCache, away_groups, decode_route, route_header
from aerobee.client.core.signing import signer
from aerobee.client.core.tls import tls_hint
from aerobee.errors import AerobeeError, RequestTimeoutError, TransportError
from aerobee.errors.codes import TopicNotExistError
from aerobee.model.names import AUTO_CREATE_TOPIC
from aerobee.model.queue import MessageQueue
from aerobee.model.route import MASTER_ID, QueueData, TopicRoute, TopicRouteData
from aerobee.model.uniqueids import UniqueIds
from aerobee.net.client import RemotingClient
from aerobee.net.link import Link
from aerobee.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from aerobee.protocol.codes import AWAY_FIELD, RequestCode, ResponseCode
from aerobee.protocol.command import Command, encode_command, request, response
from aerobee.protocol.headers.base import Header
from aerobee.protocol.headers.group import HeartbeatRequestHeader, UnregisterClientRequestHeader
from aerobee.runtime.process import fork_count
from aerobee.runtime.seams import Clock, Entropy, Net
from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.stdlog import get_log

_UNREGISTER_TIMEOUT_S: Final = 1.0
# How often to look at routes of groups with replicas: a master that hangs does not say that there is another one.
_REPLICATED_S: Final = 3.0
# How often while it does not answer sends.
_SILENT_S: Final = 0.5
# How many stale routes are asked for at the same time: the broker that died may have served thousands of topics.
_REFRESHES_MAX: Final = 8
# A broker group that left a route is looked for after this time, then ever more rarely, for about two minutes.
_RETURN_FIRST_S: Final = 0.25
_RETURN_GROWTH: Final = 1.25
_RETURN_LAST_S: Final = 20.0

# A handler of a broker's request. It returns the answer, or a coroutine that a task of the core runs to get the answer.
Push = Callable[[Link, Command], "Command | Coroutine[Any, Any, Command | None] | None"]
RouteChanged = Callable[[TopicRoute], None]

_log = get_log("client.core")


class ProducerMember(Protocol):
    """A producer, as the core sees it."""

    def topics(self) -> Iterable[str]:
        """Return the topics (names on the wire) whose routes the core keeps fresh."""


class ConsumerMember(Protocol):
    """A consumer, as the core sees it."""

    def topics(self) -> Iterable[str]:
        """Return the topics (names on the wire) whose routes the core keeps fresh."""

    def heartbeat_data(self) -> ConsumerData:
        """Return the group and the subscriptions, as of now."""


class ClientCore:
    """A client of one cluster. `acquire_core` makes it; tests make it themselves, with simulated seams."""

    def __init__(
        self,
        config: ClientConfig,
        client_id: str,
        unique_ids: UniqueIds,
        *,
        clock: Clock,
        entropy: Entropy,
        net: Net | None = None,
    ) -> None:
        self.config = config
        self.client_id = client_id
        self.unique_ids = unique_ids
        self.clock = clock
        self.entropy = entropy
        self.routes = RouteCache()
        self.remoting = RemotingClient(
            sign=signer(config.credentials) if config.credentials else None,
            connect_timeout_s=config.connect_timeout_ms / 1000,
            net=net,
            tls=config.tls,
        )
        self.remoting.on_open = self._opened
        self.remoting.on_lost = self._lost
        self.remoting.on_silent = self._silent
        self.tasks = Tasks(failed=self._task_failed)
        # By the name of the group on the wire. A consumer group has one member in a core.
        self.producers: dict[str, list[ProducerMember]] = {}
        self.consumers: dict[str, ConsumerMember] = {}
        # Functions that are called with every route that changed.
        self.route_changed: list[RouteChanged] = []
        # Functions that are called with the address of every broker whose connection was lost.
        self.link_lost: list[Callable[[str], None]] = []
        # Objects that the members of this core share, such as the table of requests that wait for replies.
        self.shared: dict[str, object] = {}
        self.fork = fork_count()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.closed = False
        self._pushes: dict[int, dict[str, Push]] = {}
        self._beats: dict[str, asyncio.Task[None]] = {}
        self._namesrv = entropy.below(len(config.namesrv))
        self._asking: dict[tuple[str, bool], asyncio.Task[TopicRoute]] = {}
        self._pace = RefreshPace(entropy)
        self._silent_pace = RefreshPace(entropy, last_s=_SILENT_S)
        self._refreshing = asyncio.Semaphore(_REFRESHES_MAX)

    # -- life

    async def start(self) -> None:
        """Start the background tasks. Nothing is connected before a route is needed. A second call does nothing."""
        if self.loop is None:
            self.loop = asyncio.get_running_loop()
            self.tasks.start(self._keep_routes(), name="keep routes")
            self.tasks.start(self._keep_heartbeats(), name="keep heartbeats")

    async def close(self) -> None:
        """End every task and close every connection. The members must have left before."""
        self.closed = True
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        if asking:
            await asyncio.wait(asking)
        await self.tasks.close()
        await self.remoting.close()

    def _task_failed(self, name: str, error: BaseException) -> None:
        _log.error("a task failed", task=name, client=self.client_id, exc_info=error)

    # -- asking

    def request(self, code: int, header: Header | None = None, body: bytes = b"", *, oneway: bool = False) -> Command:
        """Return a request in the codec of this client, with the next opaque."""
        opaque = self.remoting.next_opaque()
        return request(code, header, body, opaque=opaque, oneway=oneway, codec=self.config.codec)

    async def call(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> Command:
        """Return the answer of a server, of any code. Raise TransportError or RequestTimeoutError where none comes."""
        return await self.remoting.call(address, self.request(code, header, body), self._timeout_s(timeout_s))

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> Command:
        """Return the answer of a server. Raise its refusal (errors/codes.py) where the code is not SUCCESS."""
        return await self.remoting.ask(address, self.request(code, header, body), self._timeout_s(timeout_s))

    async def tell(self, address: str, code: int, header: Header | None = None, body: bytes = b"") -> None:
        """Send a request that gets no answer."""
        command = self.request(code, header, body, oneway=True)
        await self.remoting.tell(address, command, self._timeout_s(None))

    def _timeout_s(self, timeout_s: float | None) -> float:
        return self.config.request_timeout_ms / 1000 if timeout_s is None else timeout_s

    @property
    def namesrv(self) -> str:
        """The name server that is asked first."""
        return self.config.namesrv[self._namesrv % len(self.config.namesrv)]

    async def ask_namesrv(
        self, code: int, header: Header | None = None, body: bytes = b"", *, ext: Mapping[str, str] | None = None
    ) -> Command:
        """Return the answer, of any code, of a name server. Where one does not answer, the next one is asked."""
        problems: list[str] = []
        hint = "is it running, and is the address right?"
        for _ in self.config.namesrv:
            try:
                command = self.request(code, header, body)
                if ext is not None:
                    command.ext.update(ext)
                return await self.remoting.call(self.namesrv, command, self._timeout_s(None))
            except TransportError as error:
                problems.append(f"{error.message} at {error.broker or self.namesrv}")
                self._drop_if_silent(self.namesrv, error)
                self._namesrv += 1
                hint = tls_hint(error, self.config.tls is not None) or hint
        raise TransportError(f"no name server answered: {'; '.join(problems)}", hint=hint)

    # -- routes

    async def route(
        self, topic: str, *, refresh: bool = False, auto_create: bool = False, queue_nums: int = 4
    ) -> TopicRoute:
        """Return the route of a topic. Callers that ask at the same time share one request.

        `auto_create`: a topic that does not exist gets the route of TBW102, which brokers register that create topics
        on first use. Raise TopicNotExistError where there is none. RocketMQ: tryToFindTopicPublishInfo.
        """
        found = self.routes.routes.get(topic)
        if found is not None and not refresh:
            return found
        key = (topic, auto_create)
        asking = self._asking.get(key)
        if asking is None:
            # A task of its own: when the first caller is cancelled, the others must not fail.
            asking = self._asking[key] = asyncio.get_running_loop().create_task(
                self._fetch(topic, auto_create, queue_nums), name=f"route {topic}"
            )
            asking.add_done_callback(lambda done: self._fetched(key, done))
        return await asyncio.shield(asking)

    def _fetched(self, key: tuple[str, bool], done: asyncio.Task[TopicRoute]) -> None:
        self._asking.pop(key, None)
        if not done.cancelled():
            done.exception()  # marks it as seen, also where every waiter is gone

    async def _fetch(self, topic: str, auto_create: bool, queue_nums: int) -> TopicRoute:
        data, guessed = await self.fetch_route(topic), False
        if data is None and auto_create:
            data = await self.fetch_route(AUTO_CREATE_TOPIC)
            if data is not None:
                data, guessed = _limited(data, queue_nums), True
        if data is None:
            self.routes.remove(topic)
            raise TopicNotExistError(
                f"no route for topic {topic!r} at {';'.join(self.config.namesrv)}",
                code=ResponseCode.TOPIC_NOT_EXIST,
                retriable=True,
                hint=f"create it (aerobee topic create -t {topic}) or check the name and the name server",
            )
        self._keep(topic, data, guessed=guessed)
        return self.routes.routes[topic]

    def _keep(self, topic: str, data: TopicRouteData, *, guessed: bool = False) -> None:
        before = self.routes.routes.get(topic)
        old_masters = _masters(before)
        changed = self.routes.put(topic, data, guessed=guessed)
        if changed is None:
            return
        self._pace.changed(topic)
        masters = _masters(changed)
        for told in list(self.route_changed):
            told(changed)
        for group, address in old_masters.items():
            if masters.get(group, address) != address and address not in self.routes.addresses():
                # Another broker is master of the group. The old one may hang, and nobody should wait for its answers.
                self.remoting.drop(address)
        gone = frozenset(old_masters.keys() - masters.keys())
        if gone:
            self.tasks.start(self._await_return(topic, gone), name=f"return of {topic}")

    async def _await_return(self, topic: str, gone: frozenset[str]) -> None:
        """Look for the masters of broker groups that left a route. Most are back within seconds, and the regular look
        may be 30 s away."""
        wait_s = _RETURN_FIRST_S
        while wait_s < _RETURN_LAST_S and not gone <= _masters(self.routes.routes.get(topic)).keys():
            await asyncio.sleep(wait_s * (0.75 + self.entropy.uniform() / 2))
            await self._refresh(topic)
            wait_s *= _RETURN_GROWTH

    async def fetch_route(self, topic: str) -> TopicRouteData | None:
        """Ask a name server for a route without remembering it. Return None where the topic does not exist. Groups of
        the topic that are away are noted."""
        answer = await self.ask_namesrv(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, route_header(topic), ext={AWAY_FIELD: "true"}
        )
        self.routes.declared.heard(topic, away_groups(answer))
        return decode_route(answer, self.namesrv)

    async def address_of(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> str:
        """Return where to ask about a queue: that broker, else another one of its group."""
        found = self.routes.address(self.routes.broker_of(queue), broker_id)
        if found is None:
            await self.route(queue.topic, refresh=True)
            found = self.routes.address(self.routes.broker_of(queue), broker_id)
        if found is None:
            raise TransportError(
                f"the route of topic {queue.topic!r} names no broker {queue.broker_name!r}",
                hint="is it up? (aerobee cluster)",
            )
        return found

    def refresh_soon(self, topic: str) -> None:
        """Ask for a route again in the background, because it proved stale. `RefreshPace` says how often."""
        if self.closed or self.loop is None:
            return
        if self._pace.is_due(topic, self.loop.time()):
            self.tasks.start(self._refresh_in_turn(topic), name=f"refresh {topic}")

    def doubt_route(self, topic: str, error: AerobeeError) -> None:
        """Ask for a route again where an error says that a broker is gone or is not the master any more."""
        if isinstance(error, TransportError) or error.refresh_route or is_not_master(error):
            self.refresh_soon(topic)

    async def _refresh_in_turn(self, topic: str) -> None:
        async with self._refreshing:
            await self._refresh(topic)

    async def _refresh(self, topic: str) -> None:
        """Ask for a route. Where the topic is gone or no name server answers, the old route stays in use."""
        try:
            data = await self.fetch_route(topic)
        except AerobeeError as error:
            _log.debug("a route could not be refreshed", topic=topic, reason=str(error))
            return
        if data is not None:
            self._keep(topic, data)

    async def _keep_routes(self) -> None:
        interval_s = self.config.route_interval_ms / 1000
        passed_s = 0.0
        while True:
            wait_s = min(interval_s, _REPLICATED_S * (0.75 + self.entropy.uniform() / 2))
            await asyncio.sleep(wait_s)
            passed_s += wait_s
            is_round = passed_s >= interval_s
            passed_s = 0.0 if is_round else passed_s
            wanted = {topic for member in self._members() for topic in member.topics()}
            for topic in sorted(wanted):
                if is_round or _is_replicated(self.routes.routes.get(topic)):
                    await self._refresh(topic)

    # -- members and heartbeats

    def _members(self) -> list[ProducerMember | ConsumerMember]:
        members: list[ProducerMember | ConsumerMember] = [p for ps in self.producers.values() for p in ps]
        return members + list(self.consumers.values())

    def add_producer(self, group: str, member: ProducerMember) -> None:
        """Add a producer. Brokers learn of its group with the next heartbeat."""
        self.producers.setdefault(group, []).append(member)
        self.heartbeat_soon()

    async def remove_producer(self, group: str, member: ProducerMember) -> None:
        """Remove a producer. The last one of a group unregisters the group."""
        members = self.producers.get(group, [])
        if member in members:
            members.remove(member)
            if not members:
                del self.producers[group]
                await self._unregister(producer_group=group)

    def add_consumer(self, group: str, member: ConsumerMember) -> None:
        """Add a consumer. A core has one for each group (see `corepool`): brokers tell consumers apart by client id."""
        if group in self.consumers:
            raise ValueError(f"group {group!r} is already in client {self.client_id}")
        self.consumers[group] = member
        self.heartbeat_soon()

    async def remove_consumer(self, group: str) -> None:
        """Unregister a consumer, so that the others of the group take over at once."""
        if self.consumers.pop(group, None) is not None:
            for handlers in self._pushes.values():
                handlers.pop(group, None)
            await self._unregister(consumer_group=group)

    async def _unregister(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        header = UnregisterClientRequestHeader(
            client_id=self.client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        # A broker that lost the connection has forgotten this client already.
        known = [address for address in self.routes.addresses() if self.remoting.peek(address)]
        await asyncio.gather(*(self._unregister_at(address, header) for address in known))

    async def _unregister_at(self, address: str, header: UnregisterClientRequestHeader) -> None:
        try:
            await self.call(address, RequestCode.UNREGISTER_CLIENT, header, timeout_s=_UNREGISTER_TIMEOUT_S)
        except AerobeeError as error:
            _log.debug("a broker did not take the unregistration", broker=address, reason=str(error))

    def heartbeat_data(self) -> HeartbeatData:
        """Return what heartbeats say of this client, as of now."""
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=tuple(ProducerData(group) for group in sorted(self.producers)),
            consumer_data_set=tuple(member.heartbeat_data() for member in self.consumers.values()),
        )

    async def heartbeat(self) -> None:
        """Send a heartbeat to every master (to slaves too where there is a consumer), and wait for the answers."""
        targets = self.routes.addresses() if self.consumers else self.routes.masters()
        await asyncio.gather(*(self.heartbeat_at(address) for address in dict.fromkeys(targets)))

    async def heartbeat_at(self, address: str) -> bool:
        """Send a heartbeat to one broker. Return whether the broker took it."""
        data = self.heartbeat_data()
        if not data.producer_data_set and not data.consumer_data_set:
            return False
        try:
            await self.ask(address, RequestCode.HEART_BEAT, HeartbeatRequestHeader(), data.encode())
        except AerobeeError as error:
            _log.warning("a broker did not take the heartbeat", broker=address, reason=str(error))
            self._drop_if_silent(address, error)
            return False
        return True

    def _drop_if_silent(self, address: str, error: AerobeeError) -> None:
        """Close the connection to a peer that timed out: one that vanished leaves a connection that never fails.

        RocketMQ: NettyClientConfig.clientCloseSocketIfTimeout.
        """
        if isinstance(error, RequestTimeoutError):
            self.remoting.drop(address)

    def heartbeat_soon(self) -> None:
        """Send heartbeats in the background to the connected brokers, because groups or subscriptions changed."""
        if self.loop is None or self.closed:
            return
        for address in self.routes.addresses():
            if self.remoting.peek(address):
                self._beat(address)

    async def known_to(self, address: str) -> None:
        """Wait until a broker knows this client. Before, it cannot push a reply or ask about a transaction."""
        await self.remoting.link(address)
        beat = self._beats.get(address)
        if beat is not None:
            await asyncio.shield(beat)

    def _beat(self, address: str) -> None:
        async def beat() -> None:
            await self.heartbeat_at(address)

        self._beats[address] = self.tasks.start(beat(), name=f"heartbeat {address}")

    async def _keep_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self.config.heartbeat_interval_ms / 1000)
            await self.heartbeat()

    def _opened(self, link: Link) -> None:
        # A broker forgets a client when its connection ends, so a new connection begins with a heartbeat.
        if link.address not in self.config.namesrv and not self.closed:
            self._beat(link.address)

    def _lost(self, address: str) -> None:
        self._beats.pop(address, None)
        if address not in self.config.namesrv:
            _log.info("a connection was lost", broker=address)
            for told in list(self.link_lost):
                told(address)
            for topic, route in list(self.routes.routes.items()):
                if any(address in broker.broker_addrs.values() for broker in route.data.broker_datas):
                    self.refresh_soon(topic)

    def _silent(self, address: str) -> None:
        """Ask whether the group of a master that does not answer has another one by now.

        One topic asks for all: if there is another master, the connection is dropped, and sends look for their routes.
        """
        if self.closed or self.loop is None or not self._silent_pace.is_due(address, self.loop.time()):
            return
        for topic, route in self.routes.routes.items():
            if _is_replicated(route) and address in _masters(route).values():
                self.tasks.start(self._refresh_in_turn(topic), name=f"refresh {topic}")
                return

    # -- what brokers ask

    def on_push(self, code: int, group: str, handler: Push) -> None:
        """Hand requests of `code` for `group` (name on the wire) to `handler`. The group "" gets those for no group."""
        self._pushes.setdefault(code, {})[group] = handler
        self.remoting.on_push(code, self._pushed)

    def _pushed(self, link: Link, command: Command) -> Command | None:
        handlers = self._pushes[command.code]
        group = command.ext.get("consumerGroup") or command.ext.get("group") or ""
        handler = handlers.get(group) or handlers.get("")
        if handler is None:
            remark = f"The Consumer Group <{group}> not exist in this consumer"
            return response(command, ResponseCode.SYSTEM_ERROR, remark=remark)
        answer = handler(link, command)
        if answer is None or isinstance(answer, Command):
            return answer
        self.tasks.start(self._answer_later(link, command, answer), name=f"answer {command.code}")
        return None

    async def _answer_later(self, link: Link, command: Command, work: Coroutine[Any, Any, Command | None]) -> None:
        try:
            answer = await work
        except AerobeeError as error:
            answer = response(command, error.code or ResponseCode.SYSTEM_ERROR, remark=error.message)
        if answer is not None and not command.is_oneway and not link.closed:
            link.write(encode_command(answer))


def _masters(route: TopicRoute | None) -> dict[str, str]:
    """Return the addresses of the masters of a route, by broker group."""
    if route is None:
        return {}
    return {broker.broker_name: broker.master for broker in route.data.broker_datas if broker.master is not None}


def _is_replicated(route: TopicRoute | None) -> bool:
    """Tell whether a broker group of a route has replicas, one of which may become master at any time."""
    return route is not None and any(len(broker.broker_addrs) > 1 for broker in route.data.broker_datas)


def _limited(data: TopicRouteData, queue_nums: int) -> TopicRouteData:
    """Return the route of TBW102 with no more queues than a new topic gets."""
    queues = tuple(
        QueueData(
            one.broker_name,
            min(queue_nums, one.read_queue_nums),
            min(queue_nums, one.read_queue_nums),
            one.perm,
            one.topic_sys_flag,
        )
        for one in data.queue_datas
    )
    return TopicRouteData(
        queues,
        data.broker_datas,
        data.order_topic_conf,
        data.filter_server_table,
        data.topic_queue_mapping_by_broker,
    )
