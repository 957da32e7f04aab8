"""What happens by the clock: offsets saved, counters sampled, days ended."""

import errno

from aerobee.broker.stats import TOPIC_PUT_NUMS
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.storekit import draft

DAY_MS = 86_400_000
MIDNIGHT_MS = 20_000 * DAY_MS


def test_a_day_ends_at_midnight() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.broker.counts.stored([draft(topic=b"T"), draft(topic=b"SCHEDULE_TOPIC_XXXX")])
        await kit.pass_time(50, 10)
        assert kit.state.stats.day.put_today_morning == 0
        await kit.pass_time(30, 10)
        assert kit.state.stats.day.put_today_morning == 1, "system topics are left out"

    run_broker(main, wall_ms=MIDNIGHT_MS - 60_000)


def test_counters_are_sampled_every_10_s() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.broker.counts.stored([draft(topic=b"T")] * 30)
        await kit.pass_time(9)
        assert kit.state.stats.tps(TOPIC_PUT_NUMS, "T") == 0
        assert kit.state.stats.total(TOPIC_PUT_NUMS, "T") == 30
        await kit.pass_time(2)
        assert kit.state.stats.tps(TOPIC_PUT_NUMS, "T") == 3

    run_broker(main)


def test_offsets_that_could_not_be_saved_are_saved_later() -> None:
    disk = RecordingDisk(seed=2)

    async def main(kit: BrokerKit) -> None:
        kit.state.offsets.commit("G", "T", 0, 5)
        disk.fail(1, "write", errno=errno.EIO, path="consumerOffset")
        await kit.pass_time(6)
        assert not disk.exists("/store/config/consumerOffset.json")
        await kit.pass_time(5)
        assert disk.exists("/store/config/consumerOffset.json")

    run_broker(main, disk=disk)
