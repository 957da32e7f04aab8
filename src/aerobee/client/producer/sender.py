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
    SEND_STATUSES,
    ClientCore,
    ClientStateError,
    NotDurableError,
    SelectorError,
    SendReceipt,
    TooManyInFlightError,
    receipt_of,
)
from aerobee.client.producer.brokerfaults import FaultTable
from aerobee.client.producer.compression import Compressor
from aerobee.client.producer.publishinfo import Frames, PublishInfo, Slot
from aerobee.client.producer.selectors import Selector, hashed_index
from aerobee.client.producer.sendrequest import SendRequest
from aerobee.client.producer.sequences import Sequences
from aerobee.client.producer.waitqueue import WaitQueue, WaitQueues
from aerobee.errors import AerobeeError, NotConnectedError, RequestTimeoutError, TransportError
from aerobee.errors.codes import TopicNotExistError, error_for
from aerobee.model.names import AUTO_CREATE_TOPIC
from aerobee.model.numbers import parse_int
from aerobee.model.queue import MessageQueue
from aerobee.model.route import TopicRoute
from aerobee.net.client import Link
from aerobee.protocol.codes import JSON, ResponseCode
from aerobee.protocol.command import Command
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

_log = get_log("client.sender")

# Where a message must go: to a queue, to the queue of a sharding key, or where a selector says. None is anywhere.
Pin = MessageQueue | str | Selector | None
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
        self._compressor: Compressor[Sending] = Compressor(RateLimitedLog(_log, core.clock))
        self._is_filling = False
        self._idle: list[asyncio.Future[None]] = []
        core.route_changed.append(self._route_changed)

    def close(self) -> None:
        """Stop following routes and end the threads. What is still in flight is given up."""
        if self._route_changed in self.core.route_changed:
            self.core.route_changed.remove(self._route_changed)
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
        sending = Sending(self, out, pin, self.config.timeout_s if timeout_s is None else timeout_s, retries)
        self._begin(sending)
        return sending.future

    async def send(
        self, out: SendRequest, pin: Pin = None, timeout_s: float | None = None, retries: int | None = None
    ) -> SendReceipt:
        """Send and wait for the receipt, first for room where too much is in flight."""
        timeout_s = self.config.timeout_s if timeout_s is None else timeout_s
        sending = Sending(self, out, pin, timeout_s, retries)
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
        while self.in_flight or self._room:
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
            # Not in this step: it may be that of a WaitQueue, whose other sends were begun before.
            if not self._is_filling:
                self._is_filling = True
                self.loop.call_soon(self._fill)
        elif not self.in_flight:
            self._tell_idle()

    def _tell_idle(self) -> None:
        if self._idle and not self.in_flight and not self._room:
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
                wait=lambda: self.resolve(topic),
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
                late=lambda: RequestTimeoutError("no connection was made in time", broker=address),
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
            task = self.core.tasks.start(wait_queue.serve(), name=f"sends wait for {key}")
            task.add_done_callback(wait_queue.ended)
        wait_queue.join(sending)

    # -- routes

    def publish(self, topic: str) -> PublishInfo | None:
        return self._publish.get(topic)

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
        if self._publish.pop(route.topic, None) is not None:
            self._slots(route)

    def choose(self, publish: PublishInfo, out: SendRequest, pin: Pin, last_broker: str | None) -> Slot:
        """Return the slot that a message goes to."""
        if pin is None:
            now_ms = self.core.clock.monotonic() * 1000 if self.faults.avoided else 0.0
            return publish.pick(last_broker, self.faults, now_ms)
        if isinstance(pin, str):
            return publish.slots[hashed_index(pin, len(publish.slots))]
        queue = pin if isinstance(pin, MessageQueue) else self._select(pin, publish, out)
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


_PAUSE_S: Final = 0.01
_PAUSE_MAX_S: Final = 0.25
# The least time of a try where others may follow: a broker on a busy machine does not hang.
_SHARE_MIN_S: Final = 0.25


