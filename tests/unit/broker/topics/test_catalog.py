"""When the catalog is saved, and who is told."""

from __future__ import annotations

from aerobee.errors import StoreError
from aerobee.model.topic import TopicConfig
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.sendkit import send


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
