"""Delayed deliveries on a real store: in time, in order, neither lost nor repeated over kills and power cuts."""

import asyncio
import dataclasses
from functools import partial

import pytest

from aerobee.hot.log.properties import encode_properties
from aerobee.hot.log.record import Draft
from aerobee.model.names import SCHEDULE_TOPIC
from aerobee.store.config import StoreConfig
from aerobee.testing.brokerkit import BrokerKit, run_broker, settle
from aerobee.testing.clock import VirtualClock
from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.loop import run_virtual
from aerobee.testing.storekit import HOST, bodies, small_config

START_MS = 1_700_000_000_000


def delayed(body: bytes, level: int, topic: str = "T", real_queue: str = "0") -> Draft:
    properties = {"DELAY": str(level), "REAL_TOPIC": topic, "REAL_QID": real_queue}
    block = encode_properties(properties)
    return Draft(SCHEDULE_TOPIC.encode(), level - 1, 0, 0, 1, HOST, HOST, 0, 0, body, block, 0, "", "")


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def asynchronous(**more: int) -> StoreConfig:
    return small_config(sync=False, segment=1 << 20, **more)


def test_levels_deliver_by_themselves_in_time_and_in_order() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.store.append([delayed(body, 2, "Five") for body in numbered(3)])
        kit.store.append([delayed(body, 1, "One") for body in numbered(3)])
        await kit.pass_time(0.9, 0.1)
        assert bodies(kit.store, b"One") == []
        await kit.pass_time(0.1)
        assert bodies(kit.store, b"One") == numbered(3)
        await kit.pass_time(3.9, 0.1)
        assert bodies(kit.store, b"Five") == []
        await kit.pass_time(0.2, 0.1)
        assert bodies(kit.store, b"Five") == numbered(3)
        kit.broker.scheduler.schedule.validate()

    run_broker(main)


def test_a_backlog_larger_than_a_round_follows_at_once() -> None:
    async def main(kit: BrokerKit) -> None:
        for first in range(0, 1300, 100):
            kit.store.append([delayed(body, 1) for body in numbered(100, first)])
        await asyncio.sleep(2)
        kit.tick()
        await settle()
        assert bodies(kit.store, b"T") == numbered(1300)

    run_broker(main, store_config=asynchronous(mapped_file_size_consume_queue=2000 * 20))


def test_an_idle_tick_reads_nothing() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.store.append([delayed(b"x", 18)])
        await kit.pass_time(1)
        now_ms = kit.clock.now_ms()
        assert now_ms < kit.broker.scheduler.next_due_ms <= now_ms + 1000
        before = kit.broker.scheduler.next_due_ms
        kit.broker.scheduler.tick(now_ms + 1)
        assert kit.broker.scheduler.next_due_ms == before

    run_broker(main)


def test_cold_messages_are_read_and_delivered_too() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.store.append([delayed(body, 1) for body in numbered(5)])
        kit.store.reads.hot_bytes = 0
        await kit.pass_time(2)
        kit.store.reads.hot_bytes = 1 << 30
        assert bodies(kit.store, b"T") == numbered(5)

    run_broker(main)


def test_what_names_no_topic_does_not_stop_the_line() -> None:
    async def main(kit: BrokerKit) -> None:
        lost = delayed(b"lost", 1)
        lost.properties = encode_properties({"DELAY": "1"})
        kit.store.append([delayed(b"0", 1), lost, delayed(b"1", 1)])
        await kit.pass_time(2)
        assert bodies(kit.store, b"T") == numbered(2)
        assert kit.broker.scheduler.schedule.offsets() == {1: 3}

    run_broker(main)


