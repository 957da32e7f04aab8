"""The root of a broker: configuration in, a running broker out. Wires, starts, ticks, stops; decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from aerobee.app.descriptors import shares
from aerobee.app.honoured import require_honoured
from aerobee.app.ports import bind_ports
from aerobee.broker.admin.administration import Administration
from aerobee.broker.clientside import ClientSide, ClientTables, build_client_side
from aerobee.broker.config import BrokerConfig
from aerobee.broker.delay.levels import DelayLevels
from aerobee.broker.flowcontrol import FlowControl
from aerobee.broker.log.arrivals import Arrivals
from aerobee.broker.log.longpoll import SWEEP_INTERVAL_S, LongPolls
from aerobee.broker.log.putcounts import PutCounts
from aerobee.broker.log.puts import Puts
from aerobee.broker.log.sendrules import largest_body
from aerobee.broker.log.tail import learn_marks
from aerobee.broker.membership.clients import Clients
from aerobee.broker.membership.filters import ConsumerFilters
from aerobee.broker.membership.locks import QueueLocks
from aerobee.broker.offsets.rules import ConsumerOffsets
from aerobee.broker.pull.handler import PullHandler
from aerobee.broker.send.handler import SendAnswers, SendHandler, SendSettings
from aerobee.broker.state import BrokerState
from aerobee.broker.stats import BrokerStats
from aerobee.broker.supervision import Supervisor, Work
from aerobee.broker.topics.catalog import Catalog
from aerobee.broker.topics.registrar import Registrar
from aerobee.errors import AerobeeError, StoreError
from aerobee.errors.codes import TopicNotExistError
from aerobee.hot.log.host import encode_host
from aerobee.model.dialect import loads_object
from aerobee.model.queue import MessageQueue
from aerobee.model.route import TopicRouteData
from aerobee.model.topic import PERM_READ, PERM_WRITE
from aerobee.net.channel import Channel
from aerobee.net.client import RemotingClient
from aerobee.net.config import TlsConfig
from aerobee.net.renewal import TlsRenewal
from aerobee.net.server import Handler, Server
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import request
from aerobee.protocol.headers.route import GetRouteInfoRequestHeader
from aerobee.runtime.machine import disk_space, local_hour, memory_bytes
from aerobee.runtime.seams import Clock, Disk, Entropy, Net
from aerobee.runtime.shortage import descriptors_in_use
from aerobee.runtime.tasks import Tasks
from aerobee.store.config import StoreConfig
from aerobee.store.index import MessageIndex
from aerobee.store.messagestore import MessageStore
from aerobee.store.metadata.groups import GroupTable
from aerobee.store.metadata.offsets import ConsumerOffsetTable, DelayOffsetTable
from aerobee.store.metadata.plain import ConsumerFilterTable, MessageRequestModeTable
from aerobee.store.metadata.topics import TopicTable
from aerobee.store.reads import HOT_BYTES
from aerobee.telemetry.stdlog import get_log

# While requests come, and when none came since the last tick.
_TICK_S = 0.02
_IDLE_TICK_S = 0.05
# Fewer connections than this are worth a warning.
_CONNECTIONS_FEW = 1000
# How long a stop waits for syncs under way.
_SETTLE_S = 10.0
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
        unique_id: Any,
        tls: TlsConfig | None = None,
        descriptors: int | None = None,
        net: Net | None = None,
    ) -> None:
        """`descriptors`: how many files it may have open; None: any number."""
        require_honoured(config, store_config)
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
        self._tls = tls.accepting()
        self._net = net
        self.client = RemotingClient(tls=tls.connecting(), net=net)
        self.failed = asyncio.Event()
        self.supervisor = Supervisor(clock, lambda error: self.state.store.fence(error))
        self.server: Server
        self.state: BrokerState
        self.registrar: Registrar
        self.side: ClientSide
        self.admin: Administration
        self.pulls: PullHandler
        # What a tick does, by name.
        self.parts: dict[str, Work] = {}
        self._next_sweep_s = 0.0
        self.port = 0
        # Two below; None where there is none.
        self.fast_port: int | None = None

    # -- start

    async def start(self) -> None:
        """Recover the store, listen, register. The address clients are told holds the port: both are bound first."""
        handlers: dict[int, Handler] = {}
        fast: dict[int, Any] = {}
        self.server = Server(
            "broker", handlers, clock=self._clock, fast=fast, observer=self, tls=self._tls, net=self._net
        )
        self._renewal.follow(self.server, self.client)
        try:
            self.port, self.fast_port = await bind_ports(self.server, self._host, self.config.listen_port)
            self.state = self._build()
            self._open()
            self._limit_connections()
            self.registrar = Registrar(
                self.config, self.state.name, self.state.address, self.state.catalog, self.client, self._clock
            )
            self._serve(handlers, fast)
            self.side.open()
        except BaseException:
            await self._undo_start()
            raise
        self.parts = self._parts()
        await self.server.serve()
        self._tasks.start(self._tick(), name="tick")
        await self.registrar.start(self._tasks)

    def _limit_connections(self) -> None:
        """The store is open: what it leaves is for clients."""
        if self._descriptors is None:
            return
        connections = shares(self._descriptors, descriptors_in_use()).connections
        self.server.limits = replace(self.server.limits, connections_max=connections)
        told = _log.warning if connections < _CONNECTIONS_FEW else _log.info
        told("connections are limited by open files (ulimit -n)", connections=connections, open_files=self._descriptors)

    async def _undo_start(self) -> None:
        """Nothing was served: let go of port and directory."""
        await self.server.close()
        if hasattr(self, "state"):
            self.state.store.abandon()

    def _build(self) -> BrokerState:
        config, store_config, disk, clock = self.config, self.store_config, self._disk, self._clock
        root = store_config.store_path_root_dir
        ip = config.broker_ip1
        store_host = encode_host(ip, self.port)
        polls: LongPolls[Any] = LongPolls(config.held_pulls_max, config.held_pulls_per_connection_max)
        self._arrivals = Arrivals(polls)
        sinks = [MessageIndex(disk, root, store_config)] if store_config.message_index_enable else []
        memory = memory_bytes()
        # What was written last is still in the page cache: an eighth of the memory is well below what Apache assumes.
        store = MessageStore(
            root, store_config, disk, clock, [*sinks, self._arrivals], hot_bytes=max(HOT_BYTES, memory // 8)
        )
        store.reads.memory_bytes = memory
        share = shares(self._descriptors)
        store.queues.bound(share.queues_at_once, share.queue_files)
        flow = FlowControl(config.flow_limits(store_config.os_page_cache_busy_time_out_ms), clock.monotonic())
        stats = BrokerStats(config.cluster_name, per_queue=config.enable_detail_stat)
        self._settings = SendSettings(
            config.cluster_name, config.region_id, config.trace_on, store_host, _body_size_max(store_config),
            writable=config.broker_permission & PERM_WRITE != 0,
        )  # fmt: skip
        self._tables = ClientTables(
            ConsumerOffsetTable(disk, root), DelayOffsetTable(disk, root), MessageRequestModeTable(disk, root)
        )
        rules = config.topic_rules(config.broker_name)
        self._counts = PutCounts(stats, rules.is_system)
        self._answers = SendAnswers(self._settings)
        return BrokerState(
            config=config,
            name=config.broker_name,
            address=f"{ip}:{self.port}",
            store_host=store_host,
            store=store,
            catalog=Catalog(
                TopicTable(disk, root),
                GroupTable(disk, root),
                rules,
                config.group_rules(),
                clock,
            ),
            clients=Clients(
                config.channel_expired_timeout_ms / 1000,
                config.subscription_expired_timeout_ms / 1000,
                notify=config.notify_consumer_ids_changed_enable,
            ),
            offsets=ConsumerOffsets(
                self._tables.offsets.table, server_side_reset=config.use_server_side_reset_offset
            ),
            filters=ConsumerFilters(
                ConsumerFilterTable(disk, root), clock, lambda: self.config.filter_data_clean_time_span_ms
            ),
            locks=QueueLocks(),
            polls=polls,
            stats=stats,
            flow=flow,
            levels=DelayLevels.parse(store_config.message_delay_level),
            puts=Puts(
                store, self._answers, flow, clock, timeout_s=store_config.sync_flush_timeout_ms / 1000,
                write_bytes_max=min(4 << 20, store_config.mapped_file_size_commit_log // 4),
                gather=store_config.sync_flush, stored=self._counts.stored, arrivals=self._arrivals,
            ),
            clock=clock,
            entropy=self._entropy,
            channel=lambda channel_id: self.server.channels.get(channel_id),
            unique_id=self._unique_id,
        )  # fmt: skip

    def _open(self) -> None:
        state = self.state
        report = state.store.open()
        for problem in report.problems:
            _log.warning("store", problem=problem)
        for damage in report.damages:
            _log.error("damaged record range, never served", start=damage.start, end=damage.end)
        state.catalog.load()
        now_ms = self._clock.now_ms()
        self._tables.offsets.load(now_ms)
        self._tables.modes.load(now_ms)
        state.filters.load()
        if self.store_config.enable_consume_queue_ext:
            _log.warning("enableConsumeQueueExt: filter bit maps are not kept, filters look at every message")
        made = state.catalog.adopt((queue.topic, queue.queue_id) for queue in state.store.queues)
        if made:
            _log.warning("topics found in the log and missing from topics.json were made again", topics=len(made))

    def _serve(self, handlers: dict[int, Handler], fast: dict[int, Any]) -> None:
        state = self.state
        self.side = build_client_side(state, self._settings, self._tables, self._counts, self._route_of)
        send = SendHandler(
            self._settings, state.catalog, state.puts, self._answers, self.side.special, state.flow,
            state.clock, state.entropy, state.unique_id,
        )  # fmt: skip
        learn_marks(state.store, send.dedup, state.name, state.clock)
        for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            fast[code] = send.on_frame
        self.pulls = PullHandler(state, state.config.pull_rules(state.config.broker_ip1))
        self._arrivals.wake = self.pulls.wake
        fast[RequestCode.PULL_MESSAGE] = self.pulls.on_frame
        fast[RequestCode.LITE_PULL_MESSAGE] = self.pulls.on_frame
        handlers.update(self.side.handlers)
        self.admin = Administration(
            state, self._tables, self._reconfigured, local_hour, disk_space,
            lambda: {**self.side.pending(), **self.supervisor.told()},
        )  # fmt: skip
        handlers.update(self.admin.handlers)

    def _reconfigured(self, config: BrokerConfig, store_config: StoreConfig) -> None:
        """Settings changed over the wire; what the broker's parts share has them already."""
        self.config, self.store_config = config, store_config
        self.pulls.rules = config.pull_rules(config.broker_ip1)
        self._settings.trace_on = config.trace_on
        self._settings.body_size_max = _body_size_max(store_config)
        self._settings.writable = config.broker_permission & PERM_WRITE != 0
        self.registrar.reconfigure(config)

    def _route_of(self, topic: str, told: Callable[[Sequence[MessageQueue] | None], None]) -> None:
        """Every readable queue of a topic in the cluster, asked of the name servers."""

        async def ask() -> None:
            with self.supervisor.guard("routes"):
                told(await found())

        async def found() -> list[MessageQueue] | None:
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
                return [
                    MessageQueue(topic, queues.broker_name, queue_id)
                    for queues in route.queue_datas
                    if queues.perm & PERM_READ
                    for queue_id in range(queues.read_queue_nums)
                ]
            return None

        self._tasks.start(ask(), name=f"route of {topic}")

    # -- connections

    def channel_opened(self, channel: Channel) -> None:
        """A connection says who it is with its first heartbeat."""

    def channel_closed(self, channel: Channel) -> None:
        self.side.effects.channel_closed(channel)

    # -- time

    def _parts(self) -> dict[str, Work]:
        """What a tick does, in its order. Each runs for itself: whatever happens to one, the others go on."""
        state, admin, pulls = self.state, self.admin, self.pulls
        parts: dict[str, Work] = {
            "store": lambda now_s, now_ms: state.store.tick(),
            "catalog": lambda now_s, now_ms: state.catalog.tick(),
            "filters": lambda now_s, now_ms: state.filters.tick(),
        }
        for name, work in self.side.parts().items():
            parts[name] = lambda now_s, now_ms, work=work: work(now_ms)  # type: ignore[misc]
        parts["runtime info"] = lambda now_s, now_ms: admin.info.tick(now_s)
        parts["retention"] = lambda now_s, now_ms: admin.retention.tick(now_s)
        parts["held pulls"] = lambda now_s, now_ms: pulls.expire(now_s)
        parts["sweep"] = self._sweep
        return parts

    def _sweep(self, now_s: float, now_ms: int) -> None:
        if now_s >= self._next_sweep_s:
            self._next_sweep_s = now_s + SWEEP_INTERVAL_S
            self.pulls.sweep()

    async def _tick(self) -> None:
        state, parts = self.state, self.parts
        reads = -1
        while True:
            is_idle, reads = reads == self.server.reads, self.server.reads
            await asyncio.sleep(_IDLE_TICK_S if is_idle else _TICK_S)
            now_s = self._clock.monotonic()
            now_ms = self._clock.now_ms()
            state.flow.loop.beat(now_s)
            for name, work in parts.items():
                self.supervisor.run(name, work, now_s, now_ms)

    # -- stop

    async def stop(self) -> None:
        """Leave the name servers, answer whoever waits, close connections, then the store."""
        await self.registrar.stop()
        self.server.stop_reading()
        await self._tasks.close()
        self.pulls.wake(self.state.polls.drain())
        self.state.puts.flush()
        await self._settled()
        await self.server.close()
        await self.client.close()
        saving = (self.state.catalog.save_now, self.state.filters.save, *self.side.closers(self.state.store.close))
        problems = [problem for save in saving if (problem := _problem_of(save))]
        if problems:
            raise StoreError(f"stopped, but not everything was saved: {'; '.join(problems)}")

    async def _settled(self) -> None:
        """Until no sync is under way: whoever waits for it is answered, and the store can be closed as a whole."""
        store, sends, catalog = self.state.store, self.state.flow.sends, self.state.catalog
        until_s = self._clock.monotonic() + _SETTLE_S
        while store.is_busy or sends.count or catalog.is_awaited:
            if self._clock.monotonic() > until_s:
                _log.warning("the disk does not answer: stopping without it", sends=sends.count)
                return
            catalog.tick()
            if sends.count:
                store.tick()
            await asyncio.sleep(_TICK_S)

    async def die(self) -> None:
        """End as a killed process does: nobody is told, nothing is flushed. For tests of what clients then do."""
        await self._tasks.close()
        self.server.abort()
        await self.client.close()
        self.state.store.abandon()

    def _failed(self, name: str, error: BaseException) -> None:
        _log.error("task failed, the broker stops", task=name, exc_info=error)
        self.failed.set()


def _problem_of(save: Callable[[], None]) -> str:
    """Save; what was wrong, in words. One table that cannot be written is no reason to lose the others."""
    try:
        save()
    except (AerobeeError, OSError) as error:
        return str(error)
    return ""


def _body_size_max(config: StoreConfig) -> int:
    return largest_body(config.max_message_size, config.mapped_file_size_commit_log)
