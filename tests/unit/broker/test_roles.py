"""What a broker of a replicated group serves as follower, as leader, and as a leader without authority."""

from __future__ import annotations

import asyncio

import pytest

from aerobee.broker.config import BrokerConfig
from aerobee.broker.roles import HARMLESS, REJECTED, SLAVE_READS
from aerobee.errors import StoreError
from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import MASTER_FIELD, RequestCode, ResponseCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.offset import (
    GetMaxOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.runtime.tasks import LoopTimers
from aerobee.store.config import BrokerRole, StoreConfig
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.sendkit import send
from aerobee.testing.storekit import draft, small_config


def commit(offset: int = 1) -> Command:
    header = UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=0, commit_offset=offset)
    return request(RequestCode.UPDATE_CONSUMER_OFFSET, header, opaque=9)


def pull(offset: int) -> Command:
    header = PullMessageRequestHeader(
        consumer_group="G", topic="T", queue_id=0, queue_offset=offset, max_msg_nums=32, sys_flag=6, commit_offset=0,
        suspend_timeout_millis=15_000, subscription="*", sub_version=1, expression_type="TAG",
    )  # fmt: skip
    return request(RequestCode.PULL_MESSAGE, header, opaque=9)


def max_offset() -> Command:
    return request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="T", queue_id=0), opaque=9)


def test_a_follower_refuses_what_changes_something_as_apaches_slave() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        for change in (send(), commit()):
            answer = await client.call(change)
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, REJECTED)
        assert kit.store.log_end == 0
        assert "T" not in kit.state.catalog.topic_table.topics
        assert (await client.call(max_offset())).code == ResponseCode.SUCCESS

    run_broker(main, authority=lambda: False, following=True, confirm_limit=0)


@pytest.mark.parametrize("following", [False, True])
def test_who_asks_the_master_for_an_end_is_answered_by_nobody_else(following: bool) -> None:
    """A follower, and a leader that another one may have replaced, can be behind."""

    async def main(kit: BrokerKit) -> None:
        client, asked = kit.connect(), max_offset()
        asked.ext[MASTER_FIELD] = "true"
        answer = await client.call(asked)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, REJECTED)
        assert (await client.call(max_offset())).code == ResponseCode.SUCCESS

    run_broker(main, authority=lambda: False, following=following, confirm_limit=0 if following else None)


@pytest.mark.parametrize("reads", [False, True])
def test_a_follower_serves_pulls_only_where_slaves_may_be_read(reads: bool) -> None:
    def main_of(kit: BrokerKit) -> dict[int, bool]:
        served = kit.broker.served()
        full = {**kit.broker.handlers, **kit.broker.fast}
        return {code: {**served.handlers, **served.fast}[code] is full[code] for code in full}

    async def main(kit: BrokerKit) -> None:
        kept = {code for code, is_kept in main_of(kit).items() if is_kept}
        assert kept <= HARMLESS | SLAVE_READS
        assert (RequestCode.PULL_MESSAGE in kept) == reads

    config = BrokerConfig(broker_name="broker-a", slave_read_enable=reads)
    run_broker(main, config=config, authority=lambda: False, following=True, confirm_limit=0)


def test_a_broker_without_replicas_serves_its_own_tables() -> None:
    async def main(kit: BrokerKit) -> None:
        served = kit.broker.served()
        assert served.handlers is kit.broker.handlers
        assert served.fast is kit.broker.fast

    run_broker(main)


def test_a_leader_without_authority_does_nothing_for_clients() -> None:
    allowed = [True]

    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        assert (await client.call(send())).code == ResponseCode.SUCCESS
        kit.state.catalog.group("G")
        assert (await client.call(commit())).code == ResponseCode.SUCCESS
        end = kit.store.log_end
        allowed[0] = False
        for change in (send("L"), commit(2)):
            assert (await client.call(change)).code == ResponseCode.SYSTEM_BUSY
        assert kit.store.log_end == end
        assert kit.state.offsets.table["T@G"][0] == 1
        assert (await client.call(max_offset())).ext["offset"] == "1"
        allowed[0] = True
        assert (await client.call(send("L"))).code == ResponseCode.SUCCESS

    run_broker(main, authority=lambda: allowed[0])


def test_a_follower_that_leads_serves_at_once() -> None:
    leads = [False]

    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        assert (await client.call(send())).code == ResponseCode.SYSTEM_BUSY
        leads[0] = True
        kit.store.set_confirm_limit(1 << 40)
        kit.lead()
        assert (await client.call(send())).code == ResponseCode.SUCCESS

    run_broker(main, authority=lambda: leads[0], following=True, confirm_limit=0)


