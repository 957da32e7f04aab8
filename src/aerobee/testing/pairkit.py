"""A master and a broker that follows it, for tests: the log goes over by hand, the follower takes over when told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aerobee.broker.config import BrokerConfig
from aerobee.store.config import StoreConfig
from aerobee.testing.brokerkit import BrokerKit
from aerobee.testing.clock import VirtualClock
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.loop import run_virtual
from aerobee.testing.storekit import small_config

CONFIG = BrokerConfig(broker_name="broker-a", recall_message_enable=True)
STORE = small_config(sync=False, segment=1 << 20, max_message_size=64 << 10, mapped_file_size_consume_queue=20 * 5000)


class Pair:
    """Two replicas of a group on one clock."""

    def __init__(self, clock: VirtualClock, store_config: StoreConfig = STORE) -> None:
        self.clock = clock
        self.store_config = store_config
        self.disks = RecordingDisk(seed=1), RecordingDisk(seed=2)
        self.master = BrokerKit(self.disks[0], clock, CONFIG, store_config, authority=lambda: True)
        self.follower = self.start_follower()

    def start_follower(self, confirmed: int = 0, disk: RecordingDisk | None = None) -> BrokerKit:
        """Start a broker that follows, on its own disk or on another."""
        return BrokerKit(
            disk or self.disks[1], self.clock, CONFIG, self.store_config, authority=lambda: True, following=True,
            confirm_limit=confirmed,
        )  # fmt: skip

    def restart_follower(self) -> None:
        """Kill the follower, and start it again with what its disk holds."""
        confirmed = self.follower.store.confirmed_offset
        self.follower.store.abandon()
        self.follower = self.start_follower(confirmed)

    async def pass_time(self, seconds: float, step_s: float = 0.1) -> None:
        """Let time pass while the follower keeps up."""
        while seconds > 0:
            await self.master.pass_time(min(step_s, seconds))
            self.follower.follow(self.master)
            seconds -= step_s

    def fail_over(self) -> BrokerKit:
        """Kill the master; the follower has all that was confirmed, and leads."""
        self.follower.follow(self.master)
        return self.take_over()

    def take_over(self) -> BrokerKit:
        """Let the follower lead with what it has, and decide alone what is confirmed."""
        self.master.store.abandon()
        self.follower.store.set_confirm_limit(None)
        self.follower.lead()
        return self.follower


def run_pair(main: Callable[[Pair], Awaitable[None]], store_config: StoreConfig = STORE) -> None:
    """Run a test against a new pair."""

    async def run(loop: asyncio.AbstractEventLoop) -> None:
        await main(Pair(VirtualClock(loop.time, wall_ms=1_700_000_000_000), store_config))

    run_virtual(run)
