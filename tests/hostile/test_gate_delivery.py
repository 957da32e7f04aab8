"""What was taken is delivered: with properties up to the limit, past a reader that fails, past a record that lies."""

from __future__ import annotations

import asyncio
from errno import EIO
from typing import Any, ClassVar

import pytest

from aerobee.broker.config import BrokerConfig
from aerobee.client.consumer.pull.consumer import LitePullConsumer
from aerobee.errors import StoreError
from aerobee.hot.log.batch import encode_batch
from aerobee.hot.log.host import encode_host
from aerobee.hot.log.properties import decode_properties, encode_properties
from aerobee.hot.log.record import Draft, Record
from aerobee.model.message import Message
from aerobee.model.topic import TopicConfig
from aerobee.protocol.bodies.heartbeat import HeartbeatData, ProducerData
from aerobee.protocol.codes import BINARY, RequestCode, ResponseCode
from aerobee.protocol.command import Command, encode_command, request
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.protocol.headers.send import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeaderV2
from aerobee.protocol.headers.transaction import EndTransactionRequestHeader
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.clusterkit import Seen, collecting, fill
from aerobee.testing.disk import CopiedSlices, RecordingFile
from aerobee.testing.storekit import read_queue

# As long as they may be: each name goes into properties on some way.
TOPIC, GROUP, CLUSTER = "T" * 127, "G" * 120, "C" * 127
CONFIG = BrokerConfig(broker_name="b" * 100, broker_ip1="127.0.0.1", cluster_name=CLUSTER)
COMMIT = 8


def send(block: bytes, opaque: int = 8, sys_flag: int = 0, topic: str = TOPIC, body: bytes = b"body") -> Command:
    header = SendMessageRequestHeaderV2(
        producer_group="P", topic=topic, default_topic="TBW102", default_topic_queue_nums=1, queue_id=0,
        sys_flag=sys_flag, born_timestamp=1, flag=0, properties=block.decode(),
    )  # fmt: skip
    return request(RequestCode.SEND_MESSAGE_V2, header, body, opaque=opaque, codec=BINARY)


def stored(kit: BrokerKit, topic: str, queue_id: int = 0) -> list[Record]:
    return read_queue(kit.store, topic.encode(), queue_id)


def padded(size: int, **properties: str) -> bytes:
    """Properties of so many bytes, user's ones for the most part."""
    block = encode_properties({"UNIQ_KEY": "K" * 32, **properties})
    return block + b"p\x01" + b"v" * (size - len(block) - 3) + b"\x02"


async def largest(client: Any, **properties: str) -> int:
    """The largest block that is taken, found by halving."""
    low, high = 20_000, 32_767
    while high - low > 1:
        middle = (low + high) // 2
        answer = await client.call(send(padded(middle, **properties)))
        assert answer.code in (0, ResponseCode.MESSAGE_ILLEGAL)
        low, high = (middle, high) if answer.code == 0 else (low, middle)
    return low


def test_a_timed_message_that_was_taken_is_delivered_whatever_its_properties_are() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        taken = 0
        for size in range(30_900, 32_767, 16):
            answer = await client.call(send(padded(size, TIMER_DELAY_SEC="5")))
            assert answer.code in (0, ResponseCode.MESSAGE_ILLEGAL), answer.remark
            taken += answer.code == 0
        assert taken > 0
        await kit.pass_time(20)
        assert len(stored(kit, TOPIC)) == taken

    run_broker(main, config=CONFIG)


@pytest.mark.parametrize("asked", [{}, {"TIMER_DELAY_SEC": "3"}, {"DELAY": "3"}])
def test_the_largest_message_that_is_taken_can_be_retried_until_it_is_a_dead_letter(asked: dict[str, str]) -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        size = await largest(client, **asked)
        await kit.pass_time(30)
        message = max(stored(kit, TOPIC), key=lambda record: len(record.properties))
        assert len(message.properties) > size
        for times in range(1, 18):
            header = ConsumerSendMsgBackRequestHeader(offset=message.physical_offset, group=GROUP, delay_level=1)
            answer = await client.call(request(RequestCode.CONSUMER_SEND_MSG_BACK, header, opaque=6))
            assert answer.code == 0, (times, answer.remark)
            await kit.pass_time(3)
            message = stored(kit, f"%RETRY%{GROUP}" if times < 17 else f"%DLQ%{GROUP}")[-1]
            assert message.reconsume_times == times
        assert decode_properties(message.properties)["p"].strip("v") == ""

    run_broker(main, config=CONFIG)


def test_the_largest_half_message_that_is_taken_is_asked_about_and_committed_with_a_delay() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        data = HeartbeatData("c@1", (ProducerData("P"),), ())
        assert (await client.call(request(RequestCode.HEART_BEAT, body=data.encode(), opaque=3))).code == 0
        asked = {"TRAN_MSG": "true", "PGROUP": "P", "TIMER_DELAY_SEC": "3"}
        await largest(client, **asked)
        await kit.pass_time(100, 10)
        pushes = [push for push in await client.pushes() if push.code == RequestCode.CHECK_TRANSACTION_STATE]
        assert pushes
        half = max(stored(kit, "RMQ_SYS_TRANS_HALF_TOPIC"), key=lambda record: len(record.properties))
        end = EndTransactionRequestHeader(
            producer_group="P", tran_state_table_offset=half.queue_offset, commit_log_offset=half.physical_offset,
            commit_or_rollback=COMMIT, from_transaction_check=True, msg_id="K" * 32, transaction_id="K" * 32,
        )  # fmt: skip
        answer = await client.call(request(RequestCode.END_TRANSACTION, end, opaque=4))
        assert answer.code == 0, answer.remark
        await kit.pass_time(10)
        assert len(stored(kit, TOPIC)) == 1

    run_broker(main, config=CONFIG)