def test_a_full_disk_delays_and_loses_nothing() -> None:
    disk = RecordingDisk(seed=1)

    async def main(kit: BrokerKit) -> None:
        kit.store.append([delayed(body, 1) for body in numbered(3)])
        kit.store.refuse_full("no space")
        disk.used_share = 0.99
        await kit.pass_time(3, 0.1)
        assert kit.store.counters.refused_full > 5
        assert bodies(kit.store, b"T") == []
        kit.store.refuse_full(None)
        disk.used_share = 0.0
        await kit.pass_time(1, 0.1)
        assert bodies(kit.store, b"T") == numbered(3)

    run_broker(main, disk=disk)


def test_one_message_the_log_refuses_is_named_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    async def main(kit: BrokerKit) -> None:
        bad = delayed(b"bad" * 100, 1)
        kit.store.append([delayed(b"0", 1), bad, delayed(b"1", 1)])
        kit.store.reconfigure(dataclasses.replace(kit.store.config, max_message_size=100))
        await kit.pass_time(3, 0.1)
        assert bodies(kit.store, b"T") == numbered(2)
        assert kit.broker.scheduler.schedule.offsets() == {1: 3}

    run_broker(main)
    assert any("cannot be stored" in record.getMessage() for record in caplog.records)


def test_a_clock_set_back_holds_nothing_for_longer_than_its_delay() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.store.append([delayed(b"0", 2)])
        await kit.pass_time(1)
        assert isinstance(kit.clock, VirtualClock)
        kit.clock.jump(-3_600_000)
        await kit.pass_time(7, 0.5)
        assert bodies(kit.store, b"T") == numbered(1)

    run_broker(main)


def test_a_kill_before_the_progress_was_saved_repeats_nothing() -> None:
    disk = RecordingDisk(seed=3)

    async def first(kit: BrokerKit) -> None:
        kit.store.append([delayed(body, 1) for body in numbered(3)] + [delayed(b"3", 2)])
        await kit.pass_time(2)
        assert bodies(kit.store, b"T") == numbered(3)
        assert kit.broker.tables.delays.table == {}, "not saved yet"

    run_broker(first, disk=disk, close=False)

    async def second(kit: BrokerKit) -> None:
        assert kit.spared == 3
        await kit.pass_time(10)
        assert bodies(kit.store, b"T") == numbered(4)

    run_broker(second, disk=disk.kill(), wall_ms=START_MS + 3000)


def test_a_clean_stop_leaves_nothing_to_scan() -> None:
    disk = RecordingDisk(seed=4)

    async def first(kit: BrokerKit) -> None:
        kit.store.append([delayed(body, 1) for body in numbered(3)])
        await kit.pass_time(2)

    stopped = run_broker(first, disk=disk)
    assert stopped.broker.tables.delays.table == {1: 3}
    assert stopped.broker.tables.delays.rescan_from == stopped.store.log_end

    async def second(kit: BrokerKit) -> None:
        assert kit.spared == 0
        await kit.pass_time(3)
        assert bodies(kit.store, b"T") == numbered(3)

    run_broker(second, disk=disk, wall_ms=START_MS + 10_000)


def test_progress_is_saved_only_when_the_deliveries_are_on_disk() -> None:
    disk = RecordingDisk(seed=5)

    async def main(kit: BrokerKit) -> None:
        kit.store.append([delayed(body, 1) for body in numbered(2)])
        await kit.pass_time(2)
        disk.complete_queued()
        kit.store.append([delayed(b"2", 1)])
        await asyncio.sleep(20)
        kit.broker.scheduler.tick(kit.clock.now_ms())
        await settle()
        kit.broker.scheduler.tick(kit.clock.now_ms())
        assert bodies(kit.store, b"T") == numbered(3), "delivered at once (ASYNC_FLUSH)"
        assert kit.broker.tables.delays.table == {}, "but not yet synced"
        disk.complete_inline()
        disk.run_pending()
        await kit.pass_time(12)
        assert kit.broker.tables.delays.table == {1: 3}

    run_broker(main, disk=disk, store_config=asynchronous(), close=False)


