"""The pull consumer: the program asks for messages when it wants them.

    consumer = LitePullConsumer("localhost:9876", group="billing")
    consumer.subscribe("orders")
    async with consumer:
        async for message in consumer:
            ...  # the message counts as done when the next one is asked for

RocketMQ: DefaultLitePullConsumer, DefaultMQPullConsumer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self, Unpack

from aerobee.client.consumer.allocation import parse_allocation
from aerobee.client.consumer.groupmember import GroupMember, Membership, call_back
from aerobee.client.consumer.lifecycle import ConsumerLifecycle
from aerobee.client.consumer.options import LitePullConsumerConfig, LitePullConsumerOptions
from aerobee.client.consumer.positions import milliseconds, parse_consume_from
from aerobee.client.consumer.processqueue import PullLimits
from aerobee.client.consumer.pull.engine import LiteEngine, LiteSettings
from aerobee.client.consumer.puller import PULL_BATCH_SIZE, TIMEOUT_S, PullOptions, PullResult
from aerobee.client.consumer.rebalance import Change, difference
from aerobee.client.consumer.subscription import newer, require_filter, subscription
from aerobee.client.core import (
    RECEIVE_HOOKS,
    ClientCore,
    ConsumeContext,
    client_config,
    received,
    require_at_least,
    require_text,
    shown_defaults,
    split_options,
    takes,
    with_namespace,
    without_namespace,
)
from aerobee.client.producer import Replier
from aerobee.errors import AerobeeError, InvalidArgumentError
from aerobee.model.message import Message
from aerobee.model.names import require_group, require_topic
from aerobee.model.queue import MessageQueue
from aerobee.protocol.bodies.heartbeat import BROADCASTING, CLUSTERING, CONSUME_ACTIVELY, SubscriptionData
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.process import environment


class LitePullConsumer(ConsumerLifecycle[LiteEngine]):
    """A pull consumer: a member of a group (`subscribe`), or a reader of queues that it names (`assign`, `pull`).

    Closing it saves offsets (`auto_commit`) and leaves the group. The messages that were handed out last count as not
    done, unless `commit()` was called.
    """

    _start_hint = "async with LitePullConsumer(...) as consumer:"

    @takes(LitePullConsumerOptions, shown_defaults(LitePullConsumerConfig))
    def __init__(
        self, namesrv: str | Sequence[str] | None = None, *, group: str, **options: Unpack[LitePullConsumerOptions]
    ) -> None:
        own, shared = split_options("LitePullConsumer", options, LitePullConsumerConfig)
        require_text("group", group)
        self.group = require_group(group)
        self.config = config = LitePullConsumerConfig(**own)
        config.check()
        client = client_config(namesrv, environment(), **shared)
        super().__init__(client, with_namespace(client.namespace, group))
        self._allocation = parse_allocation(config.allocate)
        self._start_point = parse_consume_from(config.consume_from, config.consume_timestamp, SystemClock().now_ms())
        # Those of the whole process come first.
        self._hooks = (*RECEIVE_HOOKS, *config.hooks)
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._assigned: list[MessageQueue] = []
        self._member: GroupMember | None = None

    # -- what to read

    def subscribe(self, topic: str, *, tags: str = "*", sql92: str | None = None) -> None:
        """Subscribe to a topic, whose queues the members of the group share. This may be called while running."""
        if self._assigned:
            raise InvalidArgumentError("assign and subscribe cannot go together: choose one")
        wire = with_namespace(self.client_config.namespace, require_topic(topic))
        self._subscriptions[wire] = subscription(wire, tags, sql92)
        self._resubscribe()

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic and give its queues up."""
        self._subscriptions.pop(with_namespace(self.client_config.namespace, topic), None)
        self._resubscribe()

    def _resubscribe(self) -> None:
        engine, core = self._engine, self._core
        if engine is None or core is None or self._closed:
            return
        engine.tasks.start(self._join(core, engine), name="subscribe")

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read just these queues, whatever others read. Queues that were named before are given up."""
        if self._subscriptions:
            raise InvalidArgumentError("assign and subscribe cannot go together: choose one")
        self._assigned = [self._wire(queue) for queue in queues]
        if self._engine is not None and not self._closed:
            self._engine.tasks.start(self._take_assigned(self._engine), name="assign")

    async def _take_assigned(self, engine: LiteEngine) -> None:
        topics = {queue.topic for queue in (*engine.owned(), *self._assigned)}
        for topic in sorted(topics):
            wanted = [queue for queue in self._assigned if queue.topic == topic]
            await engine.change(topic, difference(topic, engine.owned(), wanted))

    def _wire(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(
            with_namespace(self.client_config.namespace, queue.topic), queue.broker_name, queue.queue_id
        )

    def _user(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(
            without_namespace(self.client_config.namespace, queue.topic), queue.broker_name, queue.queue_id
        )

    # -- life

    async def _begin(self, core: ClientCore, engine: LiteEngine) -> None:
        if self._subscriptions:
            # Before anything is waited for: another consumer of the group must not choose this core too.
            self._member = self._new_member(core, engine)
            self._member.join()
        await engine.start()
        if self._subscriptions:
            await self._join(core, engine)
        elif self._assigned:
            await self._take_assigned(engine)

    def _new_engine(self, core: ClientCore, replier: Replier) -> LiteEngine:
        config = self.config
        settings = LiteSettings(
            start=self._start_point,
            limits=PullLimits(
                config.pull_threshold, config.pull_threshold_bytes, config.max_span, config.prefetch_bytes
            ),
            pull_batch_size=config.pull_batch_size,
            auto_commit=config.auto_commit,
            persist_interval_s=config.persist_interval,
        )
        offsets = self._offset_store(core, config.broadcast, config.offset_dir, self._start_point.at_time)
        namespace = self.client_config.namespace
        return LiteEngine(core, self.wire_group, namespace, settings, offsets, self._subscriptions, replier)

    def _new_member(self, core: ClientCore, engine: LiteEngine) -> GroupMember:
        membership = Membership(
            group=self.wire_group,
            consume_type=CONSUME_ACTIVELY,
            message_model=BROADCASTING if self.config.broadcast else CLUSTERING,
            consume_from_where=self._start_point.where.value,
            allocation=self._allocation,
        )
        member = GroupMember(core, membership, _Owner(self, engine))
        # They share one table: the member renews the versions, and pulls carry them.
        member.subscriptions = self._subscriptions
        return member

    async def _join(self, core: ClientCore, engine: LiteEngine) -> None:
        """Join the group with the present subscriptions."""
        for topic, data in list(self._subscriptions.items()):
            await require_filter(core, self.wire_group, data)
            self._subscriptions[topic] = newer(data, core.clock.now_ms())
        member = self._member
        if member is None:
            member = self._member = self._new_member(core, engine)
        if member.started:
            await member.subscribed()
        else:
            await member.start()

    async def _end(self, engine: LiteEngine) -> None:
        member = self._member
        if member is not None:
            await member.stop()
        await engine.stop()
        if member is not None:
            await member.leave()

    # -- reading

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """Return the next message; the one before counts as done. Iteration ends when the consumer is closed."""
        if self._closed:
            raise StopAsyncIteration
        messages = await self._take(1, None)
        if not messages:
            raise StopAsyncIteration
        return messages[0]

    async def poll(
        self,
        max: int = PULL_BATCH_SIZE,  # noqa: A002 - the word of INTERFACES
        timeout: float | None = 5.0,  # noqa: ASYNC109 - how long to wait for the first message
    ) -> list[Message]:
        """Return up to `max` messages as soon as there is one, or none in time. Earlier ones count as done."""
        require_at_least("max", max, 1)
        return await self._take(max, timeout)

    async def _take(self, most: int, timeout_s: float | None) -> list[Message]:
        engine = self._running()
        if not self._hooks:
            return await engine.take(most, timeout_s)
        began_s = engine.core.clock.monotonic()
        messages = await engine.take(most, timeout_s)
        if messages:
            context = ConsumeContext(
                messages, self.group, engine.core.client_id, self.client_config.namespace,
                broadcast=self.config.broadcast,
            )  # fmt: skip
            received(self._hooks, context, engine.core.clock.monotonic() - began_s)
        return messages

    async def poll_arrow(
        self,
        max: int = 1024,  # noqa: A002
        timeout: float | None = 5.0,  # noqa: ASYNC109
    ) -> Any:
        """Poll messages as a `pyarrow.RecordBatch` with the columns of the Spark source."""
        from aerobee.client.consumer.pull.arrow import record_batch

        record_batch(())  # raises before messages are taken, where pyarrow is missing
        return record_batch(await self.poll(max, timeout))

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max: int = PULL_BATCH_SIZE,  # noqa: A002
        tags: str = "*",
        sql92: str | None = None,
        wait: float = 0.0,
        unfold: bool = True,
    ) -> PullResult:
        """Pull the messages at an offset, without touching the progress of the group.

        `wait` is how long the broker may hold the answer while there is nothing new. Without `unfold` compressed bodies
        stay as they are stored, which the flags of the messages tell.
        """
        engine = self._running()
        require_at_least("offset", offset, 0)
        wire = self._wire(queue)
        wanted = subscription(wire.topic, tags, sql92)
        options = PullOptions(max_num=max, suspend_s=wait, timeout_s=wait + TIMEOUT_S / 3, lite=True, unfold=unfold)
        return await engine.puller.pull(wire, wanted, offset, options)

    # -- where

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return all readable queues of a topic."""
        engine = self._running()
        route = await engine.core.route(
            with_namespace(self.client_config.namespace, require_topic(topic)), refresh=True
        )
        return [self._user(queue) for queue in route.read_queues]

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that this consumer reads now."""
        return sorted(self._user(queue) for queue in self._running().owned())

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on reading a queue at an offset. It is saved with the next commit."""
        engine = self._running()
        require_at_least("offset", offset, 0)
        wire = self._wire(queue)
        if wire not in engine.queues:
            raise InvalidArgumentError(f"queue {queue} is not assigned to this consumer now")
        engine.seek(wire, offset)

    async def seek_to_begin(self, *queues: MessageQueue) -> None:
        """Go to the oldest message that is still there, in these queues or in all."""
        for queue in queues or self.assignment():
            await self.seek(queue, await self.begin_offset(queue))

    async def seek_to_end(self, *queues: MessageQueue) -> None:
        """Go past the newest message, in these queues or in all."""
        for queue in queues or self.assignment():
            await self.seek(queue, await self.end_offset(queue))

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset of the next message to be handed out, None while it is not known yet."""
        owned = self._running().queues.get(self._wire(queue))
        if owned is None:
            raise InvalidArgumentError(f"queue {queue} is not assigned to this consumer now")
        return owned.position

    async def begin_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message that is still there."""
        return await self._running().positions.begin(self._wire(queue))

    async def end_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message will get."""
        return await self._running().positions.end(self._wire(queue))

    async def offset_at(self, queue: MessageQueue, moment: datetime | int) -> int:
        """Return the offset of the first message that was stored at a time or after it."""
        return await self._running().positions.at(self._wire(queue), milliseconds(moment))

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the saved offset of the group, None where there is none."""
        return await self._running().offsets.read(self._wire(queue))

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Save the offsets of all messages handed out, or just these offsets. Raise where a broker did not take one."""
        engine = self._running()
        if offsets is None:
            saved = await engine.commit()
        else:
            saved = await engine.commit_offsets({self._wire(queue): offset for queue, offset in offsets.items()})
        if not saved:
            raise AerobeeError("not every offset could be saved", retriable=True, hint="see the log; commit again")

    def pause(self, *queues: MessageQueue) -> None:
        """Hand out nothing more of these queues, or of all, until `resume`."""
        engine = self._running()
        engine.paused |= not queues
        engine.pause([self._wire(queue) for queue in queues] or engine.owned())

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with these queues, or with all."""
        engine = self._running()
        if not queues:
            engine.paused = False
        engine.resume([self._wire(queue) for queue in queues] or engine.owned())


class _Owner:
    """The owner of the member's queues, which calls the user's callbacks after each change."""

    def __init__(self, consumer: LitePullConsumer, engine: LiteEngine) -> None:
        self._consumer = consumer
        self._engine = engine

    def owned(self) -> list[MessageQueue]:
        return self._engine.owned()

    async def change(self, topic: str, change: Change) -> None:
        await self._engine.change(topic, change)
        config, user = self._consumer.config, self._consumer._user
        await call_back(config.on_revoked, [user(queue) for queue in change.revoked])
        await call_back(config.on_assigned, [user(queue) for queue in change.assigned])
