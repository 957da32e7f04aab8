"""Bugs that the simulation found, each in a few lines."""

from __future__ import annotations

import asyncio

import pytest

from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.loop import VirtualLoop
from aerobee.testing.simulation.cluster import plain_cluster
from aerobee.testing.simulation.load import LoadSender
from aerobee.testing.simulation.story import Story
from aerobee.testing.simulation.world import World
from aerobee.testing.storekit import bodies, draft, make_store, small_config


def test_what_a_failed_sync_left_in_memory_is_safe_after_a_restart() -> None:
    """A failed sync leaves pages that the system takes for clean. The next process reads and serves them, and answers a
    repeat of an idempotent producer from them: they must be on the disk then."""
    disk = RecordingDisk(seed=1)
    store = make_store(disk)
    store.open()
    store.append([draft(b"first")])
    store.tick()
    disk.fail(1, "sync", path="commitlog")
    store.append([draft(b"not acknowledged")])
    store.tick()
    after_kill = disk.kill()
    store = make_store(after_kill)
    store.open()
    assert bodies(store) == [b"first", b"not acknowledged"]
    store = make_store(after_kill.crash(CrashMode.NONE))
    store.open()
    assert bodies(store) == [b"first", b"not acknowledged"]


def test_a_replica_whose_log_a_power_cut_emptied_starts_where_its_master_does() -> None:
    """Its segment was left without a record, and the master's log began later by then: it refused what came."""
    master = make_store(RecordingDisk(seed=1))
    master.open()
    for number in range(30):
        master.append([draft(b"%d" % number + bytes(500))])
        master.tick()
    assert master.delete_oldest_segment() and master.log_end > master.log_start + 4096
    disk = RecordingDisk(seed=1)
    replica = make_store(disk, small_config(sync=False))
    replica.open(confirm_limit=0)
    replica.append_raw(0, bytes(100))
    image = disk.crash(CrashMode.NONE)
    replica = make_store(image, small_config(sync=False))
    replica.open(confirm_limit=0)
    assert (replica.log_start, replica.log_end) == (0, 0)
    place = master.log_start
    while place < master.log_end:
        place = replica.append_raw(place, master.read_log(place, master.log_end - place))
    replica.set_confirm_limit(None)
    assert (replica.log_start, replica.log_end) == (master.log_start, master.log_end)
    assert bodies(replica) == bodies(master)
    replica.close()
    again = make_store(image, small_config(sync=False))
    again.open()
    assert (again.log_start, bodies(again)) == (master.log_start, bodies(master))


@pytest.mark.parametrize("stops", [1, 2])
def test_queues_that_cannot_be_built_again_at_once_are_built_later(stops: int) -> None:
    """A replica lost files of its queues, and may not show what they held before a master confirms it. Its stop saved a
    table that knew nothing of this: after the next start readers missed messages, and their offsets were given again.
    """
    disk = RecordingDisk(seed=1)
    store = make_store(disk)
    store.open()
    for number in range(40):
        store.append([draft(b"%d" % number, queue_id=number % 2)])
        store.tick()
    store.flush_sinks()
    store.close()
    for name in disk.listdir("/store/consumequeue/topic/1"):
        disk.unlink(f"/store/consumequeue/topic/1/{name}")
    for _ in range(stops):
        store = make_store(disk)
        store.open(confirm_limit=0)
        assert bodies(store, queue_id=1) == []
        store.close()
    store = make_store(disk)
    store.open(confirm_limit=0)
    assert store.queues.table().is_rebuilding
    store.append([draft(b"new", queue_id=1)])
    store.tick()
    store.set_confirm_limit(None)
    assert bodies(store) == [b"%d" % number for number in range(0, 40, 2)]
    assert bodies(store, queue_id=1) == [*(b"%d" % number for number in range(1, 40, 2)), b"new"]
    assert store.max_offset(b"topic", 1) == 21
    assert not store.queues.table().is_rebuilding
    store.close()
    store = make_store(disk)
    assert not store.open().problems
    assert bodies(store, queue_id=1)[-1] == b"new"


def test_a_producer_that_found_no_route_becomes_known_to_the_brokers_later() -> None:
    """A transactional producer that restarts while no name server knows its topic must still be asked about the half
    messages of its group, without another send."""

    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        story = Story(world.trace, loop.time)
        cluster = plain_cluster(world, story)
        await cluster.start()
        for namesrv in cluster.namesrvs:
            namesrv.machine.kill()
        sender = LoadSender(world, "10.0.2.1", story)
        sender.start()
        await asyncio.sleep(0.1)
        sender.is_quiet = True
        assert story.refusals and not story.acks
        for namesrv in cluster.namesrvs:
            namesrv.start()
        await asyncio.sleep(30)
        for broker in cluster.brokers:
            assert broker.node is not None
            known = broker.node.state.clients.producer_channel("deciding", lambda key: True)
            assert known is not None, f"{broker.name} does not know the producer"

    loop = VirtualLoop()
    loop.run_until_complete(main(loop))
    loop.bury_all()
    loop.close()