def test_a_delivery_under_way_while_the_progress_is_saved_is_found_again() -> None:
    disk = RecordingDisk(seed=7)

    async def first(kit: BrokerKit) -> None:
        kit.store.append([delayed(b"0", 1)])
        await kit.pass_time(4)
        kit.store.append([delayed(b"1", 2)])
        await kit.pass_time(4.9)
        assert bodies(kit.store, b"T") == numbered(1)
        disk.complete_queued()
        await asyncio.sleep(0.2)
        before = kit.store.log_end
        kit.broker.scheduler.tick(kit.clock.now_ms())
        await settle()
        written = kit.store.log_end
        assert written > before
        await asyncio.sleep(1)
        kit.broker.scheduler.tick(kit.clock.now_ms())  # the progress is taken while the second is not safe yet
        disk.complete_inline()
        disk.run_pending()
        await settle()
        assert bodies(kit.store, b"T") == numbered(2)
        kit.broker.scheduler.tick(kit.clock.now_ms())
        assert kit.broker.tables.delays.table == {1: 1}
        assert kit.broker.tables.delays.rescan_from == before

    run_broker(first, disk=disk, close=False)

    async def second(kit: BrokerKit) -> None:
        assert kit.spared == 1
        await kit.pass_time(2)
        assert bodies(kit.store, b"T") == numbered(2)

    run_broker(second, disk=disk.kill(), wall_ms=START_MS + 20_000)


def test_a_table_that_apache_wrote_counts_alone() -> None:
    disk = RecordingDisk(seed=6)

    async def first(kit: BrokerKit) -> None:
        kit.store.append([delayed(body, 1) for body in numbered(4)])
        await kit.pass_time(2)

    run_broker(first, disk=disk)
    disk.put("/store/config/delayOffset.json", b'{"offsetTable":{1:2}}')

    async def second(kit: BrokerKit) -> None:
        assert kit.spared == 0
        await kit.pass_time(2)
        assert bodies(kit.store, b"T") == [*numbered(4), b"2", b"3"]

    run_broker(second, disk=disk, wall_ms=START_MS + 10_000)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("power_cut", [False, True])
def test_each_message_once_over_any_number_of_crashes(seed: int, sync: bool, power_cut: bool) -> None:
    """The broker dies at random moments; the next one finds what a kill, or a power cut, leaves. With ASYNC_FLUSH a
    power cut may take a message, but then it takes it whole: what is left to be delivered is delivered once."""
    entropy = SeededEntropy(seed)
    stored: list[bytes] = []
    config = small_config(sync=sync, segment=1 << 20)

    async def life(loop: asyncio.AbstractEventLoop, disk: RecordingDisk, wall_ms: int) -> int:
        clock = VirtualClock(loop.time, wall_ms=wall_ms)
        kit = BrokerKit(disk, clock, store_config=config)
        for _ in range(entropy.below(30)):
            if entropy.chance(0.5):
                new = numbered(1 + entropy.below(3), len(stored))
                kit.store.append([delayed(body, 1 + entropy.below(3)) for body in new])
                stored.extend(new)
            await kit.pass_time(entropy.between(0.05, 1.5), 0.2)
            kit.broker.scheduler.schedule.validate()
        return clock.now_ms()

    disk, wall_ms = RecordingDisk(seed=seed), START_MS
    for number in range(6):
        wall_ms = 1 + run_virtual(partial(life, disk=disk, wall_ms=wall_ms))
        mode = entropy.choose(list(CrashMode))
        disk = disk.crash(mode, seed * 10 + number) if power_cut else disk.kill()

    async def last(kit: BrokerKit) -> None:
        await kit.pass_time(15)
        waiting = [body for level in range(3) for body in bodies(kit.store, SCHEDULE_TOPIC.encode(), level)]
        assert sorted(bodies(kit.store, b"T"), key=int) == sorted(waiting, key=int)
        if sync or not power_cut:
            assert sorted(waiting, key=int) == stored
        assert waiting

    run_broker(last, disk=disk, wall_ms=wall_ms, store_config=config)
