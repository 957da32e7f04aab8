"""Offsets, locks and queries over the wire, against a real store."""

import dataclasses

import pytest

from aerobee.hot.log.record import decode_records
from aerobee.model.queue import MessageQueue
from aerobee.model.topic import TopicConfig
from aerobee.protocol.bodies.lock import LockBatchRequestBody, LockBatchResponseBody
from aerobee.protocol.bodies.offsets import QueryCorrectionOffsetBody
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.base import Header
from aerobee.protocol.headers.lock import LockBatchMqRequestHeader
from aerobee.protocol.headers.message import QueryMessageRequestHeader, ViewMessageRequestHeader
from aerobee.protocol.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryCorrectionOffsetHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.storekit import draft


async def ask(kit: BrokerKit, code: int, header: Header, **ext: str) -> Command:
    return await kit.connect().call(request(code, header, opaque=5, ext=ext))


async def commit(kit: BrokerKit, offset: int, *, group: str = "G", topic: str = "T", queue_id: int = 0) -> Command:
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
    )
    return await ask(kit, RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def where(kit: BrokerKit, *, topic: str = "T", zero: bool | None = None) -> int | tuple[int, str | None]:
    header = QueryConsumerOffsetRequestHeader(consumer_group="G", topic=topic, queue_id=0, set_zero_if_not_found=zero)
    answer = await ask(kit, RequestCode.QUERY_CONSUMER_OFFSET, header)
    return int(answer.ext["offset"]) if answer.code == 0 else (answer.code, answer.remark)


def with_topic(kit: BrokerKit) -> None:
    kit.state.catalog.put_topic(TopicConfig("T", 4, 4))
    assert kit.state.catalog.group("G") is not None


def test_a_committed_offset_is_found_again_also_after_a_restart() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        assert (await commit(kit, 7)).code == 0
        assert await where(kit) == 7
        assert (await commit(kit, 3)).code == 0, "going back is how clients read again"
        assert await where(kit) == 3
        await kit.pass_time(6)
        restarted = BrokerKit(kit.store.disk.kill(), kit.clock)  # type: ignore[attr-defined]
        assert await where(restarted) == 3
        restarted.close()

    run_broker(main)


def test_commits_for_what_does_not_exist_are_refused() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        answer = await commit(kit, 1, group="nobody")
        assert (answer.code, answer.remark) == (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group nobody not exist!")
        answer = await commit(kit, 1, topic="nothing")
        assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, "Topic nothing not exist!")
        header = UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=0, commit_offset=1)
        broken = request(RequestCode.UPDATE_CONSUMER_OFFSET, header, opaque=1)
        del broken.ext["queueId"]
        answer = await kit.connect().call(broken)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "queueId" in (answer.remark or "")

    run_broker(main)


def test_a_waiting_reset_holds_against_the_client_s_own_commit() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        await commit(kit, 50)
        kit.state.offsets.reset("G", "T", 0, 10)
        answer = await commit(kit, 51)
        assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
        assert await where(kit) == 10

    run_broker(main)


def test_a_group_without_offset_starts_at_0_only_in_a_young_queue() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        unknown = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        kit.store.append([draft(topic=b"T")])
        assert await where(kit) == 0
        kit.store.reads.hot_bytes = 10
        assert await where(kit) == (ResponseCode.QUERY_NOT_FOUND, unknown), "its first message is cold"
        kit.store.reads.hot_bytes = 1 << 30
        not_zero = "Not found, do not set to zero, maybe this group boot first"
        assert await where(kit, zero=False) == (ResponseCode.QUERY_NOT_FOUND, not_zero)

    run_broker(main)


