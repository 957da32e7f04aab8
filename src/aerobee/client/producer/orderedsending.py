"""Sends that keep their order: those with a sharding key, and those of an idempotent producer for one queue.

Each belongs to the lane of its queue (`Lane`). While the queue has no master, the lane looks for one until the time of
the sends is over, and others go on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aerobee.client.core import ClientStateError, QueueUnavailableError, SendReceipt
from aerobee.client.producer.lanes import Lane
from aerobee.client.producer.publishinfo import Slot
from aerobee.client.producer.selectors import hashed_index
from aerobee.client.producer.sending import Pin, Sending
from aerobee.client.producer.sendrequest import SendRequest
from aerobee.client.producer.sequences import Sequences
from aerobee.errors import AerobeeError, BrokerError, NotConnectedError, RequestTimeoutError
from aerobee.errors.codes import NotDurableError
from aerobee.model.producermark import order_property
from aerobee.model.queue import MessageQueue
from aerobee.net.link import Link

if TYPE_CHECKING:
    from aerobee.client.producer.sender import Sender

# The pauses between the tries of the first send of a lane.
_PAUSE_S: Final = 0.02
_PAUSE_MAX_S: Final = 0.25
# Many sends have nearly the same deadline. They are looked at together.
_GRAIN_S: Final = 0.01
_LANES_MAX: Final = 4096


class OrderedSends:
    """The lanes of one sender."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._lanes: dict[MessageQueue, QueueLane] = {}
        # What waits in all lanes.
        self.count = 0
        self.size_bytes = 0

    def lane_of(self, queue: MessageQueue) -> QueueLane:
        lane = self._lanes.get(queue)
        if lane is None:
            if len(self._lanes) >= _LANES_MAX:
                self._lanes = {of: one for of, one in self._lanes.items() if not one.order.is_empty}
            lane = self._lanes[queue] = QueueLane(self._sender, self, queue)
        return lane

    def queue_of(self, topic: str, key: str) -> MessageQueue | None:
        """Return the queue of a sharding key, among the declared queues of the topic. Return None before the first
        route."""
        queues = self._sender.core.routes.declared.of(topic)
        if not queues:
            publish = self._sender.publish(topic)
            queues = tuple(publish.queues) if publish is not None else ()
        return queues[hashed_index(key, len(queues))] if queues else None

    def is_waiting(self, topic: str, pin: Pin) -> bool:
        """Tell whether a send would have to wait behind others of its queue."""
        queue = self.queue_of(topic, pin) if isinstance(pin, str) else pin
        lane = self._lanes.get(queue) if isinstance(queue, MessageQueue) else None
        return lane is not None and bool(lane.order.waiting)

    def look_again(self, topic: str) -> None:
        """Try the lanes of a topic that are held, because its route changed."""
        for queue, lane in list(self._lanes.items()):
            if queue.topic == topic and lane.order.is_held:
                lane.try_now()

    def close(self) -> None:
        """Fail what still waits."""
        for lane in list(self._lanes.values()):
            lane.close()


