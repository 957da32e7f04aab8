"""How messages get to brokers: choose a queue, write, wait for the answer, try another broker.

A send whose route is known and whose connection is open runs in the caller's own step: it needs no task and one future,
and its bytes are joined with those of the same tick. Where something must be waited for (a route, a connection, a
server that does not read), sends wait in a `WaitQueue`: as long as no try fails, the messages of one queue are written
in the order they were begun. RocketMQ: DefaultMQProducerImpl.sendDefaultImpl, sendKernelImpl.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from aerobee.client.core import (
    ClientCore,
    ClientStateError,
    QueueUnavailableError,
    SelectorError,
    SendReceipt,
    TooManyInFlightError,
)
from aerobee.client.producer.brokerfaults import FaultTable
from aerobee.client.producer.compression import Compressor
from aerobee.client.producer.orderedsending import OrderedSending, OrderedSends
from aerobee.client.producer.publishinfo import Frames, PublishInfo, Slot
from aerobee.client.producer.selectors import Selector
from aerobee.client.producer.sending import Oneway, Pin, Sending
from aerobee.client.producer.sendrequest import SendRequest
from aerobee.client.producer.sequences import Sequences
from aerobee.client.producer.waitqueue import WaitQueue, WaitQueues
from aerobee.errors import ConnectTimeoutError, RequestTimeoutError
from aerobee.errors.codes import TopicNotExistError
from aerobee.model.names import AUTO_CREATE_TOPIC
from aerobee.model.numbers import parse_int
from aerobee.model.queue import MessageQueue
from aerobee.model.route import TopicRoute
from aerobee.net.link import Link
from aerobee.protocol.codes import JSON, ResponseCode
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

_log = get_log("client.sender")

# How often a master is looked for while a topic that exists has none.
_LOOK_S: Final = 0.1
_LOOK_MAX_S: Final = 0.5
_LOOK_GROWTH: Final = 1.5

Answer = asyncio.Future[SendReceipt]


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderConfig:
    """The settings of a sender, with RocketMQ's defaults (DefaultMQProducer)."""

    timeout_s: float = 3.0
    # For one try, where another may follow; None is a part of the time left. RocketMQ: sendMsgMaxTimeoutPerRequest.
    attempt_timeout_s: float | None = None
    retries: int = 2
    retry_not_durable: bool = False
    # A send is tried again as long as there is time, on the same queue, whose broker knows what it has stored.
    idempotent: bool = False
    avoid_slow_brokers: bool = False
    max_in_flight: int = 1000
    # The bytes of messages that wait for the master of their queue.
    max_waiting_bytes: int = 64 << 20
    create_topic_key: str = AUTO_CREATE_TOPIC
    default_topic_queue_nums: int = 4


