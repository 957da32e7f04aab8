"""The producer against scripted brokers: what goes out, what comes of each answer."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import aerobee
from aerobee import Message, MessageQueue, selectors
from aerobee.client.core import SendContext
from aerobee.errors import TransportError
from aerobee.errors.codes import MessageIllegalError, SystemBusyError
from aerobee.hot.log.batch import decode_batch
from aerobee.hot.log.javahash import java_hash
from aerobee.hot.log.properties import decode_properties
from aerobee.model.compression import decompress
from aerobee.net.channel import Channel
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


def refuse(code: int, remark: str = "no") -> Callable[[Channel, Command, int], Command | None]:
    return lambda channel, command, count: response(command, code, remark=remark)


def test_a_send_carries_what_was_said_and_the_receipt_says_where(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("broker-a") as cluster, aerobee.Producer(cluster.namesrv, group="g") as producer:
            receipt = await producer.send("orders", b"hi", tags="PAID", keys=["1", "2"], properties={"k": 'ü"v'})
            stored = cluster.brokers[0].stored[0]
            assert (stored.topic, stored.body, stored.group) == ("orders", b"hi", "g")
            assert stored.properties == {
                "UNIQ_KEY": receipt.message_id, "TAGS": "PAID", "KEYS": "1 2", "k": "ü\"v",
            }  # fmt: skip
            assert receipt.topic == "orders" and receipt.broker == "broker-a"
            assert receipt.queue_id == stored.queue_id and receipt.queue_offset == 0
            assert receipt.status is aerobee.SendStatus.SEND_OK
            assert len(receipt.message_id) in (32, 56)

    run(work())


def test_default_sends_go_round_and_equal_sharding_keys_to_javas_queue(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", "b") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            receipts = [await producer.send("t", b"x") for _ in range(8)]
            assert len({receipt.queue for receipt in receipts}) == 8
            keyed = [await producer.send("t", b"x", sharding_key="user-7") for _ in range(3)]
            queues = [MessageQueue("t", name, i) for name in "ab" for i in range(4)]
            assert {receipt.queue for receipt in keyed} == {queues[abs(java_hash("user-7")) % 8]}

    run(work())


def test_queue_and_selector_choose_and_a_wrong_choice_is_named(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            queue = MessageQueue("t", "a", 3)
            assert (await producer.send("t", b"x", queue=queue)).queue_id == 3
            assert (await producer.send("t", b"x", selector=lambda queues, message: queues[1])).queue_id == 1
            turn = selectors.RoundRobin()
            ids = [(await producer.send("t", b"x", selector=turn)).queue_id for _ in range(5)]
            assert ids == [0, 1, 2, 3, 0]
            with pytest.raises(aerobee.SelectorError, match="no writable queue 9 on 'a'"):
                await producer.send("t", b"x", queue=MessageQueue("t", "a", 9))
            with pytest.raises(aerobee.SelectorError, match="ZeroDivisionError"):
                await producer.send("t", b"x", selector=lambda queues, message: queues[1 // 0])
            assert producer._sender is not None and producer._sender.in_flight == 0

    run(work())


def test_a_failed_broker_is_left_for_another_one(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", "b") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            a, b = cluster.brokers
            a.answer_send = refuse(ResponseCode.SYSTEM_BUSY)
            receipts = [await producer.send("t", b"x") for _ in range(8)]
            assert {receipt.broker for receipt in receipts} == {"b"}
            assert a.stored and len(b.stored) == 8

    run(work())


def test_after_three_tries_the_refusal_is_raised_with_what_to_do(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", "b") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            for broker in cluster.brokers:
                broker.answer_send = refuse(ResponseCode.SYSTEM_BUSY, "[TIMEOUT_CLEAN_QUEUE]")
            with pytest.raises(SystemBusyError) as raised:
                await producer.send("t", b"x")
            assert sum(len(broker.stored) for broker in cluster.brokers) == 3
            assert "[TIMEOUT_CLEAN_QUEUE] (code 2) at " in str(raised.value)
            assert "send more slowly" in str(raised.value)
            assert "tried: " in raised.value.__notes__[0]

    run(work())


def test_a_message_the_broker_calls_illegal_is_not_tried_again(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", "b") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            for broker in cluster.brokers:
                broker.answer_send = refuse(ResponseCode.MESSAGE_ILLEGAL)
            with pytest.raises(MessageIllegalError):
                await producer.send("t", b"x")
            assert sum(len(broker.stored) for broker in cluster.brokers) == 1

    run(work())


@pytest.mark.parametrize(
    ("code", "name"), [(10, "FLUSH_DISK_TIMEOUT"), (11, "SLAVE_NOT_AVAILABLE"), (12, "FLUSH_SLAVE_TIMEOUT")]
)
def test_stored_but_not_safe_raises_with_the_receipt(new_cluster: Any, code: int, name: str) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            broker = cluster.brokers[0]

            def not_safe(channel: Channel, command: Command, count: int) -> Command | None:
                answer = broker.store(channel, command, count)
                answer.code = code
                return answer

            broker.answer_send = not_safe
            with pytest.raises(aerobee.NotDurableError) as raised:
                await producer.send("t", b"x")
            assert raised.value.receipt.status.name == name
            assert raised.value.receipt.queue_offset == 0
            assert len(broker.stored) == 1

    run(work())


def test_no_answer_is_a_timeout_that_says_the_message_may_be_stored(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv, timeout=30) as producer:
            await producer.send("t", b"x")
            cluster.brokers[0].answer_send = lambda channel, command, count: None
            with pytest.raises(TimeoutError, match="may or may not be stored") as raised:
                await producer.send("t", b"x", timeout=0.3)
            assert isinstance(raised.value, aerobee.RequestTimeoutError)
            assert cluster.brokers[0].address in str(raised.value)

    run(work())


def test_a_try_has_its_own_time_where_asked_and_the_next_broker_takes_the_message(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", "b") as cluster:
            cluster.brokers[0].answer_send = lambda channel, command, count: None
            async with aerobee.Producer(cluster.namesrv, timeout=50, attempt_timeout=0.2, retries=50) as producer:
                receipts = [await producer.send("t", b"x") for _ in range(3)]
                assert {receipt.broker for receipt in receipts} == {"b"}

    run(work())


def test_a_broker_that_is_gone_is_left_and_its_new_address_is_found(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            broker = cluster.brokers[0]
            await producer.send("t", b"1")
            old = broker.address
            await broker.server.close()
            with pytest.raises(aerobee.TransportError, match=f"at .*{old}"):
                await producer.send("t", b"2", timeout=1)
            await broker.start()
            assert broker.address != old
            # Refreshed in the background: at most once a second.
            async with asyncio.timeout(30):
                while True:
                    try:
                        await producer.send("t", b"3")
                        break
                    except aerobee.TransportError:
                        await asyncio.wait([asyncio.ensure_future(broker.changed.wait())], timeout=0.05)
            assert broker.stored[-1].body == b"3"
            await broker.until(lambda: broker.heartbeats)

    run(work())


def test_slow_brokers_are_avoided_where_asked(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", "b") as cluster:
            cluster.brokers[0].answer_send = refuse(ResponseCode.SYSTEM_BUSY)
            async with aerobee.Producer(cluster.namesrv, avoid_slow_brokers=True) as producer:
                for _ in range(20):
                    await producer.send("t", b"x")
            assert len(cluster.brokers[0].stored) <= 1

    run(work())


def test_a_topic_without_route_borrows_tbw102s_or_is_named(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", queue_nums=16, unknown={"new"}) as cluster:
            async with aerobee.Producer(cluster.namesrv) as producer:
                receipts = [await producer.send("new", b"x") for _ in range(8)]
                assert {receipt.queue_id for receipt in receipts} == {0, 1, 2, 3}
                cluster.unknown |= {"TBW102", "none"}
                with pytest.raises(aerobee.TopicNotExistError, match="aerobee topic create"):
                    await producer.send("none", b"x")

    run(work())


def test_no_name_server_is_said_with_its_address() -> None:
    async def work() -> None:
        async with aerobee.Producer("127.0.0.1:1") as producer:
            with pytest.raises(aerobee.TransportError, match=r"no name server answered: .*127\.0\.0\.1:1"):
                await producer.send("t", b"x")

    run(work())


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_large_bodies_are_compressed_and_small_or_dense_ones_are_not(new_cluster: Any, kind: str) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster:
            async with aerobee.Producer(cluster.namesrv, compression=kind) as producer:
                for body in (b"x" * 4096, b"x" * 4095, zlib.compress(bytes(range(256)) * 64, 9) * 1):
                    await producer.send("t", body)
            large, small, _ = cluster.brokers[0].stored
            assert len(large.body) < 4096 and decompress(large.body, large.sys_flag) == b"x" * 4096
            assert small.body == b"x" * 4095 and small.sys_flag == 0

    run(work())


def test_a_batch_is_one_request_with_a_receipt_for_each(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            messages = [Message("t", b"%d" % i, keys=f"k{i}", properties={"n": str(i)}) for i in range(3)]
            receipts = await producer.send_batch(messages)
            [stored] = cluster.brokers[0].stored
            assert stored.command.code == RequestCode.SEND_BATCH_MESSAGE and stored.command.ext["m"] == "true"
            parts = decode_batch(stored.body, 10)
            assert [part[1] for part in parts] == [b"0", b"1", b"2"]
            ids = [decode_properties(part[2])["UNIQ_KEY"] for part in parts]
            assert [receipt.message_id for receipt in receipts] == ids
            assert [receipt.queue_offset for receipt in receipts] == [0, 1, 2]

    run(work())


def test_a_batch_too_large_for_one_request_is_split_and_a_mixed_one_refused(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster:
            async with aerobee.Producer(cluster.namesrv, max_message_size=1000) as producer:
                receipts = await producer.send_batch([Message("t", b"x" * 400) for _ in range(5)])
                assert len(receipts) == 5 and len(cluster.brokers[0].stored) == 3
                with pytest.raises(aerobee.InvalidArgumentError, match="one topic"):
                    await producer.send_batch([Message("t", b"1"), Message("u", b"2")])

    run(work())


def test_nowait_sends_are_answered_by_flush_and_bounded(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster:
            async with aerobee.Producer(cluster.namesrv, max_in_flight=10) as producer:
                futures = [producer.send_nowait("t", b"x") for _ in range(10)]
                with pytest.raises(aerobee.TooManyInFlightError):
                    producer.send_nowait("t", b"x")
                await producer.flush()
                assert all(future.done() and future.result().broker == "a" for future in futures)
                # Awaited sends wait for room instead.
                await asyncio.gather(*(producer.send("t", b"x") for _ in range(50)))
            assert len(cluster.brokers[0].stored) == 60

    run(work())


def test_sends_of_one_tick_share_a_write_and_need_no_task(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            await producer.send("t", b"x")
            before = asyncio.all_tasks()
            futures = [producer.send_nowait("t", b"x") for _ in range(100)]
            assert asyncio.all_tasks() == before
            await asyncio.gather(*futures)

    run(work())


def test_oneway_is_marked_and_not_waited_for(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            await producer.send_oneway("t", b"x")
            await cluster.brokers[0].until(lambda: cluster.brokers[0].stored)
            assert cluster.brokers[0].stored[0].command.is_oneway

    run(work())


def test_delays_become_the_brokers_properties(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            await producer.send("t", b"x", delay=1.5)
            await producer.send("t", b"x", deliver_at=datetime(2030, 1, 1, tzinfo=UTC))
            await producer.send("t", b"x", delay_level=3)
            own = [stored.properties for stored in cluster.brokers[0].stored]
            assert own[0]["TIMER_DELAY_MS"] == "1500"
            assert own[1]["TIMER_DELIVER_MS"] == "1893456000000"
            assert own[2]["DELAY"] == "3"
            with pytest.raises(aerobee.InvalidArgumentError, match="choose one"):
                await producer.send("t", b"x", delay=1, delay_level=1)
            with pytest.raises(aerobee.InvalidArgumentError, match="time zone"):
                await producer.send("t", b"x", deliver_at=datetime(2030, 1, 1))  # noqa: DTZ001

    run(work())


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("t", "text"), {}, "body.encode"),
        (("t", b""), {}, "empty"),
        (("t", b"x" * 11), {}, "max_message_size=10"),
        (("bad topic", b"x"), {}, "illegal characters"),
        (("SCHEDULE_TOPIC_XXXX", b"x"), {}, "forbidden"),
        (("t", b"x"), {"properties": {"DELAY": "3"}}, "RocketMQ's own"),
        (("t", b"x"), {"properties": {"a": "\x02"}}, "separator"),
        (("t", b"x"), {"tags": "a\x01b"}, "separator"),
        (("t", b"x"), {"properties": {"a": "v" * 40000}}, "32767"),
        (("t",), {}, "body is missing"),
    ],
)
def test_what_no_broker_would_take_is_refused_at_once(
    new_cluster: Any, arguments: Any, options: Any, words: str
) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster:
            async with aerobee.Producer(cluster.namesrv, max_message_size=10) as producer:
                with pytest.raises(aerobee.InvalidArgumentError, match=words):
                    await producer.send(*arguments, **options)
            assert not cluster.brokers[0].stored

    run(work())


def test_copying_a_message_does_not_send_rocketmqs_own_properties_again(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            received = Message(
                "t", b"x", tags="T", keys="K", properties={"mine": "1"},
                system_properties={"DELAY": "3", "UNIQ_KEY": "OLD", "TAGS": "T", "KEYS": "K"},
            )  # fmt: skip
            receipt = await producer.send(received)
            own = cluster.brokers[0].stored[0].properties
            assert own == {"UNIQ_KEY": receipt.message_id, "TAGS": "T", "KEYS": "K", "mine": "1"}

    run(work())


def test_hooks_see_message_receipt_and_error_and_may_refuse(new_cluster: Any) -> None:
    class Hook:
        def __init__(self) -> None:
            self.seen: list[SendContext] = []

        def before_send(self, context: SendContext) -> None:
            if context.message.tags == "NO":
                raise PermissionError("not this one")

        def after_send(self, context: SendContext) -> None:
            self.seen.append(context)
            raise LookupError("must not matter")

    async def work() -> None:
        hook = Hook()
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv, hooks=[hook]) as producer:
            receipt = await producer.send("t", b"x", tags="YES")
            with pytest.raises(PermissionError):
                await producer.send("t", b"x", tags="NO")
            cluster.brokers[0].answer_send = refuse(ResponseCode.MESSAGE_ILLEGAL)
            with pytest.raises(MessageIllegalError):
                await producer.send("t", b"x")
            assert len(cluster.brokers[0].stored) == 2
        assert [context.receipt for context in hook.seen] == [receipt, None]
        assert isinstance(hook.seen[1].error, MessageIllegalError)

    run(work())


def test_namespaces_wrap_topic_and_group_and_the_receipt_does_not(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster:
            async with aerobee.Producer(cluster.namesrv, namespace="ns", group="g") as producer:
                receipt = await producer.send("t", b"x")
            stored = cluster.brokers[0].stored[0]
            assert (stored.topic, stored.group, receipt.topic) == ("ns%t", "ns%g", "t")
            assert stored.properties["INSTANCE_ID"] == "ns"

    run(work())


def test_recall_sends_the_handle_and_asks_nothing_without_one(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            broker = cluster.brokers[0]
            receipt = await producer.send("t", b"x")
            with pytest.raises(aerobee.InvalidArgumentError, match="cannot be recalled"):
                await producer.cancel(receipt)

            def with_handle(channel: Channel, command: Command, count: int) -> Command | None:
                answer = broker.store(channel, command, count)
                answer.ext["recallHandle"] = "HANDLE"
                return answer

            broker.answer_send = with_handle
            delayed = await producer.send("t", b"x", delay=60)
            assert await producer.cancel(delayed) == delayed.message_id
            [recall] = broker.of(RequestCode.RECALL_MESSAGE)
            assert recall.ext["recallHandle"] == "HANDLE" and recall.ext["topic"] == "t"

    run(work())


def test_a_cancelled_send_frees_its_place(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster:
            async with aerobee.Producer(cluster.namesrv, max_in_flight=1, timeout=30) as producer:
                await producer.send("t", b"x")
                cluster.brokers[0].answer_send = lambda channel, command, count: None
                task = asyncio.ensure_future(producer.send("t", b"x", timeout=0.5))
                await cluster.brokers[0].until(lambda: len(cluster.brokers[0].stored) == 2)
                task.cancel()
                cluster.brokers[0].answer_send = cluster.brokers[0].store
                assert (await producer.send("t", b"x")).broker == "a"

    run(work())


def test_binary_headers_carry_the_same(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster:
            async with aerobee.Producer(cluster.namesrv, serialize="ROCKETMQ") as producer:
                receipt = await producer.send("t", b"x", tags="ü")
            stored = cluster.brokers[0].stored[0]
            assert stored.command.codec == 1
            assert stored.properties == {"UNIQ_KEY": receipt.message_id, "TAGS": "ü"}

    run(work())


def test_a_broker_that_comes_back_in_time_is_waited_for(new_cluster: Any) -> None:
    """Where no connection can be made nothing was sent, so the tries go on until the time is over."""

    async def work() -> None:
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            await producer.send("t", b"before")
            broker = cluster.brokers[0]
            port = int(broker.address.rpartition(":")[2])
            await broker.server.close()
            sending = asyncio.ensure_future(producer.send("t", b"after", timeout=50))
            with pytest.raises(TransportError):
                await producer.send("t", b"too short", timeout=0.2)
            assert not sending.done()
            await broker.server.listen("127.0.0.1", port)
            assert (await sending).broker == "a"

    run(work())


def test_a_try_leaves_time_for_another_broker_and_a_hung_one_is_left_out(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", "b") as cluster, aerobee.Producer(cluster.namesrv, timeout=1.5) as producer:
            a, b = cluster.brokers
            a.answer_send = lambda channel, command, count: None
            receipts = [await producer.send("t", b"x") for _ in range(20)]
            assert {receipt.broker for receipt in receipts} == {"b"}
            assert len(a.stored) == 1 and len(b.stored) == 20

    run(work())


@pytest.mark.parametrize("options", [{"sharding_key": "k"}, {"queue": MessageQueue("t", "a", 0)}])
def test_a_message_with_a_place_is_tried_there_alone_however_long_it_takes(new_cluster: Any, options: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", "b") as cluster, aerobee.Producer(cluster.namesrv, timeout=0.8) as producer:
            for broker in cluster.brokers:
                broker.answer_send = lambda channel, command, count: None
            began_s = asyncio.get_running_loop().time()
            with pytest.raises(aerobee.RequestTimeoutError):
                await producer.send("t", b"x", **options)
            assert asyncio.get_running_loop().time() - began_s >= 0.8
            assert sum(len(broker.stored) for broker in cluster.brokers) == 1

    run(work())


def test_a_slow_broker_without_another_is_given_the_whole_time(new_cluster: Any) -> None:
    """A second try there would only store the message twice."""

    async def work() -> None:
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv, timeout=1.5) as producer:
            broker = cluster.brokers[0]
            loop = asyncio.get_running_loop()

            def slowly(channel: Channel, command: Command, count: int) -> Command | None:
                answer = broker.store(channel, command, count)
                loop.call_later(0.6, lambda: channel.send(answer))
                return None

            broker.answer_send = slowly
            await asyncio.gather(*(producer.send("t", b"x") for _ in range(3)))
            assert len(broker.stored) == 3

    run(work())
