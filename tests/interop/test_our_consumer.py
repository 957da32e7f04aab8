"""Our consumers against Apache's servers and against ours, alone and in one group with Apache's Java client."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

import aerobee
from aerobee import DeadLetter, LitePullConsumer, Message, MessageQueue, Producer, PushConsumer, RetryLater
from aerobee.admin.connection import AdminConnection
from aerobee.admin.topics import TopicChange, create_topic
from aerobee.testing import apache
from aerobee.testing.clusterkit import Seen, collecting, send, send_stubbornly
from aerobee.testing.place import Place
from aerobee.testing.workload import eventually


@pytest.fixture
def namesrv(place: Place) -> str:
    return place.namesrv


@pytest.fixture
def topic(request: pytest.FixtureRequest, place: Place) -> str:
    name = f"c-{request.node.name[5:60]}".replace("[", "-").replace("]", "")
    place.create_topic(name)
    return name


@pytest.mark.parametrize("serialize", ["JSON", "ROCKETMQ"])
def test_concurrent_with_tags(namesrv: str, topic: str, serialize: str) -> None:
    async def main() -> None:
        for tag in "ABC":
            await send(namesrv, topic, 50, tags=tag)
        seen = Seen()
        async with collecting(namesrv, topic, seen, tags="A || C", serialize=serialize):
            await seen.count(100)
            await send(namesrv, topic, 1, start=99, tags="C")
            await seen.count(101)
        assert Counter(message.tags for message in seen.messages) == {"A": 50, "C": 51}
        assert len({message.message_id for message in seen.messages}) == 101

    asyncio.run(main())


def test_sql92_is_evaluated_by_the_broker_and_a_bad_one_refused_at_start(namesrv: str, topic: str) -> None:
    async def main() -> None:
        for i in range(10):
            await send(namesrv, topic, 1, start=i, properties={"n": str(i)})
        seen = Seen()
        async with collecting(namesrv, topic, seen, sql92="n > 6"):
            await seen.count(3)
        assert seen.numbers() == [7, 8, 9]
        with pytest.raises(aerobee.BrokerError):
            await collecting(namesrv, topic, seen, sql92="n >").start()

    asyncio.run(main())


def test_ordered_in_order_per_queue_with_failures(namesrv: str, topic: str) -> None:
    async def main() -> None:
        async with Producer(namesrv) as producer:
            for i in range(100):
                await producer.send(topic, b"%d" % i, sharding_key=str(i % 5))
        seen = Seen()
        consumer = PushConsumer(namesrv, group=f"g-{topic}", consume_from="first", suspend=0.05)

        @consumer.listener(topic, ordered=True)
        async def handle(message: Message) -> None:
            if message.reconsume_times == 0 and int(message.body) % 25 == 0:
                raise RuntimeError("once")
            seen.add(message)

        async with consumer:
            await seen.count(100)
        by_key: dict[int, list[int]] = {}
        for message in seen.messages:
            by_key.setdefault(int(message.body) % 5, []).append(int(message.body))
        assert by_key == {key: list(range(key, 100, 5)) for key in range(5)}

    asyncio.run(main())


def test_retries_then_dead_letters(namesrv: str, topic: str) -> None:
    async def main() -> None:
        tries: dict[bytes, list[int]] = {}
        seen = Seen()
        consumer = PushConsumer(namesrv, group=f"g-{topic}", consume_from="first", max_reconsume_times=2)

        @consumer.listener(topic)
        async def handle(message: Message) -> None:
            tries.setdefault(message.body, []).append(message.reconsume_times)
            if message.body == b"0":
                raise RuntimeError("for ever")
            if message.body == b"1" and message.reconsume_times == 0:
                raise RetryLater(delay_level=1)
            if message.body == b"2":
                raise DeadLetter("cannot be read")
            seen.add(message)

        async with consumer:
            await send(namesrv, topic, 4)
            await seen.count(2)
            await eventually(lambda: len(tries[b"0"]) == 3)
        assert tries == {b"0": [0, 1, 2], b"1": [0, 1], b"2": [0], b"3": [0]}
        dead: list[Message] = []
        reader = LitePullConsumer(namesrv, group="dlq-reader", consume_from="first")
        async with reader:
            async with asyncio.timeout(30):
                while len(dead) < 2:
                    try:
                        found = [await reader.pull(queue, 0) for queue in await reader.queues(f"%DLQ%g-{topic}")]
                        dead = [message for result in found for message in result.messages]
                    except aerobee.BrokerError:  # made with the first dead letter, known a moment later
                        dead = []
                    await asyncio.sleep(0.1)
        assert sorted(message.body for message in dead) == [b"0", b"2"]

    asyncio.run(main())


def test_broadcast_with_offsets_in_a_file(namesrv: str, topic: str, tmp_path: Path) -> None:
    async def main() -> None:
        seen = {name: Seen() for name in "xy"}

        def made(name: str) -> PushConsumer:
            where = {"instance_name": name, "offset_dir": str(tmp_path)}
            return collecting(namesrv, topic, seen[name], broadcast=True, **where)

        await send(namesrv, topic, 20)
        async with made("x"), made("y"):
            await seen["x"].count(20)
            await seen["y"].count(20)
        await send(namesrv, topic, 10, start=20)
        async with made("x"):
            await seen["x"].count(30)
        assert seen["x"].numbers() == list(range(30)) and seen["y"].numbers() == list(range(20))

    asyncio.run(main())


def test_offsets_are_kept_over_a_restart_and_known_to_mqadmin(namesrv: str, topic: str, place: Place) -> None:
    async def main() -> None:
        seen = Seen()
        for part in range(3):
            await send(namesrv, topic, 10, start=part * 10)
            async with collecting(namesrv, topic, seen):
                await seen.count(10 * (part + 1))
        assert seen.numbers() == list(range(30))

    asyncio.run(main())
    progress = place.java.mqadmin("consumerProgress", "-g", f"g-{topic}")
    assert "Consume Diff Total: 0" in progress, progress


def test_members_join_and_leave(namesrv: str, topic: str) -> None:
    async def main() -> None:
        seen = Seen()
        first, second = (collecting(namesrv, topic, seen) for _ in range(2))
        async with first:
            await eventually(lambda: len(first.assignment()) == 4)
            async with second:
                await eventually(lambda: len(first.assignment()) == 2 == len(second.assignment()))
                assert not set(first.assignment()) & set(second.assignment())
                await send(namesrv, topic, 40)
                await seen.count(40)
            await eventually(lambda: len(first.assignment()) == 4)
            await send(namesrv, topic, 40, start=40)
            await seen.count(80)
        assert seen.numbers() == list(range(80))

    asyncio.run(main())


@pytest.mark.parametrize("ordered", [False, True])
def test_java_and_ours_share_one_group(namesrv: str, topic: str, tmp_path: Path, ordered: bool) -> None:
    seen = Seen()

    async def main(java: apache.DriverRun) -> None:
        ours = collecting(namesrv, topic, seen, ordered=ordered)
        async with ours:
            await eventually(lambda: len(ours.assignment()) == 2)
            async with Producer(namesrv) as producer:
                for i in range(100):
                    await producer.send(topic, b"%d" % i)

            def all_there() -> bool:
                return len({*ids(java), *(message.message_id for message in seen.messages)}) == 100

            await eventually(all_there)
            assert seen.messages and ids(java)
            java.kill()
            if not ordered:  # Java left without a word, and its locks live on for a minute
                await eventually(lambda: len(ours.assignment()) == 4)

    options = {"orderly": True} if ordered else {}
    with apache.JavaDriver(tmp_path, namesrv).start("consume", topic=topic, group=f"g-{topic}", **options) as java:
        java.wait_for_events("started")
        asyncio.run(main(java))
    if ordered:
        by_queue: dict[int, list[int]] = {}
        for message in seen.messages:
            by_queue.setdefault(message.queue_id, []).append(message.queue_offset)
        assert all(offsets == sorted(offsets) for offsets in by_queue.values())


def ids(java: apache.DriverRun) -> set[str]:
    return {event["msgId"] for event in java.events("message")}


def test_compressed_bodies_from_java(namesrv: str, topic: str, place: Place) -> None:
    place.java.run("produce", topic=topic, count=10, size=20000, compress=1000, keys="k", tags="t")
    seen = Seen()

    async def main() -> None:
        async with collecting(namesrv, topic, seen):
            await seen.count(10)

    asyncio.run(main())
    assert {len(message.body) for message in seen.messages} == {20000}
    assert {message.tags for message in seen.messages} == {"t"} and all(message.keys for message in seen.messages)


def test_java_asks_and_ours_replies(namesrv: str, topic: str, place: Place) -> None:
    async def main() -> None:
        consumer = PushConsumer(namesrv, group=f"g-{topic}", consume_from="first")

        @consumer.listener(topic)
        async def handle(message: Message) -> None:
            await message.reply(b"ours to " + message.body)

        async with consumer:
            await eventually(lambda: len(consumer.assignment()) == 4)
            events = await asyncio.to_thread(place.java.run, "request", topic=topic, count=2)
        replies = [event["body"] for event in events if event["event"] == "reply"]
        assert replies == ["ours to request-0", "ours to request-1"]

    asyncio.run(main())


def test_lite_pull_in_all_its_ways(namesrv: str, topic: str) -> None:
    async def main() -> None:
        await send(namesrv, topic, 40)
        consumer = LitePullConsumer(namesrv, group=f"g-{topic}", consume_from="first")
        consumer.subscribe(topic)
        got: list[Message] = []
        async with asyncio.timeout(60), consumer:
            async for message in consumer:
                got.append(message)
                if len(got) == 40:
                    break
            await consumer.commit()
            queue = consumer.assignment()[0]
            assert await consumer.committed(queue) == await consumer.end_offset(queue) == consumer.position(queue)
            await consumer.seek_to_begin(queue)
            again = await consumer.poll(max=5)
            assert {(message.broker, message.queue_id) for message in again} == {(queue.broker_name, queue.queue_id)}
            result = await consumer.pull(queue, 3, max=2)
            assert [message.queue_offset for message in result.messages] == [3, 4]
        assert sorted(int(message.body) for message in got) == list(range(40))
        named = LitePullConsumer(namesrv, group=f"h-{topic}", consume_from="last")
        named.assign([MessageQueue(topic, queue.broker_name, queue.queue_id)])
        async with asyncio.timeout(60), named:
            await send(namesrv, topic, 3, start=100, queue=queue)
            found = 0
            while found < 3:
                found += sum(int(message.body) >= 100 for message in await named.poll())

    asyncio.run(main())


def test_what_mqadmin_asks_of_a_consumer(namesrv: str, topic: str, place: Place) -> None:
    async def main() -> None:
        seen = Seen()
        async with collecting(namesrv, topic, seen) as consumer:
            await send(namesrv, topic, 10)
            await seen.count(10)
            await eventually(lambda: len(consumer.assignment()) == 4)

            async def admin(*arguments: str) -> str:
                return await asyncio.to_thread(place.java.mqadmin, *arguments)

            client_id = consumer.client_id
            async with asyncio.timeout(60), AdminConnection(namesrv) as connection:
                # mqadmin finds a group by its retry topic, which a broker tells the name server a moment later.
                while await connection.route(f"%RETRY%g-{topic}") is None:  # noqa: ASYNC110 - a server is waited for
                    await asyncio.sleep(0.05)
            assert client_id in await admin("consumerConnection", "-g", f"g-{topic}")
            status = await admin("consumerStatus", "-g", f"g-{topic}", "-i", client_id)
            assert "#Consumer MQ Detail#" in status and topic in status
            await admin("resetOffsetByTime", "-g", f"g-{topic}", "-t", topic, "-s", "0")
            await seen.until(lambda: len(seen.messages) >= 20)
            assert Counter(seen.numbers()) == {i: 2 for i in range(10)}
            one = seen.messages[0]
            which = ("-g", f"g-{topic}", "-d", client_id, "-t", topic, "-i", one.message_id)
            direct = await admin("queryMsgByUniqueKey", *which)
            assert "CR_SUCCESS" in direct

    asyncio.run(main())


def test_consumption_is_traced_for_apaches_tools(namesrv: str, topic: str, place: Place) -> None:
    async def main() -> str:
        seen = Seen()
        async with Producer(namesrv, trace=True) as producer, collecting(namesrv, topic, seen, trace=True):
            receipt = await producer.send(topic, b"1", keys="traced")
            await seen.count(1)
        return receipt.message_id

    message_id = asyncio.run(main())
    shown = place.java.mqadmin("queryMsgTraceById", "-i", message_id)
    assert "Pub" in shown and "Sub" in shown and f"g-{topic}" in shown, shown


@pytest.mark.parametrize("ordered", [False, True])
def test_goes_on_when_the_broker_is_killed_and_comes_back_elsewhere(
    apache_namesrv: apache.ApacheNameServer, tmp_path: Path, ordered: bool
) -> None:
    namesrv, topic, name = apache_namesrv.address, f"killed-{ordered}", f"broker-{ordered}"
    # The first start of a consumer group must not be lost with the crash.
    settings = {"flushConsumerOffsetInterval": 200}

    def started(work: str) -> apache.ApacheBroker:
        return apache.ApacheBroker(tmp_path / work, tmp_path / "store", namesrv, name=name, settings=settings)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        seen = Seen()
        first = await asyncio.to_thread(started, "one")
        with first:
            async with AdminConnection(namesrv) as admin:
                await create_topic(admin, topic, TopicChange(read_queues=4, write_queues=4), broker=name)
            async with collecting(namesrv, topic, seen, ordered=ordered):
                await send(namesrv, topic, 50)
                await seen.count(50)
                first.kill()
                with await asyncio.to_thread(started, "two") as second:
                    assert second.port != first.port
                    back_s = loop.time()
                    for i in range(50, 100):
                        await send_stubbornly(namesrv, topic, i)
                    await seen.until(lambda: len(set(seen.numbers())) == 100)
                    print(f"ordered={ordered}: consumed again {loop.time() - back_s:.1f} s after the broker was back")
        if ordered:
            for queue_id in range(4):
                offsets = [m.queue_offset for m in seen.messages if m.queue_id == queue_id]
                assert sorted(set(offsets)) == list(range(max(offsets) + 1)), "skipped"

    asyncio.run(main())


def test_apaches_local_offsets_are_read(tmp_path: Path) -> None:
    from aerobee.client.consumer.offsetstore import LocalOffsets

    path = tmp_path / "offsets.json"
    # As written by LocalFileOffsetStore (OffsetSerializeWrapper.toJson(true)).
    key = '{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":1,\n\t\t\t"topic":"T"\n\t\t}'
    path.write_text('{\n\t"offsetTable":{' + key + ":12\n\t}\n}")

    async def read() -> int | None:
        offsets = LocalOffsets(str(path))
        await offsets.load()
        return await offsets.read(MessageQueue("T", "b", 1))

    assert asyncio.run(read()) == 12
