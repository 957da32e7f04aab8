"""The simple consumer: it asks for messages, and holds each for a time.

    async with SimpleConsumer("localhost:9876", group="billing", subscribe={"orders": "TagA"}) as consumer:
        for message in await consumer.receive(max_messages=16, invisible=30.0, wait=15.0):
            await consumer.ack(message)

No queue belongs to a consumer: as many members as one likes share a queue, and one that dies holds up nothing for
longer than the time of its messages. It works over POP, with Aerobee's brokers and with Apache's. RocketMQ 5:
SimpleConsumer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from aerobee.client.consumer.lifecycle import ConsumerLifecycle
from aerobee.client.consumer.options import SimpleConsumerConfig, SimpleConsumerOptions
from aerobee.client.consumer.popping import BATCH_MAX, MessageLease, PoppedMessage
from aerobee.client.consumer.push.sendback import RetrySender
from aerobee.client.consumer.simple.engine import SimpleEngine
from aerobee.client.consumer.subscription import newer, require_filter, subscription
from aerobee.client.core import (
    ClientCore,
    HandleExpiredError,
    client_config,
    require_at_least,
    require_text,
    shown_defaults,
    split_options,
    takes,
    with_namespace,
)
from aerobee.client.producer import Replier
from aerobee.errors import InvalidArgumentError
from aerobee.model.message import with_replier
from aerobee.model.names import require_group, require_topic
from aerobee.model.queue import MessageQueue
from aerobee.protocol.bodies.heartbeat import SubscriptionData
from aerobee.runtime.process import environment

# RocketMQ: an invisible time of 12 hours is the most that a client may ask for; a broker takes more.
INVISIBLE_MAX_S = 12 * 3600.0
WAIT_MAX_S = 100.0


class SimpleConsumer(ConsumerLifecycle[SimpleEngine]):
    """A consumer that is asked for messages, each for a time. `subscribe` names topics: `"*"` or tags, or `sql92=` text
    in a mapping `{"sql92": "a > 5"}`."""

    _start_hint = "async with consumer: or await consumer.start()"

    @takes(SimpleConsumerOptions, shown_defaults(SimpleConsumerConfig))
    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        subscribe: Mapping[str, str | Mapping[str, str]],
        **options: Unpack[SimpleConsumerOptions],
    ) -> None:
        own, shared = split_options("SimpleConsumer", options, SimpleConsumerConfig)
        require_text("group", group)
        self.group = require_group(group)
        self.config = config = SimpleConsumerConfig(**own)
        config.check()
        client = client_config(namesrv, environment(), **shared)
        super().__init__(client, with_namespace(client.namespace, group))
        if not isinstance(subscribe, Mapping) or not subscribe:
            raise InvalidArgumentError('subscribe names no topic: subscribe={"orders": "*"}')
        self._subscriptions = [self._subscription(topic, wanted) for topic, wanted in subscribe.items()]

    def _subscription(self, topic: str, wanted: str | Mapping[str, str]) -> SubscriptionData:
        wire = with_namespace(self.client_config.namespace, require_topic(topic))
        if isinstance(wanted, str):
            return subscription(wire, wanted)
        if not isinstance(wanted, Mapping) or set(wanted) != {"sql92"}:
            raise InvalidArgumentError(f'subscribe[{topic!r}] is tags such as "A || B", or {{"sql92": "a > 5"}}')
        return subscription(wire, sql92=wanted["sql92"])

    # -- life

    def _new_engine(self, core: ClientCore, replier: Replier) -> SimpleEngine:
        config = self.config
        self._answers = replier
        self._sender = RetrySender(core, self.wire_group, self.client_config.namespace, config.max_attempts - 1)
        version = core.clock.now_ms()
        return SimpleEngine(
            core,
            self.wire_group,
            self.client_config.namespace,
            [newer(one, version) for one in self._subscriptions],
            from_start=config.consume_from == "first",
            fifo=config.fifo,
            renew_max_s=config.renew_max,
        )

    async def _begin(self, core: ClientCore, engine: SimpleEngine) -> None:
        for one in self._subscriptions:
            await require_filter(core, self.wire_group, one)
        await engine.start()

    async def _end(self, engine: SimpleEngine) -> None:
        await engine.stop()

    # -- messages

    async def receive(self, max_messages: int = 16, invisible: float = 30.0, wait: float = 15.0) -> list[PoppedMessage]:
        """Return up to `max_messages`, as soon as there is one; none after `wait` seconds.

        Others get them after `invisible` seconds, unless they are acknowledged before. One that was tried too often
        goes to the dead letters of its group and is not returned.
        """
        engine = self._running()
        require_at_least("max_messages", max_messages, 1)
        if max_messages > BATCH_MAX:
            raise InvalidArgumentError(f"max_messages={max_messages}: {BATCH_MAX} are the most")
        if not 0.01 <= invisible <= INVISIBLE_MAX_S:
            raise InvalidArgumentError(f"invisible={invisible}: 0.01 to {INVISIBLE_MAX_S:.0f} seconds are allowed")
        if not 0 <= wait <= WAIT_MAX_S:
            raise InvalidArgumentError(f"wait={wait}: 0 to {WAIT_MAX_S:.0f} seconds are allowed")
        found = []
        for message in await engine.receive(max_messages, invisible, wait):
            if await self._gave_up(engine, message):
                continue
            if self.config.renew:
                engine.keeper.keep(_lease(message), invisible)
            with_replier(message, self._answers)
            found.append(message)
        return found

    async def _gave_up(self, engine: SimpleEngine, message: PoppedMessage) -> bool:
        if message.delivery_attempt <= self.config.max_attempts:
            return False
        lease = _lease(message)
        queue = MessageQueue(lease.topic, lease.broker, lease.queue_id)
        if not await self._sender.send_back(message, queue, -1):
            return False
        await engine.popper.ack(lease)
        return True

    async def ack(self, message: PoppedMessage) -> None:
        """Say that a message is done: it never comes again. Raise HandleExpiredError where others may have it."""
        engine, lease = self._running(), self._held(message)
        await engine.popper.ack(lease)
        engine.keeper.let_go(lease)

    async def ack_all(self, messages: Sequence[PoppedMessage]) -> None:
        """Say that messages are done, by one request to each broker."""
        engine = self._running()
        by_broker: dict[str, list[MessageLease]] = {}
        for message in messages:
            lease = self._held(message)
            by_broker.setdefault(lease.broker, []).append(lease)
        for leases in by_broker.values():
            await engine.popper.ack_all(leases)
            for lease in leases:
                engine.keeper.let_go(lease)

    async def change_invisible(self, message: PoppedMessage, invisible: float) -> None:
        """Hide a message for `invisible` seconds from now on; 0 gives it back."""
        engine, lease = self._running(), self._held(message)
        if not 0 <= invisible <= INVISIBLE_MAX_S:
            raise InvalidArgumentError(f"invisible={invisible}: 0 to {INVISIBLE_MAX_S:.0f} seconds are allowed")
        engine.keeper.let_go(lease)
        await engine.popper.change(lease, invisible)

    def _held(self, message: PoppedMessage) -> MessageLease:
        lease = _lease(message)
        if lease.acked:
            raise HandleExpiredError(f"message {message.message_id} is acknowledged already")
        if lease.until_s <= self._running().core.clock.monotonic():
            raise HandleExpiredError(
                f"the time of message {message.message_id} is over: others may have it",
                hint="ask for a longer `invisible`, or for `renew=True`",
            )
        return lease


def _lease(message: PoppedMessage) -> MessageLease:
    lease = getattr(message, "lease", None)
    if not isinstance(lease, MessageLease):
        raise InvalidArgumentError("the message did not come from a simple consumer's receive()")
    return lease
