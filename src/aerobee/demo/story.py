"""The course of the demo: traffic, the kill, the restart, Spark, the last message, the result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aerobee.demo.ledger import Shops, Totals
from aerobee.demo.shop import TOTALS, Shop
from aerobee.demo.sparkside import Batch, SparkSide
from aerobee.demo.timeline import Timeline
from aerobee.runtime.clock import SystemClock
from aerobee.testing.processes import ProcessCluster

_STEP_S = 0.25
_DOWN_S = 1.0
# When nothing new came for this time, nothing more will come.
_QUIET_S = 30.0


@dataclass(frozen=True, slots=True)
class Aggregates:
    """Orders and cents by shop, from three sources."""

    python: Shops
    topic: Shops
    table: Shops
    messages: int
    table_rows: int

    @property
    def equal(self) -> bool:
        return self.python == self.topic == self.table


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """The result of the demo. It has no aggregates where there is no Spark."""

    totals: Totals
    # From the kill of the master until another replica acknowledged an order, and until that order was consumed.
    takeover_s: float
    recovery_s: float
    sent_per_s: float
    consumed_per_s: float
    timeline: Timeline
    aggregates: Aggregates | None

    @property
    def sound(self) -> bool:
        return self.totals.sound and (self.aggregates is None or self.aggregates.equal)


class DemoRun:
    """One run on a started cluster. `tell` gets a line for each event, `show` the counts now and then."""

    def __init__(
        self,
        cluster: ProcessCluster,
        orders: int,
        tell: Callable[[str], None],
        show: Callable[[int, int, int | None], None],
        spark: SparkSide | None = None,
    ) -> None:
        self._cluster = cluster
        self._shop = Shop(cluster.namesrv.address, orders)
        self._tell = tell
        self._show = show
        self._spark = spark
        self._clock = SystemClock()
        self._timeline = Timeline(_STEP_S)
        self._began_ms = 0

    async def run(self) -> DemoOutcome:
        shop, timeline = self._shop, self._timeline
        await shop.open()
        self._began_ms = self._clock.now_ms()
        ticking = asyncio.create_task(self._tick())
        try:
            async with shop.consuming(), shop.reporting():
                times_s, _ = await asyncio.gather(self._fail(), shop.sell())
                await self._until_consumed()
                aggregates = await self._aggregate()
                # The last sample has the final counts.
                await asyncio.sleep(_STEP_S)
        finally:
            ticking.cancel()
        if self._spark is not None and aggregates is not None:
            self._draw_spark(self._spark.batches)
        rates = timeline.flow_per_s(timeline.acknowledged), timeline.flow_per_s(timeline.consumed)
        return DemoOutcome(shop.ledger.totals(), *times_s, *rates, timeline, aggregates)

    async def _tick(self) -> None:
        ledger = self._shop.ledger
        samples = 0
        while True:
            # Samples follow the clock: on a busy machine a sleep is longer, and Spark's batches have the clock's times.
            samples += 1
            await asyncio.sleep(max(0.0, samples * _STEP_S - (self._clock.now_ms() - self._began_ms) / 1000))
            self._timeline.sample(len(ledger.acknowledged), len(ledger.consumed))
            spark = self._spark.rows if self._spark is not None and self._spark.is_reading else None
            self._show(len(ledger.acknowledged), len(ledger.consumed), spark)

    async def _fail(self) -> tuple[float, float]:
        """Kill the master of the group when two fifths of the orders are acknowledged, and start it again.

        Return the seconds until another replica acknowledged an order, and until that order was consumed. The last
        tenth of the orders is sent when Spark has joined.
        """
        shop, cluster, clock = self._shop, self._cluster, self._clock
        await shop.acknowledged(shop.orders * 2 // 5)
        master = await cluster.master()
        killed_s, acknowledged_s = clock.monotonic(), 0.0
        await cluster.kill(master)
        self._timeline.mark("kill -9 of the master")
        count = len(shop.ledger.acknowledged)
        self._tell(f"kill -9 of the master, replica {master + 1}, after {count:,} orders")

        def acknowledged() -> None:
            nonlocal acknowledged_s
            acknowledged_s = clock.monotonic()
            self._tell(f"another replica is master and acknowledges orders after {acknowledged_s - killed_s:.2f} s")

        async with asyncio.timeout(_QUIET_S):
            await shop.sell_through(cluster.broker_name(master), acknowledged)
        recovered_s = clock.monotonic()
        await asyncio.sleep(max(0.0, killed_s + _DOWN_S - clock.monotonic()))
        started_in_s = await cluster.restart(master)
        self._timeline.mark(f"replica {master + 1} is back")
        leader = await cluster.master()
        self._tell(f"replica {master + 1} is back after {started_in_s:.1f} s and follows replica {leader + 1}")
        if self._spark is not None and await self._spark.joined():
            self._timeline.mark("Spark joins")
        shop.may_finish.set()
        return acknowledged_s - killed_s, recovered_s - killed_s

    async def _until_consumed(self) -> None:
        """Wait until every stored message was consumed, or nothing came for a long time."""
        ledger, stored = self._shop.ledger, await self._shop.stored()
        await self._until(lambda: len(ledger.places) >= stored, lambda: ledger.deliveries)

    async def _until(self, is_done: Callable[[], bool], progress: Callable[[], int]) -> None:
        count, quiet_s = -1, 0.0
        while not is_done() and quiet_s < _QUIET_S:
            quiet_s = quiet_s + _STEP_S if progress() == count else 0.0
            count = progress()
            await asyncio.sleep(_STEP_S)

    async def _aggregate(self) -> Aggregates | None:
        """Let Spark catch up, then read its aggregates from its topic and its table."""
        spark, report = self._spark, self._shop.report
        if spark is None or spark.skipped is not None:
            return None
        table = await spark.finish(await self._shop.stored())
        await self._until(lambda: len(report.places) >= table.rows, lambda: len(report.places))
        self._tell(f"Spark is through: {len(report.places)} aggregates consumed from topic {TOTALS!r}")
        return Aggregates(self._shop.ledger.by_shop(), report.shops, table.shops, len(report.places), table.rows)

    def _draw_spark(self, batches: Sequence[Batch]) -> None:
        starts_s = [(batch.began_ms - self._began_ms) / 1000 for batch in batches]
        self._timeline.fill_spark(
            [(at_s, at_s + batch.took_ms / 1000, batch.rows) for at_s, batch in zip(starts_s, batches, strict=True)]
        )
