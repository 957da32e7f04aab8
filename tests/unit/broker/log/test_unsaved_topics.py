"""Puts whose topic cannot be saved: whoever would store the same again is not refused what is stored."""

from __future__ import annotations

import pytest

from aerobee.model.producermark import PRODUCER_MARK
from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import ResponseCode
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.popkit import RETRY, pop, store, with_topic
from aerobee.testing.sendkit import send
from aerobee.testing.storekit import bodies, small_config

MARK = {PRODUCER_MARK: "0123456789abcdef:7"}


def saved(kit: BrokerKit) -> None:
    kit.state.catalog.tick()
    assert not kit.state.catalog.unsaved


def test_an_idempotent_message_is_stored_once_when_its_topic_cannot_be_saved() -> None:
    disk = RecordingDisk(seed=1)

    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        saved(kit)
        disk.fail(1, "sync", path="topics.json", times=None)
        first = await client.call(send("K", topic="made", properties=MARK, opaque=1))
        assert first.code == ResponseCode.FLUSH_DISK_TIMEOUT
        again = await client.call(send("K", topic="made", properties=MARK, opaque=2))
        assert again.code == ResponseCode.FLUSH_DISK_TIMEOUT
        disk.heal()
        last = await client.call(send("K", topic="made", properties=MARK, opaque=3))
        assert (last.code, last.ext["queueOffset"]) == (ResponseCode.SUCCESS, first.ext["queueOffset"])
        assert len(bodies(kit.store, b"made")) == 1

    run_broker(main, disk=disk)


PLAIN: dict[str, str] = {}
FOR_LATER = [{"DELAY": "3"}, {"TRAN_MSG": "true", "PGROUP": "P"}]


@pytest.mark.parametrize("properties", [PLAIN, *FOR_LATER])
def test_what_is_stored_is_not_refused_when_its_topic_cannot_be_saved(
    properties: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    disk = RecordingDisk(seed=1)

    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        saved(kit)
        disk.fail(1, "sync", path="topics.json", times=None)
        flag = 4 if "TRAN_MSG" in properties else 0
        end = kit.store.log_end
        for opaque in (1, 2):
            answer = await client.call(send("K", topic="made", properties=properties, sys_flag=flag, opaque=opaque))
            assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT and answer.ext["msgId"]
        assert kit.store.log_end > end
        disk.heal()
        saved(kit)
        assert (await client.call(send("K", topic="made", properties=properties, sys_flag=flag, opaque=3))).code == 0

    run_broker(main, disk=disk)
    assert [one.message for one in caplog.records if "topics and groups cannot be saved" in one.message]


def test_a_message_that_is_due_is_copied_once_when_its_retry_topic_cannot_be_saved() -> None:
    disk = RecordingDisk(seed=1)

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit)
        await pop(kit, invisible_ms=1_000)
        await kit.pass_time(0.5, 0.1)
        saved(kit)
        disk.fail(1, "sync", path="topics.json", times=None)
        await kit.pass_time(20, 0.1)
        disk.heal()
        await kit.pass_time(5, 0.1)
        assert bodies(kit.store, RETRY.encode()) == [b"0"]
        assert (await pop(kit))[0].body == b"0"
        assert kit.broker.pop.table.in_flight == 1

    run_broker(main, disk=disk, store_config=small_config(sync=False, segment=1 << 20))


def test_a_delayed_message_is_delivered_once_when_a_topic_cannot_be_saved() -> None:
    disk = RecordingDisk(seed=1)

    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        saved(kit)
        assert (await client.call(send("K", topic="made", properties={"DELAY": "1"}))).code == 0
        disk.fail(1, "sync", path="topics.json", times=None)
        kit.state.catalog.put_topic(TopicConfig("made", 8, 8))
        await kit.pass_time(10, 0.1)
        disk.heal()
        await kit.pass_time(5, 0.1)
        assert len(bodies(kit.store, b"made")) == 1

    run_broker(main, disk=disk)
