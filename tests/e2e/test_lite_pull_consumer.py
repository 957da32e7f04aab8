"""The pulling consumer against our own cluster, asyncio and synchronous; and the synchronous pushing one."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

import aerobee
from aerobee import LitePullConsumer, Message, MessageQueue, PullStatus
from aerobee import sync as sync_clients
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.clusterkit import fill


def lite(cluster: LocalCluster, topic: str, **options: Any) -> LitePullConsumer:
    consumer = LitePullConsumer(cluster.namesrv, group=f"g-{topic}", consume_from="first", **options)
    consumer.subscribe(topic)
    return consumer


def numbers(messages: list[Message]) -> list[int]:
    return sorted(int(message.body) for message in messages)


def test_a_message_is_committed_when_the_next_is_asked_for(cluster: LocalCluster, topic: str) -> None:
    fill(cluster.namesrv, topic, 5, queue=MessageQueue(topic, cluster.broker_name(0), 0))

    async def read(count: int) -> list[int]:
        got: list[Message] = []
        async with asyncio.timeout(60), lite(cluster, topic) as consumer:
            async for message in consumer:
                got.append(message)
                if len(got) == count:
                    break
        return numbers(got)

    assert asyncio.run(read(3)) == [0, 1, 2]
    # The third was handed out and nothing followed: it may not have been dealt with.
    assert asyncio.run(read(3)) == [2, 3, 4]


def test_poll_commits_what_the_poll_before_gave(cluster: LocalCluster, topic: str) -> None:
    fill(cluster.namesrv, topic, 20)

    async def main() -> None:
        async with asyncio.timeout(60), lite(cluster, topic) as consumer:
            got: list[Message] = []
            while len(got) < 20:
                some = await consumer.poll(max=7, timeout=20)
                assert len(some) <= 7
                got += some
            assert numbers(got) == list(range(20))
            assert await consumer.poll(timeout=0.05) == []
        async with lite(cluster, topic) as consumer:
            assert await consumer.poll(timeout=0.3) == []

    asyncio.run(main())


def test_without_auto_commit_only_commit_saves(cluster: LocalCluster, topic: str) -> None:
    queue = MessageQueue(topic, cluster.broker_name(0), 1)
    fill(cluster.namesrv, topic, 10, queue=queue)

    async def main() -> None:
        for _ in range(2):
            async with asyncio.timeout(60), lite(cluster, topic, auto_commit=False) as consumer:
                assert numbers(await consumer.poll(max=10)) == list(range(10))
                await consumer.poll(timeout=0.01)
        async with asyncio.timeout(60), lite(cluster, topic, auto_commit=False) as consumer:
            assert numbers(await consumer.poll(max=4)) == [0, 1, 2, 3]
            await consumer.commit()
            assert await consumer.committed(queue) == 4
            await consumer.commit({queue: 6})
            assert await consumer.committed(queue) == 6
        async with asyncio.timeout(60), lite(cluster, topic) as consumer:
            assert numbers(await consumer.poll(max=10)) == [6, 7, 8, 9]

    asyncio.run(main())


def test_seek_and_positions(cluster: LocalCluster, topic: str) -> None:
    queue = MessageQueue(topic, cluster.broker_name(0), 0)
    fill(cluster.namesrv, topic, 10, queue=queue)

    async def main() -> None:
        consumer = LitePullConsumer(cluster.namesrv, group=f"g-{topic}", consume_from="first")
        consumer.assign([queue])
        async with asyncio.timeout(60), consumer:
            assert await consumer.begin_offset(queue) == 0 and await consumer.end_offset(queue) == 10
            assert numbers(await consumer.poll(max=10)) == list(range(10))
            assert consumer.position(queue) == 10
            await consumer.seek(queue, 7)
            assert numbers(await consumer.poll(max=10)) == [7, 8, 9]
            await consumer.seek_to_begin()
            assert numbers(await consumer.poll(max=10)) == list(range(10))
            await consumer.seek_to_end(queue)
            assert await consumer.poll(timeout=0.1) == []
            stored = (await consumer.pull(queue, 5, max=1)).messages[0].store_timestamp
            assert await consumer.offset_at(queue, stored) <= 5
            assert len(await consumer.queues(topic)) == 2 and consumer.assignment() == [queue]
            with pytest.raises(aerobee.InvalidArgumentError, match="not assigned"):
                await consumer.seek(MessageQueue(topic, "elsewhere", 0), 0)

    asyncio.run(main())


def test_pull_reads_anywhere_and_touches_no_progress(cluster: LocalCluster, topic: str) -> None:
    queue = MessageQueue(topic, cluster.broker_name(0), 0)
    fill(cluster.namesrv, topic, 6, queue=queue, tags="A")
    fill(cluster.namesrv, topic, 2, start=6, queue=queue, tags="B")

    async def main() -> None:
        async with LitePullConsumer(cluster.namesrv, group=f"g-{topic}") as consumer:
            result = await consumer.pull(queue, 2, max=3)
            assert (result.status, result.next_offset, result.max_offset) == (PullStatus.FOUND, 5, 8)
            assert numbers(result.messages) == [2, 3, 4]
            filtered = await consumer.pull(queue, 0, tags="B")
            assert numbers(filtered.messages) == [6, 7]
            assert (await consumer.pull(queue, 8)).status is PullStatus.NO_NEW_MESSAGE
            illegal = await consumer.pull(queue, 1000)
            assert illegal.status is PullStatus.OFFSET_ILLEGAL and illegal.messages == []

    asyncio.run(main())


def test_pause_and_resume_one_queue(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        queues = [MessageQueue(topic, cluster.broker_name(0), i) for i in range(2)]
        consumer = LitePullConsumer(cluster.namesrv, group=f"g-{topic}", consume_from="first")
        consumer.assign(queues)
        async with asyncio.timeout(60), consumer:
            consumer.pause(queues[0])
            fill(cluster.namesrv, topic, 3, queue=queues[0])
            fill(cluster.namesrv, topic, 3, start=10, queue=queues[1])
            got: list[Message] = []
            while len(got) < 3:
                got += await consumer.poll()
            assert numbers(got) == [10, 11, 12]
            assert await consumer.poll(timeout=0.1) == []
            consumer.resume(queues[0])
            while len(got) < 6:
                got += await consumer.poll()
            assert numbers(got) == [0, 1, 2, 10, 11, 12]

    asyncio.run(main())


def test_two_members_share_the_queues(cluster: LocalCluster, topic: str) -> None:
    fill(cluster.namesrv, topic, 20)

    async def main() -> None:
        first, second = lite(cluster, topic), lite(cluster, topic)
        got: list[Message] = []
        async with asyncio.timeout(60), first, second:
            while len(first.assignment()) != 1 or len(second.assignment()) != 1:  # noqa: ASYNC110 - a server is waited for
                await asyncio.sleep(0.02)
            assert first.assignment() != second.assignment()
            while len({message.message_id for message in got}) < 20:
                got += await first.poll(timeout=0.05)
                got += await second.poll(timeout=0.05)

    asyncio.run(main())


def test_a_pulled_request_can_be_replied_to_and_others_cannot(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), lite(cluster, topic) as consumer, aerobee.Producer(cluster.namesrv) as producer:
            asking = asyncio.create_task(producer.request(topic, b"ping", timeout=20))
            message = await anext(consumer)
            await message.reply(b"pong")
            assert (await asking).body == b"pong"
            await producer.send(topic, b"no request")
            plain = await anext(consumer)
            with pytest.raises(aerobee.InvalidArgumentError, match="no request"):
                await plain.reply(b"pong")
        with pytest.raises(aerobee.InvalidArgumentError, match="did not come from a consumer"):
            Message("t", b"x").reply(b"y")

    asyncio.run(main())


def test_arrow_batches_have_the_frozen_columns(cluster: LocalCluster, topic: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    fill(
        cluster.namesrv, topic, 3, queue=MessageQueue(topic, cluster.broker_name(0), 0), tags="T", properties={"k": "v"}
    )

    async def main() -> Any:
        async with asyncio.timeout(60), lite(cluster, topic) as consumer:
            return await consumer.poll_arrow(max=10)

    batch = asyncio.run(main())
    assert batch.schema.names == [
        "topic", "broker", "queue_id", "queue_offset", "message_id", "keys", "tags", "body", "properties",
        "born_timestamp", "store_timestamp",
    ]  # fmt: skip
    rows = batch.to_pylist()
    assert [row["body"] for row in rows] == [b"0", b"1", b"2"]
    assert rows[0]["tags"] == "T" and rows[0]["keys"] is None and rows[0]["properties"] == [("k", "v")]
    assert batch.schema.field("store_timestamp").type == pyarrow.timestamp("us", tz="UTC")
    assert batch.schema.field("queue_id").type == pyarrow.int32()


def test_the_synchronous_face_reads_in_a_for_loop(cluster: LocalCluster, topic: str) -> None:
    fill(cluster.namesrv, topic, 6)
    before = set(threading.enumerate())
    consumer = sync_clients.LitePullConsumer(cluster.namesrv, group=f"g-{topic}", consume_from="first")
    consumer.subscribe(topic)
    with consumer:
        got = list(itertools.islice(consumer, 6))
        assert numbers(got) == list(range(6))
        assert consumer.poll(timeout=0.05) == []
        assert len(consumer.assignment()) == 2
        queue = consumer.assignment()[0]
        consumer.commit()
        assert consumer.committed(queue) == consumer.end_offset(queue)
    assert set(threading.enumerate()) <= before


def test_the_synchronous_push_consumer_calls_functions(cluster: LocalCluster, topic: str) -> None:
    consumer = sync_clients.PushConsumer(cluster.namesrv, group=f"g-{topic}", consume_from="first")
    got: list[bytes] = []
    enough = threading.Event()

    @consumer.listener(topic)
    def handle(message: Message) -> None:
        got.append(message.body)
        if len(got) == 5:
            enough.set()
            consumer.stop()

    fill(cluster.namesrv, topic, 5)
    consumer.run()
    assert enough.is_set() and sorted(got) == [b"0", b"1", b"2", b"3", b"4"]


PROGRAM = """
import asyncio, sys
import aerobee

consumer = aerobee.PushConsumer(sys.argv[1], group=sys.argv[2], consume_from="first")

@consumer.listener(sys.argv[3])
async def handle(message):
    print("begun", flush=True)
    await asyncio.sleep(0.3)
    print("done", flush=True)

asyncio.run(consumer.run())
print("left", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM to send")
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_saves_and_leaves(cluster: LocalCluster, topic: str, stop: signal.Signals) -> None:
    fill(cluster.namesrv, topic, 1)
    group = f"g-{topic}"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, cluster.namesrv, group, topic],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(stop)
        assert process.stdout.read() == "done\nleft\n"
    assert process.returncode == 0

    async def rest() -> list[Message]:
        async with lite(cluster, topic) as consumer:
            return await consumer.poll(timeout=0.3)

    assert asyncio.run(rest()) == []
