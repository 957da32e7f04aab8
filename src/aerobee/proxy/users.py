"""Users and rights of a proxy: a copy of those that the cluster's brokers have.

A proxy keeps no users of its own. It reads them as the inner user, from the master that it read them from last or else
from the first one that answers, and keeps what it has while none does. So users and rights have to be the same on all
brokers, as `aerobee user` and `aerobee acl` leave them. Whatever the copy says, brokers of Aerobee ask once more
for each request, by their own users and rights: the copy decides who it is, and refuses early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from aerobee.access.copying import UserReader
from aerobee.access.door import Access
from aerobee.errors import AerobeeError
from aerobee.model.dialect import loads_object
from aerobee.net.client import RemotingClient
from aerobee.protocol.bodies.cluster import ClusterInfo
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, request
from aerobee.runtime.bases import Clock
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

# Between two copies: a second, more where a copy takes long, and at most five.
_INTERVAL_S: Final = 1.0
_INTERVAL_MAX_S: Final = 5.0
_SHARE: Final = 20.0
_log = get_log("proxy")


class CopiedUsers:
    """Brings users and rights of the brokers into `access`."""

    def __init__(
        self, access: Access, client: RemotingClient, namesrvs: Callable[[], Sequence[str]], clock: Clock
    ) -> None:
        """`client` signs as the inner user."""
        self._access = access
        self._client = client
        self._namesrvs = namesrvs
        self._clock = clock
        self._reader = UserReader(client)
        self._warn = RateLimitedLog(_log, clock)
        # The broker that they came from last.
        self._source = ""
        # Whether they were copied once: until then nobody is let in.
        self.is_known = False

    async def run(self) -> None:
        """Copy until cancelled."""
        while True:
            began_s = self._clock.monotonic()
            await self.once()
            took_s = self._clock.monotonic() - began_s
            await asyncio.sleep(min(max(_INTERVAL_S, took_s * _SHARE), _INTERVAL_MAX_S))

    async def once(self) -> bool:
        """Copy everything now. Return whether that was possible."""
        reason = "no name server tells of a broker"
        try:
            masters = await self._masters()
        except (AerobeeError, TimeoutError, ValueError) as error:
            masters, reason = [], str(error)
        for address in sorted(masters, key=lambda one: one != self._source):
            try:
                tables = await self._reader.read(address)
            except (AerobeeError, TimeoutError, ValueError) as error:
                reason = f"{address}: {error}"
                continue
            self._access.take(tables)
            self._source = address
            if not self.is_known:
                _log.info("users and rights were copied", broker=address, users=len(tables.users))
            self.is_known = True
            return True
        self._warn.warning(
            "users",
            "users and rights cannot be copied from a broker now. Check innerClientAuthenticationCredentials, and that "
            "the brokers have authenticationEnabled=true",
            reason=reason,
            kept=len(self._access.tables.users),
        )
        return False

    async def _masters(self) -> list[str]:
        """Return the addresses of all masters, by the names of their groups."""
        failure: AerobeeError | TimeoutError | None = None
        for namesrv in self._namesrvs():
            try:
                answer = await self._ask(namesrv)
            except (AerobeeError, TimeoutError) as error:
                failure = error
                continue
            brokers = ClusterInfo.from_json(loads_object(answer.body)).broker_addr_table
            found = [brokers[name].master for name in sorted(brokers)]
            return [address for address in found if address is not None]
        if failure is not None:
            raise failure
        return []

    async def _ask(self, namesrv: str) -> Command:
        asked = request(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=self._client.next_opaque())
        return await self._client.ask(namesrv, asked)


class ProxyWorld:
    """What the table of rights asks of a proxy, which knows neither topics nor groups.

    Only the names of retry topics depend on them. `%RETRY%a_b` is the group `a_b` here, as in Apache's proxy; an
    Aerobee broker knows whether it is the group `a` with the topic `b`, and asks for its rights.
    """

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster

    def has_topic(self, name: str) -> bool:
        """Return False: topics are the brokers'."""
        return False

    def has_group(self, name: str) -> bool:
        """Return False: groups are the brokers'."""
        return False
