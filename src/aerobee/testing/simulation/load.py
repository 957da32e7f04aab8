"""The clients of a run: producers of every kind of message, and consumers of every kind. Nothing here judges."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from aerobee.client.consumer import LitePullConsumer, PushConsumer, RetryLater
from aerobee.client.core import ClientConfig, ClientCore, SendReceipt, acquire_core, lend_core, release_core
from aerobee.client.producer import Producer
from aerobee.errors import AerobeeError
from aerobee.model.message import Message
from aerobee.model.sysproperties import RETRY_TOPIC
from aerobee.runtime.tasks import Tasks
from aerobee.testing.simulation.cluster import DELAY_LEVELS_S, NAMESRV_ADDR, unique_ids
from aerobee.testing.simulation.story import Handling, SentMessage, Story
from aerobee.testing.simulation.world import Machine, World

# Groups, and the topics that each must handle all of.
GROUPS: Final = {"workers": ("plain", "later", "tx"), "orderly": ("ordered",), "pullers": ("plain",)}
ORDERED_GROUP: Final = "orderly"
Send = Callable[[int, str], Awaitable[object]]
_BURST: Final = 3
_KEYS: Final = ("red", "blue", "green")


class ClientHost:
    """A machine with one client process."""

    def __init__(self, world: World, address: str, story: Story) -> None:
        self.machine: Machine = world.machine(address)
        self.story = story
        self.stopping = asyncio.Event()

    def start(self) -> None:
        self.stopping = asyncio.Event()
        self.machine.launch(self._run(self.stopping))

    async def stop(self) -> None:
        """Let the clients leave in an orderly way."""
        self.stopping.set()
        await self.machine.stopped()
        self.machine.down = "stopped"

    async def _run(self, stopping: asyncio.Event) -> None:
        async with Tasks() as tasks:
            await self.run(tasks, stopping)

    async def run(self, tasks: Tasks, stopping: asyncio.Event) -> None:
        """Work until `stopping`, then close the clients."""
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        """Return the settings that the clients of one process share, so that they share a core."""
        return {
            "instance_name": self.machine.process,
            "client_ip": self.machine.address,
            "request_timeout_ms": 1_000,
            "connect_timeout_ms": 500,
            "heartbeat_interval_ms": 3_000,
            "route_interval_ms": 5_000,
        }

    async def connect(self, config: ClientConfig) -> None:
        """Make the core of this process on the machine's own seams."""
        machine = self.machine
        ids = unique_ids(machine.address, machine.entropy.token(4))
        client_id = f"{machine.address}@{machine.process}"
        core = ClientCore(config, client_id, ids, clock=machine.clock, entropy=machine.entropy.fork(), net=machine.net)
        await core.start()
        lend_core(core)
        # The process itself is one user of it: a client that cannot start must not close it for the others.
        self._core = await acquire_core(config)

    async def disconnect(self) -> None:
        await release_core(self._core)

    async def nap(self, longest_s: float) -> None:
        await asyncio.sleep(self.machine.entropy.between(0.0, longest_s))


