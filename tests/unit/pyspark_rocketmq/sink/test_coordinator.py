"""Commits over one to three broker groups, the driver cut off at any request, groups away: each row is there once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.batches.records import BatchDriver as Stored
from aerobee.broker.batches.records import BatchEntry, Kind, decode_plan
from aerobee.broker.batches.table import BatchTable
from aerobee.broker.refusal import Refusal
from aerobee.errors import TransportError
from aerobee.errors.codes import IllegalOperationError
from pyspark_rocketmq.sink.coordinator import BatchCoordinator
from pyspark_rocketmq.sink.decision import (
    BatchConflictError,
    Driver,
    Plan,
    ReplacedError,
    Status,
    Verdict,
    choose_driver,
    decide,
)
from pyspark_rocketmq.sink.groups import refusal_error

QUERY = "Q"


class CutOffError(Exception):
    """The driver is gone."""


@dataclass
class Broker:
    """One group: the real table; copies are made as the driver's broker would."""

    table: BatchTable
    up: bool = True
    offset: int = 0
    readable: list[str] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)

    def learn(self, entry: BatchEntry, body: bytes = b"") -> None:
        self.offset += 1
        plan = decode_plan(body) if entry.kind in (Kind.PREPARE, Kind.COMMIT) else None
        self.table.learn(entry, body, plan, (self.offset, self.offset), 0)
        for query in self.table.queries.values():
            for serial in list(query.pending):
                self.readable.append(self.texts[serial])
                self.table.done(serial)


class World:
    """Groups by name; every request costs a step, and the driver has only so many."""

    def __init__(self, count: int) -> None:
        self.brokers = {f"g{n}": Broker(BatchTable(f"g{n}")) for n in range(count)}
        self.steps = 1 << 30
        self.serial = 0
        self.attempt = 0
        self.run = 0
        # The one that is stated: the first batch, committed by groups of which none is in reach.
        self.gap = False

    def step(self) -> None:
        if self.steps <= 0:
            raise CutOffError
        self.steps -= 1

    def reach(self, group: str) -> Broker:
        broker = self.brokers[group]
        if not broker.up:
            raise TransportError(f"{group} is not there", retriable=True)
        return broker

    async def find(self) -> list[str]:
        return sorted(name for name, broker in self.brokers.items() if broker.up)

    def new_driver(self) -> Driver:
        self.run += 1
        return Driver(0, f"run-{self.run}")

    async def begin(self, group: str, query: str, driver: Driver) -> None:
        self.step()
        broker, table = self.reach(group), self.reach(group).table
        found = table.check_begin(query, Stored(*driver))
        if isinstance(found, Refusal):
            raise refusal_error(found.code, found.remark, group)
        if found:
            broker.learn(BatchEntry(Kind.BEGIN, query, epoch=driver.epoch, run=driver.run))

    async def status(self, group: str, query: str, batch: int, driver: Driver) -> Status:
        table = self.reach(group).table
        assert not driver.epoch or table.refuse_driver(query, Stored(*driver)) is None
        state, plan, committed = table.state_of(query, batch)
        shown = None if plan is None else Plan(plan.plan_id, plan.groups, plan.epoch)
        known, is_replaced = table.driver_of(query), table.is_replaced(query, driver.run)
        return Status(
            state, committed, shown, table.remaining(query), tuple(table.witnesses(query)),
            driver=Driver(*known), is_replaced=is_replaced, set_aside=table.set_aside(query, batch),
        )  # fmt: skip

    async def statuses(self, groups: Iterable[str], query: str, batch: int, driver: Driver) -> dict[str, Status]:
        return {group: await self.status(group, query, batch, driver) for group in groups}

    async def end(self, group: str, query: str, batch: int, action: str, plan: Plan | None, driver: Driver) -> None:
        self.step()
        broker, table = self.reach(group), self.reach(group).table
        body = plan.encode() if plan is not None else b""
        kind, wanted = Kind(action), decode_plan(body) if plan is not None else None
        found: Refusal | bool
        if kind is Kind.ABORT or wanted is None:
            found = table.check_abort(query, batch, plan.plan_id if plan is not None else "", Stored(*driver))
        else:
            check = table.check_prepare if kind is Kind.PREPARE else table.check_commit
            found = check(query, batch, wanted, Stored(*driver))
        if isinstance(found, Refusal):
            raise refusal_error(found.code, found.remark, group)
        if found:
            broker.learn(BatchEntry(kind, query, batch, plan_id=plan.plan_id if plan is not None else ""), body)
        self.step()  # the answer is lost

    def away(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if not broker.up]

    # -- what Spark does

    async def attempt_batch(self, batch: int, rows: list[str]) -> None:
        coordinator = BatchCoordinator(self, self.new_driver(), QUERY, batch)
        attempts: dict[str, dict[str, int]] = {}
        if (await coordinator.decision()).verdict is Verdict.WRITE:
            gap = any(broker.table.state_of(QUERY, batch)[0] == "committed" for broker in self.away())
            self.gap = self.gap or gap
            assert batch == 0 or not gap, "written again though it is committed somewhere"
            attempts = await self.write(batch, rows, coordinator.driver)
        await coordinator.commit(attempts, f"plan-{self.attempt}")

    async def write(self, batch: int, rows: list[str], driver: Driver) -> dict[str, dict[str, int]]:
        """Every try spreads the rows in another way, one chunk each."""
        groups = await self.find()
        self.attempt += 1
        attempt = f"attempt-{self.attempt}"
        chunks: dict[str, int] = {}
        for number, row in enumerate(rows):
            self.step()
            group = groups[(number + self.attempt) % len(groups)]
            broker = self.reach(group)
            assert broker.table.refuse_rows(QUERY, batch, Stored(*driver)) is None
            self.serial += 1
            broker.texts[self.serial] = row
            sequence = chunks.get(group, 0)
            chunks[group] = sequence + 1
            broker.learn(BatchEntry(Kind.ROWS, QUERY, batch, attempt, sequence, 1, serial=self.serial))
        return {attempt: chunks}

    def readable(self) -> list[str]:
        return sorted(row for broker in self.brokers.values() for row in broker.readable)


