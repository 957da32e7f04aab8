"""The replica of a broker's process: how it joins its group, and what the broker does when its role changes.

A follower that is elected leads in place. A master that loses its role is dropped and built anew as a follower on the
same directory and the same ports, so that no feature has to take back what it did. Connections stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from aerobee import __version__
from aerobee.broker.assembly import Broker
from aerobee.broker.config import BrokerConfig
from aerobee.broker.forwarding import Forwarder
from aerobee.broker.roles import Tables
from aerobee.broker.topics import Registrar, Standing
from aerobee.errors import AerobeeError, WithheldError
from aerobee.model.route import MASTER_ID
from aerobee.net.client import RemotingClient
from aerobee.net.server import Server
from aerobee.protocol.codes import ResponseCode
from aerobee.replication.coordinator import Coordinator
from aerobee.replication.identity import Prepared, prepare
from aerobee.replication.metrics import replica_families
from aerobee.replication.port import HaPort
from aerobee.replication.replica import Replica, ReplicaSettings
from aerobee.replication.settings import ProcessStart
from aerobee.replication.values import ReplicaMember
from aerobee.runtime.clock import BootClock, SystemClock
from aerobee.runtime.net import RealNet
from aerobee.runtime.paths import join
from aerobee.runtime.seams import Clock, Disk, Entropy, Net
from aerobee.runtime.tasks import Tasks
from aerobee.store.config import StoreConfig
from aerobee.telemetry.metrics import labels_of
from aerobee.telemetry.stdlog import get_log

# How long a demoted broker waits for its syncs under way before it is dropped.
_SETTLE_S: Final = 10.0
_PAUSE_S: Final = 0.02
_log = get_log("replica")


class Host(Protocol):
    """What a replica needs of the process that runs its broker."""

    broker: Broker
    registrar: Registrar
    server: Server

    @property
    def address(self) -> str:
        """Where clients reach the broker."""

    def build(self) -> Broker:
        """Return a new broker on the same directory, not yet opened."""

    def take(self, broker: Broker) -> None:
        """Go on with a broker that was built anew and opened."""

    def serve(self, tables: Tables) -> None:
        """Serve these tables from now on."""

    def fail(self, reason: str) -> None:
        """Stop the process with an error."""


class GroupRoot:
    """Joins the broker of one process to its group. It is the `Duty` of the replica."""

    def __init__(  # noqa: PLR0913 - a root is handed every seam
        self,
        host: Host,
        coordinator: Coordinator,
        config: BrokerConfig,
        store_config: StoreConfig,
        disk: Disk,
        clock: Clock,
        entropy: Entropy,
        *,
        start: ProcessStart | None,
        client: RemotingClient,
        tasks: Tasks,
        net: Net | None = None,
        secret: bytes = b"",
    ) -> None:
        """Join nothing yet. `secret` is what all replicas of the group know; connections between them prove it."""
        self._secret = secret
        self._client = client
        self._host = host
        self.coordinator = coordinator
        self._config = config
        self._store_config = store_config
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        self._start = start or ProcessStart()
        self._net: Net = net or RealNet()
        self._tasks = tasks
        self._forwarder = Forwarder(client, clock, tasks)
        self._port: HaPort | None = None
        self._prepared: Prepared | None = None
        self.replica: Replica | None = None
        self._ha_address = ""
        self._is_stopping = False
        # Called with the epoch when this broker begins to lead.
        self.on_lead: Callable[[int], None] = lambda epoch: None

    # -- start

    async def listen(self, host: str, port: int) -> None:
        """Take the port that other replicas copy the log from. `port` is that of the broker."""
        self._port = self._port_of(host, ha_port(self._store_config, port))
        try:
            await self._port.start()
        except OSError:
            if self._config.listen_port != 0 or self._store_config.ha_listen_port is not None:
                raise
            self._port = self._port_of(host, 0)
            await self._port.start()
        told = self._config.broker_ip2 or self._config.broker_ip1
        self._ha_address = f"[{told}]:{self._port.port}" if ":" in told else f"{told}:{self._port.port}"

    def _port_of(self, host: str, port: int) -> HaPort:
        """Return a port that takes what the broker's own port takes: with TLS enforced there, with TLS only."""
        return HaPort(self._net, host, port, tls=lambda: self._host.server.tls)

    def prepare(self) -> int | None:
        """Load the identity of this replica. Return the confirm limit to open its store with."""
        root = self._store_config.store_path_root_dir
        self._disk.make_dirs(root)
        # What is written now must not be written into the directory of a replica that runs.
        lock = self._disk.lock(join(root, "lock"))
        try:
            self._prepared = prepare(
                self._disk, root, self._store_config, self._entropy,
                cluster=self._config.cluster_name, group=self._config.broker_name, boot_id=self._start.boot_id,
                start_id=self._start.start_id, number_of=self._start.number_of,
            )  # fmt: skip
        finally:
            lock.release()
        if self._prepared.renewed:
            _log.warning("this replica is not counted as in sync until it has caught up", reason=self._prepared.renewed)
        return self._prepared.confirm_limit

    async def start(self) -> None:
        """Join the group. The broker's store is open."""
        assert self._prepared is not None
        assert self._port is not None
        settings = ReplicaSettings(
            cluster=self._config.cluster_name,
            group=self._config.broker_name,
            address=self._host.address,
            ha_address=self._ha_address,
            boot_id=self._start.boot_id,
            start_id=self._start.start_id,
            min_in_sync=self._store_config.min_in_sync_replicas,
            release=__version__,
            secret=self._secret,
        )
        self.replica = Replica(
            settings, self._prepared, self._host.broker.state.store, self.coordinator, self._disk,
            BootClock() if type(self._clock) is SystemClock else self._clock, self._entropy, self._net,
            duty=self, port=self._port, tls=lambda: self._client.tls,
        )  # fmt: skip
        await self.replica.start(self._tasks)

    def has_authority(self) -> bool:
        """Tell whether this broker leads and no other can have been elected."""
        return self.replica is not None and self.replica.has_authority()

    def families(self, labels: Mapping[str, str]) -> Iterator[str]:
        """Yield the metrics of this replica, with these labels besides its own; none before it has joined."""
        if self.replica is None or not self.replica.machine.id:
            return
        view = self.replica.machine.view
        members = 0 if view is None else sum(not one.learner for one in view.members.values())
        names = {"cluster": self._config.cluster_name, "node_type": "broker", "node_id": self._config.broker_name}
        yield from replica_families(self.replica.status(), members, labels_of({**labels, **names}))

    # -- the duty

    def lead(self, epoch: int) -> None:
        """Serve as master, at once."""
        host = self._host
        self._forwarder.end()
        host.broker.lead()
        host.serve(host.broker.served())
        host.registrar.stand(Standing(broker_id=MASTER_ID, epoch=epoch, ha_address=self._ha_address))
        _log.info("this broker leads its group", group=self._config.broker_name, epoch=epoch)
        self.on_lead(epoch)

    @property
    def master_address(self) -> str:
        """Return the address of the master that this broker follows, or an empty text."""
        return self._forwarder.target

    def follow(self, epoch: int, master: ReplicaMember | None) -> bool:
        """Serve as follower. Return False where the broker led: it is built anew then."""
        assert self.replica is not None
        host, number = self._host, self.replica.status().id
        was_master = not host.broker.is_following
        if was_master:
            self._step_down()
        self._forwarder.aim(master.address if master is not None and master.id != number else "")
        standing = Standing(broker_id=number, epoch=epoch, ha_address=self._ha_address) if number else None
        host.registrar.stand(standing)
        _log.info(
            "this broker follows its group's master" if master is not None else "this broker's group has no master",
            group=self._config.broker_name, epoch=epoch, master=master.address if master is not None else "",
        )  # fmt: skip
        fenced = host.broker.state.store.fenced
        if was_master and fenced is not None:
            # What the disk holds is in doubt. Only a new process may look at it.
            host.fail(fenced.message)
        elif was_master and not self._is_stopping:
            self._tasks.start(self._rebuild(), name="build anew")
        return not was_master

    def stop(self, reason: str) -> None:
        self._host.fail(reason)

    # -- demotion

    def _step_down(self) -> None:
        """Refuse or pass on what only a master serves, and end the sends and pulls that wait."""
        broker = self._host.broker
        broker.is_following = True
        self._forwarder.begin()
        self._host.serve(self._forwarder.served(broker.served()))
        store = broker.state.store
        lost = WithheldError(
            "this broker is no longer the master of its group", code=ResponseCode.SERVICE_NOT_AVAILABLE
        )
        store.withhold(lost)
        store.waiters.fail(lost)
        broker.release()

    async def _rebuild(self) -> None:
        """Drop the broker that led, and go on with a new one that follows."""
        assert self.replica is not None
        host, old = self._host, self._host.broker
        until_s = self._clock.monotonic() + _SETTLE_S
        while not old.settle() and self._clock.monotonic() < until_s:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(_PAUSE_S)
        old.state.store.abandon()
        try:
            broker = host.build()
            broker.open(following=True, confirm_limit=self.replica.confirm_limit)
        except AerobeeError as error:
            host.fail(f"the broker could not be opened again as a follower: {error}")
            return
        host.take(broker)
        host.serve(self._forwarder.served(broker.served()))
        self.replica.attach(broker.state.store)

    # -- stop

    async def stop_replica(self) -> None:
        """Leave the group in an orderly way, while the broker still serves."""
        self._is_stopping = True
        broker = self._host.broker
        if broker.journal is not None and broker.may_act():
            broker.journal.flush()  # whoever leads next has the offsets of the last second too
        if self.replica is not None:
            await self.replica.stop()
        await self.close()

    async def close(self) -> None:
        """Let go of the port and of the coordinator. Nobody is told."""
        if self._port is not None:
            await self._port.close()
        await self.coordinator.close()


def ha_port(config: StoreConfig, port: int) -> int:
    """Return the port for replicas: the one that is set, or the one above the broker's.

    RocketMQ: BrokerStartup sets haListenPort to listenPort + 1 unless the file names it.
    """
    return port + 1 if config.ha_listen_port is None else config.ha_listen_port
