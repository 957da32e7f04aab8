"""Rounds of failovers of Apache's controller mode: the master is killed or stopped, under the load of our rounds.

A log of Apache's may lose a tail that readers have seen, and give its offsets again. So each round reads everything.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Final

from aerobee.model.numbers import parse_int
from aerobee.runtime.clock import SystemClock
from aerobee.testing.failovers.apachegroup import ApacheGroup
from aerobee.testing.failovers.load import QUEUES, TOPIC, FailoverLoad
from aerobee.testing.failovers.rounds import Round
from aerobee.testing.workload import RawClient

KINDS: Final = ("kill -9", "SIGSTOP")
# The controller takes a silent broker for dead after 10 s, and looks every 5 s.
_STOPPED_S: Final = 20.0
# A group that has no master by now gets its broker back.
_GOES_ON_S: Final = 60.0
_CALM_S: Final = 1.0
_SETTLE_S: Final = 2.0
_LOOK_S: Final = 0.02
_CLOCK = SystemClock()


class ApacheRounds:
    """Rounds on one of Apache's groups."""

    store_kind = "Apache's controller"

    def __init__(self, directory: Path, *, min_in_sync: int) -> None:
        self._group = ApacheGroup(directory, min_in_sync=min_in_sync)
        self._load: FailoverLoad
        self._lost: set[str] = set()
        self._reordered: set[str] = set()
        self._judged = 0

    async def start(self) -> None:
        await self._group.start()
        admin = RawClient(self._group.address(await self._group.master()))
        await admin.create_topic(TOPIC, QUEUES)
        await admin.close()
        self._load = FailoverLoad(self._group.namesrv)
        await self._load.start()

    async def close(self) -> None:
        if hasattr(self, "_load"):
            await self._load.stop()
        await self._group.close()

    async def run(self, number: int) -> Round:
        """Run one round: wait until all is well, break the master, mend it, wait until all is well, and judge."""
        kind, told, group = KINDS[number % len(KINDS)], self._load.told, self._group
        await group.whole()
        await asyncio.sleep(_CALM_S)
        failed = told.failed
        place = await group.master()
        at_s = _CLOCK.monotonic()
        group.signal(place, signal.SIGKILL if kind == "kill -9" else signal.SIGSTOP)
        await self._until_it_goes_on(at_s, _GOES_ON_S)
        if kind == "kill -9":
            await group.end(place)
            await group.start_broker(place)
        else:
            await asyncio.sleep(max(0.0, at_s + _STOPPED_S - _CLOCK.monotonic()))
            group.signal(place, signal.SIGCONT)
        mended_s = _CLOCK.monotonic()
        await group.whole()
        whole_s = _CLOCK.monotonic() - mended_s
        goes_on_s = await self._until_it_goes_on(at_s, _CLOCK.monotonic() - at_s + _GOES_ON_S)
        assert goes_on_s is not None, "the group is whole and takes no message"
        await asyncio.sleep(_SETTLE_S)
        acknowledged, lost, reordered = await self._judge()
        return Round(number, kind, goes_on_s, acknowledged, lost, reordered, told.failed - failed, whole_s)

    async def _until_it_goes_on(self, at_s: float, within_s: float) -> float | None:
        while _CLOCK.monotonic() < at_s + within_s:
            first_s = self._load.told.first_after(at_s)
            if first_s is not None:
                return first_s - at_s
            await asyncio.sleep(_LOOK_S)
        return None

    async def _judge(self) -> tuple[int, int, int]:
        """Read everything on the master. Return how many messages were acknowledged, lost and reordered since the
        round before."""
        acked = list(self._load.told.acked)
        stored: set[str] = set()
        behind: set[str] = set()
        last: dict[str, int] = {}
        reader = RawClient(self._group.address(await self._group.master()))
        try:
            for queue_id in range(QUEUES):
                at, end = 0, await reader.max_offset(TOPIC, queue_id)
                while at < end:
                    _, at, found = await reader.pull(TOPIC, queue_id, at, hold_ms=0)
                    for _, body in found:
                        key, _, number = body.partition(":")
                        if body not in stored and key.startswith("key") and parse_int(number) < last.get(key, -1):
                            behind.add(body)
                        last[key] = max(last.get(key, -1), parse_int(number))
                        stored.add(body)
        finally:
            await reader.close()
        lost = {body for body in acked if body not in stored} - self._lost
        reordered = behind - self._reordered
        self._lost |= lost
        self._reordered |= reordered
        new, self._judged = len(acked) - self._judged, len(acked)
        return new, len(lost), len(reordered)