class Sending:
    """One message on its way to a broker."""

    __slots__ = (
        "_began_s",
        "_pin",
        "_posted",
        "_retries",
        "_sender",
        "_sequence",
        "_slot",
        "_timeout_s",
        "_tried",
        "deadline_s",
        "future",
        "out",
        "until_s",
    )

    def __init__(self, sender: Sender, out: SendRequest, pin: Pin, timeout_s: float, retries: int | None) -> None:
        self._sender = sender
        self.out = out
        self._pin = pin
        self._timeout_s = timeout_s
        # A message that must go to one queue is not retried on another.
        self._retries = retries if retries is not None else sender.config.retries if pin is None else 0
        # When all tries end, and when the present wait ends.
        self.deadline_s = self.until_s = sender.loop.time() + timeout_s
        self._began_s = 0.0
        self._sequence = -1
        self._posted = False
        self._slot: Slot | None = None
        self._tried: list[str] = []
        # It gets the receipt; for a one-way send it gets None.
        self.future: asyncio.Future[Any] = sender.loop.create_future()

    @property
    def topic(self) -> str:
        return self.out.topic

    def number(self, sequences: Sequences) -> None:
        """Give the message the next sequence number of an idempotent producer."""
        self._sequence, marked = sequences.next()
        self.out.properties += marked

    def start_time(self) -> None:
        """Start the time of a send that had to wait before it was begun."""
        self.deadline_s = self.until_s = self._sender.loop.time() + self._timeout_s

    def begin(self) -> None:
        """Begin a send whose body is ready."""
        self.start_time()
        self.go()

    def go(self) -> None:
        """Make the next try, at once if nothing has to be waited for."""
        sender = self._sender
        if self.future.done():  # the caller gave up
            sender.finished(self._sequence)
            return
        topic, wait_queues = self.out.topic, sender.wait_queues
        publish = sender.publish(topic)
        last = self._slot
        if last is not None and self._posted and sender.sequences is not None:
            # Only that broker knows whether it has stored the message. It may leave the route until it is back.
            slot = (publish.slot_of(last.queue) if publish is not None else None) or last
        elif publish is None or (wait_queues and topic in wait_queues):
            self.until_s = self.deadline_s
            sender.await_route(self)
            return
        else:
            try:
                slot = sender.choose(publish, self.out, self._pin, last.broker if last is not None else None)
            except AerobeeError as error:
                self.fail(error)
                return
        self._slot = slot
        self.until_s = self._try_until(slot)
        link = sender.core.remoting.peek(slot.address)
        if link is None or (wait_queues and slot.address in wait_queues):
            sender.await_link(self, slot.address)
        else:
            self._write(link, slot)

    def routed(self, _: PublishInfo) -> None:
        """Go on, because the slots of the topic are known."""
        self.go()

    def linked(self, link: Link) -> None:
        """Write, because the server of the chosen slot reads."""
        slot = self._slot
        assert slot is not None
        if self.future.done():
            self._sender.finished(self._sequence)
        else:
            self._write(link, slot)

    def _try_until(self, slot: Slot) -> float:
        """Return when this try is given up, so that another has time: on another broker, or where it is harmless."""
        sender, config = self._sender, self._sender.config
        tries_left = self._retries - len(self._tried)
        if config.attempt_timeout_s is not None:
            if tries_left <= 0 and not config.idempotent:
                return self.deadline_s
            return min(self.deadline_s, sender.loop.time() + config.attempt_timeout_s)
        avoided = sender.faults.avoided
        # Where all other brokers hang too, this one may take all the time.
        others = slot.others - len(avoided) + (slot.broker in avoided) if avoided else slot.others
        if tries_left <= 0 or others <= 0 or self._pin is not None:
            return self.deadline_s
        now_s = sender.loop.time()
        share_s = (self.deadline_s - now_s) / (tries_left + 1)
        return min(self.deadline_s, now_s + max(share_s, _SHARE_MIN_S))

    def _write(self, link: Link, slot: Slot) -> None:
        sender = self._sender
        self._began_s = sender.loop.time()
        opaque = sender.core.remoting.next_opaque()
        self._posted = True
        try:
            link.post(opaque, sender.frame(slot, self.out, opaque), self.until_s, self._answered)
        except TransportError as error:
            self.failed_try(error)
        except AerobeeError as error:  # the message cannot be put in a frame
            self.fail(error)

    def _answered(self, answer: Command | AerobeeError) -> None:
        sender, slot = self._sender, self._slot
        assert slot is not None
        if isinstance(answer, AerobeeError):
            self.failed_try(answer)
            return
        if answer.code not in SEND_STATUSES:
            error = error_for(answer.code, answer.remark, f"{slot.broker} ({slot.address})")
            if answer.code == ResponseCode.GO_AWAY:
                sender.core.remoting.drop(slot.address)
            if error.retriable:
                self.failed_try(error)
            else:
                self.fail(error)
            return
        faults = sender.faults
        if faults.by_latency or faults.avoided:
            latency_ms = (sender.loop.time() - self._began_s) * 1000
            faults.succeeded(slot.broker, latency_ms, sender.core.clock.monotonic() * 1000)
        out = self.out
        try:
            receipt = receipt_of(answer, out.user_topic, slot.queue.broker_name, slot.address, out.message_id)
        except AerobeeError as error:
            self.fail(error)
            return
        if answer.code == ResponseCode.SUCCESS:
            self._done(receipt)
        elif sender.config.retry_not_durable:
            self.failed_try(NotDurableError(receipt))
        else:
            self.fail(NotDurableError(receipt))

    def failed_try(self, error: AerobeeError) -> None:
        """Try another broker because this one did not take the message, unless there are no tries or no time left."""
        sender, slot = self._sender, self._slot
        core = sender.core
        if slot is not None:
            self._tried.append(f"{slot.broker} ({slot.address})")
            hung = isinstance(error, RequestTimeoutError)
            sender.faults.failed(slot.broker, core.clock.monotonic() * 1000, hung=hung)
        if isinstance(error, TransportError) or error.refresh_route:
            core.refresh_soon(self.out.topic)
        # Where no connection could be made, nothing was sent: it is tried as long as there is time, since a broker
        # that restarts or moves is back within seconds. So is a numbered message, which a broker knows if it has it.
        tries, is_harmless = len(self._tried), isinstance(error, NotConnectedError) or sender.sequences is not None
        left_s = self.deadline_s - sender.loop.time()
        if (tries > self._retries and not is_harmless) or left_s <= 0 or core.closed:
            self.fail(error)
            return
        _log.debug("a send is tried again", topic=self.out.topic, reason=str(error))
        # Asking again at once does not help a broker that sheds load.
        if (is_harmless and tries > 1) or error.code == ResponseCode.SYSTEM_BUSY:
            sender.loop.call_later(min(_PAUSE_S * 2 ** min(tries, 8), _PAUSE_MAX_S, left_s), self.go)
        else:
            self.go()

    def fail(self, error: AerobeeError) -> None:
        if error.broker is None and self._slot is not None:
            error.broker = f"{self._slot.broker} ({self._slot.address})"
        if len(self._tried) > 1:
            error.add_note(f"tried: {', then '.join(self._tried)}")
        if error.hint is None:
            error.hint = _hint(error, len(self._tried))
        if not self.future.done():
            self.future.set_exception(error)
        self._sender.finished(self._sequence)

    def _done(self, receipt: SendReceipt | None) -> None:
        if not self.future.done():
            self.future.set_result(receipt)
        self._sender.finished(self._sequence)


