"""When the catalog is saved, and who is told."""

from __future__ import annotations

from aerobee.errors import StoreError
from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import ResponseCode
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.sendkit import send
from aerobee.testing.storekit import small_config


def test_whoever_asks_during_a_save_and_changed_nothing_is_told_by_that_save() -> None:
    """Deleting what is not there, while another's change is on its way to the disk, was never answered."""
    disk = RecordingDisk(seed=1)

    async def main(kit: BrokerKit) -> None:
        catalog = kit.state.catalog
        catalog.tick()
        disk.complete_queued()
        told: list[str] = []
        catalog.put_topic(TopicConfig("T", 1, 1))
        catalog.when_saved(lambda error: told.append("first"))
        catalog.tick()
        catalog.when_saved(lambda error: told.append("second"))
        assert told == []
        disk.run_pending()
        assert told == ["first", "second"]
        assert not catalog.is_awaited
        disk.complete_inline()

    run_broker(main, disk=disk)


def test_a_change_during_a_save_waits_for_the_next_one() -> None:
    disk = RecordingDisk(seed=1)

    async def main(kit: BrokerKit) -> None:
        catalog = kit.state.catalog
        catalog.tick()
        disk.complete_queued()
        told: list[StoreError | None] = []
        catalog.put_topic(TopicConfig("T", 1, 1))
        catalog.tick()
        catalog.put_topic(TopicConfig("U", 1, 1))
        catalog.when_saved(told.append)
        disk.run_pending()
        assert told == []
        catalog.tick()
        disk.run_pending()
        assert told == [None]
        disk.complete_inline()

    run_broker(main, disk=disk)


def test_a_failed_save_is_told_and_tried_again() -> None:
    disk = RecordingDisk(seed=1)

    async def main(kit: BrokerKit) -> None:
        catalog = kit.state.catalog
        catalog.tick()
        told: list[StoreError | None] = []
        catalog.put_topic(TopicConfig("T", 1, 1))
        catalog.when_saved(told.append)
        disk.fail(1, "sync", path="topics.json")
        catalog.tick()
        assert isinstance(told[0], StoreError)
        catalog.when_saved(told.append)
        catalog.tick()
        assert told[1:] == [None]

    run_broker(main, disk=disk)


def test_a_topic_that_was_not_saved_comes_back_with_all_its_queues() -> None:
    disk = RecordingDisk(seed=1)

    async def first(kit: BrokerKit) -> None:
        assert (await kit.connect().call(send("K1", queue_id=0))).code == 0

    async def second(kit: BrokerKit) -> None:
        assert (await kit.connect().call(send("K2", queue_id=3))).code == 0

    run_broker(first, disk=disk, close=False)
    run_broker(second, disk=disk.kill())


def test_a_send_is_answered_when_the_topic_that_it_made_is_saved() -> None:
    """Sends to other topics do not wait for it, and all that is made in one turn shares one write."""
    disk = RecordingDisk(seed=1)

    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        kit.state.catalog.put_topic(TopicConfig("old", 1, 1))
        kit.state.catalog.tick()
        disk.complete_queued()
        for number in range(50):
            client.send(send(f"K{number}", topic=f"made-{number}", opaque=number))
        client.send(send("K", topic="old", opaque=50))
        assert [one.opaque for one in await client.answers()] == [50]
        # The first of them began the save. The others share the next one.
        for _ in range(2):
            disk.run_pending()
            kit.state.catalog.tick()
        disk.run_pending()
        assert [(one.opaque, one.code) for one in await client.answers()] == [(number, 0) for number in range(50)]
        disk.complete_inline()

    run_broker(main, disk=disk, store_config=small_config(sync=False, segment=1 << 20))


def test_a_send_whose_topic_cannot_be_saved_is_told_so_and_others_are_not() -> None:
    disk = RecordingDisk(seed=1)

    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        kit.state.catalog.put_topic(TopicConfig("old", 1, 1))
        kit.state.catalog.tick()
        disk.fail(1, "sync", path="topics.json")
        # It is in the log. A producer that was refused would send it again.
        told = await client.call(send("K1", topic="made", queue_id=0))
        assert (told.code, told.ext["queueOffset"]) == (ResponseCode.FLUSH_DISK_TIMEOUT, "0")
        disk.fail(1, "sync", path="topics.json")
        kit.state.catalog.put_topic(TopicConfig("more", 1, 1))
        assert (await client.call(send("K2", topic="old", queue_id=0))).code == 0
        kit.state.catalog.tick()
        assert (await client.call(send("K3", topic="made", queue_id=0))).code == 0

    run_broker(main, disk=disk)
