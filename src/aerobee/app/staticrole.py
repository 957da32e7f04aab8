"""The role that an operator gave to a broker: a master that slaves follow, or a slave. There is no failover.

This is the root of RocketMQ's HA protocol. A master that nobody follows has none of this. RocketMQ: BrokerController.
"""

from __future__ import annotations

from typing import Final

from aerobee.app.startrule import has_slaves
from aerobee.app.takeover import TakeOverNote
from aerobee.broker.assembly import Broker
from aerobee.broker.config import BrokerConfig
from aerobee.broker.slave import SlaveSync
from aerobee.broker.topics import Registrar, Standing
from aerobee.net.client import RemotingClient
from aerobee.protocol.bodies.cluster import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from aerobee.protocol.codes import ResponseCode
from aerobee.replication.classic.master import ClassicMaster, master_settings
from aerobee.replication.classic.peek import RemoteMaster
from aerobee.replication.classic.replicated import ReplicatedLog
from aerobee.replication.classic.slave import ClassicSlave, MasterPlace, slave_settings
from aerobee.replication.port import HaPort
from aerobee.runtime.seams import Clock, Net
from aerobee.runtime.tasks import Tasks
from aerobee.store.config import BrokerRole, StoreConfig

# How often a slave that has lost its master asks the name servers where it is.
_LOOK_S: Final = 3.0


class StaticRole:
    """A broker's side of the HA protocol. `attach` comes before the store is opened, `start` after."""

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        *,
        host: str,
        net: Net,
        clock: Clock,
        client: RemotingClient,
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._host = host
        self._net = net
        self._clock = clock
        self._client = client
        self._port: HaPort | None = None
        self.master: ClassicMaster | None = None
        self.slave: ClassicSlave | None = None
        self.sync: SlaveSync | None = None
        # The master as the name server tells: its address, and that of its HA port.
        self._told = ("", "")
        self._looked_s = 0.0
        # Above 0 where this broker took over from another one.
        self._state_version = 0

    @property
    def is_slave(self) -> bool:
        return self._store_config.broker_role is BrokerRole.SLAVE

    @property
    def master_address(self) -> str:
        """Return the address of the master that this broker follows, or an empty text."""
        return self._told[0] if self.is_slave else ""

    def attach(self, broker: Broker) -> None:
        """Connect a broker with its master, or with the slaves that will come."""
        store = broker.state.store
        note = None if self.is_slave else TakeOverNote(store.disk, store.root).load()
        self._state_version = 0 if note is None else note.state_version
        if self.is_slave:
            broker.pulls.master_alive = lambda: self.slave is not None and self.slave.status().is_connected
            self.slave = ClassicSlave(store, self._net, self._clock, slave_settings(self._store_config), self._place)
            self.sync = SlaveSync(broker.state.catalog, broker.tables, self._client, self._clock, lambda: self._told[0])
            broker.supervisor.add("master", lambda now_s, now_ms: self._tick_slave(now_s))
        elif has_slaves(self._store_config):
            self._attach_master(broker)
        else:
            return
        broker.info.ha_status = self.status

    def _attach_master(self, broker: Broker) -> None:
        config, puts, store = self._store_config, broker.state.puts, broker.state.store
        needed = config.in_sync_replicas - 1 if config.broker_role is BrokerRole.SYNC_MASTER else 0
        self.master = master = ClassicMaster(store, self._clock, master_settings(config, needed))
        puts.written = master.wrote
        if needed:
            log = ReplicatedLog(store, master.acks)
            puts.slaves = log
            puts.timeout_s = config.slave_timeout_ms / 1000
            puts.late_code = lambda end: (
                ResponseCode.FLUSH_SLAVE_TIMEOUT if log.is_late_for_slaves(end) else ResponseCode.FLUSH_DISK_TIMEOUT
            )
        broker.supervisor.add("slaves", lambda now_s, now_ms: master.tick(now_s))

    async def bind(self, port: int) -> None:
        """Listen for slaves. `port` is the one that clients use."""
        if self.master is not None:
            wanted = self._store_config.ha_listen_port
            self._port = HaPort(self._net, self._host, port + 1 if wanted is None else wanted)
            self._port.classic = self.master.connection
            await self._port.start()

    @property
    def standing(self) -> Standing:
        """Return as what the broker registers."""
        address = ""
        if self._port is not None:
            address = f"{self._config.broker_ip2 or self._config.broker_ip1}:{self._port.port}"
        return Standing(broker_id=self._config.broker_id, epoch=self._state_version, ha_address=address)

    def start(self, registrar: Registrar, tasks: Tasks) -> None:
        """Tell the name servers of the HA port, and follow the master if there is one."""
        registrar.stand(self.standing)
        if self.slave is not None and self.sync is not None:
            registrar.on_master_told = self._master_told
            self.slave.on_lost = lambda: self._look_for_master(registrar, tasks)
            tasks.start(self.slave.run(), name="follow the master")
            tasks.start(self.sync.run(), name="copy the master's tables")

    async def stop(self) -> None:
        """Close the HA port and its connections."""
        if self.master is not None:
            self.master.close()
        if self._port is not None:
            await self._port.close()

    def status(self) -> HARuntimeInfo:
        """Return the status of replication as Apache shows it. RocketMQ: DefaultHAService.getRuntimeInfo."""
        if self.slave is not None:
            now = self.slave.status()
            told = HAClientRuntimeInfo(
                master_addr=now.master,
                transferred_byte_in_second=now.bytes_per_s,
                max_offset=now.log_end,
                last_read_timestamp=now.last_read_ms,
                last_write_timestamp=now.last_write_ms,
                activated=now.is_connected,
            )
            return HARuntimeInfo(master=False, ha_client_runtime_info=told)
        assert self.master is not None
        slaves = self.master.status()
        return HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=self.master.store.log_end,
            in_sync_slave_nums=sum(slave.in_sync for slave in slaves),
            ha_connection_info=tuple(
                HAConnectionRuntimeInfo(
                    addr=slave.address,
                    slave_ack_offset=slave.acked,
                    diff=slave.lag_bytes,
                    in_sync=slave.in_sync,
                    transferred_byte_in_second=slave.bytes_per_s,
                    transfer_from_where=slave.sent,
                )
                for slave in slaves
            ),
        )

    # -- the master of a slave

    def _master_told(self, address: str, ha_address: str) -> None:
        if self._told != (address, ha_address):
            self._told = (address, ha_address)
            if self.sync is not None:
                self.sync.wake()

    def _look_for_master(self, registrar: Registrar, tasks: Tasks) -> None:
        """Register now: the answer tells where the master is. A master that is away for hours costs little."""
        now_s = self._clock.monotonic()
        if now_s >= self._looked_s + _LOOK_S:
            self._looked_s = now_s
            tasks.start(registrar.register_now(), name="look for the master")

    def _place(self) -> MasterPlace | None:
        address, ha_address = self._told
        ha_address = self._store_config.ha_master_address or ha_address
        if not address or not ha_address:
            return None
        return MasterPlace(ha_address, RemoteMaster(self._client, address))

    def _tick_slave(self, now_s: float) -> None:
        if self.slave is not None:
            self.slave.tick(now_s)
