"""One round: a cluster of processes under load that is ordered by key, and seeded faults of brokers, name server and
consumers."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aerobee.admin.connection import AdminConnection
from aerobee.admin.topics import TopicChange, create_topic
from aerobee.client.consumer import LitePullConsumer, PullResult
from aerobee.client.core import SendReceipt, TooManyInFlightError
from aerobee.client.producer import Producer
from aerobee.errors import AerobeeError
from aerobee.model.numbers import parse_int
from aerobee.model.queue import MessageQueue
from aerobee.runtime.children import Child, start_python
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.orderedfaults.judge import HandlerEvent, KeyRecord, OrderVerdict, judge_order, parse_events
from aerobee.testing.processes import ProcessCluster, ServerProcess

TOPIC: Final = "ordered"
GROUP: Final = "orderly"
QUEUES: Final = 8
CONSUMERS: Final = 2
# The keys of an idempotent producer with many messages under way, and those of a plain one that awaits each.
NUMBERED_KEYS: Final = tuple(f"n{number}" for number in range(80))
AWAITED_KEYS: Final = tuple(f"a{number}" for number in range(20))
_TICK_S: Final = 0.005
_DRAIN_S: Final = 120.0
_PULL: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """The size of a round."""

    seed: int
    seconds: float = 60.0
    rate: float = 2000.0
    replicas: int = 1
    # The shortest and the longest time between two faults.
    calm_s: tuple[float, float] = (1.0, 4.0)


@dataclass(frozen=True, slots=True)
class RoundResult:
    """How a round ended."""

    verdict: OrderVerdict
    faults: Counter[str]
    failed_sends: int
    longest_wait_s: float


class KeyedLoad:
    """The producers, and what they were told."""

    def __init__(self, namesrv: str, rate: float, entropy: SeededEntropy) -> None:
        # More than a slow machine works off within the timeout would only fail.
        common = {"timeout": 30.0, "max_in_flight": 4_000}
        self.numbered = Producer(namesrv, group="numbered", idempotent=True, **common)  # type: ignore[arg-type]
        self.awaited = Producer(namesrv, group="awaited", **common)  # type: ignore[arg-type]
        self.acked: dict[str, list[int]] = defaultdict(list)
        self.failed = 0
        self.longest_wait_s = 0.0
        self._rate = rate
        self._entropy = entropy
        self._next: Counter[str] = Counter()

    async def run(self, stop: asyncio.Event) -> None:
        """Send until `stop`, then wait for every answer."""
        async with self.numbered, self.awaited:
            share = self._rate * 0.25 / len(AWAITED_KEYS)
            tasks = [asyncio.create_task(self._await_each(key, 1 / share, stop)) for key in AWAITED_KEYS]
            await self._pour(self._rate * 0.75, stop)
            await asyncio.gather(*tasks)
            await self.numbered.flush()

    async def _pour(self, rate: float, stop: asyncio.Event) -> None:
        """Send messages of many keys at a rate, without waiting for answers."""
        loop = asyncio.get_running_loop()
        began_s, sent = loop.time(), 0
        while not stop.is_set():
            while sent < (loop.time() - began_s) * rate:
                key = self._entropy.choose(NUMBERED_KEYS)
                number = self._next[key]
                try:
                    future = self.numbered.send_nowait(TOPIC, f"{key} {number}".encode(), sharding_key=key)
                except TooManyInFlightError:
                    break
                self._next[key] += 1
                sent += 1
                future.add_done_callback(self._answered(key, number, loop.time()))
            await asyncio.sleep(_TICK_S)

    def _answered(self, key: str, number: int, began_s: float) -> Callable[[asyncio.Future[SendReceipt]], None]:
        loop = asyncio.get_running_loop()

        def done(future: asyncio.Future[SendReceipt]) -> None:
            if future.cancelled() or future.exception() is not None:
                self.failed += 1
            else:
                self.acked[key].append(number)
                self.longest_wait_s = max(self.longest_wait_s, loop.time() - began_s)

        return done

    async def _await_each(self, key: str, pause_s: float, stop: asyncio.Event) -> None:
        """Send one message of a key after the other. One that fails is sent again before the next."""
        number = 0
        while not stop.is_set():
            while True:
                try:
                    await self.awaited.send(TOPIC, f"{key} {number}".encode(), sharding_key=key)
                    break
                except AerobeeError as error:
                    if not error.retriable:
                        raise
                    self.failed += 1
            self.acked[key].append(number)
            number += 1
            await asyncio.sleep(pause_s)


class ConsumerProcesses:
    """The consumer processes. One that ended is started again, as another member of the group."""

    def __init__(self, namesrv: str, directory: Path) -> None:
        self._namesrv = namesrv
        self._directory = directory
        self.children: list[Child] = []
        self._files = 0

    async def start(self) -> None:
        """Start one more consumer."""
        file = self._directory / f"handled-{self._files}.log"
        self._files += 1
        with (self._directory / "consumers.log").open("ab") as log:
            words = [self._namesrv, GROUP, TOPIC, str(file)]
            child = await start_python("aerobee.testing.orderedfaults.consumer", words, log)
        self.children.append(child)

    async def stop(self) -> None:
        for child in self.children:
            child.signal(signal.SIGCONT)
            await child.kill()

    def events(self) -> list[HandlerEvent]:
        """Return what every consumer has written so far."""
        found: list[HandlerEvent] = []
        for path in sorted(self._directory.glob("handled-*.log")):
            with path.open("rb") as file:
                found += parse_events(file)
        return found


class ProcessFaults:
    """The seeded faults of a round."""

    def __init__(self, cluster: ProcessCluster, consumers: ConsumerProcesses, entropy: SeededEntropy) -> None:
        self._cluster = cluster
        self._consumers = consumers
        self._entropy = entropy
        self.counts: Counter[str] = Counter()

    async def run(self, calm_s: tuple[float, float], stop: asyncio.Event) -> None:
        """Do harm until `stop`, and mend each fault before the next."""
        kinds: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("broker SIGTERM", self._broker_term),
            ("broker kill -9", self._broker_kill),
            ("broker SIGSTOP", self._broker_stop),
            ("name server kill -9", self._namesrv_kill),
            ("name server SIGSTOP", self._namesrv_stop),
            ("consumer SIGTERM", self._consumer_term),
            ("consumer kill -9", self._consumer_kill),
            ("consumer SIGSTOP", self._consumer_stop),
        ]
        while not stop.is_set():
            await asyncio.sleep(self._entropy.between(*calm_s))
            name, fault = self._entropy.choose(kinds)
            self.counts[name] += 1
            await fault()

    async def _broker(self) -> ServerProcess:
        """Return any broker, or the master of a group where there are replicas: its faults are those that matter."""
        cluster = self._cluster
        if cluster.replicas > 1 and self._entropy.chance(0.7):
            group = self._entropy.below(len(cluster.brokers) // cluster.replicas)
            return cluster.brokers[await cluster.master(group)]
        return self._entropy.choose(cluster.brokers)

    async def _broker_term(self) -> None:
        broker = await self._broker()
        await broker.stop()
        await asyncio.sleep(self._entropy.between(0.0, 2.0))
        await broker.start()

    async def _broker_kill(self) -> None:
        broker = await self._broker()
        await broker.kill()
        await asyncio.sleep(self._entropy.between(0.0, 3.0))
        await broker.start()

    async def _broker_stop(self) -> None:
        await self._pause((await self._broker()).signal, 0.5, 5.0)

    async def _namesrv_kill(self) -> None:
        await self._cluster.namesrv.kill()
        await asyncio.sleep(self._entropy.between(0.0, 2.0))
        await self._cluster.namesrv.start()

    async def _namesrv_stop(self) -> None:
        await self._pause(self._cluster.namesrv.signal, 0.5, 5.0)

    async def _consumer_term(self) -> None:
        child = self._consumers.children.pop(0)
        child.signal(signal.SIGTERM)
        await self._consumers.start()
        await child.ended()

    async def _consumer_kill(self) -> None:
        await self._consumers.children.pop(0).kill()
        await self._consumers.start()

    async def _consumer_stop(self) -> None:
        await self._pause(self._entropy.choose(self._consumers.children).signal, 0.5, 9.0)

    async def _pause(self, send: Callable[[signal.Signals], None], low_s: float, high_s: float) -> None:
        send(signal.SIGSTOP)
        await asyncio.sleep(self._entropy.between(low_s, high_s))
        send(signal.SIGCONT)


async def play(plan: RoundPlan, directory: Path) -> RoundResult:
    """Play one round in an empty directory."""
    entropy = SeededEntropy(plan.seed)
    async with ProcessCluster(directory, brokers=2, replicas=plan.replicas) as cluster:
        namesrv = cluster.namesrv.address
        async with AdminConnection(namesrv) as admin:
            await create_topic(admin, TOPIC, TopicChange(read_queues=QUEUES, write_queues=QUEUES))
        consumers = ConsumerProcesses(namesrv, directory)
        for _ in range(CONSUMERS):
            await consumers.start()
        load = KeyedLoad(namesrv, plan.rate, entropy.fork())
        faults = ProcessFaults(cluster, consumers, entropy.fork())
        stop = asyncio.Event()
        try:
            loading = asyncio.create_task(load.run(stop))
            harming = asyncio.create_task(faults.run(plan.calm_s, stop))
            await asyncio.wait({loading, harming}, timeout=plan.seconds, return_when=asyncio.FIRST_COMPLETED)
            stop.set()
            await harming
            await loading
            await _drained(load, consumers)
            stored = await _read_all(namesrv, [cluster.broker_name(0), cluster.broker_name(plan.replicas)])
        finally:
            await consumers.stop()
    verdict = judge_order(load.acked, stored, consumers.events(), NUMBERED_KEYS)
    return RoundResult(verdict, faults.counts, load.failed, load.longest_wait_s)


async def _drained(load: KeyedLoad, consumers: ConsumerProcesses) -> None:
    """Wait until everything that was acknowledged is handled, or no longer than it can take."""
    wanted = {(key, number) for key, numbers in load.acked.items() for number in numbers}
    loop = asyncio.get_running_loop()
    until_s = loop.time() + _DRAIN_S
    while loop.time() < until_s:
        handled = {(event.key, event.number) for event in consumers.events() if event.is_end}
        if wanted <= handled:
            return
        await asyncio.sleep(1.0)


async def _read_all(namesrv: str, groups: list[str]) -> list[KeyRecord]:
    found: list[KeyRecord] = []
    async with LitePullConsumer(namesrv, group="judge") as reader:
        for group in groups:
            for queue_id in range(QUEUES):
                queue, offset = MessageQueue(TOPIC, group, queue_id), 0
                while True:
                    result = await _pulled(reader, queue, offset)
                    for message in result.messages:
                        key, number = message.body.decode().split()
                        found.append(KeyRecord(key, parse_int(number), f"{group}/{queue_id}", message.queue_offset))
                    if result.next_offset <= offset and not result.messages:
                        break
                    offset = result.next_offset
    return found


async def _pulled(reader: LitePullConsumer, queue: MessageQueue, offset: int) -> PullResult:
    """Pull at an offset, however long a server that was just started needs to be found."""
    async with asyncio.timeout(_DRAIN_S):
        while True:
            try:
                return await reader.pull(queue, offset, max=_PULL)
            except AerobeeError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(0.2)
