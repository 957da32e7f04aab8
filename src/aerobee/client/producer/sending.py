"""One send: a try on a broker, its answer, and the next try.

RocketMQ: DefaultMQProducerImpl.sendDefaultImpl, sendKernelImpl.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from aerobee.client.core import SEND_STATUSES, NotDurableError, SendReceipt, is_not_master, receipt_of
from aerobee.client.producer.publishinfo import PublishInfo, Slot
from aerobee.client.producer.selectors import Selector
from aerobee.client.producer.sendrequest import SendRequest
from aerobee.client.producer.sequences import Sequences
from aerobee.errors import AerobeeError, NotConnectedError, RequestTimeoutError, TransportError
from aerobee.errors.codes import error_for
from aerobee.model.queue import MessageQueue
from aerobee.net.link import Link
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command
from aerobee.telemetry.stdlog import get_log

if TYPE_CHECKING:
    from aerobee.client.producer.sender import Sender

_log = get_log("client.sender")

# Where a message must go: to a queue, to the queue of a sharding key, or where a selector says. None is anywhere.
Pin = MessageQueue | str | Selector | None

# How long one try waits for a connection: a new master may be known before the old one refuses.
CONNECT_S: Final = 1.0
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
            self._leave()
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
            self._await_link(slot)
        else:
            self._write(link, slot)

    def _await_link(self, slot: Slot) -> None:
        """Wait for a connection for a while, or longer where there is one whose server does not read."""
        sender = self._sender
        if not sender.core.remoting.is_connected(slot.address):
            self.until_s = min(self.until_s, sender.loop.time() + CONNECT_S)
        sender.await_link(self, slot.address)

    def routed(self, _: PublishInfo) -> None:
        """Go on, because the slots of the topic are known."""
        self.go()

    def linked(self, link: Link) -> None:
        """Write, because the server of the chosen slot reads."""
        slot = self._slot
        assert slot is not None
        if self.future.done():
            self._leave()
        else:
            self.until_s = self._try_until(slot)
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
            hung = isinstance(error, TimeoutError)
            sender.faults.failed(slot.broker, core.clock.monotonic() * 1000, hung=hung)
        is_elsewhere = is_not_master(error)
        core.doubt_route(self.out.topic, error)
        # Where no connection could be made, nothing was sent: it is tried as long as there is time, since a broker
        # that restarts or moves is back within seconds, and a group finds a new master in a second. So is a numbered
        # message, which a broker knows if it has it.
        tries = len(self._tried)
        is_harmless = isinstance(error, NotConnectedError) or is_elsewhere or sender.sequences is not None
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
        self._leave()

    def _done(self, receipt: SendReceipt | None) -> None:
        if not self.future.done():
            self.future.set_result(receipt)
        self._leave()

    def _leave(self) -> None:
        """End the send, which was answered or given up."""
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
    if isinstance(error, RequestTimeoutError) and not isinstance(error, NotConnectedError):
        return "the message may or may not be stored; sending it again may store it twice"
    if isinstance(error, TransportError):
        return f"the producer gave up after {tries} tries; is the broker up, and its address reachable from here?"
    return _HINTS.get(error.code) if error.code is not None else None
