"""Rounds of failovers: break the master, or the store where its group agrees, and look what clients were told."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

from aerobee.model.numbers import parse_int
from aerobee.runtime.clock import SystemClock
from aerobee.testing.failovers.cluster import FailoverCluster
from aerobee.testing.failovers.failingdisk import BREAK
from aerobee.testing.failovers.load import QUEUES, TOPIC, FailoverLoad
from aerobee.testing.workload import RawClient

# The kinds of ten rounds: of 200 rounds 80 are kill -9, 40 SIGSTOP, 40 cuts, 20 disk errors and 20 lose the store.
KINDS: Final = (
    "kill -9", "SIGSTOP", "cut", "kill -9", "disk error", "kill -9", "SIGSTOP", "cut", "kill -9", "store killed"
)  # fmt: skip
# How long a process is stopped or cut off. A lease lives for 4 s.
_AWAY_S: Final = 7.0
_STORE_AWAY_S: Final = 3.0
_CALM_S: Final = 1.0
_SETTLE_S: Final = 1.0
_GOES_ON_S: Final = 60.0
_LOOK_S: Final = 0.02
_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class Round:
    """What one round came to."""

    number: int
    kind: str
    # Until a message was acknowledged whose send began after the fault. Where the fault does not end the master at
    # once (a disk that breaks, the store that is lost), the longest silence.
    goes_on_s: float
    acknowledged: int
    lost: int
    reordered: int
    failed_sends: int
    # Until all replicas were in sync again.
    whole_s: float

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


class Rounds:
    """Rounds on one cluster, each judged by what clients were told."""

    def __init__(self, directory: Path, *, sync_flush: bool = False) -> None:
        self._cluster = FailoverCluster(directory, sync_flush=sync_flush)
        self._load: FailoverLoad
        # What was read of each queue so far, and the last number of each key there.
        self._read: list[int] = [0] * QUEUES
        self._stored: set[str] = set()
        self._last: dict[str, int] = {}
        self._judged = 0

    @property
    def store_kind(self) -> str:
        return self._cluster.store.kind

    async def start(self) -> None:
        await self._cluster.start()
        admin = RawClient(self._cluster.address(await self._cluster.master()))
        await admin.create_topic(TOPIC, QUEUES)
        await admin.close()
        self._load = FailoverLoad(self._cluster.namesrv.address)
        await self._load.start()

    async def close(self) -> None:
        if hasattr(self, "_load"):
            await self._load.stop()
        await self._cluster.close()

    async def run(self, number: int) -> Round:
        """Run one round: wait until all is well, break something, wait until it is mended, and judge."""
        kind, told = KINDS[number % len(KINDS)], self._load.told
        await self._cluster.whole()
        await asyncio.sleep(_CALM_S)
        failed = told.failed
        place = await self._cluster.master()
        at_s = _CLOCK.monotonic()
        mend: Callable[[], Awaitable[None]] | None = None
        if kind == "store killed":
            await self._lose_store()
            goes_on_s = told.longest_gap(at_s, _CLOCK.monotonic())
        else:
            mend = await self._break(kind, place)
            goes_on_s = await self._goes_on(at_s)
        if kind == "disk error":
            # The master goes on until its next sync.
            await self._gives_up(place)
            goes_on_s = told.longest_gap(at_s, _CLOCK.monotonic())
        if mend is not None:
            await asyncio.sleep(max(0.0, at_s + (_AWAY_S if kind in ("SIGSTOP", "cut") else 0.0) - _CLOCK.monotonic()))
            await mend()
        mended_s = _CLOCK.monotonic()
        await self._cluster.whole()
        whole_s = _CLOCK.monotonic() - mended_s
        await asyncio.sleep(_SETTLE_S)
        acknowledged, lost, reordered = await self._judge()
        return Round(number, kind, goes_on_s, acknowledged, lost, reordered, told.failed - failed, whole_s)

    async def _break(self, kind: str, place: int) -> Callable[[], Awaitable[None]]:
        """Break the master. Return what mends it."""
        broker, link = self._cluster.brokers[place], self._cluster.links[place]

        async def start() -> None:
            await broker.kill()
            await self._cluster.start_broker(place)

        async def go_on() -> None:
            broker.signal(signal.SIGCONT)

        async def mend() -> None:
            link.mend()

        if kind == "kill -9":
            broker.signal(signal.SIGKILL)
            return start
        if kind == "SIGSTOP":
            broker.signal(signal.SIGSTOP)
            return go_on
        if kind == "cut":
            link.cut()
            return mend
        broker.signal(BREAK)
        return start

    async def _gives_up(self, place: int) -> None:
        """Wait until a process has ended by itself, and until sends have gone on without it."""
        async with asyncio.timeout(_GOES_ON_S):
            while self._cluster.brokers[place].is_running:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(_LOOK_S)
        await self._goes_on(_CLOCK.monotonic())

    async def _lose_store(self) -> None:
        await self._cluster.store.kill()
        await asyncio.sleep(_STORE_AWAY_S)
        await self._cluster.store.start()

    async def _goes_on(self, at_s: float) -> float:
        async with asyncio.timeout(_GOES_ON_S):
            while True:
                first_s = self._load.told.first_after(at_s)
                if first_s is not None:
                    return first_s - at_s
                await asyncio.sleep(_LOOK_S)

    async def _judge(self) -> tuple[int, int, int]:
        """Read what is new on the master. Return how many messages were acknowledged, lost and reordered."""
        acked = list(self._load.told.acked)
        reader = RawClient(self._cluster.address(await self._cluster.master()))
        reordered = 0
        try:
            for queue_id in range(QUEUES):
                end = await reader.max_offset(TOPIC, queue_id)
                while self._read[queue_id] < end:
                    _, self._read[queue_id], found = await reader.pull(TOPIC, queue_id, self._read[queue_id], hold_ms=0)
                    for _, body in found:
                        reordered += self._is_reordered(body)
        finally:
            await reader.close()
        new = acked[self._judged :]
        self._judged = len(acked)
        return len(new), sum(body not in self._stored for body in new), reordered

    def _is_reordered(self, body: str) -> bool:
        """Tell whether a message of a key lies behind a later one, the first time that it is seen."""
        if body in self._stored:
            return False
        self._stored.add(body)
        key, _, number = body.partition(":")
        is_behind = key.startswith("key") and parse_int(number) < self._last.get(key, -1)
        self._last[key] = max(self._last.get(key, -1), parse_int(number))
        return is_behind


def summary(rounds: Iterable[Round]) -> Sequence[str]:
    """Return a table: one line for each kind."""
    lines = [f"{'kind':<14}{'rounds':>7}{'acked':>9}{'lost':>6}{'out of order':>14}{'p50 s':>8}{'max s':>8}"]
    by_kind: dict[str, list[Round]] = {}
    for one in rounds:
        by_kind.setdefault(one.kind, []).append(one)
    for kind, found in sorted(by_kind.items()):
        times = [one.goes_on_s for one in found]
        lines.append(
            f"{kind:<14}{len(found):>7}{sum(one.acknowledged for one in found):>9}{sum(one.lost for one in found):>6}"
            f"{sum(one.reordered for one in found):>14}{median(times):>8.2f}{max(times):>8.2f}"
        )
    return lines