class QueueLane:
    """The lane of one queue, with its timer."""

    def __init__(self, sender: Sender, all_lanes: OrderedSends, queue: MessageQueue) -> None:
        self.queue = queue
        self.order: Lane[OrderedSending] = Lane(numbered=sender.sequences is not None)
        # Why the last try failed.
        self.error: AerobeeError | None = None
        self._sender = sender
        self._all = all_lanes
        self._timer: asyncio.TimerHandle | None = None
        self._try_s = 0.0
        # A time at or before the first deadline of those that wait.
        self._deadline_s = float("inf")

    # -- what sends tell

    def join(self, send: OrderedSending) -> None:
        """Let a send go, or let it wait for its turn."""
        if self.order.join(send):
            send.step()
        else:
            self._park(send)
            self._plan()

    def returned(self, send: OrderedSending, error: AerobeeError | None, *, failed: bool = True) -> None:
        """Let a released send wait for another try."""
        self.order.returned(send, failed=failed)
        if error is not None:
            self.error = error
        pause_s = min(_PAUSE_S * 2 ** min(self.order.failures, 8), _PAUSE_MAX_S) if failed else 0.0
        # Drawn apart: the lanes of many producers find out at the same time that a broker is gone.
        self._try_s = self._sender.loop.time() + pause_s * (0.75 + self._sender.core.entropy.uniform() / 2)
        self._park(send)
        self._plan()

    def ended(self, send: OrderedSending, *, stored: bool, goes_on: bool) -> None:
        """Go on after the end of a released send."""
        order = self.order
        order.ended(send, stored=stored)
        if goes_on and order.goes_on() and order.waiting:
            self.error = None
            self._release()
        if order.waiting:
            self._plan()

    # -- going on

    def try_now(self) -> None:
        """Try the first send, if it waits for nothing but the time of its next try."""
        self._try_s = 0.0
        if self.order.is_idle:
            self._look()

    def _release(self) -> None:
        """Let those that wait go, as long as none of them fails."""
        self._drop_overtaken()
        while not self.order.is_held and (send := self.order.next()) is not None:
            self._unpark(send)
            send.step()

    def _drop_overtaken(self) -> None:
        for send in self.order.overtaken():
            self._drop(send, send.error)

    def _look(self) -> None:
        """Fail what is late, and make the next try when its time has come."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        order, now_s = self.order, self._sender.loop.time()
        if now_s >= self._deadline_s:
            for send in [one for one in order.waiting if one.deadline_s <= now_s or one.future.done()]:
                self._drop(send, None)
            self._deadline_s = min((one.deadline_s for one in order.waiting), default=float("inf"))
        if order.is_idle and now_s >= self._try_s:
            if order.is_held:
                self._drop_overtaken()
                first = order.next()
                if first is not None:
                    self._unpark(first)
                    first.step()
            else:
                self._release()
        if order.waiting:
            self._plan()

    def _plan(self) -> None:
        """Look again at the next deadline, or at the next try where one is possible."""
        when_s = min(self._deadline_s, self._try_s) if self.order.is_idle else self._deadline_s
        if self._timer is None or when_s < self._timer.when() - _GRAIN_S:
            if self._timer is not None:
                self._timer.cancel()
            loop = self._sender.loop
            self._timer = loop.call_at(max(when_s, loop.time()), self._look)

    def _park(self, send: OrderedSending) -> None:
        self._deadline_s = min(self._deadline_s, send.deadline_s)
        self._all.count += 1
        self._all.size_bytes += send.size
        self._sender.parked()

    def _unpark(self, send: OrderedSending) -> None:
        self._all.count -= 1
        self._all.size_bytes -= send.size
        self._sender.in_flight += 1

    def _drop(self, send: OrderedSending, error: AerobeeError | None) -> None:
        """Fail a send that waits."""
        self._unpark(send)
        send.fail(error or send.late(self))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for send in list(self.order.waiting):
            self._drop(send, ClientStateError("the producer was closed before the message was sent"))


class OrderedSending(Sending):
    """One message that is stored after the messages of its queue that were begun before it."""

    __slots__ = ("_is_stored", "_key", "_lane", "_properties", "error", "size", "turn")

    def __init__(self, sender: Sender, out: SendRequest, pin: Pin, timeout_s: float, retries: int | None) -> None:
        super().__init__(sender, out, pin, timeout_s, retries)
        self._key = pin if isinstance(pin, str) else None
        self._lane: QueueLane | None = None
        self._is_stored = False
        self.turn = -1
        self.size = len(out.body) + len(out.properties)
        # Why the last try failed.
        self.error: AerobeeError | None = None
        # The properties without those that differ from try to try.
        self._properties = out.properties

    def number(self, sequences: Sequences) -> None:
        """Give no number yet: the numbers of a queue are given in the order in which its messages are written."""

    def go(self) -> None:
        """Take a turn in the lane of the queue."""
        sender = self._sender
        if self.future.done():  # the caller gave up
            self._leave()
            return
        topic = self.out.topic
        try:
            queue = self._queue()
        except AerobeeError as error:
            self.fail(error)
            return
        if queue is None or not sender.is_resolved(topic) or (sender.wait_queues and topic in sender.wait_queues):
            self.until_s = self.deadline_s
            sender.await_route(self)
            return
        self._lane = sender.ordered.lane_of(queue)
        self._lane.join(self)

    def _queue(self) -> MessageQueue | None:
        """Return the queue of the sharding key, or the one that the caller named. Return None before the first route.
        Raise SelectorError where the topic does not have the queue."""
        sender, out, pin = self._sender, self.out, self._pin
        if isinstance(pin, str):
            return sender.ordered.queue_of(out.topic, pin)
        assert isinstance(pin, MessageQueue)
        publish = sender.publish(out.topic)
        return None if publish is None else sender.named_slot(publish, out, pin).queue

    def step(self) -> None:
        """Make a try: the lane has released this send."""
        sender, lane = self._sender, self._lane
        assert lane is not None
        if self.future.done():
            self._leave()
            return
        publish = sender.publish(self.out.topic)
        slot = publish.slot_of(lane.queue) if publish is not None else None
        if slot is None:
            # The group has no master now, as far as is known. A message that was written may be asked for there.
            slot = self._slot if self._posted else None
        if slot is None:
            sender.core.refresh_soon(self.out.topic)
            lane.returned(self, None)
            return
        if not lane.order.may_use(self, slot.address):
            lane.returned(self, None, failed=False)
            return
        self._slot = slot
        link = sender.core.remoting.peek(slot.address)
        if link is None or (sender.wait_queues and slot.address in sender.wait_queues):
            self.until_s = self.deadline_s
            self._await_link(slot)
        else:
            self._write(link, slot)

    def _write(self, link: Link, slot: Slot) -> None:
        sender, lane = self._sender, self._lane
        assert lane is not None
        if link.closed:
            self.failed_try(NotConnectedError(f"connection to {slot.address} is closed", broker=slot.address))
            return
        if sender.sequences is not None:
            if self._sequence < 0:
                self._sequence, marked = sender.sequences.next()
                self._properties = self.out.properties + marked
            before = lane.order.before(self)
            self.out.properties = self._properties + order_property(-1 if before is None else before._sequence)
        self.until_s = self._try_until(slot)
        super()._write(link, slot)

    def failed_try(self, error: AerobeeError) -> None:
        """Wait in the lane for another try on the same queue, or fail where another try could do harm."""
        sender, slot, lane = self._sender, self._slot, self._lane
        assert lane is not None and slot is not None
        core = sender.core
        self.error = error
        self._tried.append(f"{slot.broker} ({slot.address})")
        core.doubt_route(self.out.topic, error)
        if sender.sequences is None and self._posted:
            is_refused = isinstance(error, BrokerError) and not isinstance(error, NotDurableError)
            if not is_refused and not isinstance(error, NotConnectedError):
                self.fail(error)  # it may be stored
                return
            self._posted = False
        if not core.closed and sender.loop.time() < self.deadline_s:
            lane.returned(self, error)
        else:
            self.fail(error if isinstance(error, BrokerError) else self.late(lane))

    def late(self, lane: QueueLane) -> AerobeeError:
        """Return the error of a send whose time is over while it waits."""
        queue = lane.queue
        where = f"queue {queue.queue_id} of broker {queue.broker_name!r}"
        reason = lane.error or self.error
        why = f": {reason.message}" if reason is not None else ", which no route names"
        what = f"the message with sharding key {self._key!r}" if self._key is not None else "the message"
        text = f"{where} took no message within {self._timeout_s:g} s{why}"
        if self._posted:
            return RequestTimeoutError(f"it is not known whether {what} is stored: {text}", broker=queue.broker_name)
        return QueueUnavailableError(
            f"{what} is not stored: {text}",
            broker=queue.broker_name,
            hint="send it again, or give it more time by timeout=; for a broker that is gone: aerobee cluster forget",
        )

    def fail(self, error: AerobeeError) -> None:
        if isinstance(error, BrokerError) and not isinstance(error, NotDurableError):
            self._posted = False  # the broker says that it did not store it
        super().fail(error)

    def _done(self, receipt: SendReceipt | None) -> None:
        self._is_stored = True
        super()._done(receipt)

    def _leave(self) -> None:
        super()._leave()
        lane = self._lane
        if lane is not None:
            self._lane = None
            lane.ended(self, stored=self._is_stored or self._posted, goes_on=self._is_stored)
