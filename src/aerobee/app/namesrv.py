"""The root of a name server: it wires the parts, starts them and stops them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version

from aerobee.access.config import AccessConfig
from aerobee.access.namesrvtable import NAMESRV_ROWS
from aerobee.app.access import DEFAULT_CLUSTER, AccessRoot, inner_signer
from aerobee.app.descriptors import shares
from aerobee.app.monitoring import Monitoring
from aerobee.broker.metrics import STALE_S
from aerobee.errors import AerobeeError, ConfigError
from aerobee.namesrv.accessworld import NamesrvWorld
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.handlers import NameServer
from aerobee.net.client import RemotingClient
from aerobee.net.config import TlsConfig
from aerobee.net.renewal import TlsRenewal
from aerobee.net.server import Handler, Server
from aerobee.protocol.command import Command
from aerobee.runtime.seams import Clock, Disk, Net
from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.config import MetricsConfig
from aerobee.telemetry.metrics import family, labels_of
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
        metrics: MetricsConfig | None = None,
        access: AccessConfig | None = None,
    ) -> None:
        """Build a name server that may have `descriptors` files open (None means any number)."""
        self._config = config
        self._host = host
        tls = tls or TlsConfig()
        renewal = TlsRenewal(tls)
        access = access or AccessConfig()
        self._client = RemotingClient(tls=tls.connecting(), net=net, sign=inner_signer(access))
        self._tasks = Tasks(self._failed)
        self.names = NameServer(config, clock=clock, disk=disk, send_oneway=self._tell)
        # Users and rights; None where authentication is off.
        self.access: AccessRoot | None = None
        self._clock = clock
        handlers: dict[int, Handler] = {**self.names.handlers()}
        if access.authentication_enabled:
            self.access = AccessRoot(access, disk, clock, _directory(access, config), DEFAULT_CLUSTER, NAMESRV_ROWS)
            world = NamesrvWorld(self.access.access.cluster, self.names.state)
            guarded, _ = self.access.guarded(world, handlers, {})
            handlers = self.access.table()
            handlers.update(guarded)
        self.server = Server("namesrv", handlers, clock=clock, observer=self.names, tls=tls.accepting(), net=net)
        self.server.believes_proxy = access.believes_proxy()
        connections = shares(descriptors, with_store=False).connections
        self.server.limits = replace(self.server.limits, connections_max=connections)
        renewal.follow(self.server, self._client)
        self.port = 0
        self._clock = clock
        self.monitoring = Monitoring(metrics or MetricsConfig(), clock)
        self._beat_s = clock.monotonic()

    async def start(self) -> None:
        self.names.open()
        if self.access is not None:
            self.access.open()
        self.port = await self.server.listen(self._host, self._config.listen_port)
        self._tasks.start(self._tick(), name="tick")
        await self.monitoring.serve(self._page, self._problem, self._reasons)

    async def stop(self) -> None:
        await self.monitoring.close()
        await self._tasks.close()
        await self.server.close()
        await self._client.close()
        if self.access is not None:
            self.access.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._beat_s = self._clock.monotonic()
            self.names.tick()
            if self.access is not None:
                self.access.tick(self._clock.monotonic())

    # -- monitoring

    def _page(self) -> Iterator[str]:
        yield from self.families()
        yield from family(
            "aerobee_build_info", "gauge", "The version", [(labels_of({"version": version("aerobee")}), 1)]
        )

    def families(self) -> Iterator[str]:
        """Yield the metrics of this name server."""
        routes, base = self.names.state.routes, labels_of(self.monitoring.config.labels())
        for name, kind, words, value in (
            ("brokers", "gauge", "Brokers that are registered", routes.broker_count),
            ("topics", "gauge", "Topics that are known", routes.topic_count),
            ("connections", "gauge", "Open connections", len(self.server.channels)),
            ("reads_total", "counter", "Reads that brought requests", self.server.reads),
        ):
            yield from family(f"aerobee_namesrv_{name}", kind, words, [(base, value)])

    def _problem(self) -> str:
        silent_s = self._clock.monotonic() - self._beat_s
        return f"nothing was done by the clock for {silent_s:.0f} s" if silent_s > STALE_S else ""

    def _reasons(self) -> list[str]:
        state, problem = self.names.state, self._problem()
        waited_s = (state.now_ms() - state.started_ms) / 1000
        found = [problem] if problem else []
        if state.config.need_wait_for_service and waited_s < state.config.wait_for_service_s:
            found.append(f"waiting: routes are given {state.config.wait_for_service_s} s after the start")
        return found

    def _tell(self, address: str, command: Command) -> None:
        async def tell() -> None:
            with contextlib.suppress(AerobeeError, TimeoutError):
                await self._client.tell(address, command)

        self._tasks.start(tell(), name=f"tell {address}")

    @staticmethod
    def _failed(name: str, error: BaseException) -> None:
        _log.error("task failed", task=name, exc_info=error)


def _directory(access: AccessConfig, config: NamesrvConfig) -> str:
    """Return where users.json and acls.json are."""
    if access.auth_config_path:
        return access.auth_config_path
    if not config.kv_config_path:
        raise ConfigError(["authenticationEnabled needs authConfigPath, or kvConfigPath, at a name server"])
    return config.kv_config_path.rpartition("/")[0] or "."
