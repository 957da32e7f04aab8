"""One queue of a push consumer, which hands messages to handlers as they are pulled.

There are two kinds: a `ConcurrentQueue` hands messages on at once and in any order, an `OrderedQueue` one batch after
the other while it holds the lock of the broker. RocketMQ: ConsumeMessageConcurrentlyService,
ConsumeMessageOrderlyService.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol

from aerobee.client.consumer.offsetstore import OffsetStore
from aerobee.client.consumer.processqueue import LOCK_VALID_S, ProcessQueue
from aerobee.client.consumer.pulledqueue import RETRY_MAX_S, PulledQueue, PullEngine
from aerobee.client.consumer.push.dispatcher import HandlerDispatcher
from aerobee.client.consumer.push.listener import HandlerOutcome, TopicListener
from aerobee.model.message import Message
from aerobee.model.queue import MessageQueue
from aerobee.telemetry.stdlog import get_log

# A message that no broker took back is tried here again. RocketMQ: submitConsumeRequestLater.
LOCAL_RETRY_S: Final = 5.0

_log = get_log("client.pushqueue")


class PushQueueEngine(PullEngine, Protocol):
    """What a queue needs of its push consumer."""

    offsets: OffsetStore
    dispatcher: HandlerDispatcher
    broadcast: bool
    suspend_s: float

    def listener_of(self, topic: str) -> TopicListener | None: ...
    async def call(self, listener: TopicListener, messages: Sequence[Message]) -> HandlerOutcome: ...
    async def give_back(self, message: Message, queue: MessageQueue, outcome: HandlerOutcome) -> bool: ...
    def retries_exhausted(self, message: Message, *, ordered: bool) -> bool: ...
    def lock_lost(self, queue: MessageQueue) -> None: ...


class PushQueue(PulledQueue):
    """The base of both kinds of queue."""

    def __init__(self, engine: PushQueueEngine, queue: MessageQueue, offset: int | None = None) -> None:
        self.engine = engine
        super().__init__(engine, queue, offset)

    def _finished(self, process: ProcessQueue, messages: Sequence[Message]) -> None:
        """Count messages as done, and move the offset."""
        offset = process.finish(message.queue_offset for message in messages)
        process.consumed_ms = self.engine.core.clock.now_ms()
        if not process.dropped:
            self.engine.offsets.table.advance(self.queue, offset)
        self.wake()

    def _skipped(self, process: ProcessQueue) -> None:
        self.engine.offsets.table.advance(self.queue, process.commit_offset)

    async def release(self) -> None:
        """Drop the queue, after the work that must not be cut short."""
        self.drop()


class ConcurrentQueue(PushQueue):
    """A queue whose messages go to handlers as they come."""

    def __init__(self, engine: PushQueueEngine, queue: MessageQueue, offset: int | None = None) -> None:
        super().__init__(engine, queue, offset)
        self._parked: list[tuple[ProcessQueue, list[Message]]] = []
        # The messages that handlers hold, and since when.
        self._held: dict[int, tuple[float, ProcessQueue, list[Message]]] = {}
        self._calls = 0

    def _arrived(self, process: ProcessQueue, messages: list[Message]) -> None:
        for batch in self._batches(messages):
            self._submit(process, batch)

    def _batches(self, messages: list[Message]) -> list[list[Message]]:
        """Return batches for one listener each. A retried message goes to the listener of its original topic."""
        batches: list[list[Message]] = []
        by_topic: dict[str, list[Message]] = {}
        for message in messages:
            by_topic.setdefault(message.topic, []).append(message)
        for topic, of_topic in by_topic.items():
            listener = self.engine.listener_of(topic)
            size = listener.batch if listener is not None else 1
            batches += [of_topic[i : i + size] for i in range(0, len(of_topic), size)]
        return batches

    def _submit(self, process: ProcessQueue, messages: list[Message]) -> None:
        self.engine.dispatcher.submit(lambda: self._step(process, messages))

    async def _step(self, process: ProcessQueue, messages: list[Message]) -> None:
        if process.dropped:
            return
        if self.paused:
            self._parked.append((process, messages))
            return
        listener = self.engine.listener_of(messages[0].topic)
        if listener is None:
            _log.error("no listener for a retried message", topic=messages[0].topic, message=messages[0].message_id)
            outcome = HandlerOutcome.no_listener()
        else:
            outcome = await self._call(listener, process, messages)
        if process.dropped:
            return
        if outcome.done:
            self._finished(process, messages)
            return
        # A message that was held too long was sent back and finished meanwhile.
        kept = [message for message in messages if message.queue_offset in process]
        again: list[Message] = []
        for message in kept:
            if await self.engine.give_back(message, self.queue, outcome):
                self._finished(process, [message])
            else:
                again.append(replace(message, reconsume_times=message.reconsume_times + 1))
        if again and not process.dropped:
            self._later(process, again)

    async def _call(self, listener: TopicListener, process: ProcessQueue, messages: list[Message]) -> HandlerOutcome:
        self._calls += 1
        call = self._calls
        self._held[call] = (self.engine.core.clock.monotonic(), process, messages)
        try:
            return await self.engine.call(listener, messages)
        finally:
            del self._held[call]

    async def expire(self, before_s: float) -> None:
        """Send back the messages that handlers have held since before that time, so that the offset can move on.

        The answers of those handlers will not count. RocketMQ: ProcessQueue.cleanExpiredMsg.
        """
        for since_s, process, messages in list(self._held.values()):
            if since_s >= before_s or process.dropped:
                continue
            for message in messages:
                if message.queue_offset in process:
                    _log.error("a handler takes too long; its message is handed out again", message=message.message_id)
                    if await self.engine.give_back(message, self.queue, HandlerOutcome.too_long()):
                        self._finished(process, [message])

    def _later(self, process: ProcessQueue, messages: list[Message]) -> None:
        async def later() -> None:
            await asyncio.sleep(LOCAL_RETRY_S)
            self._submit(process, messages)

        self.engine.tasks.start(later(), name="retry here")

    def resume(self) -> None:
        super().resume()
        parked, self._parked = self._parked, []
        for process, messages in parked:
            self._submit(process, messages)


class OrderedQueue(PushQueue):
    """A queue whose batches go to the handler one after the other, each until it is done, while the lock is held."""

    ordered = True

    def __init__(
        self, engine: PushQueueEngine, queue: MessageQueue, offset: int | None = None, *, lock_until_s: float = 0.0
    ) -> None:
        self._lock_until_s = lock_until_s
        # Since when the broker may have forgotten the lock, because its connection was lost. It may have restarted.
        self._doubted_s: float | None = None
        self._active = False
        # Whether the queue stands still after a failure: what arrives meanwhile waits too.
        self._halted = False
        self._idle = asyncio.Event()
        self._idle.set()
        super().__init__(engine, queue, offset)

    # -- the lock

    @property
    def lock_until_s(self) -> float:
        return self.process.lock_until_s if self.process is not None else self._lock_until_s

    def locked(self, asked_s: float) -> None:
        """Note that the lock was renewed."""
        self._lock_until_s = max(self._lock_until_s, asked_s + LOCK_VALID_S)
        if self._doubted_s is not None and asked_s >= self._doubted_s:
            self._doubted_s = None
        self.wake()
        if self.process is not None:
            self.process.locked(asked_s)
            self._kick(self.process)

    @property
    def in_doubt(self) -> bool:
        """Whether nothing may be handled until the lock is renewed."""
        return self._doubted_s is not None

    def doubt(self, now_s: float) -> None:
        """Stop handling until the broker grants the lock again."""
        self._doubted_s = now_s

    def _holds_lock(self, process: ProcessQueue) -> bool:
        return self.engine.broadcast or process.holds_lock(self.engine.core.clock.monotonic())

    def _may_pull(self, process: ProcessQueue) -> bool:
        return self._holds_lock(process)

    def _started(self, process: ProcessQueue) -> None:
        process.lock_until_s = self._lock_until_s

    # -- handing on

    def _arrived(self, process: ProcessQueue, messages: list[Message]) -> None:
        self._kick(process)

    def _kick(self, process: ProcessQueue) -> None:
        """Begin with the first message, unless one is under way."""
        if self._active or self._halted or self.paused or self.stopping or process.dropped or not len(process):
            return
        if self.in_doubt:  # `locked` goes on
            return
        self._active = True
        self._idle.clear()
        self.engine.dispatcher.submit(lambda: self._step(process))

    async def _step(self, process: ProcessQueue) -> None:
        wait_s = 0.0
        try:
            if not process.dropped and not self.stopping and not self.paused and not self.in_doubt:
                wait_s = await self._consume(process)
        finally:
            self._active = False
            self._idle.set()
        if wait_s:
            self._halt(wait_s, process)
        else:
            self._kick(process)

    async def _consume(self, process: ProcessQueue) -> float:
        """Consume one batch. Return how long to wait before the next one."""
        engine = self.engine
        listener = engine.listener_of(self._user_topic(process))
        if listener is None:
            return RETRY_MAX_S
        if not self._holds_lock(process):
            engine.lock_lost(self.queue)
            return 0.0
        messages = process.head(listener.batch)
        if not messages:
            return 0.0
        outcome = await engine.call(listener, messages)
        if process.dropped:
            return 0.0
        if not self._holds_lock(process):
            # Another consumer may have the lock by now: what was done here counts as not done.
            engine.lock_lost(self.queue)
            return 0.0
        if outcome.done:
            self._finished(process, messages)
            return 0.0
        return await self._again(process, messages, outcome)

    async def _again(self, process: ProcessQueue, messages: list[Message], outcome: HandlerOutcome) -> float:
        """Keep the same messages first, except those that are not tried any more. Return how long to wait."""
        wait_s = 0.0
        for message in messages:
            is_last = outcome.dead or self.engine.retries_exhausted(message, ordered=True)
            if is_last and await self.engine.give_back(message, self.queue, HandlerOutcome.dead_letter(outcome.reason)):
                self._finished(process, [message])
                continue
            process.replace(replace(message, reconsume_times=message.reconsume_times + 1))
            wait_s = outcome.halt_s(self.engine.suspend_s)
        return wait_s

    def _user_topic(self, process: ProcessQueue) -> str:
        head = process.head(1)
        return head[0].topic if head else self.queue.topic

    def _halt(self, wait_s: float, process: ProcessQueue) -> None:
        self._halted = True

        async def later() -> None:
            await asyncio.sleep(wait_s)
            self._halted = False
            self._kick(process)

        self.engine.tasks.start(later(), name="ordered queue goes on")

    def resume(self) -> None:
        super().resume()
        if self.process is not None:
            self._kick(self.process)

    async def release(self) -> None:
        """Drop the queue after its running handler has ended and counts: until then nobody else may have the lock."""
        self.stopping = True
        await self._idle.wait()
        self.drop()
