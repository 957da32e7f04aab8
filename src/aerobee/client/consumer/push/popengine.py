"""The running part of a push consumer that pops: `PushConsumer(mode="pop")`.

No queue belongs to it. It pops from every broker, calls the handlers, renews what they work on, and acknowledges what
they have done. What failed comes again after RocketMQ's delays; what failed too often becomes a dead letter.
RocketMQ: DefaultMQPushConsumerImpl.popMessage, ConsumeMessagePopConcurrentlyService.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from aerobee.client.consumer.popmember import PopMember
from aerobee.client.consumer.popping import BATCH_MAX, MessageLease, PopOptions, PoppedMessage, Popper
from aerobee.client.consumer.push.dispatcher import HandlerDispatcher
from aerobee.client.consumer.push.listener import HandlerOutcome, TopicListener
from aerobee.client.consumer.push.sendback import RetrySender
from aerobee.client.consumer.push.trace import ConsumerTrace
from aerobee.client.consumer.renewing import LeaseKeeper
from aerobee.client.core import ClientCore, without_namespace
from aerobee.client.producer import Replier
from aerobee.errors import AerobeeError
from aerobee.errors.codes import TopicNotExistError
from aerobee.model.group import RETRY_DELAYS_MS
from aerobee.model.message import with_replier
from aerobee.model.queue import MessageQueue
from aerobee.runtime.tasks import Tasks
from aerobee.runtime.workers import Workers
from aerobee.telemetry.stdlog import get_log

# How many messages of one broker and topic are in hand at most. RocketMQ: popThresholdForQueue.
_IN_HAND_MAX: Final = 96
_WAIT_S: Final = 15.0
_REST_S: Final = 1.0
_ROUTES_S: Final = 5.0
# The first retry waits for RocketMQ's third level, 10 seconds.
_FIRST_LEVEL: Final = 3
_RETRIES_MAX: Final = 16
_RENEW_MAX_S: Final = 3 * 3600.0

_log = get_log("client.push")


@dataclass(frozen=True, slots=True, kw_only=True)
class PopSettings:
    """The settings of a PopPushEngine."""

    group: str
    namespace: str
    from_start: bool
    concurrency: int
    invisible_s: float
    max_reconsume_times: int
    suspend_s: float


class PopPushEngine:
    """The pops and handlers of one push consumer. It belongs to the loop that it is made on."""

    def __init__(
        self,
        core: ClientCore,
        settings: PopSettings,
        listeners: dict[str, TopicListener],
        replier: Replier,
        trace: ConsumerTrace | None,
    ) -> None:
        self.core = core
        self.settings = settings
        # By topic, as users name it.
        self.listeners = listeners
        self.popper = Popper(core, settings.group, settings.namespace)
        self.dispatcher = HandlerDispatcher(settings.concurrency)
        self.member = PopMember(
            core, settings.group, "CONSUME_FROM_FIRST_OFFSET" if settings.from_start else "CONSUME_FROM_LAST_OFFSET"
        )
        self.tasks = Tasks(failed=self._failed)
        self._keeper = LeaseKeeper(core, self.popper, self.tasks, _RENEW_MAX_S)
        self.paused = False
        self._resumed = asyncio.Event()
        self._resumed.set()
        retries_max = settings.max_reconsume_times if settings.max_reconsume_times >= 0 else _RETRIES_MAX
        self._retries_max = retries_max
        self._sendback = RetrySender(core, settings.group, settings.namespace, retries_max)
        self._workers = Workers(settings.concurrency, f"aerobee-{settings.group}")
        self._replier = replier
        self._trace = trace
        self._in_hand: dict[int, MessageLease] = {}
        self._pollers: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._hands: dict[tuple[str, str], int] = {}
        self._room = asyncio.Event()

    def _failed(self, name: str, error: BaseException) -> None:
        _log.error("a task failed", task=name, exc_info=error)

    # -- life

    async def start(self) -> None:
        """Join the group, and pop from every broker that serves a topic of it, also from those that come later."""
        self.tasks.start(self._keep_polling(), name="poll brokers")
        for topic in self.member.subscriptions:
            await self._poll_all(topic)
        await self.core.heartbeat()

    async def stop(self, drain_timeout_s: float) -> None:
        """Let running handlers end, give back what is in hand, and leave the group."""
        for poller in self._pollers.values():
            poller.cancel()
        cancelled = await self.dispatcher.drain(drain_timeout_s)
        await self.tasks.close()
        for lease in list(self._in_hand.values()):
            try:
                await self.popper.change(lease, 0.0, suspend=True)
            except AerobeeError as error:
                _log.debug("a message was not given back; it comes again in its time", reason=str(error))
        self._workers.close(idle=not cancelled)
        await self.member.leave()
        if self._trace is not None:
            await self._trace.close()

    async def _keep_polling(self) -> None:
        while True:
            await asyncio.sleep(_ROUTES_S)
            for topic in self.member.subscriptions:
                await self._poll_all(topic)

    async def _poll_all(self, topic: str) -> None:
        """Poll each broker of a topic that is not polled yet."""
        try:
            route = await self.core.route(topic)
        except (AerobeeError, TopicNotExistError) as error:
            _log.warning("the consumer waits for a topic", topic=topic, reason=str(error))
            return
        for broker in dict.fromkeys(route.broker_of(queue) for queue in route.read_queues):
            found = self._pollers.get((topic, broker))
            if found is None or found.done():
                self._pollers[topic, broker] = self.tasks.start(self._poll(topic, broker), name=f"pop {topic} {broker}")

    # -- what users ask

    def owned(self) -> list[MessageQueue]:
        """Return what is popped: any queue, -1, of each broker."""
        return [MessageQueue(topic, broker, -1) for topic, broker in self._pollers]

    def user_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue with the topic that users know."""
        return MessageQueue(without_namespace(self.settings.namespace, queue.topic), queue.broker_name, queue.queue_id)

    def hold(self, *, paused: bool) -> None:
        """Pop no more, or go on."""
        self.paused = paused
        if paused:
            self._resumed.clear()
        else:
            self._resumed.set()

    # -- popping

    async def _poll(self, topic: str, broker: str) -> None:
        key = (topic, broker)
        listener = self.listeners[without_namespace(self.settings.namespace, topic)]
        attempt: str | None = None
        while not self.dispatcher.closing:
            await self._resumed.wait()
            if self._hands.get(key, 0) >= _IN_HAND_MAX:
                self._room.clear()
                await self._room.wait()
                continue
            if listener.ordered and attempt is None:
                attempt = self.core.unique_ids.next(self.core.clock.now_ms())
            count = min(BATCH_MAX, _IN_HAND_MAX - self._hands.get(key, 0))
            options = PopOptions(
                count=count, invisible_s=self.settings.invisible_s, wait_s=_WAIT_S, in_order=listener.ordered,
                attempt_id=attempt, from_start=self.settings.from_start,
            )  # fmt: skip
            try:
                messages = await self.popper.pop(broker, -1, self.member.subscriptions[topic], options)
            except AerobeeError as error:
                _log.warning("a broker did not answer a pop", broker=broker, topic=topic, reason=str(error))
                self.core.doubt_route(topic, error)
                await asyncio.sleep(_REST_S)
                if self.core.routes.is_away(MessageQueue(topic, broker, 0)):
                    del self._pollers[key]
                    return
                continue
            attempt = None
            self._take(key, listener, messages)

    def _take(self, key: tuple[str, str], listener: TopicListener, messages: list[PoppedMessage]) -> None:
        for message in messages:
            lease = message.lease
            assert lease is not None
            self._in_hand[id(lease)] = lease
            self._hands[key] = self._hands.get(key, 0) + 1
            self._keeper.keep(lease, self.settings.invisible_s)
        for part in _parts(messages, listener):
            self.dispatcher.submit(lambda part=part: self._handle(key, listener, part))  # type: ignore[misc]

    def _over(self, key: tuple[str, str], messages: Iterable[PoppedMessage]) -> None:
        for message in messages:
            assert message.lease is not None
            self._keeper.let_go(message.lease)
            if self._in_hand.pop(id(message.lease), None) is not None:
                self._hands[key] -= 1
        self._room.set()

    async def _handle(self, key: tuple[str, str], listener: TopicListener, messages: list[PoppedMessage]) -> None:
        try:
            if listener.ordered:
                await self._handle_in_order(listener, messages)
            else:
                outcome = await self._call(listener, messages)
                await self._answer(messages, outcome)
        except AerobeeError as error:
            _log.warning("what a handler has done is not told; its messages come again", reason=str(error))
        finally:
            self._over(key, messages)

    async def _call(self, listener: TopicListener, messages: Sequence[PoppedMessage]) -> HandlerOutcome:
        given = [with_replier(message, self._replier) for message in messages]
        traced = self._trace.before(given) if self._trace is not None else None
        began_s = self.core.clock.monotonic()
        outcome = await listener.call(given, self._workers, lambda: self.dispatcher.closing or self.core.closed)
        if self._trace is not None and traced is not None:
            self._trace.after(*traced, outcome, round((self.core.clock.monotonic() - began_s) * 1000))
        return outcome

    async def _answer(self, messages: Sequence[PoppedMessage], outcome: HandlerOutcome) -> None:
        if outcome.done:
            leases = [message.lease for message in messages if message.lease is not None]
            if len(leases) == 1:
                await self.popper.ack(leases[0])
            else:
                await self.popper.ack_all(leases)
            return
        for message in messages:
            await self._again(message, outcome)

    async def _again(self, message: PoppedMessage, outcome: HandlerOutcome) -> None:
        """Let a message come again after a while, or make a dead letter of it."""
        lease = message.lease
        assert lease is not None
        self._keeper.let_go(lease)
        if outcome.dead or message.reconsume_times >= self._retries_max:
            if await self._bury(message, lease):
                return
        level = outcome.delay_level or _FIRST_LEVEL + message.reconsume_times
        delay_ms = RETRY_DELAYS_MS[min(level, len(RETRY_DELAYS_MS)) - 1]
        await self.popper.change(lease, delay_ms / 1000)

    async def _bury(self, message: PoppedMessage, lease: MessageLease) -> bool:
        queue = MessageQueue(lease.topic, lease.broker, lease.queue_id)
        if not await self._sendback.send_back(message, queue, -1):
            return False
        await self.popper.ack(lease)
        return True

    async def _handle_in_order(self, listener: TopicListener, messages: Sequence[PoppedMessage]) -> None:
        """Handle messages of one queue one after the other. One that fails is tried again here, before the next."""
        for message in messages:
            tried = message
            while True:
                outcome = await self._call(listener, [tried])
                if outcome.done:
                    assert message.lease is not None
                    await self.popper.ack(message.lease)
                    break
                allowed = self.settings.max_reconsume_times
                exhausted = allowed >= 0 and tried.reconsume_times >= allowed
                if (outcome.dead or exhausted) and message.lease is not None:
                    if await self._bury(message, message.lease):
                        break
                await asyncio.sleep(outcome.halt_s(self.settings.suspend_s))
                tried = replace(tried, reconsume_times=tried.reconsume_times + 1)


def _parts(messages: list[PoppedMessage], listener: TopicListener) -> list[list[PoppedMessage]]:
    """Part messages by calls of the handler: of one queue where they are handled in order, else by its batch."""
    if listener.ordered:
        queues: dict[tuple[str, int], list[PoppedMessage]] = {}
        for message in messages:
            assert message.lease is not None
            queues.setdefault((message.lease.topic, message.lease.queue_id), []).append(message)
        return list(queues.values())
    size = max(1, listener.batch)
    return [messages[start : start + size] for start in range(0, len(messages), size)]
