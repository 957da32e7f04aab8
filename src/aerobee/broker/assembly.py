"""One broker, put together: store, tables, features, request handlers, and what is done by the clock.

The root of a process (`app/broker.py`) and the test kit (`testing/brokerkit.py`) build the same `Broker`. They give it
its seams, serve its handlers and tick it. A broker opens no socket and starts no task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aerobee.access.owners import QueryOwners
from aerobee.broker.accessworld import BrokerWorld
from aerobee.broker.admin import (
    ConfigAdmin,
    DiskSpace,
    LiveSettings,
    QueueAdmin,
    RefusedRequests,
    RetentionDriver,
    RuntimeAdmin,
    RuntimeInfo,
    VisibilityDriver,
)
from aerobee.broker.answers import unless_busy
from aerobee.broker.batches import Batches, BatchHandlers
from aerobee.broker.config import BrokerConfig
from aerobee.broker.delay import DelayLevels, Placing, RecallHandler, Scheduler, TimerProgressHandlers, TimerService
from aerobee.broker.flowcontrol import CountedLag, FlowControl, flow_limits
from aerobee.broker.groupstate import Sections, StateJournal
from aerobee.broker.log import (
    SWEEP_INTERVAL_S,
    Arrivals,
    FollowedLog,
    LocalWrites,
    LongPolls,
    PutCounts,
    Puts,
    SendSettings,
    body_size_max,
    late_code,
)
from aerobee.broker.membership import (
    SAVE_INTERVAL_S,
    SCAN_INTERVAL_S,
    AssignmentHandlers,
    ClientAdmin,
    ClientEffects,
    ClientHandlers,
    Clients,
    ConsumerFilters,
    GroupLocks,
    LockHandlers,
    RelayAdmin,
    Routes,
    own_queues,
)
from aerobee.broker.metrics import BrokerMetrics, LagTable, Measured
from aerobee.broker.offsets import (
    ConsumerOffsets,
    OffsetHandlers,
    OffsetSaver,
    OffsetTables,
    ProgressAdmin,
    ResetAdmin,
)
from aerobee.broker.pop import AckHandlers, PopHandlers, pop_of
from aerobee.broker.pull import BulkPullHandler, QueryHandlers, pull_handler, pull_rules
from aerobee.broker.quota import Throttle
from aerobee.broker.retry import SendBackHandler
from aerobee.broker.roles import Authority, Tables, follower_tables, leader_tables
from aerobee.broker.rpctimes import RpcTimes, timed
from aerobee.broker.send import ReplyHandler, SendHandler, SpecialSends, learn_marks, learn_sent, send_answers
from aerobee.broker.state import BrokerState
from aerobee.broker.stats import SAMPLE_INTERVAL_MS, BrokerStats
from aerobee.broker.supervision import Supervisor, Work
from aerobee.broker.topics import Catalog, GroupAdmin, TopicAdmin, group_rules, topic_rules
from aerobee.broker.transactions import TransactionHandler, Transactions
from aerobee.errors import AerobeeError, ConfigError, StoreError
from aerobee.hot.log.host import encode_host
from aerobee.model.quota import parse_quotas
from aerobee.model.topic import PERM_WRITE
from aerobee.net.channel import Channel
from aerobee.net.server import FastHandler, Handler
from aerobee.protocol.codes import RequestCode
from aerobee.runtime.seams import Clock, Disk, Entropy
from aerobee.store.config import BrokerRole, StoreConfig
from aerobee.store.index import MessageIndex
from aerobee.store.messagestore import MessageStore
from aerobee.store.metadata.groups import GroupTable
from aerobee.store.metadata.offsets import ConsumerOffsetTable, DelayOffsetTable
from aerobee.store.metadata.plain import ConsumerFilterTable, MessageRequestModeTable
from aerobee.store.metadata.topics import TopicTable
from aerobee.store.reads import HOT_BYTES
from aerobee.telemetry.config import MetricsConfig
from aerobee.telemetry.stdlog import get_log

# Requests to clients are told apart by number on each channel; others who ask clients count from 1.
_FIRST_OPAQUE: Final = 1 << 30
_INFO_INTERVAL_S: Final = 1.0
_DAY_MS: Final = 86_400_000
_log = get_log("broker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """What a broker needs of the world outside."""

    disk: Disk
    clock: Clock
    entropy: Entropy
    unique_id: Callable[[], str]
    # The open channel of a connection id, for pushing to clients.
    channel: Callable[[int], Channel | None]
    # The hour of the local day at a wall time in milliseconds.
    local_hour: Callable[[int], int]
    # Total and free bytes of the file system that holds a path.
    disk_space: DiskSpace
    # Every readable queue of a topic in the cluster. None: this broker is the only one.
    routes: Routes | None = None
    # The machine's memory; 0 where it is not known.
    memory_bytes: int = 0
    # In a group that fails over: whether this broker may act as the master now. None: there are no replicas.
    authority: Authority | None = None
    # Whose the batches of Spark queries are.
    owners: QueryOwners = field(default_factory=QueryOwners)
    # How metrics are kept; None keeps none, and costs nothing.
    metrics: MetricsConfig | None = None
    # Which source has set each key of RocketMQ's.
    origins: Mapping[str, str] = field(default_factory=dict)


class Broker:
    """A whole broker. Call `open`, serve `handlers` and `fast`, call `tick` often; at the end `release` and `close`."""

    def __init__(self, config: BrokerConfig, store_config: StoreConfig, seams: Seams, *, port: int) -> None:
        """`port` is the one that clients are told, with the first address of the configuration."""
        self._seams = seams
        self._opaque = _FIRST_OPAQUE
        # Whether the broker only follows its master's log; see `open` and `lead`.
        self.is_following = False
        self.state = state = self._build_state(config, store_config, port)
        self.supervisor = Supervisor(seams.clock, lambda error: state.store.fence(error))
        self.handlers: dict[int, Handler] = {}
        # By code: frames that are decoded by their own handlers.
        self.fast: dict[int, FastHandler] = {}
        self.throttle = Throttle(seams.clock)
        # Called when settings were changed over the wire, after all parts of the broker have them.
        self.on_reconfigured: Callable[[BrokerConfig, StoreConfig], None] = lambda config, store_config: None
        self._build_features()
        if seams.authority is not None:
            self._wait_for_replicas(store_config)
        self._serve_clients()
        self._serve_administrators()
        self.metrics = self._measure(seams.metrics, self._times) if seams.metrics and self._times else None
        self._day = seams.clock.now_ms() // _DAY_MS
        self._schedule()

    # -- what features share

    def _build_state(self, config: BrokerConfig, store_config: StoreConfig, port: int) -> BrokerState:
        seams, disk, clock = self._seams, self._seams.disk, self._seams.clock
        root = store_config.store_path_root_dir
        polls: LongPolls[Any] = LongPolls(config.held_pulls_max, config.held_pulls_per_connection_max)
        self._arrivals = Arrivals(polls)
        sinks = [MessageIndex(disk, root, store_config)] if store_config.message_index_enable else []
        # What was written last is still in the page cache: an eighth of the memory is well below what Apache assumes.
        hot_bytes = max(HOT_BYTES, seams.memory_bytes // 8)
        store = MessageStore(root, store_config, disk, clock, [*sinks, self._arrivals], hot_bytes=hot_bytes)
        store.reads.memory_bytes = seams.memory_bytes
        flow = FlowControl(flow_limits(config, store_config.os_page_cache_busy_time_out_ms), clock.monotonic())
        stats = BrokerStats(config.cluster_name, per_queue=config.enable_detail_stat)
        rules = topic_rules(config)
        self.counts = PutCounts(stats, rules.is_system)
        self.settings = SendSettings(
            config.cluster_name, config.region_id, config.trace_on, encode_host(config.broker_ip1, port),
            body_size_max(store_config), writable=config.broker_permission & PERM_WRITE != 0,
        )  # fmt: skip
        self._times = None if seams.metrics is None else RpcTimes(clock)
        self._answers = send_answers(self.settings, self._times)
        self.tables = OffsetTables(
            ConsumerOffsetTable(disk, root), DelayOffsetTable(disk, root), MessageRequestModeTable(disk, root)
        )
        catalog = Catalog(TopicTable(disk, root), GroupTable(disk, root), rules, group_rules(config), clock)
        return BrokerState(
            config=config,
            name=config.broker_name,
            address=f"{config.broker_ip1}:{port}",
            store_host=self.settings.store_host,
            store=store,
            catalog=catalog,
            clients=Clients(
                config.channel_expired_timeout_ms / 1000,
                config.subscription_expired_timeout_ms / 1000,
                notify=config.notify_consumer_ids_changed_enable,
            ),
            offsets=ConsumerOffsets(self.tables.offsets.table, server_side_reset=config.use_server_side_reset_offset),
            filters=ConsumerFilters(
                ConsumerFilterTable(disk, root), clock, lambda: self.state.config.filter_data_clean_time_span_ms
            ),
            locks=GroupLocks(),
            polls=polls,
            stats=stats,
            flow=flow,
            levels=DelayLevels.parse(store_config.message_delay_level),
            puts=Puts(
                store, self._answers, flow, clock, timeout_s=store_config.sync_flush_timeout_ms / 1000,
                write_bytes_max=min(4 << 20, store_config.mapped_file_size_commit_log // 4),
                gather=store_config.sync_flush, stored=self.counts.stored, arrivals=self._arrivals,
            ),
            clock=clock,
            entropy=seams.entropy,
            channel=seams.channel,
            unique_id=seams.unique_id,
        )  # fmt: skip

    def _config(self) -> BrokerConfig:
        return self.state.config

    # -- features

    def _build_features(self) -> None:
        state, settings, clock = self.state, self.settings, self._seams.clock
        store, puts, catalog = state.store, state.puts, state.catalog
        puts.wait_for(catalog)
        self.effects = ClientEffects(state.clients, state.channel, state.polls)
        self.saver = OffsetSaver(self.tables.offsets, clock)
        self.scheduler = Scheduler(
            store, self.tables.delays, state.levels, puts, clock,
            save_interval_ms=store.config.flush_delay_offset_interval_ms,
        )  # fmt: skip
        self.timers = TimerService(store, puts, clock)
        self._placing = Placing(state.levels, lambda: store.config, clock)
        self.transactions = Transactions(
            store, puts, catalog, state.offsets.table, self._placing, settings, self._config, self.effects.producer,
            clock,
        )  # fmt: skip
        self.batches = Batches(
            state.name, store, puts, catalog, state.offsets.table, self._placing, settings, state.unique_id, clock
        )
        self.pop = pop_of(state, self._seams.disk)
        special = SpecialSends(catalog, state.locks, self._placing, state.name, settings, self._config, clock)
        self.sends = SendHandler(
            settings, catalog, puts, self._answers, special, state.flow, clock, state.entropy, state.unique_id
        )
        self.pulls = pull_handler(
            self._times, pull_rules(state.config), store, catalog, state.clients, state.filters, state.offsets,
            state.polls, state.stats, state.flow, clock,
        )  # fmt: skip
        self._arrivals.wake = self.pulls.wake
        self._followed = FollowedLog(lambda draft: learn_sent(draft, self.sends.dedup, state.name, clock.monotonic()))
        # Whether features learn from what is dispatched. A master that lost its role does not: it is built anew.
        self._is_learning = False
        self.retention = RetentionDriver(store, clock, self._seams.local_hour, state.name)
        self.visibility = VisibilityDriver(store, catalog, clock)
        self.info = RuntimeInfo(
            state, lambda: self.tables.delays.table, self._seams.disk_space, self.pending, self._entries_rejected
        )
        self.live_settings = LiveSettings(state, self._reconfigured, self._seams.origins)
        # What the table of rights asks of this broker.
        self.world = BrokerWorld(state.config.cluster_name, state, self.batches, self.live_settings.properties)
        # The journal of a replicated group's state; None without replicas.
        self.journal = self._build_journal() if self._seams.authority is not None else None

    def _build_journal(self) -> StateJournal:
        state, clock = self.state, self._seams.clock
        sections = Sections(state, self.tables, self.scheduler, self.timers, self._seams.owners)
        journal = StateJournal(state.store, sections, state.store_host, clock, settings=self._learn_settings)
        journal.watch()
        state.catalog.journal_by(journal.put_topic, journal.confirm)
        self.live_settings.told = lambda values: journal.change_settings(dict(values))
        return journal

    def _learn_settings(self, values: dict[str, str]) -> None:
        """Take settings that the group's master was given."""
        try:
            self.live_settings.update(values)
        except ConfigError as error:
            _log.warning("settings that the master was given cannot be used here", reason=error)

    def _delete_topics(self, topics: list[str]) -> None:
        """Delete topics with everything that the log holds of them: at once, or when the group has confirmed it."""
        if self.journal is None:
            self.state.store.delete_topics([topic.encode() for topic in topics])
        else:
            self.journal.delete_topics(topics)

    def _wait_for_replicas(self, config: StoreConfig) -> None:
        """Let sends wait for the replicas, or with ASYNC_MASTER for this machine only."""
        store, puts = self.state.store, self.state.puts
        puts.timeout_s = config.slave_timeout_ms / 1000
        puts.late_code = lambda end: late_code(store, end)
        puts.early = LocalWrites(store) if config.broker_role is BrokerRole.ASYNC_MASTER else None

    def _measure(self, config: MetricsConfig, times: RpcTimes) -> BrokerMetrics:
        """Keep what only metrics tell. Nothing of this exists where they are off."""
        state, clock = self.state, self._seams.clock
        self.handlers = timed(self.handlers, times)
        state.puts.stored = self.counts.stored_sized
        state.flow.loop = lag = CountedLag(clock.monotonic())
        groups = LagTable(state)
        self.supervisor.add("lag of groups", lambda now_s, now_ms: groups.tick(now_s), every_s=1.0)
        parts = Measured(
            self.counts, times, lag, groups, self.transactions, self.timers, self.batches, self.sends,
            lambda: self.supervisor.failures, lambda: self.retention.archived,
        )  # fmt: skip
        return BrokerMetrics(state, parts, config.labels(), config.cardinality_limit)

    # -- requests

    def served(self) -> Tables:
        """Return what is to be served in the role that the broker has now."""
        quotas, authority = parse_quotas(self.state.config.quotas), self._seams.authority
        full = Tables(*self.throttle.guarded_tables(self.handlers, self.fast, quotas))
        if self.is_following:
            reads = self.state.config.slave_read_enable
            return follower_tables(full, slave_reads=reads, commits=reads and authority is None)
        return full if authority is None else leader_tables(full, authority)

    def may_act(self) -> bool:
        """Tell whether the broker may do what only a master does: deliver, ask back, end, commit."""
        authority = self._seams.authority
        return not self.is_following and (authority is None or authority())

    def _serve_clients(self) -> None:
        state, settings, clock = self.state, self.settings, self._seams.clock
        store, puts, catalog, clients = state.store, state.puts, state.catalog, state.clients
        routes = self._seams.routes or own_queues(catalog, state.name)
        for part in (
            ClientHandlers(catalog, clients, self.effects, clock, self._config, state.filters),
            OffsetHandlers(store, catalog, state.offsets, clock),
            LockHandlers(state.locks, catalog, clock),
            QueryHandlers(store),
            BulkPullHandler(store, catalog, state.filters, state.stats, state.flow, self._config, clock),
            RecallHandler(
                catalog, puts, self._placing, settings, state.name, self._config, lambda: store.config, clock
            ),
            TransactionHandler(self.transactions, state.flow, clock),
            BatchHandlers(self.batches, catalog, settings, state.flow, clock),
            AssignmentHandlers(catalog, clients, self.tables.modes, routes, clock, self._config),
            SendBackHandler(store, catalog, puts, state.stats, state.levels, settings, clock, state.entropy),
            PopHandlers(self.pop, clients, state.filters, state.flow, self._config),
            AckHandlers(self.pop, state.flow),
            ReplyHandler(catalog, clients, puts, settings, self._config, state.channel, clock, state.entropy),
        ):
            self.handlers.update(part.handlers())
        for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            self.fast[code] = self.sends.on_frame
        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            self.fast[code] = self.pulls.on_frame

    def _serve_administrators(self) -> None:
        state, tables, clock = self.state, self.tables, self._seams.clock
        store, catalog, clients, offsets = state.store, state.catalog, state.clients, state.offsets
        saved = tables.offsets
        for part in (
            TopicAdmin(self._config, store, catalog, state.puts, state.stats, offsets, saved, self._delete_topics),
            GroupAdmin(catalog, state.stats, offsets, state.locks, saved, clock),
            ClientAdmin(clients, clock),
            ProgressAdmin(state.name, state.address, store, catalog, clients, offsets, state.stats, tables, clock),
            ResetAdmin(self._config, store, catalog, clients, offsets, state.channel, self._next_opaque, saved),
            RelayAdmin(state.name, store, catalog, clients, state.channel, self._next_opaque),
            QueueAdmin(state),
            ConfigAdmin(self.live_settings, clock),
            RuntimeAdmin(state, self.info, self.retention),
            TimerProgressHandlers(self.timers),
            RefusedRequests(),
        ):
            for code, handler in part.handlers().items():
                self.handlers[code] = unless_busy(handler, state.flow, clock)

    def _next_opaque(self) -> int:
        self._opaque = _FIRST_OPAQUE | (self._opaque + 1) & (_FIRST_OPAQUE - 1)
        return self._opaque

    def _reconfigured(self, config: BrokerConfig, store_config: StoreConfig) -> None:
        """Give new settings to those who keep a part of them."""
        self.retention.reconfigure(store_config)
        self.pulls.rules = pull_rules(config)
        self.settings.trace_on = config.trace_on
        self.settings.body_size_max = body_size_max(store_config)
        self.settings.writable = config.broker_permission & PERM_WRITE != 0
        if self._seams.authority is not None or self.state.puts.slaves is not None:
            self.state.puts.timeout_s = store_config.slave_timeout_ms / 1000
        self.on_reconfigured(config, store_config)

    def pending(self) -> dict[str, str]:
        """Return what waits and what fails, for the broker's runtime info."""
        return {
            "timerMessagePending": str(self.timers.pending),
            "timerMessageDelivered": str(self.timers.delivered),
            "transactionHalfPending": str(self.transactions.pending),
            "transactionChecks": str(self.transactions.asked),
            "batchChunksPending": str(self.batches.pending),
            "batchRowsSetAside": str(self.batches.set_aside),
            "popInFlight": str(self.pop.table.in_flight),
            **self.supervisor.told(),
        }

    def _entries_rejected(self) -> int:
        """Return how many entries of the state files lie beside them because they could not be used."""
        catalog, tables = self.state.catalog, self.tables
        files = (catalog.topic_table, catalog.group_table, tables.offsets, tables.delays, tables.modes)
        return self.state.filters.rejected + sum(file.rejected for file in files)

    # -- start

    def open(self, *, following: bool = False, confirm_limit: int | None = None) -> int:
        """Recover the store, load the tables, take up what waits. Return how many deliveries a crash did not repeat.

        With `following` the features only learn from what the store dispatches, and do nothing until `lead` is called.
        `confirm_limit` is what replication allows to be seen at the start.
        """
        state, store = self.state, self.state.store
        self.is_following = following
        report = store.open(confirm_limit)
        if isinstance(state.puts.early, LocalWrites):
            state.puts.early.open()
        for problem in report.problems:
            _log.warning("store", problem=problem)
        for damage in report.damages:
            _log.error("a damaged range of records is never served", start=damage.start, end=damage.end)
        now_ms = self._seams.clock.now_ms()
        self.live_settings.load()
        state.catalog.load()
        self.tables.offsets.load(now_ms)
        self.tables.modes.load(now_ms)
        state.filters.load()
        if store.config.enable_consume_queue_ext:
            _log.warning("enableConsumeQueueExt: filter bit maps are not kept, filters look at every message")
        if self.journal is not None:
            self.journal.open()
            state.catalog.add_system_entries()
        made = state.catalog.adopt((queue.topic, queue.queue_id) for queue in store.queues)
        if made:
            _log.warning("topics found in the log and missing from topics.json were made again", topics=len(made))
        self.visibility.open()
        learn_marks(store, self.sends.dedup, state.name, self._seams.clock)
        spared = self.scheduler.open(following=following) + self.timers.open(following=following)
        self.transactions.open(following=following)
        self.batches.open(following=following)
        self.pop.open(following=following)
        # A slave with a static role is started again before it becomes master: it need not learn.
        self._is_learning = following and self.journal is not None
        if self._is_learning:
            store.dispatcher.join(self._followed)
        if self.journal is not None:
            if following:
                self.journal.open_progress()
            else:
                self.journal.lead()
        return spared

    # -- roles

    def _follow(self, now_s: float, now_ms: int) -> None:
        """Let features learn from what the master stored."""
        if self._is_learning:
            marks = self._followed.take()
            self.scheduler.follow(marks)
            self.timers.follow(marks)
            self.transactions.follow(marks, now_ms)
            self.batches.follow(marks, now_ms)
            self.pop.follow()

    def lead(self) -> None:
        """Take over the duties of the group's master, once everything that the log holds is dispatched.

        What the master before has done is not done again. There is no way back: a broker that must follow again is
        built anew.
        """
        assert self._is_learning, "a replica leads once, and nobody else is told to"
        state, clock = self.state, self._seams.clock
        self._follow(clock.monotonic(), clock.now_ms())
        self.is_following = self._is_learning = False
        state.store.dispatcher.leave(self._followed)
        state.catalog.adopt((queue.topic, queue.queue_id) for queue in state.store.queues)
        for part in (self.scheduler, self.timers, self.transactions, self.batches, self.pop):
            part.lead()
        if self.journal is not None:
            self.journal.lead()

    # -- time

    def _schedule(self) -> None:
        """Say what a tick does, in this order."""
        state, add, pulls = self.state, self.supervisor.add, self.pulls
        add("store", lambda now_s, now_ms: state.store.tick())
        add("catalog", lambda now_s, now_ms: state.catalog.tick())
        add("filters", lambda now_s, now_ms: state.filters.tick(), every_s=SAVE_INTERVAL_S)
        add("put counts", lambda now_s, now_ms: self.counts.tick(now_ms))
        add("clients", self._expire, every_s=SCAN_INTERVAL_S)
        add("statistics", self._sample, every_s=SAMPLE_INTERVAL_MS / 1000)
        save_s = state.config.flush_consumer_offset_interval_ms / 1000
        add("POP positions", self._on_duty(lambda now_ms: self.pop.tell_positions()), every_s=save_s / 4)
        add("consume offsets", lambda now_s, now_ms: self.saver.save(), every_s=save_s)
        if self.journal is not None:
            add("request modes", lambda now_s, now_ms: self.tables.modes.submit(lambda error: None), every_s=save_s)
            add("group state", self._tick_journal)
        add("following", self._follow)
        add("delay levels", self._on_duty(self.scheduler.tick))
        add("timers", self._on_duty(self.timers.tick))
        add("transactions", self._on_duty(self.transactions.tick))
        add("batches", self._on_duty(self.batches.tick))
        add("POP", self._on_duty(self.pop.tick))
        add("runtime info", lambda now_s, now_ms: self.info.sample(now_ms), every_s=_INFO_INTERVAL_S)
        add("retention", lambda now_s, now_ms: self.retention.tick(now_s))
        add("visibility", lambda now_s, now_ms: self.visibility.tick(now_ms))
        if self._seams.authority is not None:
            add("authority", lambda now_s, now_ms: self._end_held_pulls())
        add("held pulls", lambda now_s, now_ms: pulls.expire(now_s))
        add("sweep", lambda now_s, now_ms: pulls.sweep(), every_s=SWEEP_INTERVAL_S)

    def _tick_journal(self, now_s: float, now_ms: int) -> None:
        if self.journal is not None and self.may_act():
            self.journal.tick(now_s)

    def _on_duty(self, tick: Callable[[int], None]) -> Work:
        """Return work that is done only while this broker may act as master."""

        def work(now_s: float, now_ms: int) -> None:
            if self.may_act():
                tick(now_ms)

        return work

    def tick(self, now_s: float, now_ms: int) -> None:
        """Do what is due. Call it every 50 ms or more often."""
        self.state.flow.loop.beat(now_s)
        self.supervisor.tick(now_s, now_ms)

    def _end_held_pulls(self) -> None:
        """Answer the pulls that are held while this broker may not act: their clients must look for the master."""
        if not self.is_following and not self.may_act():
            self.pulls.wake(self.state.polls.drain())
            self.pop.waits.drain()

    def _expire(self, now_s: float, now_ms: int) -> None:
        self.effects.expire(now_s)
        self.state.locks.expire(now_s)

    def _sample(self, now_s: float, now_ms: int) -> None:
        stats, idle_minutes = self.state.stats, self.state.config.max_stats_idle_minutes
        stats.sample(now_ms)
        if idle_minutes > 0:
            stats.forget_idle(idle_minutes * 60_000, now_ms)
        if now_ms // _DAY_MS > self._day:
            self._day = now_ms // _DAY_MS
            stats.midnight()

    def look_again(self) -> None:
        """Rely on no time that was planned: the clock was set."""
        self.scheduler.look_again()
        self.retention.retention.look_again()

    def is_behind(self, now_ms: int) -> bool:
        """Tell whether delays, timers or check-backs that are due have not been done."""
        if self.is_following:
            return False
        return any(part.is_behind(now_ms) for part in (self.scheduler, self.timers, self.transactions))

    # -- stop

    def release(self) -> None:
        """Answer the pulls that are held, and write the sends that were taken and the state that changed."""
        self.pulls.wake(self.state.polls.drain())
        self.pop.release()
        self.state.puts.flush()
        self.pop.before_close(acts=self.may_act())
        if self.journal is not None and self.may_act():
            self.journal.flush()

    def settle(self) -> bool:
        """Push on with syncs and saves; tell whether none is under way and nobody waits for one."""
        store, sends, catalog = self.state.store, self.state.flow.sends, self.state.catalog
        if store.fenced is not None or not (store.is_busy or sends.count or catalog.is_awaited):
            return True
        catalog.tick()
        if sends.count:
            store.tick()
        return False

    def close(self) -> None:
        """Close the store and save all progress; raise StoreError where some was not saved.

        Each of these speaks of what the one before it has got to disk. One that cannot be written is no reason to lose
        the others.
        """
        self.counts.flush(self._seams.clock.now_ms())
        state, problems = self.state, []
        parts = (self.transactions, self.saver, self.scheduler, self.timers, self.pop)
        for save in (state.catalog.save_now, state.filters.save, state.store.close, *(part.close for part in parts)):
            try:
                save()
            except (AerobeeError, OSError) as error:
                problems.append(str(error))
        if problems:
            raise StoreError(f"stopped, but not everything was saved: {'; '.join(problems)}")
