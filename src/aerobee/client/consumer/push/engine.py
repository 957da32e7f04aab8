"""The parts of a started PushConsumer: its queues, their locks and offsets, and the calls of its handlers.

The engine owns the queues of the group member: it takes them and gives them up as the share changes. RocketMQ:
DefaultMQPushConsumerImpl, RebalancePushImpl.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from aerobee.client.consumer.groupmember import GroupMember, Membership, OnQueues, call_back
from aerobee.client.consumer.offsetstore import OffsetStore, keep_saving
from aerobee.client.consumer.positions import Positions, StartingPoint
from aerobee.client.consumer.processqueue import LOCK_VALID_S, Prefetch, PullLimits
from aerobee.client.consumer.puller import Puller
from aerobee.client.consumer.push.dispatcher import HandlerDispatcher
from aerobee.client.consumer.push.listener import HandlerOutcome, TopicListener
from aerobee.client.consumer.push.locks import DOUBT_RENEW_S, RENEW_S, GroupQueueLocks, Locking
from aerobee.client.consumer.push.queue import ConcurrentQueue, OrderedQueue, PushQueue
from aerobee.client.consumer.push.sendback import RetrySender
from aerobee.client.consumer.push.stats import ConsumeCounts
from aerobee.client.consumer.push.trace import ConsumerTrace
from aerobee.client.consumer.rebalance import Change
from aerobee.client.core import ClientCore, with_namespace, without_namespace
from aerobee.client.producer import Replier
from aerobee.model.message import Message, with_replier
from aerobee.model.names import is_retry_topic
from aerobee.model.queue import MessageQueue
from aerobee.protocol.bodies.heartbeat import BROADCASTING, SubscriptionData
from aerobee.runtime.tasks import Tasks
from aerobee.runtime.workers import Workers
from aerobee.telemetry.stdlog import get_log

# RocketMQ: DefaultMQPushConsumer.maxReconsumeTimes where it is -1; an ordered message is tried for ever.
RETRIES_MAX: Final = 16
_EXPIRE_INTERVAL_S: Final = 60.0
HANDOVER_S: Final = 0.2

_log = get_log("client.push")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The settings of a PushEngine."""

    membership: Membership
    namespace: str
    start: StartingPoint
    concurrency: int
    limits: PullLimits
    pull_batch_size: int
    max_reconsume_times: int
    consume_timeout_s: float
    persist_interval_s: float
    suspend_s: float
    on_assigned: OnQueues | None = None
    on_revoked: OnQueues | None = None