class Sender:
    """The sends of one producer group over a core."""

    def __init__(self, core: ClientCore, group: str, config: SenderConfig) -> None:
        self.core = core
        self.config = config
        self.frames = Frames(group, config.create_topic_key, config.default_topic_queue_nums)
        self.faults = FaultTable(by_latency=config.avoid_slow_brokers)
        self.in_flight = 0
        self.sequences = Sequences(core.entropy.token(8).hex()) if config.idempotent else None
        self.loop = asyncio.get_running_loop()
        # Whether frames can be built without a command: not where they must be signed, or the codec is binary.
        self.plain = core.config.codec == JSON and not core.remoting.signs
        # By topic and by address: an address has a colon, which a topic cannot have.
        self.wait_queues: WaitQueues[Sending] = {}
        self._publish: dict[str, PublishInfo] = {}
        # Topics that somebody wanted to send to, found or not: their routes are kept fresh.
        self._topics: dict[str, None] = {}
        # Sends that were not begun yet, because too many are in flight.
        self._room: deque[Sending] = deque()
        # Sends that keep the order of their queue.
        self.ordered = OrderedSends(self)
        self._compressor: Compressor[Sending] = Compressor(RateLimitedLog(_log, core.clock))
        self._is_filling = False
        self._idle: list[asyncio.Future[None]] = []
        core.route_changed.append(self._route_changed)

    def close(self) -> None:
        """Stop following routes and end the threads. What is still in flight is given up."""
        if self._route_changed in self.core.route_changed:
            self.core.route_changed.remove(self._route_changed)
        self.ordered.close()
        self._compressor.close()

    def topics(self) -> list[str]:
        """Return the topics that somebody wanted to send to."""
        return list(self._topics)

    # -- sending

    def post(
        self, out: SendRequest, pin: Pin = None, timeout_s: float | None = None, retries: int | None = None
    ) -> Answer:
        """Begin to send. Return the future of the receipt. Raise TooManyInFlightError where there is no room."""
        if self._room or self._is_full():
            raise TooManyInFlightError(
                f"{self.in_flight} sends wait for their answers",
                hint="await send(), await flush(), or raise max_in_flight",
            )
        ordered = self.ordered
        is_crowded = ordered.count >= self.config.max_in_flight or ordered.size_bytes >= self.config.max_waiting_bytes
        if is_crowded and ordered.is_waiting(out.topic, pin):
            raise TooManyInFlightError(
                f"{ordered.count} messages ({ordered.size_bytes} bytes) wait for queues without a master",
                hint="await send(), or raise max_in_flight and max_waiting_bytes",
            )
        sending = self._sending(out, pin, self.config.timeout_s if timeout_s is None else timeout_s, retries)
        self._begin(sending)
        return sending.future

    def _sending(self, out: SendRequest, pin: Pin, timeout_s: float, retries: int | None) -> Sending:
        if isinstance(pin, str) or (self.sequences is not None and isinstance(pin, MessageQueue)):
            return OrderedSending(self, out, pin, timeout_s, retries)
        return Sending(self, out, pin, timeout_s, retries)

    async def send(
        self, out: SendRequest, pin: Pin = None, timeout_s: float | None = None, retries: int | None = None
    ) -> SendReceipt:
        """Send and wait for the receipt, first for room where too much is in flight."""
        timeout_s = self.config.timeout_s if timeout_s is None else timeout_s
        sending = self._sending(out, pin, timeout_s, retries)
        self._begin_in_turn(sending)
        receipt: SendReceipt = await sending.future
        return receipt

    async def oneway(self, out: SendRequest, pin: Pin = None, timeout_s: float | None = None) -> None:
        """Write a message. There is no answer and no retry."""
        timeout_s = self.config.timeout_s if timeout_s is None else timeout_s
        sending = Oneway(self, out, pin, timeout_s, 0)
        self._begin_in_turn(sending)
        await sending.future

    def _begin(self, sending: Sending) -> None:
        if self.sequences is not None:
            sending.number(self.sequences)
        self.in_flight += 1
        if self._compressor.holds(sending.out):
            self._compressor.join(sending)
        else:
            sending.go()

    def _begin_in_turn(self, sending: Sending) -> None:
        """Begin a send now, or when there is room and those before it have begun."""
        if self._room or self._is_full():
            self._room.append(sending)
        else:
            self._begin(sending)

    def _fill(self) -> None:
        """Begin the sends that wait for room, in the order they came."""
        while self._room and not self._is_full():
            sending = self._room.popleft()
            if not sending.future.done():
                sending.start_time()
                self._begin(sending)
        self._is_filling = False
        self._tell_idle()

    async def flush(self) -> None:
        """Wait until every send has its answer, including those begun meanwhile."""
        while self.in_flight or self._room or self.ordered.count:
            idle = self.loop.create_future()
            self._idle.append(idle)
            await idle

    def _is_full(self) -> bool:
        if self.in_flight >= self.config.max_in_flight:
            return True
        return self.sequences is not None and self.sequences.is_full

    def finished(self, sequence: int) -> None:
        """Note that a send has ended."""
        self.in_flight -= 1
        if self.sequences is not None:
            self.sequences.end(sequence)
        if self._room:
            self._fill_soon()
        elif not self.in_flight:
            self._tell_idle()

    def parked(self) -> None:
        """Note that a send waits for its queue, and is not in flight. Sends for other queues go on meanwhile."""
        self.in_flight -= 1
        if self._room:
            self._fill_soon()

    def _fill_soon(self) -> None:
        # Not in this step: it may be that of a WaitQueue, whose other sends were begun before.
        if not self._is_filling:
            self._is_filling = True
            self.loop.call_soon(self._fill)

    def _tell_idle(self) -> None:
        if self._idle and not self.in_flight and not self._room and not self.ordered.count:
            idle, self._idle = self._idle, []
            for waiting in idle:
                if not waiting.done():
                    waiting.set_result(None)

    def frame(self, slot: Slot, out: SendRequest, opaque: int, *, oneway: bool = False) -> bytes:
        """Return the bytes of one request."""
        born_ms = self.core.clock.now_ms()
        if self.plain:
            return self.frames.json(slot, out, opaque, born_ms, oneway)
        codec = self.core.config.codec
        return self.core.remoting.frame(self.frames.command(slot, out, opaque, born_ms, oneway, codec))

    # -- waiting

    def await_route(self, sending: Sending) -> None:
        """Let a send go on when the slots of its topic are known, after those that wait for them already."""
        topic = sending.topic
        where = ";".join(self.core.config.namesrv)
        self._join(
            topic,
            sending,
            lambda: WaitQueue(
                self.wait_queues,
                topic,
                wait=lambda: self._resolve_in_time(topic),
                go_on=Sending.routed,
                fail=Sending.fail,
                late=lambda: RequestTimeoutError("no route came in time", broker=where),
            ),
        )

    def await_link(self, sending: Sending, address: str) -> None:
        """Let a send be written when the server at `address` reads, after those that wait for that already."""
        self._join(
            address,
            sending,
            lambda: WaitQueue(
                self.wait_queues,
                address,
                wait=lambda: self._writable(address),
                go_on=Sending.linked,
                fail=lambda one, error: one.failed_try(error),
                late=lambda: ConnectTimeoutError("no connection was made in time", broker=address),
            ),
        )

    async def _writable(self, address: str) -> Link:
        link = await self.core.remoting.link(address)
        await link.drain()
        return link

    def _join(self, key: str, sending: Sending, make: Callable[[], WaitQueue[Sending, Any]]) -> None:
        wait_queue = self.wait_queues.get(key)
        if wait_queue is None:
            if self.core.closed:
                sending.fail(ClientStateError("the producer was closed before the message was sent"))
                return
            wait_queue = make()
            task = wait_queue.task = self.core.tasks.start(wait_queue.serve(), name=f"sends wait for {key}")
            task.add_done_callback(wait_queue.ended)
        wait_queue.join(sending)

    # -- routes

    def publish(self, topic: str) -> PublishInfo | None:
        """Return the slots of a topic that this sender has resolved; None where no broker takes messages for it now."""
        return self._publish.get(topic)

    def is_resolved(self, topic: str) -> bool:
        """Tell whether the route of a topic was asked for, so that changes of it are followed."""
        return topic in self._topics

    async def resolve(self, topic: str, *, refresh: bool = False) -> PublishInfo:
        """Return the slots of a topic. Raise TopicNotExistError or TransportError."""
        self._topics[topic] = None
        config = self.config
        route = await self.core.route(
            topic, refresh=refresh, auto_create=True, queue_nums=config.default_topic_queue_nums
        )
        publish = self._publish.get(topic) or self._slots(route)
        if publish is None and not refresh:
            return await self.resolve(topic, refresh=True)
        if publish is None:
            raise TopicNotExistError(
                f"no broker takes messages for topic {topic!r} now",
                code=ResponseCode.TOPIC_NOT_EXIST,
                retriable=True,
                hint="is a master up, and is the topic writable? (aerobee topic route)",
            )
        return publish

    async def _resolve_in_time(self, topic: str) -> PublishInfo:
        """Return the slots of a topic. If it exists and has no master now, look for one as long as a send waits."""
        wait_s = _LOOK_S
        while True:
            try:
                return await self.resolve(topic)
            except TopicNotExistError as error:
                wait_queue = self.wait_queues.get(topic)
                if wait_queue is None or not self.core.routes.declared.of(topic):
                    raise
                wait_queue.reason = error
            await asyncio.sleep(wait_s * (0.75 + self.core.entropy.uniform() / 2))
            wait_s = min(wait_s * _LOOK_GROWTH, _LOOK_MAX_S)

    def _slots(self, route: TopicRoute) -> PublishInfo | None:
        slots: list[Slot] = []
        for queue in route.write_queues:
            broker = route.broker_of(queue)
            address = self.core.routes.master(broker)
            if address is not None:
                slots.append(self.frames.slot(queue, broker, self._send_address(address)))
        if not slots:
            return None
        # Each client starts at another queue, or all would begin with the first.
        publish = self._publish[route.topic] = PublishInfo(slots, self.core.entropy.below(len(slots)))
        return publish

    def _send_address(self, address: str) -> str:
        if not self.core.config.vip_channel:
            return address
        # RocketMQ: MixAll.brokerVIPChannel
        host, _, port = address.rpartition(":")
        return f"{host}:{parse_int(port) - 2}"

    def _route_changed(self, route: TopicRoute) -> None:
        topic = route.topic
        if self._publish.pop(topic, None) is not None or topic in self._topics:
            self._slots(route)
            self.ordered.look_again(topic)

    def choose(self, publish: PublishInfo, out: SendRequest, pin: Pin, last_broker: str | None) -> Slot:
        """Return the slot that a message goes to."""
        if pin is None:
            now_ms = self.core.clock.monotonic() * 1000 if self.faults.avoided else 0.0
            return publish.pick(last_broker, self.faults, now_ms)
        if isinstance(pin, str):
            own = self.ordered.queue_of(out.topic, pin)
            slot = publish.slot_of(own) if own is not None else None
            if slot is None:
                raise QueueUnavailableError(f"the queue of sharding key {pin!r} has no master now: {own}")
            return slot
        queue = pin if isinstance(pin, MessageQueue) else self._select(pin, publish, out)
        return self.named_slot(publish, out, queue)

    @staticmethod
    def named_slot(publish: PublishInfo, out: SendRequest, queue: MessageQueue) -> Slot:
        """Return the slot of a queue that the caller or a selector named. Raise SelectorError where there is none."""
        wire = queue if queue.topic == out.topic else MessageQueue(out.topic, queue.broker_name, queue.queue_id)
        slot = publish.slot_of(wire)
        if slot is None:
            raise SelectorError(
                f"topic {out.user_topic!r} has no writable queue {queue.queue_id} on {queue.broker_name!r}",
                hint=f"it has {len(publish.queues)}, on {', '.join(sorted({q.broker_name for q in publish.queues}))}",
            )
        return slot

    @staticmethod
    def _select(selector: Selector, publish: PublishInfo, out: SendRequest) -> MessageQueue:
        try:
            queue = selector(publish.queues, out.as_message())
        except Exception as error:
            raise SelectorError(f"the selector raised {type(error).__name__}: {error}") from error
        if not isinstance(queue, MessageQueue):
            raise SelectorError(f"the selector returned {queue!r}, which is no queue")
        return queue
