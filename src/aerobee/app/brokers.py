"""`aerobee up --brokers N --replicas M`: a name server in this process, and brokers in processes of their own.

With replicas, each group has M processes, and this process also runs the coordination store where they agree. A signal
to this process stops all of them. A broker that ends by itself is started again after a pause. If this process is
killed, the brokers read the end of their standard input and stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aerobee.access.config import AccessConfig
from aerobee.app.identity import joined, reachable_from_here, safe_metrics
from aerobee.app.keeping import KeptChild
from aerobee.app.monitoring import metrics_address
from aerobee.app.namesrv import NamesrvNode
from aerobee.app.process import disk_of_this_loop, listening
from aerobee.app.secure import Secured, SecuredFacts, new_secret, secure, tell_namesrv
from aerobee.app.servers import BROKER_CLASSES
from aerobee.app.startrule import require_start
from aerobee.app.up import UP_DEFAULTS, UpOptions, beside, told_namesrv
from aerobee.broker.config import BrokerConfig
from aerobee.config.loader import Loaded, Source, load, override_source
from aerobee.config.setting import render
from aerobee.coordination.embedded import EmbeddedCoordination
from aerobee.coordination.endpoints import EtcdSettings, parse_endpoints
from aerobee.coordination.etcd import EtcdClient
from aerobee.coordination.group import GroupCoordinator
from aerobee.errors import AerobeeError
from aerobee.model.route import MASTER_ID
from aerobee.namesrv.config import NamesrvConfig
from aerobee.net.config import TlsConfig
from aerobee.replication.identity import decode_identity, identity_file
from aerobee.runtime.children import Child, start_python
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.disk import RealDisk
from aerobee.runtime.entropy import SystemEntropy
from aerobee.runtime.logfile import LogFile
from aerobee.runtime.machine import home_path, is_empty_directory, make_temporary_directory, remove_tree
from aerobee.runtime.net import RealNet
from aerobee.runtime.shortage import descriptor_limit
from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.config import MetricsConfig
from aerobee.telemetry.stdlog import get_log

# Each broker also uses the port two below its own, and with replicas the one above it.
PORT_STEP = 20
BROKER_PORT = 10_911
# This is longer than a broker waits for its own disk.
_STOP_PATIENCE_S = 30.0
# How long every group may take to elect its first master.
_MASTERS_S = 60.0
_LOOK_S = 0.02
_NAMES = "abcdefghijklmnopqrstuvwxyz"

_log = get_log("up")


class BrokersError(AerobeeError):
    """The broker groups cannot be started."""


@dataclass(frozen=True, slots=True)
class Group:
    """One running broker: a group, or one replica of a group. `replica` is its id in the group; 0 without replicas."""

    name: str
    address: str
    data: str
    pid: int
    replica: int = 0


@dataclass(frozen=True, slots=True)
class GroupsReady:
    """What was started. `broker` and `broker_name` are those of the first group, as without --brokers; with replicas
    they are its master's."""

    namesrv: str
    broker: str
    broker_name: str
    cluster: str
    data: str
    temporary: bool
    ready_ms: int
    brokers: tuple[Group, ...]
    # Where the groups agree on their masters; empty without replicas.
    coordinator: str = ""
    # Where each process serves its metrics; nothing where they are off or on free ports.
    metrics: tuple[str, ...] = ()
    # What --secure made or found.
    secured: SecuredFacts | None = None
    # Where the dashboard is.
    dashboard: str | None = None

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """Return the address and a description of each broker."""
        return tuple((one.address, f"{_described(one)} of {self.cluster}, process {one.pid}") for one in self.brokers)


def _described(one: Group) -> str:
    return f"replica {one.replica} of {one.name}" if one.replica else one.name


async def up_brokers(
    options: UpOptions, count: int, replicas: int, ready: Callable[[GroupsReady], None], stop: asyncio.Event
) -> int:
    """Start, call `ready`, serve until `stop` is set, and return the exit code."""
    return await _Groups(options, count, replicas, ready).run(stop)


