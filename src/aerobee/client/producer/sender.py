"""Carries messages to brokers: chooses a queue, writes, waits for the answer, tries another broker.

A send whose route is known and whose connection is open runs in the caller's own step: no task, one future, its
bytes joined with those of the same tick. Everything slower (route, connect, a server that does not read) is waited
for in a line (`lines`), which later sends join: as long as no try fails, the messages of one queue are written in the
order they were begun. RocketMQ: DefaultMQProducerImpl.sendDefaultImpl, sendKernelImpl.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from aerobee.client.core.clientcore import ClientCore
from aerobee.client.core.errors import ClientStateError, NotDurableError, SelectorError, TooManyInFlightError
from aerobee.client.core.receipt import STATUSES, SendReceipt, receipt_of
from aerobee.client.core.routes import TopicRoute
from aerobee.client.producer.faults import FaultTable
from aerobee.client.producer.folding import Folding
from aerobee.client.producer.lines import Line, Lines
from aerobee.client.producer.outgoing import Outgoing
from aerobee.client.producer.publish import Frames, Publish, Slot
from aerobee.client.producer.selectors import Selector, hashed_index
from aerobee.client.producer.sequences import Sequences
from aerobee.errors import AerobeeError, NotConnectedError, RequestTimeoutError, TransportError
from aerobee.errors.codes import TopicNotExistError, error_for
from aerobee.model.names import AUTO_CREATE_TOPIC
from aerobee.model.numbers import parse_int
from aerobee.model.queue import MessageQueue
from aerobee.net.client import Link
from aerobee.protocol.codes import JSON, ResponseCode
from aerobee.protocol.command import Command
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

_log = get_log("client.sender")

# Where a message must go: a queue, a sharding key's hash, or what a selector says. None is anywhere.
Pin = MessageQueue | str | Selector | None
Answer = asyncio.Future[SendReceipt]


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderConfig:
    """Defaults are those of RocketMQ: DefaultMQProducer."""

    timeout_s: float = 3.0
    # Of one try, where another may follow; None is a share of what is left. RocketMQ: sendMsgMaxTimeoutPerRequest.
    attempt_timeout_s: float | None = None
    retries: int = 2
    retry_not_durable: bool = False
    # Tries again as long as there is time, on the same queue, whose broker knows what it has stored.
    idempotent: bool = False
    avoid_slow_brokers: bool = False
    max_in_flight: int = 1000
    create_topic_key: str = AUTO_CREATE_TOPIC
    default_topic_queue_nums: int = 4


class Sender:
    """One producer group's sends over a core."""

    def __init__(self, core: ClientCore, group: str, config: SenderConfig) -> None:
        self.core = core
        self.config = config
        self.frames = Frames(group, config.create_topic_key, config.default_topic_queue_nums)
        self.faults = FaultTable(by_latency=config.avoid_slow_brokers)
        self.in_flight = 0
        self.sequences = Sequences(core.entropy.token(8).hex()) if config.idempotent else None
        self.loop = asyncio.get_running_loop()
        # Frames written apart from a command: not where each must be signed or the codec is binary.
        self.plain = core.config.codec == JSON and not core.remoting.signs
        # By topic and by address, which holds a colon where a topic cannot.
        self.lines: Lines[Sending] = {}
        self._publish: dict[str, Publish] = {}
        # Topics somebody wanted to send to, found or not: their routes are kept fresh. RocketMQ: topicPublishInfoTable.
        self._topics: dict[str, None] = {}
        # Not begun for lack of room.
        self._room: deque[Sending] = deque()
        self._folding: Folding[Sending] = Folding(RateLimitedLog(_log, core.clock))
        self._is_filling = False
        self._idle: list[asyncio.Future[None]] = []
        core.route_changed.append(self._route_changed)

    def close(self) -> None:
        """Nothing is in flight any more, or is given up."""
        if self._route_changed in self.core.route_changed:
            self.core.route_changed.remove(self._route_changed)
        self._folding.close()

    def topics(self) -> list[str]:
        """Topics sent to."""
        return list(self._topics)

    # -- sending

    def post(
        self, out: Outgoing, pin: Pin = None, timeout_s: float | None = None, retries: int | None = None
    ) -> Answer:
        """Begin to send. The future has the receipt, or what went wrong."""
        if self._room or self._is_full():
            raise TooManyInFlightError(
                f"{self.in_flight} sends wait for their answers",
                hint="await send(), await flush(), or raise max_in_flight",
            )
        sending = Sending(self, out, pin, self.config.timeout_s if timeout_s is None else timeout_s, retries)
        self._begin(sending)
        return sending.future

    async def send(
        self, out: Outgoing, pin: Pin = None, timeout_s: float | None = None, retries: int | None = None
    ) -> SendReceipt:
        """Send and wait, first for room where too much is in flight."""
        timeout_s = self.config.timeout_s if timeout_s is None else timeout_s
        sending = Sending(self, out, pin, timeout_s, retries)
        self._begin_in_turn(sending)
        receipt: SendReceipt = await sending.future
        return receipt

    async def oneway(self, out: Outgoing, pin: Pin = None, timeout_s: float | None = None) -> None:
        """Write and forget: no answer, no retry."""
        timeout_s = self.config.timeout_s if timeout_s is None else timeout_s
        sending = Oneway(self, out, pin, timeout_s, 0)
        self._begin_in_turn(sending)
        await sending.future

    def _begin(self, sending: Sending) -> None:
        if self.sequences is not None:
            sending.number(self.sequences)
        self.in_flight += 1
        if self._folding.holds(sending.out):
            self._folding.join(sending)
        else:
            sending.go()

    def _begin_in_turn(self, sending: Sending) -> None:
        """Now, where there is room and nobody waits for it."""
        if self._room or self._is_full():
            self._room.append(sending)
        else:
            self._begin(sending)

    def _fill(self) -> None:
        """There may be room for those who wait, in the order they came."""
        while self._room and not self._is_full():
            sending = self._room.popleft()
            if not sending.future.done():
                sending.start_time()
                self._begin(sending)
        self._is_filling = False
        self._tell_idle()

    async def flush(self) -> None:
        """Until every send begun so far (and since) has its answer."""
        while self.in_flight or self._room:
            idle = self.loop.create_future()
            self._idle.append(idle)
            await idle

    def _is_full(self) -> bool:
        if self.in_flight >= self.config.max_in_flight:
            return True
        return self.sequences is not None and self.sequences.is_full

    def finished(self, sequence: int) -> None:
        """One send less in flight."""
        self.in_flight -= 1
        if self.sequences is not None:
            self.sequences.end(sequence)
        if self._room:
            # Not in this step: it may be that of a line, whose others were begun before.
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

    def frame(self, slot: Slot, out: Outgoing, opaque: int, *, oneway: bool = False) -> bytes:
        """The bytes of one request."""
        born_ms = self.core.clock.now_ms()
        if self.plain:
            return self.frames.json(slot, out, opaque, born_ms, oneway)
        codec = self.core.config.codec
        return self.core.remoting.frame(self.frames.command(slot, out, opaque, born_ms, oneway, codec))

    # -- waiting

    def await_route(self, sending: Sending) -> None:
        """`sending` goes on when the topic's slots are known, behind those who wait for them already."""
        topic = sending.topic
        where = ";".join(self.core.config.namesrv)
        self._join(
            topic,
            sending,
            lambda: Line(
                self.lines,
                topic,
                wait=lambda: self.resolve(topic),
                go_on=Sending.routed,
                fail=Sending.fail,
                late=lambda: RequestTimeoutError("no route in time", broker=where),
            ),
        )

    def await_link(self, sending: Sending, address: str) -> None:
        """`sending` is written when a server reads at `address`, behind those who wait for that already."""
        self._join(
            address,
            sending,
            lambda: Line(
                self.lines,
                address,
                wait=lambda: self._writable(address),
                go_on=Sending.linked,
                fail=lambda one, error: one.failed_try(error),
                late=lambda: RequestTimeoutError("no connection in time", broker=address),
            ),
        )

    async def _writable(self, address: str) -> Link:
        link = await self.core.remoting.link(address)
        await link.drain()
        return link

    def _join(self, key: str, sending: Sending, make: Callable[[], Line[Sending, Any]]) -> None:
        line = self.lines.get(key)
        if line is None:
            if self.core.closed:
                sending.fail(ClientStateError("the producer was closed before the message was sent"))
                return
            line = make()
            task = self.core.tasks.start(line.serve(), name=f"sends wait for {key}")
            task.add_done_callback(line.ended)
        line.join(sending)

    # -- routes

    def publish(self, topic: str) -> Publish | None:
        return self._publish.get(topic)

    async def resolve(self, topic: str, *, refresh: bool = False) -> Publish:
        """The topic's slots; raises TopicNotExistError, TransportError."""
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

    def _slots(self, route: TopicRoute) -> Publish | None:
        slots: list[Slot] = []
        for queue in route.write_queues:
            broker = route.broker_of(queue)
            address = self.core.routes.master(broker)
            if address is not None:
                slots.append(self.frames.slot(queue, broker, self._send_address(address)))
        if not slots:
            return None
        # Clients start at different queues, or all would begin with the first.
        publish = self._publish[route.topic] = Publish(slots, self.core.entropy.below(len(slots)))
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

    def choose(self, publish: Publish, out: Outgoing, pin: Pin, last_broker: str | None) -> Slot:
        """The slot a message goes to."""
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
    def _select(selector: Selector, publish: Publish, out: Outgoing) -> MessageQueue:
        try:
            queue = selector(publish.queues, out.as_message())
        except Exception as error:
            raise SelectorError(f"the selector raised {type(error).__name__}: {error}") from error
        if not isinstance(queue, MessageQueue):
            raise SelectorError(f"the selector returned {queue!r}, which is no queue")
        return queue