def test_an_empty_queue_that_exists_answers_its_end_so_that_nothing_stored_next_is_skipped() -> None:
    async def main(kit: BrokerKit) -> None:
        unknown = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        assert await where(kit) == (ResponseCode.QUERY_NOT_FOUND, unknown), "no such topic"
        with_topic(kit)
        assert await where(kit) == 0
        not_zero = "Not found, do not set to zero, maybe this group boot first"
        assert await where(kit, zero=False) == (ResponseCode.QUERY_NOT_FOUND, not_zero)
        config = kit.state.catalog.find("T")
        assert config is not None
        for queue_id in (-1, max(config.read_queue_nums, config.write_queue_nums)):
            header = QueryConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=queue_id)
            answer = await kit.connect().call(request(RequestCode.QUERY_CONSUMER_OFFSET, header, opaque=5))
            assert (answer.code, answer.remark) == (ResponseCode.QUERY_NOT_FOUND, unknown), queue_id

    run_broker(main)


def test_bounds_and_times_of_a_queue() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        times = []
        for _ in range(5):
            kit.store.append([draft(topic=b"T")])
            times.append(kit.clock.now_ms())
            await kit.pass_time(10)

        async def search(at: int, boundary: str | None = None, queue_id: int = 0) -> int:
            header = SearchOffsetRequestHeader(topic="T", queue_id=queue_id, timestamp=at, boundary_type=boundary)
            return int((await ask(kit, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)).ext["offset"])

        async def earliest(queue_id: int) -> int:
            header = GetEarliestMsgStoretimeRequestHeader(topic="T", queue_id=queue_id)
            return int((await ask(kit, RequestCode.GET_EARLIEST_MSG_STORETIME, header)).ext["timestamp"])

        answer = await ask(kit, RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="T", queue_id=0))
        assert answer.ext["offset"] == "5"
        answer = await ask(kit, RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic="T", queue_id=0))
        assert answer.ext["offset"] == "0"
        assert [await search(at) for at in times] == [0, 1, 2, 3, 4]
        assert await search(times[2] + 1) == 3
        assert await search(times[2] + 1, "UPPER") == 2
        assert await search(times[2] + 1, "upper") == 2
        assert await search(times[4] + 1) == 5
        assert await search(times[0], queue_id=3) == 0, "a queue without messages"
        assert await earliest(0) == times[0]
        assert await earliest(3) == -1

    run_broker(main)


def test_correction_names_queues_where_the_group_is_behind() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        for group, offsets in (("G", (5, 2)), ("H", (3, 9)), ("X", (0, 0))):
            kit.state.catalog.group(group)
            for queue_id, offset in enumerate(offsets):
                await commit(kit, offset, group=group, queue_id=queue_id)
        header = QueryCorrectionOffsetHeader(compare_group="G", topic="T", filter_groups="X,G")
        answer = await ask(kit, RequestCode.QUERY_CORRECTION_OFFSET, header)
        assert QueryCorrectionOffsetBody.decode(answer.body).correction_offsets == {0: 3, 1: (1 << 63) - 1}

    run_broker(main)


def test_queues_are_locked_for_one_client_until_it_is_silent_for_a_minute() -> None:
    async def main(kit: BrokerKit) -> None:
        queues = tuple(MessageQueue("T", "broker-a", number) for number in range(2))

        async def lock(client_id: str, code: int = RequestCode.LOCK_BATCH_MQ) -> tuple[MessageQueue, ...]:
            body = LockBatchRequestBody("G", client_id, mq_set=queues)
            answer = await kit.connect().call(request(code, body=body.encode(), opaque=1))
            assert answer.code == 0
            return LockBatchResponseBody.decode(answer.body).lock_ok_mq_set if answer.body else ()

        assert await lock("one") == queues
        assert await lock("two") == ()
        await kit.pass_time(59, 59)
        assert await lock("one") == queues, "renewed"
        await kit.pass_time(59, 59)
        assert await lock("two") == ()
        await lock("one", RequestCode.UNLOCK_BATCH_MQ)
        assert await lock("two") == queues
        await kit.pass_time(61, 61)
        assert await lock("one") == queues

    run_broker(main)


