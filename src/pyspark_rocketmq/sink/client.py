"""The client of a sink for the time of one write() or commit(), on a loop thread beside Spark's own thread."""

from __future__ import annotations

import concurrent.futures
import difflib
from collections.abc import Collection, Coroutine
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from aerobee.client.blocking import BlockingClient
from aerobee.client.core import ClientCore, acquire_core, release_core
from aerobee.client.producer import PublishInfo, Sender, SenderConfig
from aerobee.errors import AerobeeError
from aerobee.model.names import is_system_topic
from aerobee.model.queue import MessageQueue
from aerobee.runtime.blocking import pause
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.loopthread import LoopThread
from pyspark_rocketmq.sinkoptions import SinkOptions

T = TypeVar("T")

# Only time limits a send, not the number of tries: Spark runs the whole task again when a send fails.
_RETRIES: Final = 1_000
BODY_SIZE_MAX: Final = 4 << 20
_LOOK_S: Final = 0.2
_SURE_S: Final = 1.0


class TopicAwayError(AerobeeError):
    """A broker group that must take rows is away. It may come back."""

    retriable = True


class NoTopicError(AerobeeError):
    """The topic of a write does not exist."""


class SinkClient:
    """An asyncio core and a sender on a thread of their own, for `with SinkClient(options) as client:`."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self._thread: LoopThread
        self.core: ClientCore
        self.sender: Sender
        # The topics whose broker groups were looked at, and the queues of those that rows are spread over by key.
        self._checked: set[str] = set()
        self._queues: dict[str, tuple[MessageQueue, ...]] = {}

    def __enter__(self) -> Self:
        self._thread = LoopThread("rocketmq-sink")
        try:
            self.run(self._open())
        except BaseException:
            self._thread.stop()
            raise
        return self

    async def _open(self) -> None:
        endpoint = self.options.endpoint
        self.core = await acquire_core(endpoint.client_config())
        sending = SenderConfig(
            timeout_s=max(endpoint.retry_timeout_ms, endpoint.request_timeout_ms) / 1000,
            attempt_timeout_s=endpoint.request_timeout_ms / 1000,
            retries=_RETRIES,
        )
        self.sender = Sender(self.core, self.options.group, sending)
        self.core.add_producer(self.options.group, self.sender)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.run(self._close())
        finally:
            self._thread.stop()

    async def _close(self) -> None:
        self.sender.close()
        try:
            await self.core.remove_producer(self.options.group, self.sender)
        finally:
            await release_core(self.core)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result."""
        return self._thread.run(work)

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine, and return a future for the calling thread."""
        return self._thread.submit(work)

    def publish(self, topic: str, groups: Collection[str] = (), *, whole: bool = False) -> PublishInfo:
        """Return the queues that the messages of a topic may go to now.

        Wait, as long as option retryTimeoutMs says, while no name server answers, no broker takes messages, or one of
        `groups` is away. With `whole`, wait for every group that has a part of the topic: sharding keys are spread over
        all of its queues.
        """
        found = self.sender.publish(topic)
        if found is not None and topic in self._checked:
            return found
        clock = SystemClock()
        until_s = clock.monotonic() + self.options.endpoint.retry_timeout_ms / 1000
        # A name server that was just started learns the topics of a broker a moment after the broker itself.
        sure_s: float | None = None
        while True:
            try:
                self._require_topic(topic, groups, whole)
                self._checked.add(topic)
                return self.run(self.sender.resolve(topic, refresh=True))
            except AerobeeError as error:
                now_s = clock.monotonic()
                sure_s = sure_s or now_s + _SURE_S if isinstance(error, NoTopicError) else None
                if now_s >= until_s or (not error.retriable if sure_s is None else now_s >= sure_s):
                    raise
            pause(_LOOK_S)

    def _require_topic(self, topic: str, groups: Collection[str], whole: bool) -> None:
        """Raise a retriable error where broker groups of a topic are away that are needed."""
        cluster = BlockingClient(self.core.config)
        route = cluster.route(topic)
        away = {group for group, count in cluster.away[topic].items() if count}
        there = {one.broker_name for one in route.data.broker_datas} if route is not None else set()
        if route is None and not away:
            self._require_created(cluster, topic)
        # A topic that only an absent group has must not be created on another one.
        needed = {group for group in groups if group not in there} | (away if whole or route is None else set())
        if needed:
            raise TopicAwayError(
                f"a part of topic {topic!r} is on broker group {', '.join(sorted(needed))}, which is away",
                hint="start it; if it is gone for good: aerobee cluster forget",
            )
        if whole and route is not None:
            self._queues[topic] = route.write_queues

    def _require_created(self, cluster: BlockingClient, topic: str) -> None:
        """Raise an error for a topic that does not exist, unless option createTopics allows to create it."""
        if not cluster.registered():
            raise TopicAwayError("the name server knows no broker", hint="is one running, and registered there?")
        if self.options.create_topics:
            return
        near = difflib.get_close_matches(topic, [one for one in cluster.topics() if not is_system_topic(one)], n=1)
        meant = f"Did you mean {near[0]!r}? " if near else ""
        raise NoTopicError(
            f"topic {topic!r} does not exist",
            hint=f"{meant}Create it (aerobee topic create), or set option createTopics=true.",
        )

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that a topic had when it was first looked at, when all its groups were there."""
        found = self._queues.get(topic)
        if found:
            return found
        publish = self.sender.publish(topic)
        return tuple(publish.queues) if publish is not None else ()

    def next_id(self) -> str:
        """Return a unique message id. Only the writing thread calls this."""
        return self.core.unique_ids.next(self.core.clock.now_ms())
