"""POP at a group of replicas: consumers pop, acknowledge and change while masters die, hand over and are cut off.

A follower derives what every consumer holds from the journal in its master's log. So whoever leads next must bring back
what was not acknowledged, at its time, and never what was acknowledged with an answer. At the end of each run, when
everything is mended, messages are taken, changed and acknowledged, all replicas are compared, and the master is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from aerobee.client.consumer import PoppedMessage, SimpleConsumer
from aerobee.client.producer import Producer
from aerobee.errors import AerobeeError
from aerobee.hot.log.record import Record
from aerobee.runtime.tasks import Tasks
from aerobee.testing.clock import START_MS
from aerobee.testing.loop import VirtualLoop
from aerobee.testing.simulation.cluster import NAMESRV_ADDR
from aerobee.testing.simulation.group import GROUP, GroupCluster, GroupLevel
from aerobee.testing.simulation.groupfaults import GroupFaults
from aerobee.testing.simulation.groupjudge import GroupJudge
from aerobee.testing.simulation.grouprun import PrepareGroup, spread_s
from aerobee.testing.simulation.judge import Stored
from aerobee.testing.simulation.load import ClientHost, LoadSender
from aerobee.testing.simulation.popstory import PopBook, SeenLease
from aerobee.testing.simulation.run import Load, RunOutcome, conclude, drained, endure, run_virtually
from aerobee.testing.simulation.story import SentMessage, Story
from aerobee.testing.simulation.world import World

# The groups that pop, and what of.
POPPERS: Final = "poppers"
IN_ORDER: Final = "poppers-in-order"
_TOPICS: Final = {POPPERS: "plain", IN_ORDER: "ordered"}
_MENDED_S: Final = 60.0
_LONGEST_S: Final = 6.0
# The last act: so many messages, and how long after its time, or after a new master, one may come back.
_ACT_COUNT: Final = 12
_ACT_INVISIBLE_S: Final = 5.0
_LATE_MS: Final = 600.0
_FOUND_MS: Final = 3_500.0
_SAME_S: Final = 3.0


class PopSender(LoadSender):
    """Sends the messages that are popped."""

    async def run(self, tasks: Tasks, stopping: asyncio.Event) -> None:
        common = {**self.options(), "timeout": 2.0, "attempt_timeout": 0.5, "retries": 3}
        self._producer = producer = Producer(NAMESRV_ADDR, group="exact", idempotent=True, **common)
        await self.connect(producer.client_config)
        await producer.start()
        self._loops = [
            tasks.start(self._repeat("exact", lambda n, body: self._send_exact(body), 0.1, stopping), name="exact"),
            tasks.start(
                self._repeat("ordered", lambda n, body: self._send_ordered(producer, n, body), 0.2, stopping),
                name="ordered",
            ),
        ]
        await stopping.wait()
        await asyncio.wait(self._loops)
        await producer.close()
        await self.disconnect()

    async def _send_exact(self, body: str) -> None:
        await self._send(self._producer, self._exact(body))

    async def send_all(self, bodies: Sequence[str]) -> None:
        """Store messages, however often that must be tried."""
        for body in bodies:
            while body not in self.story.acks:
                await self._send(self._producer, SentMessage(body, "plain", "exact", self.story.now_s(), 0.0, False))


class PopReceiver(ClientHost):
    """Pops for both groups, and does with a message whatever the seed says."""

    # Set at the end of the load: everything is acknowledged.
    is_calm = False
    # Set for the last act: nobody pops on its own.
    is_idle = False

    def __init__(self, world: World, address: str, story: Story, book: PopBook) -> None:
        super().__init__(world, address, story)
        self.book = book
        self.consumers: dict[str, SimpleConsumer] = {}

    def now_ms(self) -> float:
        return START_MS + self.story.now_s() * 1000

    async def run(self, tasks: Tasks, stopping: asyncio.Event) -> None:
        common: dict[str, Any] = {**self.options(), "consume_from": "first"}
        self.consumers = {}
        await self.connect(self._consumer(POPPERS, common).client_config)
        for group in _TOPICS:
            tasks.start(self._pop(group, common), name=f"pop for {group}")
        await stopping.wait()
        await tasks.close()
        for consumer in self.consumers.values():
            await consumer.close()
        await self.disconnect()

    def _consumer(self, group: str, common: Mapping[str, Any]) -> SimpleConsumer:
        return SimpleConsumer(
            NAMESRV_ADDR, group=group, subscribe={_TOPICS[group]: "*"}, fifo=group == IN_ORDER, max_attempts=1_000,
            **common,
        )  # fmt: skip

    async def _pop(self, group: str, common: Mapping[str, Any]) -> None:
        while True:
            try:
                consumer = await self._consumer(group, common).start()
                break
            except AerobeeError:
                await asyncio.sleep(0.2)
        self.consumers[group] = consumer
        while True:
            if self.is_idle:
                await asyncio.sleep(0.1)
                continue
            draw = self.machine.entropy
            for message, seen in await self.receive(group, 1 + draw.below(8), draw.between(1.0, 4.0)):
                await self.nap(0.1)
                if not await self._handle(group, consumer, message, seen) and group == IN_ORDER:
                    break  # those behind it wait, or would be handled before it

    async def receive(self, group: str, count: int, invisible_s: float) -> list[tuple[PoppedMessage, SeenLease]]:
        """Pop once, and note what came."""
        try:
            found = await self.consumers[group].receive(max_messages=count, invisible=invisible_s, wait=1.0)
        except AerobeeError:
            await asyncio.sleep(0.1)
            return []
        return [(message, self._came(group, message)) for message in found]

    def _came(self, group: str, message: PoppedMessage) -> SeenLease:
        seen = self.book.came(group, message)
        self.story.trace.note("popped", group, self.machine.process, seen.body, *seen.place, seen.offset, seen.pop_ms)
        return seen

    async def _handle(self, group: str, consumer: SimpleConsumer, message: PoppedMessage, seen: SeenLease) -> bool:
        """Acknowledge, change or keep a message. Return whether it is acknowledged."""
        turn = 0 if self.is_calm else self.machine.entropy.below(100)
        try:
            if turn < 70:
                await self.ack(consumer, message, seen)
                return True
            if turn < 85:
                await self.change(consumer, message, seen, self.machine.entropy.between(0.3, _LONGEST_S))
        except AerobeeError as error:
            self.story.trace.note("not said", group, seen.body, type(error).__name__)
        return False

    async def ack(self, consumer: SimpleConsumer, message: PoppedMessage, seen: SeenLease) -> None:
        seen.ack_asked_ms = self.now_ms()
        await consumer.ack(message)
        self.book.acked(seen, self.now_ms())
        self.story.trace.note("acknowledged", seen.group, seen.body)

    async def change(
        self, consumer: SimpleConsumer, message: PoppedMessage, seen: SeenLease, invisible_s: float
    ) -> None:
        until_ms = self.now_ms() + invisible_s * 1000
        held_until_ms, seen.until_ms = seen.until_ms, min(seen.until_ms, until_ms)
        await consumer.change_invisible(message, invisible_s)
        # Said too late it has no effect, and is answered all the same.
        if self.now_ms() < held_until_ms:
            seen.until_ms, seen.is_changed = until_ms, True
            self.book.changes += 1
        self.story.trace.note("changed", seen.group, seen.body, invisible_s)


class PopLoad(Load):
    """The clients of a run."""

    def __init__(self, world: World, story: Story, book: PopBook) -> None:  # it has other clients than a plain load
        self.sender = self.stores = PopSender(world, "10.0.2.1", story)
        self.receivers = [PopReceiver(world, f"10.0.3.{number}", story, book) for number in (1, 2)]
        self.clients = [self.sender, *self.receivers]


class PopJudge(GroupJudge):
    """Judges who got what, and that nothing which was sent is left."""

    def __init__(self, story: Story, level: GroupLevel, book: PopBook) -> None:
        super().__init__(story, level)
        self._book = book
        self.spread_ms = 0.0

    def missing(self) -> Iterator[tuple[str, str]]:
        if self._has_lost_tail(GROUP):
            return
        for ack in self._story.acks.values():
            for group, topic in _TOPICS.items():
                if ack.place[0] == topic and not self._book.is_over(group, ack.body):
                    yield group, ack.body

    def verdict(self, stored: Sequence[Stored], after_cut: Mapping[str, tuple[int, list[Record]]]) -> list[str]:
        self._book.leads_ms = [START_MS + at_s * 1000 for _, _, at_s in self._story.leads]
        problems = super().verdict(stored, after_cut)
        found = self._book.problems_of(self.spread_ms, sync_master=self._level.sync_master, ordered_group=IN_ORDER)
        if found and not problems:
            problems.append(f"the level was {self._level}")
        self.counts.update(popped=self._book.delivered, popped_and_acknowledged=len(self._book.done))
        self.counts["changed"] = self._book.changes
        return problems + found[:10]


def run_pop_group(seed: int, *, prepare: PrepareGroup | None = None) -> RunOutcome:
    """Run one seed. `prepare` may change the cluster before it starts, to plant a bug."""
    return run_virtually(seed, lambda loop, outcome: _run(loop, outcome, prepare))


async def _run(loop: VirtualLoop, outcome: RunOutcome, prepare: PrepareGroup | None) -> None:
    world = World(loop, outcome.seed)
    world.problems = outcome.problems
    outcome.faults, outcome.expected_errors = world.faults, world.expected_errors
    story, book = Story(world.trace, loop.time), PopBook()
    cluster = GroupCluster(world, story, GroupLevel.drawn(world))
    load = PopLoad(world, story, book)
    if prepare is not None:
        prepare(world, cluster)
    async with asyncio.timeout(_MENDED_S):
        await cluster.start()
    load.start()
    faults = GroupFaults(world, story, cluster, load.clients)
    operator = loop.create_task(faults.operate(), name="operator")
    await endure(loop, outcome, story, cluster, load, faults)
    judge = PopJudge(story, cluster.level, book)
    judge.jumped_s = {GROUP: spread_s(cluster)}
    judge.spread_ms = spread_s(cluster) * 1000
    for receiver in load.receivers:
        receiver.is_calm = True
    try:
        async with asyncio.timeout(_MENDED_S):
            await cluster.mended()
    except TimeoutError:
        outcome.problems.append("the group does not serve again")
    await drained(loop, load, judge)
    await asyncio.sleep(_LONGEST_S)
    for receiver in load.receivers:
        receiver.is_idle = True
    await asyncio.sleep(2.5)
    if not outcome.problems:
        try:
            async with asyncio.timeout(_MENDED_S):
                outcome.problems += await _LastAct(cluster, load, book, judge.spread_ms).play()
        except TimeoutError:
            outcome.problems.append("the last act does not end")
    load.watching.cancel()
    operator.cancel()
    master = cluster.master()
    if master is None:
        outcome.problems.append("the group has no master at the end")
        conclude(outcome, world, judge)
        return
    stored = [Stored(GROUP, topic, queue_id, tuple(records)) for (topic, queue_id), records in master.stored().items()]
    held = {GROUP: (0, [record for one in stored for record in one.records])}
    outcome.problems += judge.verdict(stored, held)
    conclude(outcome, world, judge)


class _LastAct:
    """Takes, changes and acknowledges messages at a whole group, compares its replicas, and kills the master."""

    def __init__(self, cluster: GroupCluster, load: PopLoad, book: PopBook, spread_ms: float) -> None:
        self._cluster = cluster
        self._sender = load.stores
        self._taker, self._other = load.receivers
        self._book = book
        self._spread_ms = spread_ms

    async def play(self) -> list[str]:
        """Return what is wrong."""
        while not self._is_whole():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)
        await self._sender.send_all([f"last-{number}" for number in range(_ACT_COUNT)])
        held: list[tuple[PoppedMessage, SeenLease]] = []
        while len(held) < _ACT_COUNT:
            held += await self._taker.receive(POPPERS, 8, _ACT_INVISIBLE_S)
            if any(not seen.body.startswith("last-") for _, seen in held):
                return [f"{[seen.body for _, seen in held]} came in the last act"]
        consumer = self._taker.consumers[POPPERS]
        try:
            for message, seen in held[:4]:
                await self._taker.ack(consumer, message, seen)
            for number, (message, seen) in enumerate(held[4:8]):
                await self._taker.change(consumer, message, seen, (1.5, 9.0)[number % 2])
        except AerobeeError as error:
            return [f"a whole group refuses: {error!r}"]
        problems = await self._differences()
        master = self._cluster.master()
        assert master is not None
        master.kill()
        restarting = asyncio.ensure_future(self._restart(master))
        owed = {seen.body: seen for _, seen in held[4:]}
        come: dict[str, SeenLease] = {}
        until_s = self._taker.story.now_s() + 20.0
        while len(come) < len(owed) and self._taker.story.now_s() < until_s:
            for message, seen in await self._other.receive(POPPERS, 8, 20.0):
                if seen.body in owed:
                    come.setdefault(seen.body, seen)
                try:
                    await self._other.ack(self._other.consumers[POPPERS], message, seen)
                except AerobeeError:
                    continue
        await restarting
        return [*problems, *self._late(owed, come)]

    async def _restart(self, master: Any) -> None:
        await asyncio.sleep(1.0)
        master.start()

    def _is_whole(self) -> bool:
        master = self._cluster.master()
        status = master.status if master is not None else None
        if master is None or status is None:
            return False
        return len(status.state.in_sync) == len(self._cluster.replicas) and all(
            one.is_up for one in self._cluster.replicas
        )

    async def _differences(self) -> list[str]:
        """Return how the replicas differ in what they know of the leases."""
        until_s = self._taker.story.now_s() + _SAME_S
        while True:
            told = {one.machine.address: _leases_of(one.node.broker.pop) for one in self._cluster.replicas if one.node}
            (first, known), *others = told.items()
            differing = [address for address, other in others if other != known]
            if not differing:
                return [] if any(held for *_, held in known.values()) else ["no replica knows of a lease"]
            if self._taker.story.now_s() > until_s:
                return [f"{first} and {differing[0]} know different leases: {known} {told[differing[0]]}"]
            await asyncio.sleep(0.05)

    def _late(self, owed: Mapping[str, SeenLease], come: Mapping[str, SeenLease]) -> Iterator[str]:
        led_ms = START_MS + self._taker.story.leads[-1][2] * 1000
        for body, before in owed.items():
            after = come.get(body)
            if after is None:
                yield f"{body} was held when its master was killed, and never came again"
                continue
            latest_ms = max(before.until_ms + _LATE_MS, led_ms + _FOUND_MS) + self._spread_ms
            if after.pop_ms > latest_ms:
                yield f"{body} was due at {before.until_ms:.0f}, and came at {after.pop_ms:.0f}; led from {led_ms:.0f}"
            if after.attempt != before.attempt + 1:
                yield f"{body} came for try {before.attempt}, and after a failover for try {after.attempt}"


def _leases_of(pop: Any) -> dict[Any, tuple[int, int, list[tuple[int, int, int]]]]:
    """Return what a replica's table says of each queue that is not in its first state."""
    return {
        key: (window.taken, window.safe, sorted(window.held()))
        for key, window in pop.table.windows.items()
        if key.group in _TOPICS
    }