@pytest.mark.parametrize("text", ["soon", "99999999999", "1.5", "9" * 5000])
def test_a_lease_that_is_no_number_is_refused_and_locks_nothing(text: str) -> None:
    async def main(kit: BrokerKit) -> None:
        queue = MessageQueue("T", "broker-a", 0)
        body = LockBatchRequestBody("G", "one", mq_set=(queue,)).encode()
        command = request(RequestCode.LOCK_BATCH_MQ, body=body, opaque=1)
        command.ext["__AEROBEE_LEASE_MS"] = text
        assert (await kit.connect().call(command)).code != 0
        assert kit.state.locks.holder("G", queue, kit.clock.monotonic()) is None

    run_broker(main)


def test_a_short_lease_frees_the_queue_early() -> None:
    async def main(kit: BrokerKit) -> None:
        queue = MessageQueue("T", "broker-a", 0)

        async def lock(client_id: str) -> bool:
            body = LockBatchRequestBody("G", client_id, mq_set=(queue,)).encode()
            header = LockBatchMqRequestHeader(lease_ms=6000)
            answer = await kit.connect().call(request(RequestCode.LOCK_BATCH_MQ, header, body, opaque=1))
            return queue in LockBatchResponseBody.decode(answer.body).lock_ok_mq_set

        assert await lock("one")
        await kit.pass_time(5.9, 5.9)
        assert not await lock("two")
        await kit.pass_time(0.2, 0.2)
        assert await lock("two")

    run_broker(main)


def test_messages_are_found_by_key_unique_id_tag_and_offset() -> None:
    async def main(kit: BrokerKit) -> None:
        stored = [
            draft(b"1", b"T", keys="order-1 user-7", uniq_key="UNIQUE-1", tags="a"),
            draft(b"2", b"T", keys="order-2 user-7", uniq_key="UNIQUE-2", tags="b"),
            draft(b"3", b"U", keys="order-1", uniq_key="UNIQUE-3", tags="a"),
        ]
        kit.store.append(stored)

        async def query(key: str, kind: str | None = None, **ext: str) -> list[bytes] | int:
            header = QueryMessageRequestHeader(
                topic="T", key=key, max_num=10, begin_timestamp=0, end_timestamp=1 << 60, index_type=kind
            )
            answer = await ask(kit, RequestCode.QUERY_MESSAGE, header, **ext)
            assert answer.ext["indexLastUpdatePhyoffset"] == str(stored[-1].physical_offset)
            assert answer.ext["indexLastUpdateTimestamp"] == str(stored[-1].store_timestamp)
            return [record.body for record in decode_records(answer.body)] if answer.code == 0 else answer.code

        assert await query("order-1") == [b"1"]
        assert await query("user-7") == [b"1", b"2"]
        assert await query("user-7", "K") == [b"1", b"2"]
        assert await query("UNIQUE-2", _UNIQUE_KEY_QUERY="true") == [b"2"]
        assert await query("a", "T") == [b"1"]
        assert await query("a") == ResponseCode.QUERY_NOT_FOUND

    run_broker(main)


def test_a_query_by_unique_id_answers_with_as_many_as_the_broker_is_set_to() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.store.append([draft(b"%d" % number, b"T", uniq_key="UNIQUE") for number in range(5)])
        header = QueryMessageRequestHeader(topic="T", key="UNIQUE", max_num=1, begin_timestamp=0, end_timestamp=1 << 60)
        for count in (3, 5):
            kit.store.config = dataclasses.replace(kit.store.config, default_query_max_num=count)
            answer = await ask(kit, RequestCode.QUERY_MESSAGE, header, _UNIQUE_KEY_QUERY="true")
            assert len(decode_records(answer.body)) == count

    run_broker(main)


@pytest.mark.parametrize("away", [0, 1, -5, 1 << 40])
def test_a_message_by_its_place_in_the_log(away: int) -> None:
    async def main(kit: BrokerKit) -> None:
        kit.store.append([draft(b"first", b"T"), draft(b"x" * 1500, b"T")])
        place = kit.store.queues.find(b"T", 0).unit(1)[0]  # type: ignore[union-attr,index]
        answer = await ask(kit, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=place + away))
        if away:
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark == f"can not find message by the offset, {place + away}"
        else:
            assert [record.body for record in decode_records(answer.body)] == [b"x" * 1500]

    run_broker(main)