@given(
    count=st.integers(1, 3),
    batches=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    cuts=st.lists(st.tuples(st.integers(0, 25), st.integers(0, 7), st.booleans()), max_size=8),
)
def test_each_row_once_wherever_the_driver_is_cut_off(
    count: int, batches: list[int], cuts: list[tuple[int, int, bool]]
) -> None:
    """Each cut: after how many requests, which groups are away meanwhile, whether Spark still says abort."""
    world = World(count)
    faults = iter(cuts)

    async def run() -> None:
        for batch, size in enumerate(batches):
            rows = [f"{batch}-{number}" for number in range(size)]
            while True:
                fault = next(faults, None)
                world.steps = 1 << 30 if fault is None else fault[0]
                away = 0 if fault is None else fault[1]
                for number, broker in enumerate(world.brokers.values()):
                    broker.up = not away >> number & 1
                if not await world.find():
                    continue
                try:
                    await world.attempt_batch(batch, rows)
                except (CutOffError, TransportError, BatchConflictError, IllegalOperationError):
                    world.steps = 1 << 30
                    if fault is not None and fault[2]:
                        with contextlib.suppress(BatchConflictError):
                            await BatchCoordinator(world, Driver(0, f"run-{world.run}"), QUERY, batch).abort()
                    continue
                break

    asyncio.run(run())
    sent = sorted(f"{batch}-{number}" for batch, size in enumerate(batches) for number in range(size))
    if world.gap:
        assert set(world.readable()) == set(sent)
    else:
        assert world.readable() == sent


def test_every_cut_of_one_commit() -> None:
    """Not by chance: a commit over three groups, cut at each request, then replayed."""

    async def run(cut: int) -> World:
        world = World(3)
        await world.attempt_batch(0, ["first"])
        world.steps = cut
        for _ in range(2):
            try:
                await world.attempt_batch(1, ["a", "b", "c", "d"])
            except CutOffError:
                world.steps = 1 << 30
        return world

    for cut in range(40):
        assert asyncio.run(run(cut)).readable() == ["a", "b", "c", "d", "first"], cut


def test_a_batch_that_a_missing_group_committed_is_not_written_again() -> None:
    async def run() -> None:
        world = World(3)
        await world.attempt_batch(0, ["0"])
        world.brokers["g0"].up = False
        await world.attempt_batch(1, ["only"])  # two of three are the most
        world.brokers["g0"].up, world.brokers["g1"].up = True, False
        assert (await BatchCoordinator(world, world.new_driver(), QUERY, 1).decision()).verdict is Verdict.FINISH
        with pytest.raises(TransportError, match="g1 is not there"):
            await world.attempt_batch(1, ["only"])
        world.brokers["g2"].up = False
        with pytest.raises(BatchConflictError, match=r"g1, g2 cannot be reached \(only g0\)") as caught:
            await world.attempt_batch(1, ["only"])
        assert "exactlyOnceFrom=1" in (caught.value.hint or "")
        with pytest.raises(BatchConflictError, match=r"knows how batch 1 ended"):
            await world.attempt_batch(2, ["late"])
        assert world.readable() == ["0", "only"]

    asyncio.run(run())