class Oneway(Sending):
    """One message that no broker answers. It is written once, or not at all."""

    __slots__ = ()

    def number(self, sequences: Sequences) -> None:
        """Give no number: there is no second try that a broker must recognise."""

    def _write(self, link: Link, slot: Slot) -> None:
        sender = self._sender
        try:
            link.write(sender.frame(slot, self.out, sender.core.remoting.next_opaque(), oneway=True))
        except AerobeeError as error:
            self.failed_try(error)
        else:
            self._done(None)

    def failed_try(self, error: AerobeeError) -> None:
        if isinstance(error, TransportError):
            self._sender.core.refresh_soon(self.topic)
        self.fail(error)


# What to do about the most frequent refusals.
_HINTS: Final[dict[int, str]] = {
    ResponseCode.SYSTEM_BUSY: "the broker sheds load: send more slowly, or later",
    ResponseCode.SERVICE_NOT_AVAILABLE: "the broker takes no writes now: it starts, it is a slave, or its disk is full",
    ResponseCode.NO_PERMISSION: "check the access key, and the permission of topic and broker",
    ResponseCode.TOPIC_NOT_EXIST: "create the topic: this broker does not create it on first use",
    ResponseCode.MESSAGE_ILLEGAL: "check the topic's name, the size and the properties",
}


def _hint(error: AerobeeError, tries: int) -> str | None:
    if isinstance(error, RequestTimeoutError):
        return "the message may or may not be stored; sending it again may store it twice"
    if isinstance(error, TransportError):
        return f"the producer gave up after {tries} tries; is the broker up, and its address reachable from here?"
    return _HINTS.get(error.code) if error.code is not None else None
