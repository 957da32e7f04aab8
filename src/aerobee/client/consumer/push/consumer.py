"""The push consumer: it calls handlers with messages as they come.

    consumer = PushConsumer("localhost:9876", group="billing")

    @consumer.listener("orders", tags="PAID || REFUND")
    async def handle(message: Message) -> None: ...

    asyncio.run(consumer.run())

A handler that returns None is done with its message. One that raises gets the message again later. RocketMQ:
DefaultMQPushConsumer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, Unpack

from aerobee.client.consumer.allocation import parse_allocation
from aerobee.client.consumer.groupmember import Membership
from aerobee.client.consumer.lifecycle import ConsumerLifecycle
from aerobee.client.consumer.options import PushConsumerConfig, PushConsumerOptions
from aerobee.client.consumer.positions import parse_consume_from
from aerobee.client.consumer.processqueue import PullLimits
from aerobee.client.consumer.push.brokerrequests import PushRequests
from aerobee.client.consumer.push.engine import EngineSettings, PushEngine
from aerobee.client.consumer.push.listener import Handler, TopicListener
from aerobee.client.consumer.push.popengine import PopPushEngine, PopSettings
from aerobee.client.consumer.push.trace import ConsumerTrace
from aerobee.client.consumer.subscription import newer, require_filter, subscription
from aerobee.client.core import (
    CONSUME_HOOKS,
    ClientCore,
    ClientStateError,
    ConsumeContext,
    client_config,
    require_at_least,
    require_text,
    shown_defaults,
    split_options,
    takes,
    with_namespace,
)
from aerobee.client.producer import Replier
from aerobee.errors import InvalidArgumentError
from aerobee.model.message import Message
from aerobee.model.names import TRACE_TOPIC, require_group, require_topic, retry_topic
from aerobee.model.queue import MessageQueue
from aerobee.protocol.bodies.heartbeat import BROADCASTING, CLUSTERING, CONSUME_PASSIVELY
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.process import environment
from aerobee.runtime.signals import on_stop

H = TypeVar("H", bound=Handler)


class PushConsumer(ConsumerLifecycle[PushEngine | PopPushEngine]):
    """A push consumer: a member of a group. Making it touches no loop and no socket; `run()` or `async with` starts it.

    `allocate=` says how the group shares the queues: "averagely" (the default), "averagely_by_circle" (round robin),
    "consistent_hash", or an object such as `aerobee.ByMachineRoom(frozenset({"room1"}))`. With `mode="pop"` the queues
    are not shared out: every member gets messages of all of them.
    """

    _start_hint = "async with consumer: or await consumer.start()"

    @takes(PushConsumerOptions, shown_defaults(PushConsumerConfig))
    def __init__(
        self, namesrv: str | Sequence[str] | None = None, *, group: str, **options: Unpack[PushConsumerOptions]
    ) -> None:
        own, shared = split_options("PushConsumer", options, PushConsumerConfig)
        require_text("group", group)
        self.group = require_group(group)
        self.config = config = PushConsumerConfig(**own)
        config.check()
        client = client_config(namesrv, environment(), **shared)
        super().__init__(client, with_namespace(client.namespace, group))
        self._allocation = parse_allocation(config.allocate)
        self._start_point = parse_consume_from(config.consume_from, config.consume_timestamp, SystemClock().now_ms())
        # Those of the whole process come first.
        self._hooks = (*CONSUME_HOOKS, *config.hooks)
        self._listeners: dict[str, TopicListener] = {}
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
        """Declare the handler of a topic. It gets a Message, or a list of up to `batch` messages where that is above 1.

        `tags` such as `A || B`, or `sql92`, filter the messages; brokers evaluate `sql92`. With `ordered`, the messages
        of a queue come one after the other, each when the one before is done.
        """
        require_topic(topic)
        require_at_least("batch", batch, 1)
        data = subscription(with_namespace(self.client_config.namespace, topic), tags, sql92)

        def declare(handler: H) -> H:
            if not callable(handler):
                raise InvalidArgumentError(f"{handler!r} cannot be called")
            if self._engine is not None:
                raise ClientStateError("listeners are declared before the consumer starts")
            if topic in self._listeners:
                raise InvalidArgumentError(f"topic {topic!r} has a listener already: {self._listeners[topic].name}")
            self._listeners[topic] = TopicListener(handler, data, ordered, batch, self._hooks, self._told)
            return handler

        return declare

    def _told(self, messages: Sequence[Message]) -> ConsumeContext:
        client_id = self._core.client_id if self._core is not None else ""
        return ConsumeContext(
            messages, self.group, client_id, self.client_config.namespace, broadcast=self.config.broadcast
        )

    # -- life

    async def run(self) -> None:
        """Consume until SIGTERM, Ctrl-C or `stop()`. Then let handlers end, save offsets and leave the group.

        After a second signal handlers are not waited for any more.
        """
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
        """Wait until `stop()` is called."""
        await self._stop.wait()

    def stop(self) -> None:
        """Make `run()` end. Any thread may call this."""
        loop = self._loop
        if loop is None or loop.is_closed():
            self._stop.set()
        else:
            loop.call_soon_threadsafe(self._stop.set)

    def _require_ready(self) -> None:
        if not self._listeners:
            raise ClientStateError("no listener is declared", hint='@consumer.listener("topic") above a function')
        self._loop = asyncio.get_running_loop()

    async def _begin(self, core: ClientCore, engine: PushEngine | PopPushEngine) -> None:
        # Before anything is waited for: another consumer of the group must not choose this core too.
        engine.member.join()
        if isinstance(engine, PushEngine):
            PushRequests(engine, core.clock.now_ms()).register()
        for listener in self._listeners.values():
            await require_filter(core, self.wire_group, listener.subscription)
        await engine.start()

    async def _end(self, engine: PushEngine | PopPushEngine) -> None:
        """Stop. Running handlers may end within `drain_timeout`."""
        await engine.stop(self.config.drain_timeout)

    def _new_pop_engine(self, core: ClientCore, replier: Replier, trace: ConsumerTrace | None) -> PopPushEngine:
        config = self.config
        settings = PopSettings(
            group=self.wire_group,
            namespace=self.client_config.namespace,
            from_start=config.consume_from == "first",
            concurrency=config.concurrency,
            invisible_s=config.invisible,
            max_reconsume_times=config.max_reconsume_times,
            suspend_s=config.suspend,
        )
        engine = PopPushEngine(core, settings, self._listeners, replier, trace)
        for listener in self._listeners.values():
            data = listener.subscription
            engine.member.subscriptions[data.topic] = newer(data, core.clock.now_ms())
        return engine

    def _new_engine(self, core: ClientCore, replier: Replier) -> PushEngine | PopPushEngine:
        config = self.config
        trace: ConsumerTrace | None = None
        if config.trace:
            topic = config.trace if isinstance(config.trace, str) else TRACE_TOPIC
            trace = ConsumerTrace(core, self.group, topic)
        if config.mode == "pop":
            return self._new_pop_engine(core, replier, trace)
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
            limits=PullLimits(
                config.pull_threshold, config.pull_threshold_bytes, config.max_span, config.prefetch_bytes
            ),
            pull_batch_size=config.pull_batch_size,
            max_reconsume_times=config.max_reconsume_times,
            consume_timeout_s=config.consume_timeout,
            persist_interval_s=config.persist_interval,
            suspend_s=config.suspend,
            on_assigned=config.on_assigned,
            on_revoked=config.on_revoked,
        )
        offsets = self._offset_store(core, config.broadcast, config.offset_dir, self._start_point.at_time)
        engine = PushEngine(core, settings, self._listeners, offsets, replier, trace)
        version = core.clock.now_ms()
        for listener in self._listeners.values():
            data = listener.subscription
            engine.member.subscriptions[data.topic] = newer(data, version)
        if not config.broadcast:
            topic = retry_topic(self.wire_group)
            engine.member.subscriptions[topic] = subscription(topic, version=version)
        engine.member.more_topics = replier.topics
        return engine

    # -- while it runs

    @property
    def client_id(self) -> str:
        """The id by which brokers and `mqadmin` know this client."""
        return self._running().core.client_id

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that this consumer has now."""
        engine = self._running()
        mine = (engine.user_queue(queue) for queue in engine.owned())
        return sorted(queue for queue in mine if queue.topic in self._listeners)

    def pause(self, *queues: MessageQueue) -> None:
        """Hand out no more messages of these queues, or of all, until `resume`. Running handlers go on."""
        engine = self._running()
        if isinstance(engine, PopPushEngine):
            _refuse_queues(queues)
            engine.hold(paused=True)
            return
        engine.paused |= not queues
        engine.pause(self._wire(engine, queues))

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with these queues, or with all."""
        engine = self._running()
        if isinstance(engine, PopPushEngine):
            _refuse_queues(queues)
            engine.hold(paused=False)
            return
        if not queues:
            engine.paused = False
        engine.resume(self._wire(engine, queues))

    @staticmethod
    def _wire(engine: PushEngine, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [engine.wire_queue(queue) for queue in queues] or engine.owned()

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset, for the whole group. Messages of the queue under way do not count any more."""
        engine = self._running()
        if isinstance(engine, PopPushEngine):
            raise InvalidArgumentError("mode='pop' has no place in a queue: reset the group (aerobee group reset)")
        wire = engine.wire_queue(queue)
        if wire not in engine.queues:
            raise InvalidArgumentError(f"queue {queue} is not assigned to this consumer now")
        require_at_least("offset", offset, 0)
        await engine.restart_now(wire, offset)


def _refuse_queues(queues: Sequence[MessageQueue]) -> None:
    if queues:
        raise InvalidArgumentError("mode='pop' has no queues of its own: pause() and resume() take none")
