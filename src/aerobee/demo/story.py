"""What happens in the demo, in order: traffic, the kill, the restart, the wait for the last message, the result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from aerobee.demo.ledger import Totals
from aerobee.demo.shop import Shop
from aerobee.demo.timeline import Timeline
from aerobee.runtime.clock import SystemClock
from aerobee.testing.processes import ProcessCluster

VICTIM = 1
_STEP_S = 0.25
_DOWN_S = 1.0
# Nothing new for so long means that nothing more will come.
_QUIET_S = 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the demo has to show."""

    totals: Totals
    recovery_s: float
    sent_per_s: float
    consumed_per_s: float
    timeline: Timeline


class Story:
    """One run on a started cluster. `tell` gets a line when something happens, `show` the two counts now and then."""

    def __init__(
        self, cluster: ProcessCluster, orders: int, tell: Callable[[str], None], show: Callable[[int, int], None]
    ) -> None:
        self._cluster = cluster
        self._shop = Shop(cluster.namesrv.address, orders)
        self._tell = tell
        self._show = show
        self._clock = SystemClock()
        self._timeline = Timeline(_STEP_S)

    async def run(self) -> Outcome:
        shop, clock = self._shop, self._clock
        ticking = asyncio.create_task(self._tick())
        try:
            await shop.open()
            began_s = clock.monotonic()
            async with shop.consuming():
                recovery_s, _ = await asyncio.gather(self._fail(), shop.sell())
                sent_s = clock.monotonic() - began_s
                await self._until_consumed()
                consumed_s = clock.monotonic() - began_s
        finally:
            ticking.cancel()
        totals = shop.ledger.totals()
        rates = totals.acknowledged / sent_s, totals.consumed / consumed_s
        return Outcome(totals, recovery_s, *rates, self._timeline)

    async def _tick(self) -> None:
        ledger = self._shop.ledger
        while True:
            await asyncio.sleep(_STEP_S)
            self._timeline.sample(len(ledger.acknowledged), len(ledger.consumed))
            self._show(len(ledger.acknowledged), len(ledger.consumed))

    async def _fail(self) -> float:
        """Kill a broker group when two fifths are acknowledged and start it again; the seconds until an order went
        through it once more, from producer to consumer."""
        shop, name = self._shop, self._cluster.broker_name(VICTIM)
        await shop.acknowledged(shop.orders * 2 // 5)
        killed_s = self._clock.monotonic()
        await self._cluster.kill(VICTIM)
        self._timeline.mark(f"kill -9 {name}")
        self._tell(f"kill -9 {name} after {len(shop.ledger.acknowledged):,} orders; sends go to the other group")
        await asyncio.sleep(_DOWN_S)
        started_in_s = await self._cluster.restart(VICTIM)
        self._timeline.mark(f"{name} is back")
        self._tell(f"{name} started again on its data, serving after {started_in_s:.1f} s")
        async with asyncio.timeout(_QUIET_S):
            await shop.sell_through(name)
        recovery_s = self._clock.monotonic() - killed_s
        shop.may_finish.set()
        return recovery_s

    async def _until_consumed(self) -> None:
        """Until every message that the brokers hold was consumed, or nothing came for a long time."""
        ledger, stored = self._shop.ledger, await self._shop.stored()
        count, quiet_s = -1, 0.0
        while len(ledger.places) < stored and quiet_s < _QUIET_S:
            quiet_s = quiet_s + _STEP_S if ledger.deliveries == count else 0.0
            count = ledger.deliveries
            await asyncio.sleep(_STEP_S)
        # One more picture, with the end on it.
        await asyncio.sleep(_STEP_S)
