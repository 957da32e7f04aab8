"""The connection of an administrator to a cluster: its name servers and the brokers that they know.

async with AdminConnection("localhost:9876") as admin:
    print(await topics.list_topics(admin))
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from aerobee.client.core import (
    ClientOptions,
    Credentials,
    away_groups,
    decode_route,
    parse_namesrv,
    route_header,
    signer,
    tls_hint,
)
from aerobee.errors import InvalidArgumentError, TransportError
from aerobee.errors.codes import error_for
from aerobee.model.dialect import loads_object
from aerobee.model.route import MASTER_ID, TopicRouteData
from aerobee.net.client import RemotingClient, Sign
from aerobee.protocol.bodies.cluster import ClusterInfo
from aerobee.protocol.codes import AWAY_FIELD, RequestCode, ResponseCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.base import Header

T = TypeVar("T")

_LEFT = "it left the name server, and what it holds is missing here"
AWAY_HINT = "Start it again, or let name servers forget it with `aerobee cluster forget` if it is gone for good."
_START_ONE = "Start one with `aerobee up`, or name another with -n HOST:PORT or NAMESRV_ADDR."


@dataclass(frozen=True, slots=True)
class KnownBroker:
    """A broker as the name servers know it. The id of a master is 0.

    `away` says why the master of a broker group cannot be asked. It then has no address.
    """

    cluster: str
    name: str
    broker_id: int
    address: str
    away: str = ""


class AdminConnection:
    """Sends the requests of an administrator. `namesrv` lists addresses, separated by semicolons."""

    def __init__(
        self,
        namesrv: str,
        *,
        timeout_s: float = 5.0,
        sign: Sign | None = None,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        client: RemotingClient | None = None,
    ) -> None:
        self.credentials = credentials
        if sign is None and credentials is not None:
            sign = signer(credentials)
        self.namesrvs = list(parse_namesrv(namesrv, {}))
        self.timeout_s = timeout_s
        self._client = client or RemotingClient(sign=sign, connect_timeout_s=timeout_s, tls=tls)

    async def __aenter__(self) -> AdminConnection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._client.close()

    @property
    def tls(self) -> ssl.SSLContext | bool:
        """Return the TLS context for clients that are used beside it, or False for plain connections."""
        return self._client.tls or False

    @property
    def client_options(self) -> ClientOptions:
        """Return the credentials and TLS settings for clients that are used beside it."""
        options: ClientOptions = {"tls": self.tls}
        if self.credentials is not None:
            options["access_key"] = self.credentials.access_key
            options["secret_key"] = self.credentials.secret_key
            options["security_token"] = self.credentials.security_token
        return options

    # -- requests

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        ext: Mapping[str, str] | None = None,
    ) -> Command:
        """Return the answer of a server, or raise its refusal. `ext` holds fields that no header declares."""
        command = request(code, header, body, opaque=self._client.next_opaque(), ext=ext)
        return await self._client.ask(address, command, self.timeout_s)

    async def call(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        ext: Mapping[str, str] | None = None,
    ) -> Command:
        """Return the answer of a server, whatever its code is."""
        command = request(code, header, body, opaque=self._client.next_opaque(), ext=ext)
        return await self._client.call(address, command, self.timeout_s)

    async def ask_namesrv(
        self, code: int, header: Header | None = None, body: bytes = b"", *, ext: Mapping[str, str] | None = None
    ) -> Command:
        """Return the answer of the first name server that gives one, or raise its refusal."""
        server, answer = await self._call_namesrv(code, header, body, ext)
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(answer.code, answer.remark or "", server)
        return answer

    async def _call_namesrv(
        self, code: int, header: Header | None, body: bytes, ext: Mapping[str, str] | None
    ) -> tuple[str, Command]:
        """Return the first name server that answers, and its answer."""
        failures, hint = [], _START_ONE
        for address in self.namesrvs:
            try:
                return address, await self.call(address, code, header, body, ext=ext)
            except TransportError as error:
                failures.append(f"{address}: {error.message}")
                hint = tls_hint(error, bool(self.tls)) or hint
        raise TransportError(f"no name server answers ({'; '.join(failures)})", hint=hint)

    async def ask_namesrvs(self, code: int, header: Header | None = None, body: bytes = b"") -> None:
        """Send the same request to every name server, since they do not know each other."""
        await asyncio.gather(*(self.ask(address, code, header, body) for address in self.namesrvs))

    # -- what the name servers know

    async def cluster_info(self) -> ClusterInfo:
        return ClusterInfo.decode((await self.ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO)).body)

    async def known(self) -> list[KnownBroker]:
        """Return every broker, in the order of cluster, name and id. A broker group without a master has an entry, too,
        which says `away`."""
        answer = await self.ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO, ext={AWAY_FIELD: "true"})
        found = []
        for name, data in ClusterInfo.decode(answer.body).broker_addr_table.items():
            found += [KnownBroker(data.cluster, name, number, place) for number, place in data.broker_addrs.items()]
            if MASTER_ID not in data.broker_addrs:
                found.append(KnownBroker(data.cluster, name, MASTER_ID, "", "it has no master now"))
        # Only our name servers tell which groups have left.
        for name, cluster in loads_object(answer.ext.get(AWAY_FIELD, "{}").encode()).items():
            found.append(KnownBroker(str(cluster), str(name), MASTER_ID, "", _LEFT))
        return sorted(found, key=lambda one: (one.cluster, one.name, one.broker_id))

    async def brokers(self) -> list[KnownBroker]:
        """Return every broker that is registered, in the same order."""
        return [one for one in await self.known() if not one.away]

    async def away(self, *, cluster: str | None = None, broker: str | None = None) -> tuple[str, ...]:
        """Return a sentence for each of the chosen broker groups whose master cannot be asked."""
        chosen = [one for one in await self.known() if cluster in (None, one.cluster) and broker in (None, one.name)]
        return tuple(problem_of(one) for one in chosen if one.away)

    async def missing_from(self, topic: str) -> tuple[str, ...]:
        """Return a sentence for each broker group whose messages of a topic nobody can read now."""
        _, away = await self._route(topic)
        gone = sorted(name for name, queues in away.items() if queues)
        return tuple(problem_of(KnownBroker("", name, MASTER_ID, "", _LEFT)) for name in gone)

    async def require_whole(self, topic: str) -> None:
        """Raise TransportError if messages of a topic are on a broker group that is away."""
        missing = await self.missing_from(topic)
        if missing:
            raise TransportError(f"topic {topic} is not whole: {'; '.join(missing)}", hint=AWAY_HINT)

    async def masters_of(self, topic: str) -> list[KnownBroker]:
        """Return every master, and an entry for each broker group without a master that has the topic."""
        known = await self.known()
        if not any(one.away for one in known):
            return [one for one in known if one.broker_id == MASTER_ID]
        route, away = await self._route(topic)
        names = {*away, *(queues.broker_name for queues in (route.queue_datas if route is not None else ()))}
        return [one for one in known if one.broker_id == MASTER_ID and (not one.away or one.name in names)]

    async def masters(
        self, *, cluster: str | None = None, broker: str | None = None, with_away: bool = False
    ) -> list[KnownBroker]:
        """Return the chosen masters: all, those of a cluster, or the one with this name or address.

        With `with_away`, each broker group without a master has an entry too, so that `from_each` names it.
        """
        known = await self.known()
        every = [one for one in known if not one.away]
        found = [
            one
            for one in (known if with_away else every)
            if one.broker_id == MASTER_ID and cluster in (None, one.cluster) and broker in (None, one.name, one.address)
        ]
        if found:
            return found
        gone = [one for one in known if one.away and broker in (None, one.name) and cluster in (None, one.cluster)]
        if gone and (broker is not None or cluster is not None or not every):
            raise TransportError("; ".join(problem_of(one) for one in gone), hint=AWAY_HINT)
        if not every:
            raise InvalidArgumentError(
                "no broker is registered at the name server", hint="Start one with `aerobee broker` or `aerobee up`."
            )
        if broker is not None:
            names = ", ".join(sorted({one.name for one in every}))
            raise InvalidArgumentError(f"there is no broker {broker}", hint=f"The name server knows: {names}.")
        names = ", ".join(sorted({one.cluster for one in every}))
        raise InvalidArgumentError(f"there is no cluster {cluster}", hint=f"The name server knows: {names}.")

    async def route(self, topic: str) -> TopicRouteData | None:
        """Return the route of a topic, or None if no broker has the topic."""
        route, _ = await self._route(topic)
        return route

    async def _route(self, topic: str) -> tuple[TopicRouteData | None, dict[str, int]]:
        """Return the route of a topic, and the broker groups of the topic that are away."""
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        server, answer = await self._call_namesrv(code, route_header(topic), b"", {AWAY_FIELD: "true"})
        return decode_route(answer, server), away_groups(answer)


def problem_of(broker: KnownBroker) -> str:
    """Return the sentence for a broker group whose master cannot be asked."""
    return f"broker group {broker.name} cannot be asked: {broker.away}"


async def from_each(
    brokers: Sequence[KnownBroker], ask: Callable[[KnownBroker], Awaitable[T]]
) -> tuple[list[tuple[KnownBroker, T]], list[str]]:
    """Return what each broker answers, and a sentence for each that cannot be reached. Raise a refusal."""
    there = [one for one in brokers if not one.away]
    outcomes = await asyncio.gather(*(ask(broker) for broker in there), return_exceptions=True)
    found: list[tuple[KnownBroker, T]] = []
    problems = [problem_of(one) for one in brokers if one.away]
    for broker, outcome in zip(there, outcomes, strict=True):
        if isinstance(outcome, TransportError):
            problems.append(f"broker {broker.name} at {broker.address} cannot be reached: {outcome.message}")
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            found.append((broker, outcome))
    return found, problems
