"""The pushing consumer: handlers are called with messages as they come.

    consumer = PushConsumer("localhost:9876", group="billing")

    @consumer.listener("orders", tags="PAID || REFUND")
    async def handle(message: Message) -> None: ...

    asyncio.run(consumer.run())

A handler that returns None is done with its message; one that raises gets it again later. RocketMQ:
DefaultMQPushConsumer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self, TypeVar, Unpack

from aerobee.client import sharing
from aerobee.client.allocation import parse_allocation
from aerobee.client.config import client_config
from aerobee.client.consumeroptions import PushConsumerConfig, PushConsumerOptions, require_at_least
from aerobee.client.consumertrace import ConsumerTrace
from aerobee.client.core import ClientCore
from aerobee.client.errors import ClientStateError
from aerobee.client.filtercheck import require_filter
from aerobee.client.listener import Handler, Listener
from aerobee.client.localoffsets import local_offsets_path
from aerobee.client.member import Membership
from aerobee.client.namespace import wrap
from aerobee.client.offsetstore import BrokerOffsets, LocalOffsets, OffsetStore
from aerobee.client.options import split_options
from aerobee.client.positions import parse_consume_from
from aerobee.client.processqueue import PullLimits
from aerobee.client.pushengine import EngineSettings, PushEngine
from aerobee.client.pushrequests import PushRequests
from aerobee.client.replying import Replier
from aerobee.client.subscription import newer, subscription
from aerobee.errors import InvalidArgumentError
from aerobee.model.names import TRACE_TOPIC, require_group, require_topic, retry_topic
from aerobee.model.queue import MessageQueue
from aerobee.protocol.bodies.heartbeat import BROADCASTING, CLUSTERING, CONSUME_PASSIVELY
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.process import environment, fork_count
from aerobee.runtime.signals import on_stop

H = TypeVar("H", bound=Handler)


class PushConsumer:
    """One member of a consumer group. Making one touches no loop and no socket; `run()` or `async with` starts it."""

    def __init__(
        self, namesrv: str | Sequence[str] | None = None, *, group: str, **options: Unpack[PushConsumerOptions]
    ) -> None:
        own, shared = split_options(options, PushConsumerConfig)
        self.group = require_group(group)
        self.config = config = PushConsumerConfig(**own)
        config.check()
        self.client_config = client_config(namesrv, environment(), **shared)
        self.wire_group = wrap(self.client_config.namespace, group)
        self._allocation = parse_allocation(config.allocate)
        self._start_point = parse_consume_from(config.consume_from, config.consume_timestamp, SystemClock().now_ms())
        self._listeners: dict[str, Listener] = {}
        self._core: ClientCore | None = None
        self._engine: PushEngine | None = None
        self._replier: Replier | None = None
        self._closed = False
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- listeners

    def listener(
        self,
        topic: str,
        *,
        tags: str = "*",
        sql92: str | None = None,
        ordered: bool = False,
        batch: int = 1,
    ) -> Callable[[H], H]:
        """Declares a topic's handler. It gets a Message, or a list of up to `batch` where that is above 1.

        `tags`: `A || B`; `sql92`: a filter that the broker evaluates. `ordered`: each queue's messages one after the
        other, the next only when the one before is done.
        """
        require_topic(topic)
        require_at_least("batch", batch, 1)
        data = subscription(wrap(self.client_config.namespace, topic), tags, sql92)

        def declare(handler: H) -> H:
            if not callable(handler):
                raise InvalidArgumentError(f"{handler!r} cannot be called")
            if self._engine is not None:
                raise ClientStateError("listeners are declared before the consumer starts")
            if topic in self._listeners:
                raise InvalidArgumentError(f"topic {topic!r} has a listener already: {self._listeners[topic].name}")
            self._listeners[topic] = Listener(handler, data, ordered, batch)
            return handler

        return declare

    # -- life

    async def run(self) -> None:
        """Consume until SIGTERM, Ctrl-C or `stop()`; then let handlers end, save offsets and leave. A second signal
        does not wait for handlers any more."""
        loop = asyncio.get_running_loop()

        def heard() -> None:
            if self._stop.is_set() and self._engine is not None:
                self._engine.dispatcher.hurry()
            self._stop.set()

        restore = on_stop(loop, heard)
        try:
            await self.start()
            await self.stopped()
        finally:
            try:
                await self.close()
            finally:
                restore()

    async def stopped(self) -> None:
        """Until `stop()`."""
        await self._stop.wait()

    def stop(self) -> None:
        """Make `run()` end. From any thread."""
        loop = self._loop
        if loop is None or loop.is_closed():
            self._stop.set()
        else:
            loop.call_soon_threadsafe(self._stop.set)

    async def start(self) -> Self:
        """In its group when this returns; messages come from then on. Twice is once."""
        if self._closed:
            raise ClientStateError("the consumer is closed", hint="make a new one")
        if self._engine is not None and self._engine.core.fork == fork_count():
            return self
        if not self._listeners:
            raise ClientStateError("no listener is declared", hint='@consumer.listener("topic") above a function')
        self._loop = asyncio.get_running_loop()
        core = self._core = await sharing.acquire(self.client_config, consumer_group=self.wire_group)
        try:
            replier = self._replier = Replier(core)
            engine = self._engine = self._new_engine(core, replier)
            # Before anything is waited for: another consumer of the group must not choose this core, too.
            engine.member.join()
            PushRequests(engine, core.clock.now_ms()).register()
            for listener in self._listeners.values():
                await require_filter(core, self.wire_group, listener.subscription)
            await engine.start()
        except BaseException:
            await self.close()
            raise
        return self

    def _new_engine(self, core: ClientCore, replier: Replier) -> PushEngine:
        config = self.config
        trace: ConsumerTrace | None = None
        if config.trace:
            topic = config.trace if isinstance(config.trace, str) else TRACE_TOPIC
            trace = ConsumerTrace(core, self.group, topic)
        settings = EngineSettings(
            membership=Membership(
                group=self.wire_group,
                consume_type=CONSUME_PASSIVELY,
                message_model=BROADCASTING if config.broadcast else CLUSTERING,
                consume_from_where=self._start_point.where.value,
                allocation=self._allocation,
            ),
            namespace=self.client_config.namespace,
            start=self._start_point,
            concurrency=config.concurrency,
            limits=PullLimits(config.pull_threshold, config.pull_threshold_bytes, config.max_span),
            pull_batch_size=config.pull_batch_size,
            max_reconsume_times=config.max_reconsume_times,
            consume_timeout_s=config.consume_timeout,
            persist_interval_s=config.persist_interval,
            suspend_s=config.suspend,
            on_assigned=config.on_assigned,
            on_revoked=config.on_revoked,
        )
        engine = PushEngine(core, settings, self._listeners, self._offsets(core), replier, trace)
        version = core.clock.now_ms()
        for listener in self._listeners.values():
            data = listener.subscription
            engine.member.subscriptions[data.topic] = newer(data, version)
        if not config.broadcast:
            topic = retry_topic(self.wire_group)
            engine.member.subscriptions[topic] = subscription(topic, version=version)
        engine.member.more_topics = replier.topics
        return engine

    def _offsets(self, core: ClientCore) -> OffsetStore:
        if not self.config.broadcast:
            return BrokerOffsets(core, self.wire_group, young_from_zero=not self._start_point.at_time)
        return LocalOffsets(
            local_offsets_path(
                self.config.offset_dir, core.config.client_ip, core.config.instance_name, self.wire_group
            )
        )

    async def close(self) -> None:
        """Running handlers may end within `drain_timeout`, offsets are saved, the group is left. Twice is once."""
        if self._closed:
            return
        self._closed = True
        core, engine = self._core, self._engine
        if core is None or core.fork != fork_count():
            return
        try:
            if engine is not None:
                await engine.stop(self.config.drain_timeout)
        finally:
            if self._replier is not None:
                self._replier.close()
            await sharing.release(core)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _running(self) -> PushEngine:
        engine = self._engine
        if engine is None or self._closed:
            state = "closed" if self._closed else "not started"
            raise ClientStateError(f"the consumer is {state}", hint="async with consumer: or await consumer.start()")
        if engine.core.fork != fork_count():
            raise ClientStateError("the consumer was started before a fork, in the parent process")
        return engine

    # -- while it runs

    @property
    def client_id(self) -> str:
        """By which brokers and `mqadmin` know this client."""
        return self._running().core.client_id

    def assignment(self) -> list[MessageQueue]:
        """The queues of this consumer's topics that it has now."""
        engine = self._running()
        mine = (engine.user_queue(queue) for queue in engine.owned())
        return sorted(queue for queue in mine if queue.topic in self._listeners)

    def pause(self, *queues: MessageQueue) -> None:
        """No more messages are handed out, of these queues or of all, until `resume`; handlers that run go on."""
        engine = self._running()
        engine.paused |= not queues
        engine.pause(self._wire(engine, queues))

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with these queues, or with all."""
        engine = self._running()
        if not queues:
            engine.paused = False
        engine.resume(self._wire(engine, queues))

    @staticmethod
    def _wire(engine: PushEngine, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [engine.wire_queue(queue) for queue in queues] or engine.owned()

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from there, for the whole group. What is under way does not count any more."""
        engine = self._running()
        wire = engine.wire_queue(queue)
        if wire not in engine.queues:
            raise InvalidArgumentError(f"queue {queue} is not assigned to this consumer now")
        require_at_least("offset", offset, 0)
        await engine.restart_now(wire, offset)