class PushEngine:
    """The running part of a push consumer. It belongs to the loop that it is made on."""

    def __init__(
        self,
        core: ClientCore,
        settings: EngineSettings,
        listeners: dict[str, TopicListener],
        offsets: OffsetStore,
        replier: Replier,
        trace: ConsumerTrace | None,
    ) -> None:
        group = settings.membership.group
        self.core = core
        self.settings = settings
        self.offsets = offsets
        self.limits = settings.limits
        self.prefetch = Prefetch(settings.limits.total_bytes)
        self.pull_batch_size = settings.pull_batch_size
        self.suspend_s = settings.suspend_s
        self.broadcast = settings.membership.message_model == BROADCASTING
        self.puller = Puller(core, group, settings.namespace)
        self.positions = Positions(core)
        self.dispatcher = HandlerDispatcher(settings.concurrency)
        self.tasks = Tasks(failed=self._failed)
        self.member = GroupMember(core, settings.membership, self)
        self.queues: dict[MessageQueue, PushQueue] = {}
        self.paused = False
        # Queues that were given up and are not free yet.
        self.releasing: dict[MessageQueue, PushQueue] = {}
        self.counts: dict[str, ConsumeCounts] = {}
        # By topic, as users name it.
        self.listeners = listeners
        self._locks = GroupQueueLocks(core, group)
        self._doubted = asyncio.Event()
        retries_max = settings.max_reconsume_times if settings.max_reconsume_times >= 0 else RETRIES_MAX
        self._retries_max = retries_max
        self._sendback = RetrySender(core, group, settings.namespace, retries_max)
        self._workers = Workers(settings.concurrency, f"aerobee-{group}")
        self._replier = replier
        self._trace = trace

    def _failed(self, name: str, error: BaseException) -> None:
        _log.error("a task failed", task=name, exc_info=error)

    # -- life

    async def start(self) -> None:
        await self.offsets.load()
        self.tasks.start(self._keep_offsets(), name="save offsets")
        if not self.broadcast and any(listener.ordered for listener in self.listeners.values()):
            self.tasks.start(self._keep_locks(), name="renew locks")
            self.core.link_lost.append(self._link_lost)
        if self.settings.consume_timeout_s > 0:
            self.tasks.start(self._keep_expiring(), name="expire messages")
        await self.member.start()

    async def stop(self, drain_timeout_s: float) -> None:
        """Let running handlers end, save what they have done, and leave the group to the others."""
        await self.member.stop()
        if self._link_lost in self.core.link_lost:
            self.core.link_lost.remove(self._link_lost)
        for queue in self.queues.values():
            queue.halt()
        cancelled = await self.dispatcher.drain(drain_timeout_s)
        for queue in (*self.queues.values(), *self.releasing.values()):
            queue.drop()
        await self.tasks.close()
        await self.offsets.persist()
        held = [name for name, queue in (*self.queues.items(), *self.releasing.items()) if self._is_locked(queue)]
        if held:
            await self._locks.release(held)
        self.queues.clear()
        self._workers.close(idle=not cancelled)
        await self.member.leave()
        if self._trace is not None:
            await self._trace.close()

    # -- the share

    def owned(self) -> list[MessageQueue]:
        return list(self.queues)

    def _is_locked(self, queue: PushQueue) -> bool:
        return queue.ordered and not self.broadcast

    def _is_ordered(self, topic: str) -> bool:
        listener = self.listeners.get(without_namespace(self.settings.namespace, topic))
        return listener is not None and listener.ordered

    async def change(self, topic: str, change: Change) -> None:
        given_up = [queue for queue in change.revoked if queue in self.queues]
        for queue in given_up:
            self._give_up(queue)
        taken = await self._take(topic, [queue for queue in change.assigned if self._is_free(queue)])
        if not is_retry_topic(topic):
            await call_back(self.settings.on_revoked, [self.user_queue(queue) for queue in given_up])
            await call_back(self.settings.on_assigned, [self.user_queue(queue) for queue in taken])

    def _is_free(self, queue: MessageQueue) -> bool:
        return queue not in self.releasing and queue not in self.queues

    async def _take(self, topic: str, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        if not self._is_ordered(topic):
            for queue in queues:
                self._add(queue, ConcurrentQueue(self, queue))
            return list(queues)
        asked_s = self.core.clock.monotonic()
        granted = set(queues) if self.broadcast else await self._locks.acquire(queues)
        # A queue may have come back from a restart while the brokers were asked.
        taken = [queue for queue in queues if queue in granted and queue not in self.queues]
        for queue in taken:
            self._add(queue, OrderedQueue(self, queue, lock_until_s=asked_s + LOCK_VALID_S))
        return taken

    def _add(self, queue: MessageQueue, made: PushQueue) -> None:
        if self.paused:
            made.pause()
        self.queues[queue] = made

    def _give_up(self, queue: MessageQueue, *, save: bool = True) -> None:
        old = self.queues.pop(queue)
        self.releasing[queue] = old
        if not old.ordered:
            old.drop()
        self.tasks.start(self._release(queue, old, save), name="release a queue")

    async def _release(self, queue: MessageQueue, old: PushQueue, save: bool) -> None:
        try:
            await old.release()
            if save:
                await self.offsets.persist([queue])
            self.offsets.table.remove(queue, keep=self.core.routes.is_away(queue))
            self.puller.forget(queue)
            if save and self._is_locked(old):
                await self._locks.release([queue])
        finally:
            del self.releasing[queue]
            self.member.wake()

    def user_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue with the topic that users know."""
        return MessageQueue(without_namespace(self.settings.namespace, queue.topic), queue.broker_name, queue.queue_id)

    def wire_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue with the topic that brokers know."""
        return MessageQueue(with_namespace(self.settings.namespace, queue.topic), queue.broker_name, queue.queue_id)

    # -- what queues ask

    def subscription_of(self, topic: str) -> SubscriptionData | None:
        return self.member.subscriptions.get(topic)

    def listener_of(self, topic: str) -> TopicListener | None:
        return self.listeners.get(topic)

    async def start_offset(self, queue: MessageQueue) -> int:
        if self.member.has_company() and not self._is_ordered(queue.topic):
            # The owner before saves its offset when it learns of the change, as this one just did. Asking sooner would
            # bring messages that it has done. (Locks hand over ordered queues.)
            await asyncio.sleep(HANDOVER_S)
        return await self.positions.start_of(queue, self.offsets, self.settings.start)

    async def call(self, listener: TopicListener, messages: Sequence[Message]) -> HandlerOutcome:
        clock = self.core.clock
        given = [with_replier(message, self._replier) for message in messages]
        traced = self._trace.before(given) if self._trace is not None else None
        began_s = clock.monotonic()
        outcome = await listener.call(given, self._workers, self._is_stopping)
        now_s = clock.monotonic()
        cost_ms = (now_s - began_s) * 1000
        topic = messages[0].topic
        counts = self.counts.get(topic) or self.counts.setdefault(topic, ConsumeCounts())
        counts.consumed(now_s, len(messages), cost_ms, done=outcome.done)
        if self._trace is not None and traced is not None:
            self._trace.after(*traced, outcome, round(cost_ms))
        return outcome

    def _is_stopping(self) -> bool:
        return self.dispatcher.closing or self.core.closed

    async def give_back(self, message: Message, queue: MessageQueue, outcome: HandlerOutcome) -> bool:
        if not self.broadcast:
            return await self._sendback.send_back(message, queue, outcome.send_back_level)
        # Brokers have no retries of broadcast messages: they are tried again here, and then given up with a log line.
        if not outcome.dead and message.reconsume_times < self._retries_max:
            return False
        _log.error("a broadcast message was given up", message=message.message_id, queue=queue, reason=outcome.reason)
        return True

    def retries_exhausted(self, message: Message, *, ordered: bool) -> bool:
        allowed = self.settings.max_reconsume_times
        if allowed < 0:
            return not ordered and message.reconsume_times >= RETRIES_MAX
        return message.reconsume_times >= allowed

    def offset_moved(self, queue: MessageQueue, offset: int) -> None:
        self.restart(queue, offset)

    def lock_lost(self, queue: MessageQueue) -> None:
        if queue in self.queues:
            _log.warning("the lock of a queue was lost", queue=queue)
            # The consumer that has the lock now commits too: this one must save nothing.
            self._give_up(queue, save=False)

    def restart(self, queue: MessageQueue, offset: int) -> asyncio.Task[None] | None:
        """Consume a queue from another offset. Messages under way do not count any more."""
        old = self.queues.pop(queue, None)
        if old is None:
            return None
        self.releasing[queue] = old
        if old.process is not None:
            old.process.drop()
        return self.tasks.start(self._restart(queue, old, offset), name="restart a queue")

    async def restart_now(self, queue: MessageQueue, offset: int) -> None:
        """Restart a queue, and return when that is done."""
        task = self.restart(queue, offset)
        if task is not None:
            await asyncio.shield(task)

    async def _restart(self, queue: MessageQueue, old: PushQueue, offset: int) -> None:
        try:
            await old.release()
            self.offsets.table.reset(queue, offset)
            await self.offsets.persist([queue])
        finally:
            del self.releasing[queue]
        if isinstance(old, OrderedQueue):
            made: PushQueue = OrderedQueue(self, queue, offset, lock_until_s=old.lock_until_s)
        else:
            made = ConcurrentQueue(self, queue, offset)
        if old.paused:
            made.pause()
        self._add(queue, made)

    # -- keeping

    async def _keep_offsets(self) -> None:
        await keep_saving(self.offsets, self.settings.persist_interval_s)

    async def _keep_locks(self) -> None:
        while True:
            is_doubted = any(isinstance(queue, OrderedQueue) and queue.in_doubt for queue in self.queues.values())
            try:
                async with asyncio.timeout(DOUBT_RENEW_S if is_doubted else RENEW_S):
                    await self._doubted.wait()
            except TimeoutError:
                pass
            self._doubted.clear()
            await self.renew_locks()

    def _link_lost(self, address: str) -> None:
        """Handle nothing more of the broker's ordered queues until it says that their locks are still ours."""
        routes = self.core.routes
        for name, queue in (*self.queues.items(), *self.releasing.items()):
            if isinstance(queue, OrderedQueue) and routes.master(routes.broker_of(name)) == address:
                queue.doubt(self.core.clock.monotonic())
                self._doubted.set()

    async def renew_locks(self) -> None:
        """Renew the locks, also of queues that are being given up: their handler may still run."""
        held: dict[MessageQueue, PushQueue] = {
            name: queue for name, queue in (*self.queues.items(), *self.releasing.items()) if queue.ordered
        }
        asked_s = self.core.clock.monotonic()

        def answered(answer: Locking) -> None:
            for name in answer.queues:
                queue = held[name]
                if name in answer.granted and isinstance(queue, OrderedQueue):
                    queue.locked(asked_s)
                elif name in answer.refused:
                    self.lock_lost(name)
                elif isinstance(queue, OrderedQueue) and queue.lock_until_s <= self.core.clock.monotonic():
                    self.lock_lost(name)

        await self._locks.renew(held, answered)

    async def _keep_expiring(self) -> None:
        timeout_s = self.settings.consume_timeout_s
        while True:
            await asyncio.sleep(min(timeout_s, _EXPIRE_INTERVAL_S))
            before_s = self.core.clock.monotonic() - timeout_s
            for queue in list(self.queues.values()):
                if isinstance(queue, ConcurrentQueue):
                    await queue.expire(before_s)

    # -- what users ask

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        for queue in self._chosen(queues):
            queue.pause()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        for queue in self._chosen(queues):
            queue.resume()

    def _chosen(self, queues: Iterable[MessageQueue]) -> list[PushQueue]:
        return [self.queues[queue] for queue in queues if queue in self.queues]