_PAUSE_S: Final = 0.01
_PAUSE_MAX_S: Final = 0.25
# The least that a try is given where others may follow: a busy machine is no hung broker.
_SHARE_MIN_S: Final = 0.25


class Sending:
    """One message on its way."""

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

    def __init__(self, sender: Sender, out: Outgoing, pin: Pin, timeout_s: float, retries: int | None) -> None:
        self._sender = sender
        self.out = out
        self._pin = pin
        self._timeout_s = timeout_s
        # Another queue would be the wrong place for a message that has one.
        self._retries = retries if retries is not None else sender.config.retries if pin is None else 0
        # Of all tries, and of what is waited for now.
        self.deadline_s = self.until_s = sender.loop.time() + timeout_s
        self._began_s = 0.0
        self._sequence = -1
        self._posted = False
        self._slot: Slot | None = None
        self._tried: list[str] = []
        # Of a receipt; a one-way send's of nothing.
        self.future: asyncio.Future[Any] = sender.loop.create_future()

    @property
    def topic(self) -> str:
        return self.out.topic

    def number(self, sequences: Sequences) -> None:
        """The next number of an idempotent producer is this message's."""
        self._sequence, marked = sequences.next()
        self.out.properties += marked

    def start_time(self) -> None:
        """It had to wait before it could be begun: its time starts now."""
        self.deadline_s = self.until_s = self._sender.loop.time() + self._timeout_s

    def begin(self) -> None:
        """Its body is ready."""
        self.start_time()
        self.go()

    def go(self) -> None:
        """The next try, now if nothing has to be waited for."""
        sender = self._sender
        if self.future.done():  # the caller gave up
            sender.finished(self._sequence)
            return
        topic, lines = self.out.topic, sender.lines
        publish = sender.publish(topic)
        last = self._slot
        if last is not None and self._posted and sender.sequences is not None:
            # Only that broker knows whether it has stored it; it may be out of the route until it is back.
            slot = (publish.slot_of(last.queue) if publish is not None else None) or last
        elif publish is None or (lines and topic in lines):
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
        if link is None or (lines and slot.address in lines):
            sender.await_link(self, slot.address)
        else:
            self._write(link, slot)

    def routed(self, _: Publish) -> None:
        """The topic's slots are known."""
        self.go()

    def linked(self, link: Link) -> None:
        """The server of the slot chosen reads."""
        slot = self._slot
        assert slot is not None
        if self.future.done():
            self._sender.finished(self._sequence)
        else:
            self._write(link, slot)

    def _try_until(self, slot: Slot) -> float:
        """When this try is given up, so that another has time: on another broker, or where the second is harmless."""
        sender, config = self._sender, self._sender.config
        tries_left = self._retries - len(self._tried)
        if config.attempt_timeout_s is not None:
            if tries_left <= 0 and not config.idempotent:
                return self.deadline_s
            return min(self.deadline_s, sender.loop.time() + config.attempt_timeout_s)
        avoided = sender.faults.avoided
        # Where all the others hang, too, this one may take the time.
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
        if answer.code not in STATUSES:
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
        """This broker did not take it: another one, unless tries or time are over."""
        sender, slot = self._sender, self._slot
        core = sender.core
        if slot is not None:
            self._tried.append(f"{slot.broker} ({slot.address})")
            hung = isinstance(error, RequestTimeoutError)
            sender.faults.failed(slot.broker, core.clock.monotonic() * 1000, hung=hung)
        if isinstance(error, TransportError) or error.refresh_route:
            core.refresh_soon(self.out.topic)
        # Where no connection could be made nothing was sent: it is tried as long as there is time, since a broker that
        # restarts or moves is back within seconds. So is what the broker knows when it sees it again.
        tries, is_harmless = len(self._tried), isinstance(error, NotConnectedError) or sender.sequences is not None
        left_s = self.deadline_s - sender.loop.time()
        if (tries > self._retries and not is_harmless) or left_s <= 0 or core.closed:
            self.fail(error)
            return
        _log.debug("another try", topic=self.out.topic, reason=str(error))
        # A broker that sheds load is not helped by being asked again at once.
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
    """One message that nobody answers: written once, or not at all."""

    __slots__ = ()

    def number(self, sequences: Sequences) -> None:
        """None: no second try has to be known."""

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


# What to do about the refusals users meet most.
_HINTS: Final[dict[int, str]] = {
    ResponseCode.SYSTEM_BUSY: "the broker sheds load: send slower, or later",
    ResponseCode.SERVICE_NOT_AVAILABLE: "the broker takes no writes now: starting, a slave, or its disk is full",
    ResponseCode.NO_PERMISSION: "check the access key, and the permission of topic and broker",
    ResponseCode.TOPIC_NOT_EXIST: "create the topic: this broker does not create it on first use",
    ResponseCode.MESSAGE_ILLEGAL: "check the topic's name, the size and the properties",
}


def _hint(error: AerobeeError, tries: int) -> str | None:
    if isinstance(error, RequestTimeoutError):
        return "the message may or may not be stored; sending it again may store it twice"
    if isinstance(error, TransportError):
        return f"gave up after {tries} tries; is the broker up, and its address reachable from here?"
    return _HINTS.get(error.code) if error.code is not None else None
