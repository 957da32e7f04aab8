"""The root of a broker's process: ports, the registrar, tasks, the tick loop, TLS and the stop around one `Broker`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING

from aerobee.access.brokertable import BROKER_ROWS
from aerobee.access.config import AccessConfig
from aerobee.access.owners import QueryOwners
from aerobee.app.access import AccessRoot, group_secret, inner_signer
from aerobee.app.descriptors import shares
from aerobee.app.honoured import require_honoured
from aerobee.app.identity import joined
from aerobee.app.monitoring import Monitoring
from aerobee.app.ports import bind_ports
from aerobee.app.process import CannotListenError
from aerobee.app.replicarequests import ReplicaRequests
from aerobee.app.staticrole import StaticRole
from aerobee.broker.assembly import Broker, Seams
from aerobee.broker.config import BrokerConfig
from aerobee.broker.flowcontrol import CountedLag
from aerobee.broker.metrics import Health
from aerobee.broker.roles import Tables
from aerobee.broker.slave import UserSync
from aerobee.broker.state import BrokerState
from aerobee.broker.topics import Neighbours, Registrar
from aerobee.config.loader import Loaded
from aerobee.errors import AerobeeError, ConfigError
from aerobee.errors.codes import TopicNotExistError
from aerobee.model.dialect import loads_object
from aerobee.model.queue import MessageQueue
from aerobee.model.route import TopicRoute, TopicRouteData
from aerobee.net.channel import Channel
from aerobee.net.client import RemotingClient
from aerobee.net.config import TlsConfig
from aerobee.net.renewal import TlsRenewal
from aerobee.net.server import FastHandler, Handler, Server
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import request
from aerobee.protocol.headers.route import GetRouteInfoRequestHeader
from aerobee.replication.coordinator import Coordinator
from aerobee.runtime.machine import local_hour, memory_bytes
from aerobee.runtime.net import RealNet
from aerobee.runtime.paths import join
from aerobee.runtime.seams import Clock, Disk, Entropy, Net
from aerobee.runtime.shortage import descriptors_in_use
from aerobee.runtime.tasks import Tasks
from aerobee.runtime.tls import certificate_end_s
from aerobee.store.config import StoreConfig
from aerobee.store.readonly import require_no_replica
from aerobee.telemetry.config import MetricsConfig
from aerobee.telemetry.stdlog import get_log

if TYPE_CHECKING:
    from aerobee.app.grpcfront import GrpcFront
    from aerobee.app.replica import GroupRoot
    from aerobee.replication.settings import ProcessStart

# Between two ticks: while requests come, and when none came since the last tick.
_TICK_S = 0.02
_IDLE_TICK_S = 0.05
# Fewer connections than this are worth a warning.
_CONNECTIONS_FEW = 1000
# How long a stop waits for syncs under way.
_SETTLE_S = 10.0
# The gRPC service of this process has the broker's own users and asks for exactly the rights that these need.
_CHECKED_BEFORE = frozenset((RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE))
_log = get_log("broker")


class BrokerNode:
    """One broker of one process."""

    def __init__(  # noqa: PLR0913 - a root is handed every seam
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        disk: Disk,
        clock: Clock,
        entropy: Entropy,
        *,
        host: str,
        unique_id: Callable[[], str],
        tls: TlsConfig | None = None,
        descriptors: int | None = None,
        net: Net | None = None,
        coordinator: Coordinator | None = None,
        start: ProcessStart | None = None,
        group_clock: Clock | None = None,
        metrics: MetricsConfig | None = None,
        access: AccessConfig | None = None,
        origins: Mapping[str, str] | None = None,
    ) -> None:
        """`descriptors` is how many files may be open at once; None stands for any number. With `coordinator` the
        broker is a replica of its group, and `start` tells it which start this is. `group_clock` is the time of leases,
        where tests move the other one."""
        require_honoured(config, store_config, coordinated=coordinator is not None)
        self.config = config
        self._descriptors = descriptors
        self.store_config = store_config
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        self._host = host
        self._unique_id = unique_id
        self._tasks = Tasks(self._failed)
        tls = tls or TlsConfig()
        self._renewal = TlsRenewal(tls)
        self._tls, self._tls_files = tls.accepting(), tls
        # Which source has set each key.
        self._origins = dict(origins or {})
        self._watch(metrics or MetricsConfig())
        self._net = net
        access = self._access_config = access or AccessConfig()
        self.client = RemotingClient(tls=tls.connecting(), net=net, sign=inner_signer(access))
        # Users and rights; None where authentication is off.
        self.access: AccessRoot | None = None
        if access.authentication_enabled:
            directory = access.auth_config_path or join(store_config.store_path_root_dir, "config")
            self.access = AccessRoot(access, disk, clock, directory, config.cluster_name, BROKER_ROWS)
        # What the settings make of the broker, where no group decides that.
        self.role = StaticRole(config, store_config, host=host, net=net or RealNet(), clock=clock, client=self.client)
        self.failed = asyncio.Event()
        # The broker's place in its group; None where it has no replicas.
        self.group: GroupRoot | None = None
        if coordinator is not None:
            from aerobee.app.replica import GroupRoot

            self.group = GroupRoot(
                self, coordinator, config, store_config, disk, group_clock or clock, entropy,
                start=start, client=self.client, tasks=self._tasks, net=net, secret=group_secret(access, config),
            )  # fmt: skip
        self._admin = ReplicaRequests(config, self.group, self._tasks)
        # Called with a broker that was built anew, because the one before lost its role.
        self.on_rebuilt: Callable[[Broker], None] = lambda broker: None
        self._handlers: dict[int, Handler] = {} if self.access is None else self.access.table()
        self._fast: dict[int, FastHandler] = {}
        self.server: Server
        self.broker: Broker
        self.registrar: Registrar
        self.port = 0
        # The port two below, for clients' VIP channels; None where there is none.
        self.fast_port: int | None = None

    def _watch(self, metrics: MetricsConfig) -> None:
        self.monitoring = Monitoring(metrics, self._clock)
        self._is_stopping = False
        self.health = Health(lambda: self.state, self._beat_s, self._unregistered, lambda: self._is_stopping)
        # The service for gRPC clients and its port; None where there is none.
        self.front: GrpcFront | None = None
        self.grpc_port: int | None = None
        # Families that others of this process add to the page of metrics.
        self.more_metrics: list[Callable[[], Iterator[str]]] = []

    @property
    def state(self) -> BrokerState:
        return self.broker.state

    # -- start

    async def start(self) -> None:
        """Recover the store, listen, register. Both ports are bound first: clients are told an address with a port."""
        self.server = Server(
            "broker", self._handlers, clock=self._clock, fast=self._fast, observer=self, tls=self._tls, net=self._net
        )
        self.server.believes_proxy = self._access_config.believes_proxy()
        self._renewal.follow(self.server, self.client)
        group = self.group
        try:
            if self.access is not None:
                self.access.open()
                self.access.access.on_changed.append(self._rights_changed)
            self.port, self.fast_port = await bind_ports(self.server, self._host, self.config.listen_port)
            await self._bind_grpc()
            if group is not None:
                await group.listen(self._host, self.port)
            await self.monitoring.answer_early()
            self.broker = broker = self.build()
            if group is not None:
                broker.open(following=True, confirm_limit=group.prepare())
            else:
                require_no_replica(self._disk, self.store_config.store_path_root_dir)
                self.role.attach(broker)
                broker.open(following=self.role.is_slave)
            self._limit_connections()
            state = broker.state
            neighbours = Neighbours(self._disk, self.store_config.store_path_root_dir, state.name)
            neighbours.load()
            self.registrar = Registrar(
                self.config, state.name, state.address, state.catalog, self.client, self._clock, neighbours
            )
            if group is not None:
                # The group tells the role.
                self.registrar.stand(None)
                self.registrar.authority = group.has_authority
            else:
                await self.role.bind(self.port)
            self._serve_grpc()
            self.serve(broker.served())
            # Of two brokers that have bound one port, which the system allows, the second to listen fails here.
            await self.server.serve()
        except BaseException:
            await self._undo_start()
            raise
        self._tasks.start(self._tick(), name="tick")
        if self.access is not None and self.client.signs:
            self._tasks.start(self._user_sync(self.access).run(), name="copy the master's users")
        if group is None:
            self.role.start(self.registrar, self._tasks)
        await self.registrar.start(self._tasks)
        if group is not None:
            await group.start()
        await self._monitor()

    async def _bind_grpc(self) -> None:
        port = self.config.grpc_server_port
        if port < 0:
            return
        try:
            self.grpc_port = await self.server.bind_beside(self._host, port, frozenset())
        except OSError as error:
            hint = "Stop the process that uses it, or take another port with --set grpcServerPort=0 (-1: none)."
            raise CannotListenError("gRPC service", self._host, port, error, hint) from error

    def _serve_grpc(self) -> None:
        """Serve gRPC on all ports, where it has a port. It reaches this broker through memory, and others by TCP."""
        if self.grpc_port is None:
            return
        # A broker without this port does without the memory and the time that these take.
        from aerobee.app.grpcfront import GrpcFront, own_nets, route_of
        from aerobee.proxy.backend import ClusterBackend
        from aerobee.proxy.rights import GrpcDoor

        clock, config, signer = self._clock, self.config, inner_signer(self._access_config)
        if self.access is not None and signer is None:
            raise ConfigError(
                ["grpcServerPort with authenticationEnabled needs innerClientAuthenticationCredentials, with which the "
                 "gRPC service signs what it asks of brokers"]
            )  # fmt: skip
        nets = own_nets(self.server, lambda: self.address, self._net or RealNet())

        def own_route(topic: str) -> TopicRouteData | None:
            return route_of(self.state.catalog.find(topic), config.cluster_name, self.state.name, self.address)

        backend = ClusterBackend(
            lambda: self.registrar.namesrvs, clock.monotonic, nets, tls=self.client.tls, sign=signer,
            own_route=own_route, trusted_codes=_CHECKED_BEFORE,
        )  # fmt: skip
        door = None
        if self.access is not None:
            door = GrpcDoor(self.access.access, lambda: self.broker.world, clock.now_ms)
        self.front = GrpcFront(self.server, backend, clock, self._entropy, door)

    async def _monitor(self) -> None:
        await self.monitoring.serve(self._metrics, self.health.problem, self.health.reasons)

    def _metrics(self) -> Iterator[str]:
        assert self.broker.metrics is not None
        return self.broker.metrics.page()

    def _beat_s(self) -> float:
        lag = self.state.flow.loop
        return lag.beat_s if isinstance(lag, CountedLag) else self._clock.monotonic()

    def _unregistered(self) -> str:
        return self.registrar.unregistered()

    def _certificates(self) -> dict[str, float]:
        """Return when the certificates of the ports and of the broker's own connections end."""
        files = {self._tls_files.server_cert_path, self._tls_files.client_cert_path} - {""}
        ends = {path: certificate_end_s(path) for path in sorted(files)}
        return {path: end for path, end in ends.items() if end is not None}

    @property
    def address(self) -> str:
        return self.state.address

    @property
    def grpc_address(self) -> str | None:
        """Return where clients of gRPC connect, as the broker is told to clients; None without such a port."""
        return None if self.grpc_port is None else joined(self.config.broker_ip1, self.grpc_port)

    def serve(self, tables: Tables) -> None:
        """Serve these tables from now on: those of the role that the broker has."""
        handlers: Mapping[int, Handler] = {**tables.handlers, **self._admin.handlers()}
        fast: Mapping[int, FastHandler] = tables.fast
        if self.access is not None:
            handlers, fast = self.access.guarded(self.broker.world, handlers, fast)
        self._handlers.clear()
        self._handlers.update(handlers)
        self._fast.clear()
        self._fast.update(fast)

    def take(self, broker: Broker) -> None:
        """Go on with a broker that was built anew and opened."""
        self.broker = broker
        self.registrar.serve(broker.state.catalog)
        self.on_rebuilt(broker)

    def fail(self, reason: str) -> None:
        """Stop the process with an error."""
        _log.error("the broker stops", reason=reason)
        self.failed.set()

    def build(self) -> Broker:
        """Return a new broker on the directory of this process, not yet opened."""
        seams = Seams(
            disk=self._disk,
            clock=self._clock,
            entropy=self._entropy,
            unique_id=self._unique_id,
            channel=lambda channel_id: self.server.channels.get(channel_id),
            local_hour=local_hour,
            disk_space=self._disk.space,
            routes=self._route_of,
            memory_bytes=memory_bytes(),
            authority=self.group.has_authority if self.group is not None else None,
            metrics=self.monitoring.config if self.monitoring.config.is_on else None,
            owners=self.access.owners if self.access is not None else QueryOwners(),
            origins=self._origins,
        )
        broker = Broker(self.config, self.store_config, seams, port=self.port)
        broker.on_reconfigured = self._reconfigured
        if self.access is not None:
            broker.transactions.may_see = self.access.guard(broker.world).may_publish
        if broker.metrics is not None:
            outside = broker.metrics.outside
            outside.version, outside.more = version("aerobee"), [*self.more_metrics]
            if self.group is not None:
                outside.more.append(functools.partial(self.group.families, self.monitoring.config.labels()))
            outside.reasons = self.health.reasons
            outside.connections, outside.certificates = lambda: len(self.server.channels), self._certificates
        share = shares(self._descriptors)
        broker.state.store.queues.bound(share.queues_at_once, share.queue_files)
        return broker

    def _limit_connections(self) -> None:
        """Give to clients the descriptors that the open store leaves."""
        if self._descriptors is None:
            return
        connections = shares(self._descriptors, descriptors_in_use()).connections
        self.server.limits = replace(self.server.limits, connections_max=connections)
        told = _log.warning if connections < _CONNECTIONS_FEW else _log.info
        told("connections are limited by open files (ulimit -n)", connections=connections, open_files=self._descriptors)

    async def _undo_start(self) -> None:
        """Let go of the ports and the directory: no name server was told of this broker."""
        await self.server.close()
        await self.monitoring.close()
        await self.role.stop()
        if self.group is not None:
            await self.group.close()
        if hasattr(self, "broker"):
            self.state.store.abandon()

    def _reconfigured(self, config: BrokerConfig, store_config: StoreConfig) -> None:
        """Take settings that were changed over the wire."""
        has_quotas = config.quotas != self.config.quotas
        self.config, self.store_config = config, store_config
        # Changes that the store kept are taken up before there is a registrar.
        if hasattr(self, "registrar"):
            self.registrar.reconfigure(config)
            if has_quotas:
                self.serve(self.broker.served())

    def reload(self, loaded: Loaded) -> None:
        """Take the settings of the file as they are now, as far as they may change while the broker runs."""
        changed, later = self.broker.live_settings.reload(loaded)
        self._origins = dict(loaded.origins)
        _log.info("the settings were read again", changed=",".join(changed) or "nothing")
        if later:
            _log.warning("settings that changed in the file take effect at the next start", keys=",".join(later))

    def _route_of(self, topic: str, told: Callable[[Sequence[MessageQueue] | None], None]) -> None:
        """Ask the name servers for every readable queue of a topic in the cluster."""

        async def ask() -> None:
            with self.broker.supervisor.guard("routes"):
                told(await found())

        async def found() -> Sequence[MessageQueue] | None:
            command = request(
                RequestCode.GET_ROUTEINFO_BY_TOPIC,
                GetRouteInfoRequestHeader(topic=topic),
                opaque=self.client.next_opaque(),
            )
            for namesrv in self.registrar.namesrvs:
                try:
                    answer = await self.client.ask(namesrv, command)
                except TopicNotExistError:
                    break
                except AerobeeError:
                    continue
                route = TopicRouteData.from_json(loads_object(answer.body))
                return TopicRoute.of(topic, route).read_queues
            return None

        self._tasks.start(ask(), name=f"route of {topic}")

    # -- connections

    def channel_opened(self, channel: Channel) -> None:
        """Do nothing: a connection says who it is with its first heartbeat."""

    def channel_closed(self, channel: Channel) -> None:
        self.broker.effects.channel_closed(channel)
        if self.access is not None:
            self.access.guard(self.broker.world).forget(channel)

    def _user_sync(self, access: AccessRoot) -> UserSync:
        """Return what brings the users of the master here, while there is one."""
        place = self.role if self.group is None else self.group
        return UserSync(access.files, self.client, self._clock, lambda: place.master_address)

    def _rights_changed(self) -> None:
        """Answer the pulls and pops that are held: their clients ask again, and are checked again."""
        self.broker.pulls.wake(self.state.polls.drain())
        self.broker.pop.waits.drain()

    # -- time

    async def _tick(self) -> None:
        clock, server = self._clock, self.server
        reads = -1
        while True:
            is_idle, reads = reads == server.reads, server.reads
            await asyncio.sleep(_IDLE_TICK_S if is_idle else _TICK_S)
            self.broker.tick(clock.monotonic(), clock.now_ms())
            if self.access is not None:
                self.access.tick(clock.monotonic())

    # -- stop

    async def stop(self) -> None:
        """Leave the group and the name servers, answer whoever waits, close connections, then the store."""
        self._is_stopping = True
        if self.group is not None:
            await self.group.stop_replica()
        if self.front is not None:
            await self.front.stop()
        await self.registrar.stop()
        self.server.stop_reading()
        await self._tasks.close()
        self.broker.release()
        await self._settled()
        await self.role.stop()
        await self.server.close()
        await self.client.close()
        await self.monitoring.close()
        if self.access is not None:
            self.access.close()
        self.broker.close()

    async def _settled(self) -> None:
        """Wait until no sync is under way: then whoever waits is answered, and the store can be closed as a whole."""
        until_s = self._clock.monotonic() + _SETTLE_S
        while not self.broker.settle():
            if self._clock.monotonic() > until_s:
                _log.warning("the disk does not answer, the broker stops without it", sends=self.state.flow.sends.count)
                return
            await asyncio.sleep(_TICK_S)

    async def die(self) -> None:
        """End as a killed process does, for tests: nobody is told, nothing is flushed."""
        await self._tasks.close()
        await self.monitoring.close()
        self.server.abort()
        await self.role.stop()
        if self.group is not None:
            if self.group.replica is not None:
                self.group.replica.abandon()
            await self.group.close()
        await self.client.close()
        self.state.store.abandon()

    def _failed(self, name: str, error: BaseException) -> None:
        _log.error("a task failed, the broker stops", task=name, exc_info=error)
        self.failed.set()
