"""Large bodies are compressed in threads, and what is sent after them stays behind them."""

from __future__ import annotations

import asyncio
import threading
import time
import zlib
from typing import Any

import pytest

import aerobee
from aerobee import MessageQueue
from aerobee.model.compression import decompress

# Text that takes zlib its time.
LARGE = b"".join(b"%d " % (number * 7919 % 1_000_003) for number in range(300_000))


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


def test_the_loop_does_not_compress(new_cluster: Any) -> None:
    began_s = time.thread_time()
    zlib.compress(LARGE, 5)
    alone_s = time.thread_time() - began_s

    async def work() -> None:
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv) as producer:
            await producer.send("t", b"warm")
            began_s = time.thread_time()
            await producer.send("t", LARGE, timeout=30)
            assert time.thread_time() - began_s < alone_s / 2
            stored = cluster.brokers[0].stored[1]
            assert len(stored.body) < len(LARGE) and decompress(stored.body, stored.sys_flag) == LARGE
        async with asyncio.timeout(30):  # a closed pool's threads end by themselves
            while True:
                if not any(one.name.startswith("aerobee-compress") for one in threading.enumerate()):
                    break
                await asyncio.sleep(0.01)

    run(work())


@pytest.mark.parametrize("options", [{"queue": MessageQueue("t", "a", 1)}, {"sharding_key": "k"}, {}])
def test_sends_behind_a_large_one_stay_behind_it(new_cluster: Any, options: Any) -> None:
    async def work() -> None:
        async with new_cluster("a", queue_nums=2) as cluster, aerobee.Producer(cluster.namesrv) as producer:
            bodies = [LARGE[: 400_000 // (1 + i)] if i % 3 == 0 else b"small %d" % i for i in range(30)]
            async with asyncio.TaskGroup() as group:
                for i, body in enumerate(bodies):
                    if i % 2:
                        group.create_task(_sent(producer.send_nowait("t", body, **options)))
                    else:
                        group.create_task(producer.send("t", body, **options))
                        await asyncio.sleep(0)  # until it has begun
            stored = [decompress(one.body, one.sys_flag) for one in cluster.brokers[0].stored]
            assert stored == bodies

    run(work())


async def _sent(future: asyncio.Future[Any]) -> None:
    await future


def test_another_topic_does_not_wait_and_closing_waits_for_all(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster:
            async with aerobee.Producer(cluster.namesrv) as producer:
                await producer.send("other", b"warm")
                large = producer.send_nowait("t", LARGE)
                await producer.send("other", b"small")
                assert not large.done()
            assert [one.topic for one in cluster.brokers[0].stored] == ["other", "other", "t"]
            assert large.result().topic == "t"

    run(work())


def test_a_caller_who_gives_up_leaves_nothing_behind(new_cluster: Any) -> None:
    async def work() -> None:
        async with new_cluster("a") as cluster, aerobee.Producer(cluster.namesrv, max_in_flight=2) as producer:
            large = asyncio.ensure_future(producer.send("t", LARGE))
            await asyncio.sleep(0)
            behind = producer.send_nowait("t", b"behind")
            large.cancel()
            await behind
            await producer.flush()
            assert [one.body for one in cluster.brokers[0].stored] == [b"behind"]
            # There is room for two again, no more and no less.
            futures = [producer.send_nowait("t", b"%d" % i) for i in range(2)]
            with pytest.raises(aerobee.TooManyInFlightError):
                producer.send_nowait("t", b"3")
            await asyncio.gather(*futures)

    run(work())