class LoadSender(ClientHost):
    """Sends messages of every kind, each kind one after the other."""

    # Set at the end of the load: nothing more is sent, but brokers may still ask about half messages.
    is_quiet = False
    _loops: Sequence[asyncio.Task[None]] = ()

    @property
    def is_sending(self) -> bool:
        return not all(loop.done() for loop in self._loops)

    async def run(self, tasks: Tasks, stopping: asyncio.Event) -> None:
        common = {**self.options(), "timeout": 2.0, "attempt_timeout": 0.5, "retries": 3}
        plain = Producer(NAMESRV_ADDR, group="plain", **common)
        await self.connect(plain.client_config)
        exact = Producer(NAMESRV_ADDR, group="exact", idempotent=True, **common)
        deciding = Producer(NAMESRV_ADDR, group="deciding", on_check=self._on_check, **common)
        for producer in (plain, exact, deciding):
            await producer.start()
        kinds: list[tuple[str, Send, float]] = [
            ("plain", lambda n, body: self._send(plain, SentMessage(body, "plain", "plain", self.story.now_s())), 0.15),
            ("exact", lambda n, body: self._send(exact, self._exact(body)), 0.15),
            ("ordered", lambda n, body: self._send_ordered(plain, n, body), 0.1),
            ("burst", lambda n, body: self._send_burst(exact, n, body), 0.5),
            ("later", lambda n, body: self._send_later(plain, n, body), 0.5),
            ("tx", lambda n, body: self._send_half(deciding, body), 0.4),
            ("batch", lambda n, body: self._send_batch(plain, body), 0.8),
        ]
        self._loops = [
            tasks.start(self._repeat(name, send, pause_s, stopping), name=name) for name, send, pause_s in kinds
        ]
        await stopping.wait()
        await asyncio.wait(self._loops)
        for producer in (plain, exact, deciding):
            await producer.close()
        await self.disconnect()

    def _exact(self, body: str) -> SentMessage:
        return SentMessage(body, "plain", "exact", self.story.now_s(), idempotent=True)

    async def _repeat(self, name: str, send: Send, pause_s: float, stopping: asyncio.Event) -> None:
        number = 0
        while not stopping.is_set() and not self.is_quiet:
            await send(number, f"{name}-{self.machine.process}-{number}")
            number += 1
            await self.nap(2 * pause_s)

    async def _send(self, producer: Producer, sent: SentMessage, **options: Any) -> SendReceipt | None:
        story = self.story
        story.begin_send(sent)
        try:
            receipt = await producer.send(sent.topic, sent.body.encode(), **options)
        except AerobeeError as error:
            story.refused(sent.body, error)
            return None
        story.acked(sent.body, (sent.topic, receipt.broker, receipt.queue_id), receipt.queue_offset, receipt.offset_id)
        return receipt

    async def _send_batch(self, producer: Producer, body: str) -> None:
        story = self.story
        bodies = [f"{body}.{number}" for number in range(3)]
        for one in bodies:
            story.begin_send(SentMessage(one, "plain", "plain", story.now_s()))
        try:
            receipts = await producer.send_batch([Message("plain", one.encode()) for one in bodies])
        except AerobeeError as error:
            story.refused(body, error)
            return
        for one, receipt in zip(bodies, receipts, strict=True):
            story.acked(one, ("plain", receipt.broker, receipt.queue_id), receipt.queue_offset, receipt.offset_id)

    async def _send_ordered(self, producer: Producer, number: int, body: str) -> None:
        key = _KEYS[number % len(_KEYS)]
        owner = f"{self.machine.process}-{key}"
        sent = SentMessage(body, "ordered", owner, self.story.now_s(), key=key, sequence=number)
        await self._send(producer, sent, sharding_key=key)

    async def _send_burst(self, producer: Producer, number: int, body: str) -> None:
        """Send messages of one key without waiting for answers in between."""
        story, key = self.story, _KEYS[number % len(_KEYS)]
        owner = f"{self.machine.process}-{key}-burst"
        begun: list[tuple[str, asyncio.Future[SendReceipt]]] = []
        for place in range(_BURST):
            one = f"{body}.{place}"
            sequence = number * _BURST + place
            story.begin_send(SentMessage(one, "ordered", owner, story.now_s(), 0.0, True, key, sequence))
            begun.append((one, producer.send_nowait("ordered", one.encode(), sharding_key=key)))
        for one, future in begun:
            try:
                receipt = await future
            except AerobeeError as error:
                story.refused(one, error)
            else:
                place_of = ("ordered", receipt.broker, receipt.queue_id)
                story.acked(one, place_of, receipt.queue_offset, receipt.offset_id)

    async def _send_later(self, producer: Producer, number: int, body: str) -> None:
        """By a delay level, or by a time of its own."""
        if number % 2:
            level = self.machine.entropy.below(2) + 1
            delay_s = 1.0 * DELAY_LEVELS_S[level - 1]
            options: dict[str, Any] = {"delay_level": level}
        else:
            delay_s = 0.3 + self.machine.entropy.below(15) / 10
            options = {"delay": delay_s}
        await self._send(producer, SentMessage(body, "later", "plain", self.story.now_s(), delay_s), **options)

    async def _send_half(self, producer: Producer, body: str) -> None:
        """Commit, roll back, or leave it to the broker to ask."""
        story, draw = self.story, self.machine.entropy
        story.begin_send(SentMessage(body, "tx", "deciding", story.now_s()))
        try:
            async with producer.transaction("tx", body.encode()) as transaction:
                receipt = transaction.receipt
                place = ("tx", receipt.broker, receipt.queue_id)
                story.acked(body, place, receipt.queue_offset, receipt.offset_id)
                await self.nap(0.2)
                # The broker may have asked about an earlier copy, whose answer was lost.
                is_commit = story.decisions.get(body, draw.chance(0.7))
                story.decide(body, is_commit)
                if draw.chance(0.3):
                    raise _ForgottenError
                if is_commit:
                    transaction.commit()
                else:
                    transaction.rollback()
        except _ForgottenError:
            pass
        except AerobeeError as error:
            story.refused(body, error)

    async def _on_check(self, half: Message) -> bool | None:
        body = half.body.decode()
        if body in self.story.decisions:
            return self.story.decisions[body]
        # Its sender may still decide, unless it was killed or never heard that the half message is stored.
        if not body.startswith(f"tx-{self.machine.process}-") or body not in self.story.acks:
            self.story.decide(body, False)
            return False
        return None


