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

from aerobee.client.core import ClientOptions, Credentials, parse_namesrv, signer, tls_hint
from aerobee.errors import InvalidArgumentError, TransportError
from aerobee.errors.codes import TopicNotExistError
from aerobee.model.dialect import loads_object
from aerobee.model.route import TopicRouteData
from aerobee.net.client import RemotingClient, Sign
from aerobee.protocol.bodies.cluster import ClusterInfo
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.base import Header
from aerobee.protocol.headers.route import GetRouteInfoRequestHeader

T = TypeVar("T")

_START_ONE = "Start one with `aerobee up`, or name another with -n HOST:PORT or NAMESRV_ADDR."


@dataclass(frozen=True, slots=True)
class KnownBroker:
    """A broker as the name servers know it. The id of a master is 0."""

    cluster: str
    name: str
    broker_id: int
    address: str


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

    async def call(self, address: str, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        """Return the answer of a server, whatever its code is."""
        command = request(code, header, body, opaque=self._client.next_opaque())
        return await self._client.call(address, command, self.timeout_s)

    async def ask_namesrv(self, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        """Return the answer of the first name server that gives one, or raise its refusal."""
        failures, hint = [], _START_ONE
        for address in self.namesrvs:
            try:
                return await self.ask(address, code, header, body)
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

    async def brokers(self) -> list[KnownBroker]:
        """Return every broker in the order of cluster, name and id."""
        table = (await self.cluster_info()).broker_addr_table
        return sorted(
            (
                KnownBroker(data.cluster, name, broker_id, address)
                for name, data in table.items()
                for broker_id, address in data.broker_addrs.items()
            ),
            key=lambda one: (one.cluster, one.name, one.broker_id),
        )

    async def masters(self, *, cluster: str | None = None, broker: str | None = None) -> list[KnownBroker]:
        """Return the chosen masters: all, those of a cluster, or the one with this name or address."""
        every = await self.brokers()
        found = [
            one
            for one in every
            if one.broker_id == 0 and cluster in (None, one.cluster) and broker in (None, one.name, one.address)
        ]
        if found:
            return found
        if not every:
            raise InvalidArgumentError(
                "no broker is registered at the name server", hint="Start one with `aerobee broker` or `aerobee up`."
            )
        if broker is not None:
            known = ", ".join(sorted({one.name for one in every}))
            raise InvalidArgumentError(f"there is no broker {broker}", hint=f"The name server knows: {known}.")
        known = ", ".join(sorted({one.cluster for one in every}))
        raise InvalidArgumentError(f"there is no cluster {cluster}", hint=f"The name server knows: {known}.")

    async def route(self, topic: str) -> TopicRouteData | None:
        """Return the route of a topic, or None if no broker has the topic."""
        try:
            header = GetRouteInfoRequestHeader(topic=topic)
            answer = await self.ask_namesrv(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        except TopicNotExistError:
            return None
        return TopicRouteData.from_json(loads_object(answer.body))


async def from_each(
    brokers: Sequence[KnownBroker], ask: Callable[[KnownBroker], Awaitable[T]]
) -> tuple[list[tuple[KnownBroker, T]], list[str]]:
    """Return what each broker answers, and a sentence for each that cannot be reached. Raise a refusal."""
    outcomes = await asyncio.gather(*(ask(broker) for broker in brokers), return_exceptions=True)
    found: list[tuple[KnownBroker, T]] = []
    problems: list[str] = []
    for broker, outcome in zip(brokers, outcomes, strict=True):
        if isinstance(outcome, TransportError):
            problems.append(f"broker {broker.name} at {broker.address} cannot be reached: {outcome.message}")
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            found.append((broker, outcome))
    return found, problems
