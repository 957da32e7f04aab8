"""A queue that is pulled ahead of its consumer: it finds its start, pulls, and waits while it holds enough.

RocketMQ: DefaultMQPushConsumerImpl.pullMessage, DefaultLitePullConsumerImpl.PullTaskImpl.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from aerobee.client.consumer.processqueue import Prefetch, ProcessQueue, PullLimits
from aerobee.client.consumer.puller import Puller, PullOptions, PullResult, PullStatus
from aerobee.client.core import ClientCore, is_not_master
from aerobee.errors import AerobeeError, TransportError
from aerobee.model.message import Message
from aerobee.model.queue import MessageQueue
from aerobee.protocol.bodies.heartbeat import SubscriptionData
from aerobee.protocol.codes import ResponseCode
from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

RETRY_MIN_S: Final = 0.1
# Where a broker is gone, another one may be master in a moment.
_RETRY_SOON_S: Final = 0.5
RETRY_MAX_S: Final = 3.0  # RocketMQ: DefaultMQPushConsumerImpl.pullTimeDelayMillsWhenException
_SUBSCRIPTION_UNKNOWN: Final = (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST)

_log = get_log("client.pulledqueue")


class PullEngine(Protocol):
    """What a pulled queue needs of its consumer."""

    core: ClientCore
    puller: Puller
    limits: PullLimits
    prefetch: Prefetch
    pull_batch_size: int
    tasks: Tasks

    def subscription_of(self, topic: str) -> SubscriptionData | None: ...
    async def start_offset(self, queue: MessageQueue) -> int: ...
    def offset_moved(self, queue: MessageQueue, offset: int) -> None: ...


class PulledQueue:
    """A queue that is pulled ahead. Subclasses hand the messages on in `_arrived`."""

    ordered = False
    lite = False

    def __init__(self, engine: PullEngine, queue: MessageQueue, offset: int | None = None) -> None:
        self.queue = queue
        self._pulls = engine
        self.process: ProcessQueue | None = None
        self.paused = False
        self.stopping = False
        # The offset that seek or the broker asked for; None starts at the offset of the group.
        self._offset = offset
        # The expected size of the next answer, where it can be known.
        self._expected = 0
        self._changed = asyncio.Event()
        self._warnings = RateLimitedLog(_log, engine.core.clock)
        self._task = engine.tasks.start(self._run(), name=f"pull {queue.topic} {queue.broker_name} {queue.queue_id}")

    # -- pulling

    async def _run(self) -> None:
        offset = await self._start() if self._offset is None else self._offset
        process = self.process = ProcessQueue(self.queue, offset, self._pulls.prefetch)
        self._started(process)
        prefetch = self._pulls.prefetch
        delay_s = RETRY_MIN_S
        while not process.dropped and not self.stopping:
            is_full = process.full(self._pulls.limits, with_span=not self.ordered)
            waits_for_room = len(process) > 0 and prefetch.is_full
            if self.paused or is_full or waits_for_room or not self._may_pull(process):
                if waits_for_room:
                    prefetch.wait(self.wake)
                self._changed.clear()
                await self._changed.wait()
                continue
            try:
                await self._pull(process)
                delay_s = RETRY_MIN_S
            except AerobeeError as error:
                await self._after_error(error, delay_s)
                delay_s = min(RETRY_MAX_S, delay_s * 2)

    async def _start(self) -> int:
        """Return where to start. Ask until there is an answer: an error must never decide it."""
        delay_s = RETRY_MIN_S
        while True:
            try:
                return await self._pulls.start_offset(self.queue)
            except AerobeeError as error:
                self._warnings.warning(
                    "start", "the start of a queue is not known yet", queue=self.queue, reason=str(error)
                )
                self._pulls.core.doubt_route(self.queue.topic, error)
                await asyncio.sleep(_pause_s(error, delay_s))
                delay_s = min(RETRY_MAX_S, delay_s * 2)

    async def _pull(self, process: ProcessQueue) -> None:
        engine, queue = self._pulls, self.queue
        wanted = engine.subscription_of(queue.topic)
        if wanted is None:  # unsubscribed; the next rebalance takes the queue away
            await asyncio.sleep(RETRY_MAX_S)
            return
        process.pulled_ms = engine.core.clock.now_ms()
        options = PullOptions(max_num=engine.pull_batch_size, lite=self.lite)
        # Other queues count the expected answer already.
        expected, self._expected = self._expected, 0
        engine.prefetch.take(expected)
        try:
            result = await engine.puller.pull(queue, wanted, process.next_offset, options)
            self._take(process, result)
        finally:
            engine.prefetch.give(expected)

    def _take(self, process: ProcessQueue, result: PullResult) -> None:
        engine, queue = self._pulls, self.queue
        if process.dropped:
            return
        if result.status is PullStatus.OFFSET_ILLEGAL:
            _log.warning("the broker moved the offset", queue=queue, asked=process.next_offset, to=result.next_offset)
            engine.offset_moved(queue, result.next_offset)
            # This queue ends here; a new one takes its place.
            process.drop()
            return
        if result.next_offset < result.max_offset:  # the next answer comes at once, and is like this one
            self._expected = sum(len(message.body) for message in result.messages)
        arrived = process.put(result.messages, result.next_offset)
        if arrived:
            self._arrived(process, arrived)
        elif not len(process):
            self._skipped(process)

    async def _after_error(self, error: AerobeeError, delay_s: float) -> None:
        core, topic = self._pulls.core, self.queue.topic
        if error.code in _SUBSCRIPTION_UNKNOWN:
            await core.heartbeat()
        else:
            self._warnings.warning("pull", "a pull failed and will be tried again", queue=self.queue, reason=str(error))
            if error.retriable:
                core.refresh_soon(topic)
            core.doubt_route(topic, error)
        await asyncio.sleep(_pause_s(error, delay_s))

    def wake(self) -> None:
        """Look again whether to pull, because something changed."""
        self._changed.set()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self.wake()

    # -- what subclasses define

    def _started(self, process: ProcessQueue) -> None:
        """Prepare for the first message."""

    def _may_pull(self, process: ProcessQueue) -> bool:
        return True

    def _arrived(self, process: ProcessQueue, messages: list[Message]) -> None:
        raise NotImplementedError

    def _skipped(self, process: ProcessQueue) -> None:
        """Note that the queue went on without a message, because all were filtered out."""

    # -- the end

    def halt(self) -> None:
        """Stop pulling. What was pulled still counts."""
        self.stopping = True
        self._task.cancel()

    def drop(self) -> None:
        """Give the queue up. Nothing of it counts from here on."""
        self.halt()
        if self.process is not None:
            self.process.drop()
        self._pulls.prefetch.forget(self.wake)


def _pause_s(error: AerobeeError, delay_s: float) -> float:
    is_gone = isinstance(error, TransportError) or is_not_master(error)
    return min(delay_s, _RETRY_SOON_S) if is_gone else delay_s
