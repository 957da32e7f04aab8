"""1,000,000 pending timers on a real disk: memory, start-up and rate of delivery, printed (`make million-timers`)."""

from __future__ import annotations

import asyncio
import resource
import time
from pathlib import Path

import pytest

from aerobee.broker.delay.timers.driver import TimerService
from aerobee.hot.log.properties import encode_properties
from aerobee.hot.log.record import Draft
from aerobee.model.names import TIMER_TOPIC
from aerobee.runtime.disk import InlineDisk
from aerobee.store.config import StoreConfig
from aerobee.testing.brokerkit import BrokerKit, settle
from aerobee.testing.clock import VirtualClock
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.loop import run_virtual
from aerobee.testing.storekit import HOST

COUNT = 1_000_000
START_MS = 1_700_000_000_000
# Half of them come due within the minute that is delivered at the end.
SOON_MS, LATE_MS = 7_200_000, 2 * 86_400_000


def timer(number: int, now_ms: int, deliver_ms: int) -> Draft:
    unique = f"7F0000010000000000000000{number:08X}"
    properties = {
        "UNIQ_KEY": unique, "TIMER_DELIVER_MS": str(deliver_ms),
        "TIMER_OUT_MS": str((deliver_ms - 1) // 1000 * 1000), "REAL_TOPIC": "T", "REAL_QID": "0",
    }  # fmt: skip
    block = encode_properties(properties)
    return Draft(TIMER_TOPIC.encode(), 0, 0, 0, now_ms, HOST, HOST, 0, 0, b"x" * 128, block, 0, "", unique)


def resident_mb() -> float:
    with Path("/proc/self/status").open() as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


@pytest.mark.slow
def test_a_million_pending_timers(tmp_path: Path) -> None:
    config = StoreConfig(message_index_enable=False)
    entropy = SeededEntropy(1)

    def kit_at(loop: asyncio.AbstractEventLoop, wall_ms: int) -> BrokerKit:
        return BrokerKit(
            InlineDisk(), VirtualClock(loop.time, wall_ms=wall_ms), store_config=config, root=str(tmp_path)
        )

    async def fill(loop: asyncio.AbstractEventLoop) -> None:
        kit = kit_at(loop, START_MS)
        before_mb = resident_mb()
        began = time.monotonic()
        for first in range(0, COUNT, 2_000):
            drafts = []
            for number in range(first, first + 2_000):
                wait_ms = SOON_MS + entropy.below(60_000) if number % 2 else SOON_MS + entropy.below(LATE_MS) + 120_000
                drafts.append(timer(number, START_MS, START_MS + wait_ms))
            kit.store.append(drafts)
            await asyncio.sleep(0.1)
            kit.tick()
        timers = kit.broker.timers
        while timers.index.next_offset < COUNT:
            await asyncio.sleep(0.01)
            kit.tick()
        took_s = time.monotonic() - began
        print(f"\n{COUNT:,} timers stored and indexed in {took_s:.0f} s")
        print(f"memory: {before_mb:.0f} MB before, {resident_mb():.0f} MB with {timers.pending:,} pending (log mapped)")
        entries = len(timers.index._memory) + sum(len(run._block) for run in timers.index.runs)
        print(f"{entries:,} entries of {len(timers.index.runs)} runs in memory")
        assert timers.pending == COUNT and entries < 50_000
        kit.close()

    run_virtual(fill)

    async def deliver(loop: asyncio.AbstractEventLoop) -> None:
        began = time.monotonic()
        kit = kit_at(loop, START_MS + SOON_MS - 1000)
        print(f"start-up: {time.monotonic() - began:.2f} s")
        timers = kit.broker.timers
        again = TimerService(kit.store, kit.state.puts, kit.clock)
        began = time.monotonic()
        again.open()
        print(f"of that, timers: {time.monotonic() - began:.2f} s")
        assert timers.rebuilds == 0 and timers.pending == COUNT
        began = time.monotonic()
        while timers.delivered < COUNT // 2:
            await asyncio.sleep(1)
            kit.tick()
            while timers._round_from is not None:
                await settle()
        took_s = time.monotonic() - began
        print(f"{timers.delivered:,} delivered at {timers.delivered / took_s:,.0f}/s")
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"memory: {resident_mb():.0f} MB, at most {peak_mb:.0f} MB")
        kit.close()
        assert kit.store.max_offset(b"T", 0) == timers.delivered == COUNT // 2

    run_virtual(deliver)


@pytest.mark.slow
def test_a_follower_takes_over_a_million_pending_timers(tmp_path: Path) -> None:
    """A broker follows a master that stores all of them, and then leads: how long that takes, printed."""
    config = StoreConfig(message_index_enable=False)
    entropy = SeededEntropy(1)

    def kit_at(clock: VirtualClock, name: str, *, following: bool) -> BrokerKit:
        return BrokerKit(
            InlineDisk(), clock, store_config=config, root=str(tmp_path / name), authority=lambda: True,
            following=following, confirm_limit=0 if following else None,
        )  # fmt: skip

    async def main(loop: asyncio.AbstractEventLoop) -> None:
        clock = VirtualClock(loop.time, wall_ms=START_MS)
        master, follower = kit_at(clock, "master", following=False), kit_at(clock, "follower", following=True)
        began, follow_s = time.monotonic(), 0.0
        for first in range(0, COUNT, 2_000):
            drafts = []
            for number in range(first, first + 2_000):
                wait_ms = SOON_MS + entropy.below(60_000) if number % 2 else SOON_MS + entropy.below(LATE_MS) + 120_000
                drafts.append(timer(number, START_MS, START_MS + wait_ms))
            master.store.append(drafts)
            await asyncio.sleep(0.1)
            master.tick()
            copied = time.monotonic()
            follower.follow(master)
            follow_s += time.monotonic() - copied
        timers = follower.broker.timers
        while timers.index.next_offset < COUNT:
            await asyncio.sleep(0.01)
            follower.tick()
        took_s = time.monotonic() - began
        print(f"\n{COUNT:,} timers stored and followed in {took_s:.0f} s, {follow_s:.0f} s of that by the follower")
        assert timers.pending == COUNT
        # Some of them are delivered by the master, and the follower hears of it.
        await asyncio.sleep(SOON_MS / 1000 + 20 - (clock.now_ms() - START_MS) / 1000)
        while master.broker.timers.is_behind(clock.now_ms()):
            master.tick()
            await settle()
        await asyncio.sleep(1.1)
        master.tick()
        await settle()
        follower.follow(master)
        await asyncio.sleep(0.02)
        follower.tick()
        done = master.store.max_offset(b"T", 0)
        master.store.abandon()
        follower.store.set_confirm_limit(None)
        # Processor time: the machine may be busy with others.
        began = time.process_time()
        follower.lead()
        lead_ms = 1000 * (time.process_time() - began)
        began = time.monotonic()
        await asyncio.sleep(1)
        follower.tick()
        await settle()
        first_ms = 1000 * (time.monotonic() - began)
        print(
            f"{done:,} delivered by the master; lead() took {lead_ms:.1f} ms, the first tick after it {first_ms:.0f} ms"
        )
        assert lead_ms < 100
        while follower.store.max_offset(b"T", 0) < COUNT // 2:
            await asyncio.sleep(1)
            follower.tick()
            while timers._round_from is not None:
                await settle()
        await asyncio.sleep(5)
        follower.tick()
        await settle()
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"memory: {resident_mb():.0f} MB, at most {peak_mb:.0f} MB, of both brokers")
        assert follower.store.max_offset(b"T", 0) == COUNT // 2
        follower.store.abandon()

    run_virtual(main)
