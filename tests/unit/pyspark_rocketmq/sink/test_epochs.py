"""Drivers that were replaced and wake up, over two or three broker groups: the real tables and the real coordinator,
every request delayed, repeated, lost or left behind by chance, leases that end, groups that one driver reaches and the
next does not, brokers restarted from their journals.

A seed is one history. Whatever it was, each row is readable once when all is quiet. The same histories without the
check of the driver (the rules before there were epochs) lose rows: what finds that is known to look in the right place.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from aerobee.broker.batches.records import BatchDriver as Stored
from aerobee.broker.batches.records import BatchEntry, Kind, decode_plan
from aerobee.broker.batches.table import BatchTable
from aerobee.broker.refusal import Refusal
from aerobee.errors import AerobeeError, TransportError
from pyspark_rocketmq.sink.coordinator import BatchCoordinator
from pyspark_rocketmq.sink.decision import Driver, Plan, Status, Verdict
from pyspark_rocketmq.sink.groups import refusal_error

QUERY = "Q"
BATCHES = 2
ROWS = 3
RUNS = 5
# Runs in which everything is quiet again; each may end with an error that takes back a plan.
QUIET_RUNS = 6


class Unfenced(BatchTable):
    """The rules before there were epochs: whoever asks is the driver."""

    def refuse_driver(self, name: str, driver: Stored) -> Refusal | None:
        return None


@dataclass
class Broker:
    """One group: its journal, and the table that is made of it."""

    name: str
    make: Callable[[str], BatchTable]
    journal: list[tuple[BatchEntry, bytes]] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    readable: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = self.make(self.name)

    def write(self, entry: BatchEntry, body: bytes = b"") -> None:
        self.journal.append((entry, body))
        for chunk in self._learn(len(self.journal) - 1):
            self.readable.append(self.texts[chunk])
            self.write(BatchEntry(Kind.DONE, serial=chunk))

    def _learn(self, offset: int) -> list[int]:
        entry, body = self.journal[offset]
        plan = decode_plan(body) if entry.kind in (Kind.PREPARE, Kind.COMMIT) else None
        return [chunk.entry.serial for chunk in self.table.learn(entry, body, plan, (offset, offset), 0)]

    def restart(self) -> None:
        self.table = self.make(self.name)
        for offset in range(len(self.journal)):
            self._learn(offset)


@dataclass
class Sent:
    """A request on its way; whoever sent it may wait no more."""

    work: Callable[[], Any]
    answer: asyncio.Future[Any]
    repeats: int = 1


class World:
    """The groups, and what is on its way to them."""

    def __init__(self, seed: int, *, fenced: bool) -> None:
        self.random = random.Random(seed)
        self.fenced = fenced
        names = ("g0", "g1", "g2") if seed % 3 == 0 else ("g0", "g1")
        self.brokers = {name: Broker(name, BatchTable if fenced else Unfenced) for name in names}
        self.on_way: list[Sent] = []
        self.is_quiet = False
        self.serial = 0
        # Spark's own record of batches that are done.
        self.done = 0

    # -- chance

    async def step(self) -> None:
        """One thing happens to one request, or to a broker."""
        chance = 0.5 if self.is_quiet else self.random.random()
        if chance < 0.02:
            self.random.choice(list(self.brokers.values())).restart()
        elif chance < 0.04:
            self.random.choice(list(self.brokers.values())).write(
                BatchEntry(Kind.ABORT, QUERY, -1)
            )  # the lease is over
        sent = self.random.choice(self.on_way)
        if chance > 0.97 and not sent.answer.done():
            # Given up by its sender, and still on its way.
            sent.answer.set_exception(TransportError("no answer", retriable=True))
        elif chance > 0.92 and sent.repeats:
            sent.repeats -= 1  # the answer is lost, and it is sent again
            deliver(sent.work, asyncio.get_running_loop().create_future())
        else:
            self.on_way.remove(sent)
            deliver(sent.work, sent.answer)
        await settle()


class Reach:
    """What the coordinator of one run asks, as `groups.BrokerGroups` does; it may not reach every group."""

    def __init__(self, world: World, away: str = "") -> None:
        self.world = world
        self.away = away
        self.brokers = world.brokers
        self.random = world.random

    async def ask(self, group: str, work: Callable[[], Any]) -> Any:
        if group == self.away:
            raise TransportError(f"{group} is not there", retriable=True)
        sent = Sent(work, asyncio.get_running_loop().create_future())
        self.world.on_way.append(sent)
        return await sent.answer

    # -- requests

    async def find(self) -> list[str]:
        return [name for name in self.brokers if name != self.away]

    async def begin(self, group: str, query: str, driver: Driver) -> None:
        broker = self.brokers[group]

        def work() -> None:
            if accepted(broker.table.check_begin(query, Stored(*driver)), group):
                broker.write(BatchEntry(Kind.BEGIN, query, epoch=driver.epoch, run=driver.run))

        await self.ask(group, work)

    async def status(self, group: str, query: str, batch: int, driver: Driver) -> Status:
        broker = self.brokers[group]

        def work() -> Status:
            table = broker.table
            refusal = table.refuse_driver(query, Stored(*driver)) if driver.epoch else None
            accepted(refusal or True, group)
            state, plan, committed = table.state_of(query, batch)
            shown = None if plan is None else Plan(plan.plan_id, plan.groups, plan.epoch)
            known, is_replaced = table.driver_of(query), table.is_replaced(query, driver.run)
            if not self.world.fenced:
                known, is_replaced = Stored(1, driver.run), False
            return Status(
                state, committed, shown, table.remaining(query), tuple(table.witnesses(query)),
                driver=Driver(*known), is_replaced=is_replaced,
            )  # fmt: skip

        found: Status = await self.ask(group, work)
        return found

    async def statuses(self, groups: Iterable[str], query: str, batch: int, driver: Driver) -> dict[str, Status]:
        names = list(groups)
        found = await asyncio.gather(*(self.status(name, query, batch, driver) for name in names))
        return dict(zip(names, found, strict=True))

    async def end(self, group: str, query: str, batch: int, action: str, plan: Plan | None, driver: Driver) -> None:
        broker, kind, stored = self.brokers[group], Kind(action), Stored(*driver)
        body = b"" if plan is None else plan.encode()
        plan_id = "" if plan is None else plan.plan_id

        def work() -> None:
            table = broker.table
            if kind is Kind.ABORT:
                wanted = table.check_abort(query, batch, plan_id, stored)
            else:
                check = table.check_prepare if kind is Kind.PREPARE else table.check_commit
                wanted = check(query, batch, decode_plan(body), stored)
            if accepted(wanted, group):
                broker.write(BatchEntry(kind, query, batch, plan_id=plan_id, epoch=stored.epoch, run=stored.run), body)

        await self.ask(group, work)

    async def rows(self, group: str, batch: int, attempt: str, sequence: int, text: str, driver: Driver) -> None:
        broker = self.brokers[group]

        def work() -> None:
            accepted(broker.table.refuse_rows(QUERY, batch, Stored(*driver)) or True, group)
            self.world.serial += 1
            broker.texts[self.world.serial] = text
            broker.write(BatchEntry(Kind.ROWS, QUERY, batch, attempt, sequence, 1, serial=self.world.serial))

        await self.ask(group, work)

    # -- what Spark does with one run of the query

    async def run(self, run: str) -> None:
        world = self.world
        while world.done < BATCHES:
            batch = world.done
            tasks = BatchCoordinator(self, Driver(0, run), QUERY, batch)
            is_written = False
            try:
                verdict = (await tasks.decision()).verdict
                is_written = verdict is Verdict.WRITE
                attempts = await self.write(batch, run, tasks.driver) if is_written else {}
                await BatchCoordinator(self, tasks.driver, QUERY, batch).commit(attempts, f"plan-{run}-{batch}")
            except AerobeeError:
                if is_written:
                    await self.abort(batch, tasks.driver)
                return
            if world.done != batch:
                return  # "multiple streaming queries are concurrently using ...", says Spark
            world.done = batch + 1

    async def abort(self, batch: int, driver: Driver) -> None:
        try:
            await BatchCoordinator(self, driver, QUERY, batch).abort()
        except AerobeeError:
            return

    async def write(self, batch: int, run: str, driver: Driver) -> dict[str, dict[str, int]]:
        attempt = f"{run}-{batch}"
        chunks: dict[str, int] = {}
        groups = await self.find()
        places = [self.random.choice(groups) for _ in range(ROWS)]
        work: list[Coroutine[Any, Any, None]] = []
        for number, group in enumerate(places):
            sequence = chunks.get(group, 0)
            chunks[group] = sequence + 1
            work.append(self.rows(group, batch, attempt, sequence, f"{batch}-{number}", driver))
        await asyncio.gather(*work)
        return {attempt: chunks}


def accepted(found: Refusal | bool, group: str) -> bool:
    if isinstance(found, Refusal):
        raise refusal_error(found.code, found.remark, group)
    return found


def deliver(work: Callable[[], Any], answer: asyncio.Future[Any]) -> None:
    try:
        result = work()
    except AerobeeError as error:
        if not answer.done():
            answer.set_exception(error)
            answer.exception()  # looked at: nobody may wait for it
    else:
        if not answer.done():
            answer.set_result(result)


async def settle() -> None:
    for _ in range(12):
        await asyncio.sleep(0)


async def history(seed: int, *, fenced: bool) -> list[str]:
    """Return the rows that are readable at the end."""
    world = World(seed, fenced=fenced)
    chance = world.random
    runs: list[asyncio.Task[None]] = []
    asleep: list[Sent] = []
    for number in range(RUNS):
        # Of the very first batch all groups are told: before it nobody knows who must be asked (decision 0004).
        away = chance.choice(["", *world.brokers]) if world.done and len(world.brokers) > 2 else ""
        runs.append(asyncio.create_task(Reach(world, away).run(f"run-{chance.random()}-{number}")))
        await settle()
        # A run lives for a while, then the next is started; what is on its way may stay there for long.
        for _ in range(chance.randrange(4, 40)):
            if world.on_way:
                await world.step()
        sleepy = chance.choice([0.0, 0.3, 1.0])
        both = world.on_way + (asleep if chance.random() < 0.3 else [])
        asleep = [] if len(both) > len(world.on_way) else asleep
        world.on_way = []
        for sent in both:
            (asleep if chance.random() < sleepy else world.on_way).append(sent)
    world.is_quiet = True
    for number in range(QUIET_RUNS):
        # The sleepers wake up while a new run is on its way, which nothing else disturbs.
        runs.append(asyncio.create_task(Reach(world).run(f"quiet-{number}")))
        await settle()
        steps = chance.randrange(0, 20)
        while world.on_way or asleep:
            if steps <= 0 or not world.on_way:
                world.on_way += asleep
                asleep = []
            steps -= 1
            await world.step()
    await asyncio.gather(*runs)
    assert world.done == BATCHES, "no quiet run could finish"
    return sorted(row for broker in world.brokers.values() for row in broker.readable)


EXPECTED = sorted(f"{batch}-{number}" for batch in range(BATCHES) for number in range(ROWS))
# So many histories are enough to find the fault that was there before; it takes one in about eighty.
SEEDS = 200


def is_whole(seed: int, *, fenced: bool) -> bool:
    try:
        return asyncio.run(history(seed, fenced=fenced)) == EXPECTED
    except AssertionError:
        return False


def test_each_row_once_however_late_a_replaced_driver_wakes_up() -> None:
    for seed in range(SEEDS):
        assert asyncio.run(history(seed, fenced=True)) == EXPECTED, seed


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_row_once_in_many_more_histories() -> None:
    for seed in range(SEEDS, 100 * SEEDS):
        assert asyncio.run(history(seed, fenced=True)) == EXPECTED, seed


def test_without_epochs_such_histories_lose_rows() -> None:
    assert not all(is_whole(seed, fenced=False) for seed in range(SEEDS))
