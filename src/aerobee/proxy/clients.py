"""The clients of the service: what each has told of itself, its connections to brokers, and its telemetry stream.

A client has connections of its own, so that brokers see one member of a group for each of them, and what a broker asks
a client (a check-back, a stack trace) reaches the right one.
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from aerobee.errors import AerobeeError, NotConnectedError, RequestTimeoutError
from aerobee.hot.log.javahash import java_hash
from aerobee.net.client import RemotingClient
from aerobee.net.link import Link
from aerobee.protocol.bodies.heartbeat import (
    CLUSTERING,
    CONSUME_ACTIVELY,
    CONSUME_FROM_LAST_OFFSET,
    CONSUME_PASSIVELY,
    SQL92,
    TAG,
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from aerobee.protocol.codes import FOR_SOURCE_FIELD, FOR_USER_FIELD, RequestCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.base import Header
from aerobee.protocol.headers.group import UnregisterClientRequestHeader
from aerobee.protocol.v2 import enums
from aerobee.protocol.v2.calls import PbTelemetryCommand
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.values import PbSettings
from aerobee.proxy.backend import Backend, Peer
from aerobee.proxy.lookups import SILENT
from aerobee.proxy.status import RefusedCallError
from aerobee.runtime.shortage import is_passing

# A client that sends no heartbeat for this long is gone. RocketMQ: ProxyConfig.channelExpiredTimeout.
EXPIRED_S: Final = 120.0
# One without a telemetry stream is gone sooner. It was killed, or its network was cut: a client that lives opens its
# stream again within seconds, and sends a heartbeat every ten.
QUIET_S: Final = 30.0
CLIENTS_MAX: Final = 20_000
# A client opens a connection of its own; a gateway in between may carry those of many.
CONNECTION_CLIENTS_MAX: Final = 5_000
# Where users are known, one of them leaves room for the others.
USER_CLIENTS_MAX: Final = 10_000
# Where descriptors are short, so many clients give way at a time.
_FREED: Final = 4

# A broker that has not answered by then is late, or hangs. What it may hold back for longer says nothing.
_SUSPECT_S: Final = 0.5
_HELD: Final = (RequestCode.POP_MESSAGE, RequestCode.PULL_MESSAGE)
# So long a client waits until its brokers know it. One that is late is told meanwhile.
_BEAT_WAIT_S: Final = 0.5

T = TypeVar("T")


async def nothing() -> None:
    """Do nothing."""


class GrpcClient:
    """One client."""

    def __init__(
        self, client_id: str, peer: Peer, backend: Backend, language: str, now_s: float, user: str = ""
    ) -> None:
        self.client_id = client_id
        # Who signs its calls; '' where there are no users.
        self.user = user
        self.peer = peer
        # The connection that it counts for.
        self.came_by = peer
        self.language = language
        self.seen_s = now_s
        # When brokers were told that it is there.
        self.beaten_s = float("-inf")
        self.settings: PbSettings | None = None
        # How large they were when the client told them.
        self.settings_bytes = 0
        # Whether it was forgotten: a later call is one of a new client.
        self.is_gone = False
        # Sends a command on the telemetry stream; None while there is none.
        self.tell: Callable[[PbTelemetryCommand], None] | None = None
        # Broker requests to be answered by the client, by nonce.
        self.asked: dict[str, Callable[[PbTelemetryCommand], None]] = {}
        # Which brokers know of this client.
        self.known_at: set[str] = set()
        # Broker names by address, for what brokers send.
        self.names: dict[str, str] = {}
        self.on_push: Callable[[GrpcClient, Link, Command], Command | None] = lambda client, link, command: None
        # Ends the connections of another client, where one has to give way.
        self.make_room: Callable[[], Awaitable[None]] = nothing
        self._backend = backend
        pushed = {code: self._pushed for code in PUSHED}
        self.remoting: RemotingClient = backend.connect(peer, pushed)
        self.remoting.on_silent = backend.lookups.suspect
        # Heartbeats under way to brokers that were late before.
        self._late_beats: dict[str, asyncio.Task[None]] = {}

    def _pushed(self, link: Link, command: Command) -> Command | None:
        return self.on_push(self, link, command)

    @property
    def group(self) -> str:
        """Return the consumer group, or '' of a producer."""
        settings = self.settings
        if settings is None or settings.subscription is None or settings.subscription.group is None:
            return ""
        return settings.subscription.group.name

    @property
    def topics(self) -> list[str]:
        """Return the topics of the settings."""
        settings = self.settings
        if settings is None:
            return []
        if settings.publishing is not None:
            return [one.name for one in settings.publishing.topics]
        if settings.subscription is not None:
            return [one.topic.name for one in settings.subscription.subscriptions if one.topic is not None]
        return []

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_s: float = 3.0,
        ext: dict[str, str] | None = None,
    ) -> Command:
        """Return a broker's answer, whatever its code is.

        The front signs as the inner user, who may do everything. What a request touches is known to the broker alone
        where the request names it by its place in the log. So the broker asks for the rights of the client's user.
        """
        lookups = self._backend.lookups
        if address in lookups.hung:
            raise RequestTimeoutError(SILENT, broker=address)
        if self.user and code not in self._backend.trusted_codes:
            ext = {**(ext or {}), FOR_USER_FIELD: self.user, FOR_SOURCE_FIELD: self.peer[0]}
        command = request(code, header, body, opaque=self.remoting.next_opaque(), ext=ext)
        suspicion = None
        if code not in _HELD:
            # While it is slow with sends, they go to others.
            doubt = lookups.suspect if code == RequestCode.SEND_MESSAGE_V2 else lookups.examine
            suspicion = asyncio.get_running_loop().call_later(_SUSPECT_S, doubt, address)
        try:
            return await self.remoting.call(address, command, timeout_s)
        except NotConnectedError as error:
            if not is_passing(error.__cause__):
                raise
        finally:
            if suspicion is not None:
                suspicion.cancel()
        # There are no descriptors left for one more connection: a client that never told settings gives way.
        await self.make_room()
        return await self.remoting.call(address, command, timeout_s)

    # -- members of groups

    async def beat(self, topics: list[str] | None = None) -> None:
        """Tell the brokers of its topics that the client is there. A broker that cannot be reached is passed over, and
        nobody waits for one that is late."""
        addresses: dict[str, None] = {}
        for topic in self.topics if topics is None else topics:
            try:
                route = await self._backend.find_known(topic)
            except AerobeeError:
                continue
            if route is not None:
                addresses.update(dict.fromkeys(route.addresses.values()))
                self.names.update((address, name) for name, address in route.addresses.items())
        body = self._heartbeat().encode()
        lookups, waited_for = self._backend.lookups, list[asyncio.Task[None]]()
        for address in addresses:
            is_late = bool(lookups.late_until) and lookups.late_s(address) > 0.0
            if is_late and address in self._late_beats:
                continue
            task = asyncio.get_running_loop().create_task(self._beat(address, body), name=address)
            if is_late:
                self._late_beats[address] = task
                task.add_done_callback(functools.partial(self._beaten, address))
            else:
                waited_for.append(task)
        if waited_for:
            _, late = await asyncio.wait(waited_for, timeout=_BEAT_WAIT_S)
            for task in late:
                # It goes on, and must not be lost meanwhile.
                self._late_beats.setdefault(task.get_name(), task)
                task.add_done_callback(functools.partial(self._beaten, task.get_name()))

    def _beaten(self, address: str, task: asyncio.Task[None]) -> None:
        if self._late_beats.get(address) is task:
            del self._late_beats[address]

    async def _beat(self, address: str, body: bytes) -> None:
        try:
            answer = await self.ask(address, RequestCode.HEART_BEAT, None, body)
        except AerobeeError:
            return
        if answer.code == 0:
            self.known_at.add(address)

    def _heartbeat(self) -> HeartbeatData:
        settings = self.settings
        if settings is not None and settings.subscription is not None:
            passive = settings.client_type == enums.PUSH_CONSUMER
            subscriptions = []
            for one in settings.subscription.subscriptions:
                if one.topic is None:
                    continue
                kind = one.expression.type if one.expression is not None else enums.TAG
                text = one.expression.expression if one.expression is not None else "*"
                subscriptions.append(subscription_of(one.topic.name, text, sql=kind == enums.SQL))
            consumer = ConsumerData(
                self.group,
                CONSUME_PASSIVELY if passive else CONSUME_ACTIVELY,
                CLUSTERING,
                CONSUME_FROM_LAST_OFFSET,
                tuple(subscriptions),
            )
            return HeartbeatData(self.client_id, consumer_data_set=(consumer,))
        # RocketMQ: ClientActivity.registerProducer; the group of a producer is its topic.
        return HeartbeatData(self.client_id, tuple(ProducerData(topic) for topic in dict.fromkeys(self.topics)))

    async def leave(self) -> None:
        """Tell the brokers that the client is gone, and close its connections."""
        groups = [(None, self.group)] if self.group else [(topic, None) for topic in dict.fromkeys(self.topics)]
        for address in self.known_at:
            for producer, consumer in groups:
                header = UnregisterClientRequestHeader(
                    client_id=self.client_id, producer_group=producer, consumer_group=consumer
                )
                try:
                    await self.ask(address, RequestCode.UNREGISTER_CLIENT, header, timeout_s=1.0)
                except AerobeeError:
                    break
        self.known_at.clear()
        await self.remoting.close()
        if self._late_beats:
            # Their connections are closed.
            await asyncio.wait(self._late_beats.values())


PUSHED: Final = (
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
)


def subscription_of(topic: str, text: str, *, sql: bool) -> SubscriptionData:
    """Return a subscription as brokers read it. RocketMQ: FilterAPI.build."""
    if sql:
        return SubscriptionData(topic, text, expression_type=SQL92)
    tags = tuple(dict.fromkeys(tag.strip() for tag in text.split("||") if tag.strip()))
    if not tags or "*" in tags:
        return SubscriptionData(topic, "*", expression_type=TAG)
    return SubscriptionData(topic, text, tags, tuple(java_hash(tag) for tag in tags), expression_type=TAG)


class GrpcClients:
    """All clients by their users and ids: a user cannot act as the client of another one."""

    def __init__(self, backend: Backend, now_s: Callable[[], float]) -> None:
        self._backend = backend
        self._now_s = now_s
        self._clients: dict[tuple[str, str], GrpcClient] = {}
        self._by_connection: Counter[Peer] = Counter()
        self._by_user: Counter[str] = Counter()
        # Those that give way when there are too many, oldest first: clients that never told settings, and those whose
        # telemetry stream has ended. One that has told settings since, or has a stream again, is passed over.
        self._unsettled: OrderedDict[GrpcClient, None] = OrderedDict()
        self._quiet: OrderedDict[GrpcClient, None] = OrderedDict()
        self.on_push: Callable[[GrpcClient, Link, Command], Command | None] = lambda client, link, command: None
        # Called with a client that has gone.
        self.on_gone: Callable[[GrpcClient], None] = lambda client: None

    def __len__(self) -> int:
        return len(self._clients)

    def of(self, client_id: str, peer: Peer, language: str, user: str = "") -> GrpcClient:
        """Return a client, a new one where it was not seen before. Raise RefusedCallError where there are too many."""
        found = self.seen(client_id, peer, user)
        if found is not None:
            return found
        if self._by_connection[peer] >= CONNECTION_CLIENTS_MAX:
            raise _too_many(f"this connection has {CONNECTION_CLIENTS_MAX} clients")
        if user and self._by_user[user] >= USER_CLIENTS_MAX:
            raise _too_many(f"user {user} has {USER_CLIENTS_MAX} clients")
        if len(self._clients) >= CLIENTS_MAX and self._make_room() is None:
            raise _too_many(f"this server has {CLIENTS_MAX} clients")
        client = GrpcClient(client_id, peer, self._backend, language, self._now_s(), user)
        client.on_push = self.on_push
        client.make_room = functools.partial(self.free_connections, client)
        self._clients[user, client_id] = client
        self._by_connection[peer] += 1
        self._by_user[user] += 1
        self._unsettled[client] = None
        return client

    def _make_room(self) -> GrpcClient | None:
        """Forget the client that gives way first, and return it; None where none does."""
        while self._unsettled:
            client, _ = self._unsettled.popitem(last=False)
            if client.settings is None and client.tell is None:
                self.forget(client)
                return client
        while self._quiet:
            client, _ = self._quiet.popitem(last=False)
            if client.tell is None:
                self.forget(client)
                return client
        return None

    async def free_connections(self, new: GrpcClient) -> None:
        """End the connections of some clients that give way to a new one."""
        self._unsettled.pop(new, None)
        for _ in range(_FREED):
            client = self._make_room()
            if client is None:
                break
            await client.remoting.close()
        if not new.is_gone:
            self._unsettled[new] = None

    def seen(self, client_id: str, peer: Peer, user: str = "") -> GrpcClient | None:
        """Return a client that was seen before, with a sign of its life."""
        found = self._clients.get((user, client_id))
        if found is not None:
            found.peer = peer
            found.seen_s = self._now_s()
        return found

    def stream_ended(self, client: GrpcClient) -> None:
        """Take note that the telemetry stream of a client has ended."""
        client.tell = None
        if not client.is_gone:
            self._quiet[client] = None

    def known(self, client_id: str, user: str = "") -> GrpcClient | None:
        """Return a client that was seen before."""
        return self._clients.get((user, client_id))

    def expired(self) -> list[GrpcClient]:
        """Remove and return the clients that were not heard of for too long."""
        now_s = self._now_s()
        late = [
            one for one in self._clients.values() if now_s - one.seen_s > (QUIET_S if one.tell is None else EXPIRED_S)
        ]
        for one in late:
            self.forget(one)
        return late

    def forget(self, client: GrpcClient) -> None:
        """Remove a client."""
        key = (client.user, client.client_id)
        if self._clients.get(key) is client:
            del self._clients[key]
            one_less(self._by_connection, client.came_by)
            one_less(self._by_user, client.user)
            self._unsettled.pop(client, None)
            self._quiet.pop(client, None)
            client.is_gone = True
            self.on_gone(client)

    def all(self) -> list[GrpcClient]:
        """Return every client."""
        return list(self._clients.values())


def one_less(counts: Counter[T], name: T) -> None:
    """Count one less, and forget what has none."""
    counts[name] -= 1
    if not counts[name]:
        del counts[name]


def _too_many(why: str) -> RefusedCallError:
    return RefusedCallError(Code.TOO_MANY_REQUESTS, f"too many clients: {why}; end some, or wait until some are gone")
