"""A master and its slaves on a simulated network."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from aerobee.errors import StoreError
from aerobee.replication.classic.frames import ClassicWords, Transfer, encode_report
from aerobee.replication.classic.master import ClassicMaster, MasterSettings
from aerobee.replication.classic.replicated import ReplicatedLog
from aerobee.testing.hakit import HA_PORT, HaKit, HaMember, log_bytes, run_ha
from aerobee.testing.storekit import draft, read_queue, small_config


def fill(member: HaMember, count: int, size: int = 100) -> None:
    for number in range(count):
        member.store.append([draft(b"%d" % (number % 10) * size)])


class RawSlave(asyncio.Protocol):
    """A slave that says what the test wants."""

    def __init__(self) -> None:
        self.words = ClassicWords()
        self.received: list[Transfer] = []
        self.is_lost = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.received += self.words.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def report(self, offset: int) -> None:
        assert self.transport is not None
        self.transport.write(encode_report(offset))

    @property
    def log(self) -> bytes:
        return b"".join(one.data for one in self.received)


async def raw(kit: HaKit, host: str = "10.0.0.9") -> RawSlave:
    _, slave = await kit.net.host(host).connect("10.0.0.1", HA_PORT, RawSlave)
    return slave


def test_a_slave_gets_the_whole_log_and_serves_it() -> None:
    async def main(kit: HaKit) -> None:
        one, two = kit.member("10.0.0.1"), kit.member("10.0.0.2")
        master, _ = await kit.master(one)
        fill(one, 100)
        kit.slave(two, one)
        await kit.pass_time(2)
        assert one.store.log_end > 3 * 4096
        assert log_bytes(two.store) == log_bytes(one.store)
        fill(one, 10)
        master.wrote()
        await kit.pass_time(0.1)
        assert log_bytes(two.store) == log_bytes(one.store)
        assert len(read_queue(two.store)) == 110
        (status,) = master.status()
        assert (status.acked, status.lag_bytes, status.in_sync) == (one.store.log_end, 0, True)

    run_ha(main)


def test_an_empty_slave_begins_with_the_first_segment_that_is_left() -> None:
    async def main(kit: HaKit) -> None:
        one, two = kit.member("10.0.0.1"), kit.member("10.0.0.2")
        await kit.master(one)
        fill(one, 100)
        await kit.pass_time(1)
        assert one.store.delete_oldest_segment()
        kit.slave(two, one)
        await kit.pass_time(2)
        assert two.store.log_start == one.store.log_start == 4096
        assert log_bytes(two.store) == log_bytes(one.store)
        assert len(read_queue(two.store)) == len(read_queue(one.store))

    run_ha(main)


def test_apaches_empty_slave_says_0_and_gets_the_first_segment() -> None:
    async def main(kit: HaKit) -> None:
        one = kit.member("10.0.0.1")
        await kit.master(one)
        fill(one, 100)
        await kit.pass_time(1)
        assert one.store.delete_oldest_segment()
        slave = await raw(kit)
        await kit.pass_time(1)
        assert not slave.received, "nothing is sent before the first report"
        slave.report(0)
        await kit.pass_time(1)
        assert slave.received[0].offset == 4096
        assert slave.log == log_bytes(one.store)
        for transfer in slave.received:
            assert transfer.offset // 4096 == (transfer.offset + len(transfer.data) - 1) // 4096

    run_ha(main)


@pytest.mark.parametrize("claim", [2**40, 2**63 - 1, -1, -(2**63), 1, 100, 5000])
def test_a_slave_with_a_nonsense_offset_is_closed_and_counts_for_nothing(claim: int) -> None:
    async def main(kit: HaKit) -> None:
        one = kit.member("10.0.0.1")
        master, _ = await kit.master(one, MasterSettings(needed=1))
        fill(one, 100)
        slave = await raw(kit)
        slave.report(claim)
        await kit.pass_time(1)
        assert slave.is_lost
        assert not slave.received
        assert master.acks.held == 0
        assert master.status() == ()

    run_ha(main)


def test_a_slave_behind_the_first_segment_is_closed() -> None:
    async def main(kit: HaKit) -> None:
        one = kit.member("10.0.0.1")
        await kit.master(one)
        fill(one, 100)
        await kit.pass_time(1)
        assert one.store.delete_oldest_segment()
        slave = await raw(kit)
        slave.report(308)
        await kit.pass_time(1)
        assert slave.is_lost
        assert not slave.received

    run_ha(main)


def test_an_ack_beyond_what_was_sent_closes_the_connection() -> None:
    async def main(kit: HaKit) -> None:
        one = kit.member("10.0.0.1")
        master, _ = await kit.master(one, MasterSettings(needed=1))
        fill(one, 3)
        slave = await raw(kit)
        slave.report(0)
        await kit.pass_time(1)
        slave.report(one.store.log_end + 1)
        await kit.pass_time(1)
        assert slave.is_lost
        assert master.acks.held == 0

    run_ha(main)


def test_a_slow_slave_delays_nobody_and_holds_little_memory() -> None:
    async def main(kit: HaKit) -> None:
        one, two = kit.member("10.0.0.1"), kit.member("10.0.0.2")
        master, _ = await kit.master(one)
        slow = await raw(kit)
        assert slow.transport is not None
        slow.report(0)
        await kit.pass_time(1)
        slow.transport.pause_reading()
        kit.slave(two, one)
        for _ in range(60):
            fill(one, 20, 1500)
            await kit.pass_time(0.05)
        await kit.pass_time(1)
        assert two.store.log_end == one.store.log_end > 1_500_000
        sent = {status.address.split(":")[0]: status.sent for status in master.status()}
        assert sent["10.0.0.2"] == one.store.log_end

    run_ha(main)


def test_heartbeats_come_in_time_and_silence_is_cut() -> None:
    async def main(kit: HaKit) -> None:
        one = kit.member("10.0.0.1")
        await kit.master(one)
        fill(one, 3)
        slave = await raw(kit)
        slave.report(0)
        await kit.pass_time(0.5)
        end = one.store.log_end
        count = len(slave.received)
        await kit.pass_time(11)
        assert slave.received[count:] == [Transfer(end, b""), Transfer(end, b"")]
        await kit.pass_time(10)
        assert slave.is_lost

    run_ha(main)


def test_a_slave_leaves_a_silent_master() -> None:
    async def main(kit: HaKit) -> None:
        one, two = kit.member("10.0.0.1"), kit.member("10.0.0.2")
        await kit.master(one)
        fill(one, 3)
        slave = kit.slave(two, one)
        await kit.pass_time(2)
        assert slave.status().is_connected
        kit.net.cut("10.0.0.1", "10.0.0.2")
        await kit.pass_time(21)
        assert not slave.status().is_connected
        kit.net.heal_all()
        fill(one, 3)
        await kit.pass_time(5)
        assert slave.status().is_connected
        assert log_bytes(two.store) == log_bytes(one.store)

    run_ha(main)


def test_a_slave_acknowledges_only_what_its_own_disk_has_synced() -> None:
    async def main(kit: HaKit) -> None:
        one, two = kit.member("10.0.0.1"), kit.member("10.0.0.2", config=small_config(sync=True))
        master, _ = await kit.master(one, MasterSettings(needed=1))
        kit.slave(two, one)
        fill(one, 20)
        await kit.pass_time(2)
        assert master.acks.held == one.store.log_end == two.store.flushed_offset

    run_ha(main)


def test_a_send_waits_for_its_slaves() -> None:
    async def main(kit: HaKit) -> None:
        one, two = kit.member("10.0.0.1"), kit.member("10.0.0.2")
        master, _ = await kit.master(one, MasterSettings(needed=1))
        log = ReplicatedLog(one.store, master.acks)
        told: list[StoreError | None] = []
        end = one.store.append([draft(b"one")])
        assert len(read_queue(one.store)) == 1, "readers see a message at once"
        waiting = log.on_safe(end, told.append)
        late = log.on_safe(end, told.append)
        await kit.pass_time(3)
        assert not told
        assert log.confirmed_offset < end
        assert log.is_late_for_slaves(end)
        late.cancel()
        kit.slave(two, one)
        await kit.pass_time(2)
        assert told == [None]
        assert log.confirmed_offset == end
        waiting.cancel()

    run_ha(main)


def test_two_slaves_count_as_two_and_one_as_one() -> None:
    async def main(kit: HaKit) -> None:
        one, two, three = kit.member("10.0.0.1"), kit.member("10.0.0.2"), kit.member("10.0.0.3")
        master, _ = await kit.master(one, MasterSettings(needed=2))
        fill(one, 3)
        kit.slave(two, one)
        await kit.pass_time(2)
        assert not master.acks.holds(one.store.log_end)
        kit.slave(three, one)
        await kit.pass_time(2)
        assert master.acks.holds(one.store.log_end)

    run_ha(main)


def test_a_slave_with_another_log_stops_in_words() -> None:
    async def main(kit: HaKit) -> None:
        one, two = kit.member("10.0.0.1"), kit.member("10.0.0.2")
        await kit.master(one)
        fill(one, 5)
        two.store.append([draft(b"another" * 10)])
        slave = kit.slave(two, one)
        before = log_bytes(two.store)
        await kit.pass_time(3)
        assert "another one than the master's" in slave.problem
        assert log_bytes(two.store) == before

    run_ha(main)


def test_a_slave_that_is_ahead_stops_in_words() -> None:
    async def main(kit: HaKit) -> None:
        one, two = kit.member("10.0.0.1"), kit.member("10.0.0.2")
        await kit.master(one)
        fill(one, 2)
        fill(two, 5)
        slave = kit.slave(two, one)
        await kit.pass_time(3)
        assert "does not have" in slave.problem

    run_ha(main)


def test_large_records_and_kills_of_either_side_leave_equal_logs() -> None:
    config = small_config(sync=False, segment=1 << 20, max_message_size=400_000)

    async def main(kit: HaKit) -> None:
        one, two = kit.member("10.0.0.1"), kit.member("10.0.0.2")
        kit.net.weather.chunk_bytes_max = 5000
        await kit.master(one)
        slave = kit.slave(two, one)
        for _ in range(6):
            fill(one, 3, 200_000)
            fill(one, 5, 200)
            await kit.pass_time(0.1)
            kit.net.reset("10.0.0.1", "10.0.0.2")
        await kit.pass_time(10)
        assert not slave.problem
        assert one.store.log_end > 3 << 20
        assert log_bytes(two.store) == log_bytes(one.store)

    run_ha(main, config)


def test_old_bytes_are_read_by_the_reader_thread() -> None:
    async def main(kit: HaKit) -> None:
        one, two = kit.member("10.0.0.1"), kit.member("10.0.0.2")
        one.store.reads.hot_bytes = 1000
        await kit.master(one)
        fill(one, 200)
        kit.slave(two, one)
        await kit.pass_time(5)
        assert log_bytes(two.store) == log_bytes(one.store)

    run_ha(main)


def test_a_full_disk_of_a_slave_stops_nothing_but_the_slave() -> None:
    async def main(kit: HaKit) -> None:
        one, two = kit.member("10.0.0.1"), kit.member("10.0.0.2")
        master: ClassicMaster = (await kit.master(one, MasterSettings(needed=1)))[0]
        slave = kit.slave(two, one)
        fill(one, 3)
        await kit.pass_time(2)
        two.disk.free_bytes = 0
        fill(one, 60)
        await kit.pass_time(5)
        assert not slave.problem
        assert not master.acks.holds(one.store.log_end)
        two.disk.free_bytes = None
        await kit.pass_time(5)
        assert log_bytes(two.store) == log_bytes(one.store)

    run_ha(main)