class _ForgottenError(Exception):
    """The local part of a transaction ended without a word to the broker."""


class Receiver(ClientHost):
    """Consumes by a pushing consumer, by an ordered one and, where told, by a pulling one."""

    def __init__(self, world: World, address: str, story: Story, *, pulls: bool) -> None:
        super().__init__(world, address, story)
        self._pulls = pulls
        self._consumers: list[PushConsumer | LitePullConsumer] = []

    async def run(self, tasks: Tasks, stopping: asyncio.Event) -> None:
        common: dict[str, Any] = {**self.options(), "consume_from": "first", "persist_interval": 1.0}
        # Those of a process that was killed are none of ours.
        self._consumers = []
        await self.connect(self._pushing("workers", common).client_config)
        tasks.start(self._push("workers", common), name="push")
        tasks.start(self._push(ORDERED_GROUP, common), name="push in order")
        if self._pulls:
            tasks.start(self._pull(common), name="pull")
        await stopping.wait()
        await tasks.close()
        for consumer in self._consumers:
            await consumer.close()
        await self.disconnect()

    async def _push(self, group: str, common: dict[str, Any]) -> None:
        """Start, however long no server answers."""
        while True:
            try:
                self._consumers.append(await self._pushing(group, common).start())
                return
            except AerobeeError:
                await asyncio.sleep(0.2)

    def _pushing(self, group: str, common: dict[str, Any]) -> PushConsumer:
        consumer = PushConsumer(NAMESRV_ADDR, group=group, suspend=0.2, **common)
        is_ordered = group == ORDERED_GROUP
        for topic in GROUPS[group]:
            consumer.listener(topic, ordered=is_ordered)(self._handler(group, 0.04 if is_ordered else 0.1))
        return consumer

    def _handler(self, group: str, longest_s: float) -> Callable[[Message], Awaitable[None]]:
        async def handle(message: Message) -> None:
            handling = self._begun(group, message)
            await self.nap(longest_s)
            is_done = not self.machine.entropy.chance(0.1)
            self.story.end_handling(handling, is_done)
            if not is_done:
                raise RetryLater

        return handle

    async def _pull(self, common: dict[str, Any]) -> None:
        """Handle what is polled, then commit it."""
        while True:
            consumer = LitePullConsumer(NAMESRV_ADDR, group="pullers", auto_commit=False, **common)
            consumer.subscribe("plain")
            try:
                self._consumers.append(await consumer.start())
                break
            except AerobeeError:
                await asyncio.sleep(0.2)
        while True:
            handled = [self._begun("pullers", message) for message in await consumer.poll(8, 1.0)]
            await self.nap(0.1)
            for handling in handled:
                self.story.end_handling(handling, True)
            if handled:
                try:
                    await consumer.commit()
                except AerobeeError:
                    await asyncio.sleep(0.1)

    def _begun(self, group: str, message: Message) -> Handling:
        story = self.story
        handling = Handling(
            group,
            self.machine.process,
            message.body.decode(),
            (message.topic, message.broker, message.queue_id),
            message.queue_offset,
            story.now_s(),
            RETRY_TOPIC in message.system_properties,
        )
        return story.begin_handling(handling)
