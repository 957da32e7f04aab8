"""`aerobee up`: a name server and a broker in one process and one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace

from aerobee.access.config import AccessConfig
from aerobee.app.broker import BrokerNode
from aerobee.app.dashboardchild import dashboard_beside
from aerobee.app.identity import (
    identified,
    joined,
    reachable_from_here,
    safe_metrics,
    told_address,
    unique_ids,
)
from aerobee.app.namesrv import NamesrvNode
from aerobee.app.process import disk_of_this_loop, listening, stopped_or_failed
from aerobee.app.secure import Secured, SecuredFacts, new_secret, secure, tell_namesrv
from aerobee.app.startrule import HostOptions, require_start
from aerobee.broker.config import BrokerConfig
from aerobee.config.loader import Loaded, Source, load, override_source
from aerobee.errors import WrongStoreError
from aerobee.namesrv.config import NamesrvConfig
from aerobee.net.config import TlsConfig
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.disk import RealDisk
from aerobee.runtime.entropy import SystemEntropy
from aerobee.runtime.logfile import LogFile
from aerobee.runtime.machine import home_path, is_empty_directory, make_temporary_directory, remove_tree
from aerobee.runtime.seams import Clock
from aerobee.runtime.shortage import descriptor_limit
from aerobee.store.config import StoreConfig
from aerobee.telemetry.config import MetricsConfig
from aerobee.telemetry.stdlog import get_log

NAMESRV_PORT = 9876
GRPC_PORT = 8081
# The defaults of `up`: whoever tries Aerobee out wants every feature to be on.
UP_DEFAULTS = {"brokerName": "broker-a", "enablePropertyFilter": "true", "recallMessageEnable": "true"}

_log = get_log("up")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions(HostOptions):
    """What the command line says. Without `data` the messages are deleted at exit."""

    data: str | None = None
    advertise: str | None = None
    namesrv_port: int = NAMESRV_PORT
    broker_port: int | None = None
    settings: tuple[str, ...] = ()
    # Whether certificates and users are made, and nothing else is taken.
    secure: bool = False
    # The port of a dashboard beside the servers, None for none.
    dashboard_port: int | None = None
    # With several brokers, each process has a file of its own beside this one.
    log_file: LogFile | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """What was started and where it listens."""

    namesrv: str
    broker: str
    fast_port: int | None
    broker_name: str
    cluster: str
    data: str
    temporary: bool
    ready_ms: int
    # Where metrics are served; nothing where they are off.
    metrics: tuple[str, ...] = ()
    # Where RocketMQ's 5.x clients connect (gRPC).
    grpc: str | None = None
    # What --secure made or found.
    secured: SecuredFacts | None = None
    # Where the dashboard is.
    dashboard: str | None = None

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """Return the address and a description of each broker."""
        fast = "" if self.fast_port is None else f", fast port {self.fast_port}"
        return ((self.broker, f"{self.broker_name} of {self.cluster}{fast}"),)


async def up(options: UpOptions, ready: Callable[[Ready], None], stop: asyncio.Event) -> int:
    """Start, call `ready`, serve until `stop` is set, and return the exit code."""
    return await _Up(options, ready).run(stop)


class _Up:
    """One run of `aerobee up`."""

    def __init__(self, options: UpOptions, ready: Callable[[Ready], None]) -> None:
        self._options = options
        self._ready = ready
        self._clock = SystemClock()
        self._started_s = self._clock.monotonic()
        self._secured: Secured | None = None

    async def run(self, stop: asyncio.Event) -> int:
        loaded = self._load()
        for warning in loaded.warnings:
            _log.warning(warning)
        temporary = "storePathRootDir" not in loaded.origins
        options = self._options
        if not options.secure:
            require_start(loaded, options, warn=_log.warning)
        data = make_temporary_directory("aerobee-") if temporary else loaded.get(StoreConfig).store_path_root_dir
        disk = disk_of_this_loop()
        try:
            data = home_path(data)
            self._refuse_groups(data)
            if options.secure:
                draw = functools.partial(new_secret, SystemEntropy())
                self._secured = secure(data, options.host, options.advertise, self._clock, draw)
                require_start(self._load(data), options, warn=_log.warning)
            return await self._serve(self._load(data), disk, temporary, stop)
        finally:
            disk.close()
            if temporary:
                remove_tree(data)

    @staticmethod
    def _refuse_groups(data: str) -> None:
        if not is_empty_directory(f"{data}/broker-a/commitlog"):
            raise WrongStoreError(
                f"{data} holds the stores of several brokers",
                hint="Give --brokers and --replicas as before, or name another directory.",
            )

    def _load(self, data: str | None = None, namesrv: str | None = None) -> Loaded:
        options = self._options
        flags = {
            "storePathRootDir": data or options.data,
            "listenPort": None if options.broker_port is None else str(options.broker_port),
            "namesrvAddr": namesrv,
        }
        given = Source("flags", {key: value for key, value in flags.items() if value is not None})
        secured = {} if self._secured is None else self._secured.settings
        # Who asks for a free port has another cluster on this machine.
        grpc = GRPC_PORT if options.broker_port is None else 0
        defaults = Source("up", {**UP_DEFAULTS, "grpcServerPort": str(grpc), **secured})
        return load(
            [BrokerConfig, StoreConfig, TlsConfig, MetricsConfig, AccessConfig],
            defaults,
            override_source(options.settings),
            given,
        )

    async def _serve(self, loaded: Loaded, disk: RealDisk, temporary: bool, stop: asyncio.Event) -> int:
        options = self._options
        data = loaded.get(StoreConfig).store_path_root_dir
        settings = NamesrvConfig(listen_port=options.namesrv_port, kv_config_path=f"{data}/namesrv/kvConfig.json")
        tls = loaded.get(TlsConfig).among_own()
        limit, access = descriptor_limit(), loaded.get(AccessConfig)
        # Both servers share the limit of one process. The name server has few connections: clients ask it seldom.
        names, rest = (None, None) if limit is None else (limit // 4, limit - limit // 4)
        namesrv = NamesrvNode(settings, disk, self._clock, host=options.host, tls=tls, descriptors=names, access=access)
        await listening(namesrv.start(), "name server", options.host, options.namesrv_port, "--namesrv-port 0")
        try:
            address = joined(reachable_from_here(options.host), namesrv.port)
            if self._secured is not None:
                tell_namesrv(self._secured, told_namesrv(options, namesrv.port))
            broker = self._broker(self._load(data, address), disk, rest)
            broker.more_metrics.append(namesrv.families)
            port = broker.config.listen_port
            await listening(broker.start(), "broker", options.host, port, "--broker-port 0")
            try:
                secured = None if self._secured is None else self._secured.facts
                async with beside(options, address, secured, self._clock) as dashboard:
                    self._ready(replace(self._told(address, broker, data, temporary), dashboard=dashboard))
                    return await stopped_or_failed(stop, broker.failed)
            finally:
                await broker.stop()
        finally:
            await namesrv.stop()

    def _broker(self, loaded: Loaded, disk: RealDisk, descriptors: int | None) -> BrokerNode:
        config = identified(loaded.get(BrokerConfig), self._options.host, self._options.advertise)
        entropy = SystemEntropy()
        ids = unique_ids(config.broker_ip1, self._clock, entropy)
        host, tls = self._options.host, loaded.get(TlsConfig).among_own()
        return BrokerNode(
            config, loaded.get(StoreConfig), disk, self._clock, entropy, host=host, unique_id=ids, tls=tls,
            descriptors=descriptors, metrics=safe_metrics(loaded, insecure=self._options.insecure),
            access=loaded.get(AccessConfig),
        )  # fmt: skip

    def _told(self, namesrv: str, broker: BrokerNode, data: str, temporary: bool) -> Ready:
        elapsed_ms = int((self._clock.monotonic() - self._started_s) * 1000)
        state = broker.state
        cluster = state.config.cluster_name
        secured = None if self._secured is None else self._secured.facts
        return Ready(
            namesrv, state.address, broker.fast_port, state.name, cluster, data, temporary, elapsed_ms,
            tuple(filter(None, [broker.monitoring.address])), broker.grpc_address, secured,
        )  # fmt: skip


@contextlib.asynccontextmanager
async def beside(
    options: UpOptions, namesrv: str, secured: SecuredFacts | None, clock: Clock
) -> AsyncGenerator[str | None, None]:
    """Run a dashboard beside the servers and yield its address, or None where none was asked for."""
    if options.dashboard_port is None:
        yield None
        return
    async with dashboard_beside(namesrv, options.dashboard_port, secured, clock) as address:
        yield address


def told_namesrv(options: UpOptions, port: int) -> str:
    """Return the address of the name server for clients elsewhere."""
    return joined(told_address(options.host, options.advertise), port)
