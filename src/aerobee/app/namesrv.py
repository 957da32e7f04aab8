"""The root of a name server: it wires the parts, starts them and stops them."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

from aerobee.app.descriptors import shares
from aerobee.errors import AerobeeError
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.handlers import NameServer
from aerobee.net.client import RemotingClient
from aerobee.net.config import TlsConfig
from aerobee.net.renewal import TlsRenewal
from aerobee.net.server import Server
from aerobee.protocol.command import Command
from aerobee.runtime.seams import Clock, Disk, Net
from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.stdlog import get_log

_TICK_S = 0.5
_log = get_log("namesrv")


class NamesrvNode:
    """One name server."""

    def __init__(
        self,
        config: NamesrvConfig,
        disk: Disk,
        clock: Clock,
        *,
        host: str,
        tls: TlsConfig | None = None,
        descriptors: int | None = None,
        net: Net | None = None,
    ) -> None:
        """Build a name server that may have `descriptors` files open (None means any number)."""
        self._config = config
        self._host = host
        tls = tls or TlsConfig()
        renewal = TlsRenewal(tls)
        self._client = RemotingClient(tls=tls.connecting(), net=net)
        self._tasks = Tasks(self._failed)
        self.names = NameServer(config, clock=clock, disk=disk, send_oneway=self._tell)
        self.server = Server(
            "namesrv", self.names.handlers(), clock=clock, observer=self.names, tls=tls.accepting(), net=net
        )
        connections = shares(descriptors, with_store=False).connections
        self.server.limits = replace(self.server.limits, connections_max=connections)
        renewal.follow(self.server, self._client)
        self.port = 0

    async def start(self) -> None:
        self.names.open()
        self.port = await self.server.listen(self._host, self._config.listen_port)
        self._tasks.start(self._tick(), name="tick")

    async def stop(self) -> None:
        await self._tasks.close()
        await self.server.close()
        await self._client.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.names.tick()

    def _tell(self, address: str, command: Command) -> None:
        async def tell() -> None:
            with contextlib.suppress(AerobeeError, TimeoutError):
                await self._client.tell(address, command)

        self._tasks.start(tell(), name=f"tell {address}")

    @staticmethod
    def _failed(name: str, error: BaseException) -> None:
        _log.error("task failed", task=name, exc_info=error)