def test_bytes_that_are_no_utf8_are_counted_as_they_are_stored_again() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        taken = 0
        for size in (3_000, 5_100, 9_000, 10_200, 10_500, 20_000, 32_000):
            sound = encode_command(send(b"UNIQ_KEY\x01K\x02p\x01" + b"Z" * size + b"\x02"))
            client.channel.data_received(sound.replace(b"Z" * size, b"\xff" * size))
            (answer,) = await client.answers()
            assert answer.code in (0, ResponseCode.MESSAGE_ILLEGAL)
            if answer.code == 0:
                taken += 1
                record = stored(kit, TOPIC)[-1]
                header = ConsumerSendMsgBackRequestHeader(offset=record.physical_offset, group=GROUP, delay_level=1)
                assert (await client.call(request(RequestCode.CONSUMER_SEND_MSG_BACK, header, opaque=6))).code == 0
        assert taken >= 3
        await kit.pass_time(5)
        assert len(stored(kit, f"%RETRY%{GROUP}")) == taken

    run_broker(main, config=CONFIG)


# -- a reader that fails


class FailingLog(CopiedSlices):
    """A mapped log that cannot be read while `failures` are left."""

    failures: ClassVar[list[Exception]] = []

    def __getitem__(self, part: slice, /) -> bytes:
        if self.failures:
            raise self.failures.pop()
        return super().__getitem__(part)


def pull(opaque: int) -> Command:
    header = PullMessageRequestHeader(
        consumer_group="G", topic="T", queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=2 | 4, commit_offset=0,
        suspend_timeout_millis=15_000, subscription="*", sub_version=1, expression_type="TAG",
    )  # fmt: skip
    return request(RequestCode.PULL_MESSAGE, header, opaque=opaque)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("failure", [StoreError("the log cannot be read"), OSError(EIO, "I/O error")])
def test_a_held_pull_that_fails_fails_neither_the_producer_nor_the_other_readers(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, alone: bool
) -> None:
    monkeypatch.setattr(RecordingFile, "mapped", lambda file: FailingLog(file.view()))

    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 1, 1))
        if alone:
            # Sends that come one by one, each in its own turn, are written where they are read.
            kit.state.catalog.put_topic(TopicConfig("other", 1, 1))
            for opaque in range(8):
                assert (await kit.connect().call(send(b"UNIQ_KEY\x01K\x02", opaque, topic="other"))).code == 0
                await kit.pass_time(0.1, 0.1)
        first, second, producer = kit.connect(), kit.connect(), kit.connect()
        first.send(pull(1))
        second.send(pull(2))
        assert await first.answers() == await second.answers() == []
        FailingLog.failures.append(failure)
        answer = await producer.call(send(b"UNIQ_KEY\x01K\x02", 9, topic="T"))
        assert (answer.code, answer.remark or "") == (0, "")
        assert FailingLog.failures == []
        (failed,) = await first.answers()
        assert (failed.code, failed.opaque) == (ResponseCode.SYSTEM_ERROR, 1)
        (got,) = await second.answers()
        assert (got.code, got.opaque, b"body" in got.body) == (0, 2, True)
        assert (await producer.call(send(b"UNIQ_KEY\x01K\x02", 10, topic="T"))).code == 0
        assert len(stored(kit, "T")) == 2

    run_broker(main, config=CONFIG)


# -- records that lie, in logs that older brokers wrote


async def forged(cluster: LocalCluster, topic: str, body: bytes) -> None:
    """As the broker before stored it, whoever sent it."""
    host = encode_host("127.0.0.1", 1)
    block = b"UNIQ_KEY\x01" + b"F" * 32 + b"\x02"
    draft = Draft(topic.encode(), 0, 0, 0xC0, 1, host, host, 0, 0, body, block, 0, "", "F" * 32)
    cluster._nodes[0].state.store.append([draft])


@pytest.mark.parametrize(
    "body",
    [b"garbage", b"", encode_batch([(0, b"invented %d" % i, b"UNIQ_KEY\x01K%d\x02" % i) for i in range(50)])],
    ids=["garbage", "empty", "50 invented"],
)
def test_a_record_that_says_it_is_a_batch_holds_nobody_up_and_hides_nothing(cluster: LocalCluster, body: bytes) -> None:
    topic = f"lies-{len(body)}"
    cluster.create_topic(topic, queues=1)
    cluster._run(forged(cluster, topic, body))
    fill(cluster.namesrv, topic, 20)

    async def pushed() -> list[bytes]:
        seen = Seen()
        async with asyncio.timeout(60), collecting(cluster.namesrv, topic, seen):
            await seen.count(21)
            return seen.bodies

    async def polled() -> tuple[list[Message], int]:
        got: list[Message] = []
        consumer = LitePullConsumer(cluster.namesrv, group=f"lite-{topic}", consume_from="first")
        consumer.subscribe(topic)
        async with asyncio.timeout(60), consumer:
            while len(got) < 21:
                got += await consumer.poll(timeout=10)
            await consumer.commit()
            (queue,) = await consumer.queues(topic)
            committed = await consumer.committed(queue)
        return got, -1 if committed is None else committed

    real = {str(number).encode() for number in range(20)}
    assert real < set(asyncio.run(pushed()))
    messages, committed = asyncio.run(polled())
    assert sorted(message.queue_offset for message in messages) == list(range(21))
    assert real < {message.body for message in messages}
    assert committed == 21