def test_held_pulls_end_when_the_authority_ends() -> None:
    allowed = [True]

    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        assert (await client.call(send())).code == ResponseCode.SUCCESS
        client.send(pull(offset=1))
        assert await client.answers() == []
        allowed[0] = False
        kit.tick()
        assert [answer.code for answer in await client.answers()] == [ResponseCode.PULL_NOT_FOUND]

    run_broker(main, authority=lambda: allowed[0])


def role(role: BrokerRole, *, sync: bool = False) -> StoreConfig:
    return small_config(segment=1 << 20, sync=sync, broker_role=role, slave_timeout_ms=2_000)


def test_a_sync_master_answers_when_the_replicas_have_it() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        client.send(send())
        assert await client.answers() == []
        assert kit.store.max_offset(b"T", 0) == 0
        kit.store.set_confirm_limit(kit.store.log_end)
        assert [answer.code for answer in await client.answers()] == [ResponseCode.SUCCESS]
        assert kit.store.max_offset(b"T", 0) == 1

    run_broker(main, store_config=role(BrokerRole.SYNC_MASTER), authority=lambda: True, confirm_limit=0)


def test_a_sync_master_says_that_the_replicas_are_late() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        client.send(send())
        await kit.pass_time(1.9)
        assert await client.answers() == []
        await kit.pass_time(0.2)
        (answer,) = await client.answers()
        assert (answer.code, answer.ext["queueOffset"]) == (ResponseCode.FLUSH_SLAVE_TIMEOUT, "0")

    run_broker(main, store_config=role(BrokerRole.SYNC_MASTER), authority=lambda: True, confirm_limit=0)


@pytest.mark.parametrize("sync", [False, True])
def test_an_async_master_answers_before_the_replicas_and_its_readers_wait(sync: bool) -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        kit.state.catalog.put_topic(TopicConfig("T", 1, 1))
        client.send(send())
        await kit.pass_time(0.1)
        assert [answer.code for answer in await client.answers()] == [ResponseCode.SUCCESS]
        assert kit.store.max_offset(b"T", 0) == 0
        kit.store.set_confirm_limit(kit.store.log_end)
        assert kit.store.max_offset(b"T", 0) == 1

    store_config = role(BrokerRole.ASYNC_MASTER, sync=sync)
    run_broker(main, store_config=store_config, authority=lambda: True, confirm_limit=0)


def test_an_async_master_with_sync_flush_waits_for_its_disk() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 1, 1))
        kit.state.catalog.save_now()
        disk.complete_by(LoopTimers(asyncio.get_running_loop()), lambda: 0.5)
        client = kit.connect()
        client.send(send())
        await kit.pass_time(0.4)
        assert await client.answers() == []
        await kit.pass_time(0.2)
        assert [answer.code for answer in await client.answers()] == [ResponseCode.SUCCESS]
        disk.fail(1, "sync", path="commitlog")
        client.send(send("L"))
        await kit.pass_time(1.6)
        assert [answer.code for answer in await client.answers()] == [ResponseCode.SERVICE_NOT_AVAILABLE]

    disk = RecordingDisk(seed=1)
    store_config = role(BrokerRole.ASYNC_MASTER, sync=True)
    run_broker(main, disk=disk, store_config=store_config, authority=lambda: True, confirm_limit=0, close=False)


def test_a_refusal_of_the_store_keeps_its_code() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        client.send(send())
        await client.answers()
        kit.store.waiters.fail(StoreError("in-sync replicas not enough", code=ResponseCode.SYSTEM_ERROR))
        (answer,) = await client.answers()
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")

    run_broker(main, store_config=role(BrokerRole.SYNC_MASTER), authority=lambda: True, confirm_limit=0)


def test_a_put_of_the_broker_itself_waits_for_the_replicas_however_long() -> None:
    """A message that a consumer gave back was answered as stored after slaveTimeout, and was lost with its master."""

    async def main(kit: BrokerKit) -> None:
        told: list[tuple[int, str]] = []
        kit.state.puts.put([draft(b"given back", b"T")], lambda *outcome: told.append(outcome))
        await kit.pass_time(60)
        assert told == []
        kit.store.set_confirm_limit(kit.store.log_end)
        assert told == [(ResponseCode.SUCCESS, "")]

    run_broker(main, store_config=role(BrokerRole.SYNC_MASTER), authority=lambda: True, confirm_limit=0)