class _Groups:
    """One run of `aerobee up` with several processes."""

    def __init__(self, options: UpOptions, count: int, replicas: int, ready: Callable[[GroupsReady], None]) -> None:
        self._options = options
        self._names = [f"broker-{letter}" for letter in _NAMES[:count]]
        # 0 stands for a group without replicas.
        self._numbers = range(1, replicas + 1) if replicas > 1 else range(1)
        self._ready = ready
        self._clock = SystemClock()
        self._started_s = self._clock.monotonic()
        self._children: dict[tuple[str, int], KeptChild] = {}
        self._secured: Secured | None = None

    def _load(self) -> Loaded:
        secured = {} if self._secured is None else self._secured.settings
        return load(BROKER_CLASSES, Source("up", secured), override_source(self._options.settings))

    async def run(self, stop: asyncio.Event) -> int:
        # A wrong setting is reported once here, not by every child.
        loaded = self._load()
        options = self._options
        safe_metrics(loaded, insecure=options.insecure)
        if not options.secure:
            require_start(loaded, options, warn=_log.warning)
        temporary = options.data is None
        data = make_temporary_directory("aerobee-") if options.data is None else home_path(options.data)
        if not is_empty_directory(f"{data}/commitlog"):
            raise BrokersError(
                f"{data} holds the store of a single broker",
                hint="Name another directory, or omit --brokers and --replicas.",
            )
        disk = disk_of_this_loop()
        try:
            if options.secure:
                draw = functools.partial(new_secret, SystemEntropy())
                self._secured = secure(data, options.host, options.advertise, self._clock, draw)
                loaded = self._load()
                require_start(loaded, options, warn=_log.warning)
            async with contextlib.AsyncExitStack() as stack:
                disk.make_dirs(data)
                # A second run would write the coordination store's file, too.
                stack.callback(disk.lock(f"{data}/lock").release)
                namesrv = await self._start_namesrv(loaded, data, disk, stack)
                coordinator = await self._start_coordination(data, disk, stack)
                founders = self._founders(data, disk)
                self._refuse_copies(data, disk)
                return await self._serve(loaded, data, temporary, namesrv, coordinator, founders, stop)
        finally:
            disk.close()
            if temporary:
                remove_tree(data)

    async def _start_namesrv(
        self, loaded: Loaded, data: str, disk: RealDisk, stack: contextlib.AsyncExitStack
    ) -> NamesrvNode:
        host, port = self._options.host, self._options.namesrv_port
        settings = NamesrvConfig(listen_port=port, kv_config_path=f"{data}/namesrv/kvConfig.json")
        tls = loaded.get(TlsConfig).among_own()
        namesrv = NamesrvNode(
            settings, disk, self._clock, host=host, tls=tls, descriptors=descriptor_limit(),
            access=loaded.get(AccessConfig),
        )  # fmt: skip
        await listening(namesrv.start(), "name server", host, port, "--namesrv-port 0")
        stack.push_async_callback(namesrv.stop)
        return namesrv

    async def _start_coordination(self, data: str, disk: RealDisk, stack: contextlib.AsyncExitStack) -> str:
        """Start the store where replicas agree and return its address, or nothing where there are no replicas."""
        if not self._has_replicas:
            return ""
        path = f"{data}/coordination/state.json"
        store = EmbeddedCoordination(RealNet(), disk, path, self._clock, SystemEntropy())
        await store.start()
        stack.push_async_callback(store.stop)
        return store.address

    @property
    def _has_replicas(self) -> bool:
        return len(self._numbers) > 1

    async def _serve(
        self,
        loaded: Loaded,
        data: str,
        temporary: bool,
        namesrv: NamesrvNode,
        coordinator: str,
        founders: list[tuple[str, int]],
        stop: asyncio.Event,
    ) -> int:
        address = joined(reachable_from_here(self._options.host), namesrv.port)
        if self._secured is not None:
            tell_namesrv(self._secured, told_namesrv(self._options, namesrv.port))
        tls = loaded.get(TlsConfig).among_own()
        asked = set(loaded.origins)
        metrics_port = loaded.get(MetricsConfig).prom_exporter_port
        for place, (name, number) in enumerate((name, number) for name in self._names for number in self._numbers):
            own = {
                **({} if number == 0 else self._replica_settings(coordinator, asked)),
                "brokerName": name,
                "storePathRootDir": self._directory(data, name, number),
                "namesrvAddr": address,
                "tls.enable": render(tls.enable),
                "metricsPromExporterPort": str(metrics_port + place if metrics_port else 0),
            }
            called = f"{name}-{number}" if number else name
            start = functools.partial(self._start_child, called, place, own)
            self._children[name, number] = KeptChild(called, start, self._clock)
        keeping = Tasks(self._failed)
        try:
            serving = asyncio.ensure_future(self._until_served(namesrv, founders))
            if not await self._or_stopped(serving, stop):
                return 0
            for child in self._children.values():
                keeping.start(child.keep(), name=f"keep {child.name}")
            ids = await self._ids(loaded.get(BrokerConfig).cluster_name, coordinator)
            told = self._told(loaded, address, data, temporary, coordinator, namesrv, ids)
            secured = None if self._secured is None else self._secured.facts
            async with beside(self._options, address, secured, self._clock) as dashboard:
                self._ready(replace(told, dashboard=dashboard))
                await stop.wait()
            return 0
        finally:
            await keeping.close()
            await asyncio.gather(*(child.stop(_STOP_PATIENCE_S) for child in self._children.values()))

    async def _ids(self, cluster: str, coordinator: str) -> dict[str, int]:
        """Return the id that each replica has got, by its address.

        Wait until all of them have joined, and until enough are in sync for sends and for changes of the group.
        """
        found: dict[str, int] = {}
        until_s = self._clock.monotonic() + _MASTERS_S
        for name in self._names if self._has_replicas else ():
            settings = EtcdSettings(endpoints=parse_endpoints(coordinator))
            group = GroupCoordinator(EtcdClient(settings, RealNet(), self._clock), cluster, name, self._clock)
            addresses = {child.address for (own, _), child in self._children.items() if own == name}
            is_enough = False
            try:
                while not (is_enough and addresses <= found.keys()) and self._clock.monotonic() < until_s:
                    view = await group.view()
                    found |= {member.address: member.id for member in view.members.values()}
                    is_enough = len(view.state.in_sync) >= view.state.min_in_sync
                    await asyncio.sleep(_LOOK_S)
            finally:
                await group.close()
        return found

    def _told(
        self,
        loaded: Loaded,
        address: str,
        data: str,
        temporary: bool,
        coordinator: str,
        namesrv: NamesrvNode,
        ids: Mapping[str, int],
    ) -> GroupsReady:
        elapsed_ms = int((self._clock.monotonic() - self._started_s) * 1000)
        groups = tuple(
            Group(name, child.address, self._directory(data, name, number), child.pid, ids.get(child.address, 0))
            for (name, number), child in self._children.items()
        )
        first = self._names[0]
        master = namesrv.names.state.routes.members(first).get(MASTER_ID, groups[0].address)
        cluster = loaded.get(BrokerConfig).cluster_name
        metrics = loaded.get(MetricsConfig)
        shown = metrics.is_on and metrics.prom_exporter_port > 0
        where = tuple(metrics_address(metrics, place) for place in range(len(groups))) if shown else ()
        secured = None if self._secured is None else self._secured.facts
        return GroupsReady(
            address, master, first, cluster, data, temporary, elapsed_ms, groups, coordinator, where, secured
        )

    async def _start_child(self, called: str, place: int, own: Mapping[str, str], before: str) -> Child:
        """Start one broker. Where it ran before it takes the same port again."""
        first = BROKER_PORT if self._options.broker_port is None else self._options.broker_port
        port = before.rpartition(":")[2] or str(first + PORT_STEP * place if first else 0)
        log_file = self._options.log_file
        log = LogFile("") if log_file is None else log_file.beside(called)
        # Secrets are in a file: other users of the machine see command lines.
        conf = "" if self._secured is None else self._secured.facts.settings
        where = [log.path, str(log.size_mib), str(log.kept), self._options.host, conf]
        return await start_python("aerobee.app.member", [*where, *self._settings({**own, "listenPort": port})])

    async def _until_served(self, namesrv: NamesrvNode, founders: list[tuple[str, int]]) -> None:
        """Start the brokers and wait until each group has a master. Raise BrokersError if one does not.

        `founders` hold messages and are in no group yet. They lead before the others come.
        """
        if founders:
            await self._begin(founders)
            await self._until_led(namesrv, [name for name, _ in founders])
        await self._begin([place for place in self._children if place not in founders])
        await self._until_led(namesrv, self._names)

    async def _begin(self, places: Sequence[tuple[str, int]]) -> None:
        children = [self._children[place] for place in places]
        said = await asyncio.gather(*(child.begin() for child in children))
        missing = [child.name for child, address in zip(children, said, strict=True) if not address]
        if missing:
            raise BrokersError(f"{' and '.join(missing)} did not start: see the messages above")

    async def _until_led(self, namesrv: NamesrvNode, names: Sequence[str]) -> None:
        routes = namesrv.names.state.routes
        until_s = self._clock.monotonic() + _MASTERS_S
        while headless := [name for name in names if MASTER_ID not in routes.members(name)]:
            if self._clock.monotonic() > until_s:
                raise BrokersError(f"{' and '.join(headless)} elected no master within {_MASTERS_S:g} s")
            await asyncio.sleep(_LOOK_S)

    def _founders(self, data: str, disk: RealDisk) -> list[tuple[str, int]]:
        """Return the first replicas that hold the messages of a group which had no replicas until now."""
        if not self._has_replicas:
            return []
        first = [(name, self._directory(data, name, 1)) for name in self._names]
        return [
            (name, 1)
            for name, path in first
            if disk.listdir(f"{path}/commitlog") and not disk.exists(f"{path}/config/replica")
        ]

    def _refuse_copies(self, data: str, disk: RealDisk) -> None:
        """Raise BrokersError if two directories are of one replica."""
        known: dict[str, str] = {}
        for name in self._names if self._has_replicas else ():
            for number in self._numbers:
                path = self._directory(data, name, number)
                identity = identity_file(disk, path).load(decode_identity)
                if identity is None or not identity.incarnation:
                    continue
                other = known.setdefault(identity.incarnation, path)
                if other != path:
                    raise BrokersError(
                        f"{other} and {path} are of one replica: one is a copy of the other",
                        hint="Empty the directory of the copy. It then gets everything from the master.",
                    )

    @staticmethod
    async def _or_stopped(work: asyncio.Future[None], stop: asyncio.Event) -> bool:
        """Wait for the work and return True, or for a stop and return False. Raise what the work raises."""
        stopped = asyncio.ensure_future(stop.wait())
        either: list[asyncio.Future[Any]] = [work, stopped]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            for one in either:
                one.cancel()
            await asyncio.gather(*either, return_exceptions=True)
            return False
        stopped.cancel()
        work.result()
        return True

    def _directory(self, data: str, name: str, number: int) -> str:
        """Return a broker's directory. The first replica has that of the group without replicas, so that a group gets
        replicas without copying."""
        return f"{data}/{name}" if number < 2 else f"{data}/{name}-{number}"

    def _replica_settings(self, coordinator: str, asked: set[str]) -> dict[str, str]:
        """Return the settings of a replica. Those that the command line names keep their value."""
        count = len(self._numbers)
        defaults = {
            "brokerRole": "SYNC_MASTER",
            # With three replicas and more, what is acknowledged survives the loss of any one of them.
            "minInSyncReplicas": str(count // 2 + 1 if count > 2 else 1),
        }
        kept = {key: value for key, value in defaults.items() if key not in asked}
        return {"coordinatorAddr": coordinator, "totalReplicas": str(count), **kept}

    def _settings(self, own: Mapping[str, str]) -> list[str]:
        """Return the defaults of `up`, the settings of the command line, then this broker's own. The last one wins."""
        advertised = {"brokerIP1": self._options.advertise} if self._options.advertise else {}
        defaults = [f"{key}={value}" for key, value in UP_DEFAULTS.items()]
        return [*defaults, *self._options.settings, *(f"{key}={value}" for key, value in {**own, **advertised}.items())]

    @staticmethod
    def _failed(name: str, error: BaseException) -> None:
        _log.error("a broker is not watched any more", task=name, exc_info=error)
