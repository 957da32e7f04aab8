"""The parts of a started LitePullConsumer: queues that are pulled ahead, messages handed out, offsets to commit.

A message counts as done when the next one is asked for. RocketMQ: DefaultLitePullConsumerImpl, AssignedMessageQueue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from aerobee.client.consumer.offsetstore import OffsetStore, keep_saving
from aerobee.client.consumer.positions import Positions, StartingPoint
from aerobee.client.consumer.processqueue import Prefetch, ProcessQueue, PullLimits
from aerobee.client.consumer.pulledqueue import PulledQueue
from aerobee.client.consumer.puller import Puller
from aerobee.client.consumer.rebalance import Change
from aerobee.client.consumer.subscription import subscription
from aerobee.client.core import ClientCore
from aerobee.client.producer import Replier
from aerobee.model.message import Message, with_replier
from aerobee.model.queue import MessageQueue
from aerobee.protocol.bodies.heartbeat import SubscriptionData
from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.stdlog import get_log

_log = get_log("client.litepull")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteSettings:
    """The settings of a LiteEngine."""

    start: StartingPoint
    limits: PullLimits
    pull_batch_size: int
    auto_commit: bool
    persist_interval_s: float


class LiteQueue(PulledQueue):
    """One queue, whose messages wait until they are asked for."""

    lite = True

    def __init__(self, engine: LiteEngine, queue: MessageQueue, offset: int | None = None) -> None:
        self._engine = engine
        # The offset of the next message to be handed out, unless it is filtered out.
        self.position = offset
        self.parked: list[Message] = []
        super().__init__(engine, queue, offset)

    def _started(self, process: ProcessQueue) -> None:
        self.position = process.next_offset

    def _arrived(self, process: ProcessQueue, messages: list[Message]) -> None:
        self._engine.arrived(self, messages)

    def _skipped(self, process: ProcessQueue) -> None:
        self.position = process.commit_offset
        self._engine.noted(self)


class LiteEngine:
    """The queues of one consumer, whether the group shared them out or the user named them."""

    def __init__(
        self,
        core: ClientCore,
        group: str,
        namespace: str,
        settings: LiteSettings,
        offsets: OffsetStore,
        subscriptions: dict[str, SubscriptionData],
        replier: Replier,
    ) -> None:
        self.core = core
        self.settings = settings
        self.offsets = offsets
        self.limits = settings.limits
        self.prefetch = Prefetch(settings.limits.total_bytes)
        self.pull_batch_size = settings.pull_batch_size
        self.puller = Puller(core, group, namespace)
        self.positions = Positions(core)
        self.tasks = Tasks(failed=self._failed)
        self.queues: dict[MessageQueue, LiteQueue] = {}
        self.paused = False
        self.closed = False
        self._subscriptions = subscriptions
        self._replier = replier
        self._ready: deque[tuple[LiteQueue, Message]] = deque()
        self._handed: list[tuple[LiteQueue, Message]] = []
        self._something = asyncio.Event()

    def _failed(self, name: str, error: BaseException) -> None:
        _log.error("a task failed", task=name, exc_info=error)

    async def start(self) -> None:
        await self.offsets.load()
        if self.settings.auto_commit:
            self.tasks.start(self._keep_offsets(), name="save offsets")

    async def stop(self) -> None:
        self.closed = True
        self._something.set()
        for queue in self.queues.values():
            queue.halt()
        await self.tasks.close()
        if self.settings.auto_commit:
            await self.offsets.persist()

    async def _keep_offsets(self) -> None:
        await keep_saving(self.offsets, self.settings.persist_interval_s)

    # -- the share

    def owned(self) -> list[MessageQueue]:
        return list(self.queues)

    async def change(self, topic: str, change: Change) -> None:
        for queue in change.revoked:
            old = self.queues.pop(queue, None)
            if old is not None:
                old.drop()
        if self.settings.auto_commit:
            await self.offsets.persist(change.revoked)
        for queue in change.revoked:
            self.offsets.table.remove(queue, keep=self.core.routes.is_away(queue))
            self.puller.forget(queue)
        for queue in change.assigned:
            if queue not in self.queues:
                self.add(queue)

    def add(self, queue: MessageQueue, offset: int | None = None) -> LiteQueue:
        made = self.queues[queue] = LiteQueue(self, queue, offset)
        if self.paused:
            made.pause()
        return made

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset. Messages of the queue that wait or were handed out do not count any more."""
        old = self.queues[queue]
        old.drop()
        made = self.add(queue, offset)
        if old.paused:
            made.pause()
        if self.settings.auto_commit:
            self.offsets.table.reset(queue, offset)

    # -- what queues ask

    def subscription_of(self, topic: str) -> SubscriptionData | None:
        return self._subscriptions.get(topic) or subscription(topic)

    async def start_offset(self, queue: MessageQueue) -> int:
        return await self.positions.start_of(queue, self.offsets, self.settings.start)

    def offset_moved(self, queue: MessageQueue, offset: int) -> None:
        if queue in self.queues:
            self.seek(queue, offset)

    def arrived(self, queue: LiteQueue, messages: Iterable[Message]) -> None:
        self._ready.extend((queue, message) for message in messages)
        self._something.set()

    def noted(self, queue: LiteQueue) -> None:
        """Note how far a queue is done, for the next time offsets are saved."""
        process = queue.process
        if self.settings.auto_commit and process is not None and not process.dropped:
            self.offsets.table.reset(queue.queue, process.commit_offset)

    # -- handing out

    def finish(self) -> None:
        """Count the messages that were handed out as done."""
        handed, self._handed = self._handed, []
        touched: dict[LiteQueue, None] = {}
        for queue, message in handed:
            if queue.process is not None:
                queue.process.finish((message.queue_offset,))
                touched[queue] = None
        for queue in touched:
            self.noted(queue)
            queue.wake()

    async def take(self, count: int, timeout_s: float | None) -> list[Message]:
        """Return at least one message, unless the time is over or the consumer closes. Those before count as done."""
        self.finish()
        messages = self._pop(count)
        if messages:
            return messages
        try:
            async with asyncio.timeout(timeout_s):
                while not messages and not self.closed:
                    self._something.clear()
                    await self._something.wait()
                    messages = self._pop(count)
        except TimeoutError:
            # A message may have come in that moment.
            return self._pop(count)
        return messages

    def _pop(self, count: int) -> list[Message]:
        result: list[Message] = []
        while self._ready and len(result) < count:
            queue, message = self._ready.popleft()
            process = queue.process
            if process is None or process.dropped:
                continue
            if queue.paused:
                queue.parked.append(message)
                continue
            queue.position = message.queue_offset + 1
            self._handed.append((queue, message))
            result.append(with_replier(message, self._replier))
        return result

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            if queue in self.queues:
                self.queues[queue].pause()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        for name in queues:
            queue = self.queues.get(name)
            if queue is None:
                continue
            queue.resume()
            # They go before the messages that were pulled since and still wait.
            parked, queue.parked = queue.parked, []
            self._ready.extendleft((queue, message) for message in reversed(parked))
            if parked:
                self._something.set()

    # -- committing

    async def commit(self) -> bool:
        """Count everything handed out as done, and save it. Return whether all offsets were saved."""
        self.finish()
        for queue in self.queues.values():
            if queue.process is not None:
                self.offsets.table.reset(queue.queue, queue.process.commit_offset)
        return await self.offsets.persist()

    async def commit_offsets(self, offsets: dict[MessageQueue, int]) -> bool:
        """Save these offsets, whatever was handed out. Return whether all were saved."""
        for queue, offset in offsets.items():
            self.offsets.table.reset(queue, offset)
        return await self.offsets.persist(offsets)