def test_decisions() -> None:
    plan, other = Plan("p", {"a": {"t": 1}}), Plan("q", {"b": {"t": 1}})
    assert decide(QUERY, 0, {"a": Status("open", -1)}).verdict is Verdict.WRITE
    known = Status("open", 4, witnesses=("a",))
    assert decide(QUERY, 5, {"a": known, "b": Status("open", -1)}).verdict is Verdict.WRITE
    assert decide(QUERY, 5, {"a": Status("open", -1)}, first=5).verdict is Verdict.WRITE
    assert decide(QUERY, 3, {"a": Status("committed", 4)}).verdict is Verdict.NOTHING
    found = decide(QUERY, 3, {"a": Status("open", 2), "b": Status("prepared", 2, plan)})
    assert (found.verdict, found.plan, found.is_committed) == (Verdict.FINISH, plan, False)
    found = decide(QUERY, 3, {"a": Status("committed", 3, plan), "b": Status("prepared", 2, plan)})
    assert (found.verdict, found.plan, found.is_committed) == (Verdict.FINISH, plan, True)
    with pytest.raises(BatchConflictError, match="exactlyOnceFrom"):
        decide(QUERY, 5, {"a": Status("open", 3)})
    with pytest.raises(BatchConflictError, match="two drivers"):
        decide(QUERY, 3, {"a": Status("committed", 3, plan), "b": Status("committed", 3, other)})


def test_rows_that_are_gone_are_written_again() -> None:
    async def run() -> None:
        world = World(2)
        coordinator = BatchCoordinator(world, world.new_driver(), QUERY, 0)
        await coordinator.decision()
        attempts = await world.write(0, ["a", "b"], coordinator.driver)
        world.brokers["g1"].learn(BatchEntry(Kind.ABORT, QUERY, -1))  # the lease of g1 ended
        with pytest.raises(Exception, match="not here any more"):
            await coordinator.commit(attempts, "p1")
        world.attempt += 1
        await world.attempt_batch(0, ["a", "b"])
        assert world.readable() == ["a", "b"]

    asyncio.run(run())


def test_the_epoch_of_a_driver() -> None:
    def status(epoch: int, run: str, *, is_replaced: bool = False) -> Status:
        return Status("open", -1, driver=Driver(epoch, run), is_replaced=is_replaced)

    new, old = Driver(0, "new"), Driver(4, "old")
    assert choose_driver(QUERY, new, {"a": status(0, ""), "b": status(0, "")}) == (1, "new")
    # The one that was away when the last driver began is told the higher number.
    assert choose_driver(QUERY, new, {"a": status(5, "x"), "b": status(4, "y")}) == (6, "new")
    # Another task of the same run was here.
    assert choose_driver(QUERY, new, {"a": status(6, "new"), "b": status(4, "y")}) == (6, "new")
    assert choose_driver(QUERY, old, {"a": status(4, "old"), "b": status(0, "")}) == old
    for answers in (
        {"a": status(5, "x"), "b": status(4, "old")},
        {"a": status(5, "x", is_replaced=True), "b": status(4, "old")},
        {"a": status(4, "p"), "b": status(4, "old")},  # two took one number: the greater name has it
    ):
        with pytest.raises(ReplacedError, match="was replaced by run"):
            choose_driver(QUERY, old, answers)
        with pytest.raises(ReplacedError):
            choose_driver(QUERY, Driver(0, "old"), answers)
    assert choose_driver(QUERY, Driver(4, "old"), {"a": status(4, "a"), "b": status(4, "old")}) == old


def test_rows_that_were_set_aside_fail_the_batch_until_somebody_says_that_it_is_known() -> None:
    async def run() -> None:
        world = World(2)
        await world.attempt_batch(0, ["a", "b"])
        world.brokers["g0"].table.queries[QUERY].set_aside = 3
        with pytest.raises(BatchConflictError, match="committed, but 3 of its rows were set aside") as caught:
            await world.attempt_batch(0, ["a", "b"])
        assert "exactlyOnceFrom=1" in (caught.value.hint or "")
        await BatchCoordinator(world, world.new_driver(), QUERY, 0, first=1).commit({}, "p")

    asyncio.run(run())
