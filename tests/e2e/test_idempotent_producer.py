"""Answers that get lost between broker and producer, connections cut after the broker stored a message, a broker
killed meanwhile: an idempotent producer's messages are each stored once."""

from __future__ import annotations

import asyncio
import random
import struct
import sys
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing

import pytest

from aerobee import Producer
from aerobee.sync import Producer as SyncProducer
from aerobee.testing.cluster import LocalCluster

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="a second loopback address")

TOPIC = "orders"
# The whole of 127/8 is this machine, but on macOS.
PROXY_HOST = "127.0.0.2"
BUSY = 5000


class LossyProxy:
    """Before a broker's port: loses answers, and now and then the connection with them."""

    def __init__(self, target: int, *, lost: float, cuts: float, seed: int) -> None:
        self.answers = self.lost = self.cut = 0
        self.is_busy = asyncio.Event()
        # asyncio leaks a connection that is accepted while its server closes: none is made when the broker is killed.
        self.is_calm = self.is_shut = False
        self._target = target
        self._lost, self._cuts = lost, cuts
        self._random = random.Random(seed)
        self._writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if self.is_shut:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(back)
        try:
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._requests(reader, back))
                ways.create_task(self._answers(there, writer))
        except* (OSError, asyncio.IncompleteReadError):
            writer.transport.abort()
            back.transport.abort()

    @staticmethod
    async def _requests(reader: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            back.write(data)
            await back.drain()
        raise ConnectionResetError

    async def _answers(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await there.readexactly(4)
            frame = await there.readexactly(struct.unpack(">i", head)[0])
            self.answers += 1
            if self.answers == BUSY - 1000:
                self.is_calm = True
            if self.answers == BUSY:
                self.is_busy.set()
            if self._random.random() >= self._lost:
                writer.write(head + frame)
                await writer.drain()
                continue
            self.lost += 1
            if self._random.random() < self._cuts and not self.is_calm:
                self.cut += 1
                raise ConnectionResetError

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def lossy_cluster(seed: int) -> AsyncIterator[tuple[LocalCluster, LossyProxy]]:
    """A broker that tells clients another address than its own: the proxy's, on the same port."""
    with LocalCluster(settings={"brokerIP1": PROXY_HOST}) as cluster:
        cluster.create_topic(TOPIC, 4)
        port = int(cluster.broker_address(0).rpartition(":")[2])
        proxy = LossyProxy(port, lost=0.05, cuts=0.02, seed=seed)
        server = await asyncio.start_server(proxy.serve, PROXY_HOST, port)
        with closing(server), closing(proxy):
            yield cluster, proxy
        await asyncio.sleep(0)


def stored(cluster: LocalCluster) -> Counter[bytes]:
    return Counter(message.body for message in cluster.messages(TOPIC))


async def send_ten_thousand() -> None:
    count = 10_000
    async with lossy_cluster(1) as (cluster, proxy):
        async with Producer(
            cluster.namesrv, idempotent=True, timeout=25, attempt_timeout=0.5, max_in_flight=1000
        ) as producer:
            sends = [asyncio.ensure_future(producer.send(TOPIC, b"%d" % n)) for n in range(count)]
            await proxy.is_busy.wait()
            proxy.is_shut = True
            await asyncio.to_thread(cluster.kill, 0)
            await asyncio.to_thread(cluster.restart, 0)
            proxy.is_calm = proxy.is_shut = False
            receipts = await asyncio.gather(*sends)
        messages = cluster.messages(TOPIC)
        assert len(messages) == count
        assert {message.body for message in messages} == {b"%d" % n for n in range(count)}
        places = {message.message_id: (message.queue_id, message.queue_offset) for message in messages}
        assert {one.message_id: (one.queue_id, one.queue_offset) for one in receipts} == places
        assert proxy.lost > count // 40
        assert proxy.cut > 0


def test_ten_thousand_sends_with_answers_lost_and_a_broker_killed_are_stored_once() -> None:
    asyncio.run(send_ten_thousand())


async def send_plainly() -> None:
    async with lossy_cluster(2) as (cluster, proxy):
        async with Producer(cluster.namesrv, timeout=25, attempt_timeout=0.2, retries=20) as producer:
            await asyncio.gather(*(producer.send(TOPIC, b"%d" % n) for n in range(500)))
        assert len(stored(cluster)) == 500
        assert proxy.lost > 0
        assert max(stored(cluster).values()) > 1


def test_without_it_the_same_losses_store_some_twice() -> None:
    asyncio.run(send_plainly())


async def send_from_threads() -> None:
    async with lossy_cluster(3) as (cluster, proxy):

        def send_all() -> None:
            with SyncProducer(cluster.namesrv, idempotent=True, timeout=25, attempt_timeout=0.2) as producer:
                with ThreadPoolExecutor(16) as pool:
                    list(pool.map(lambda number: producer.send(TOPIC, b"%d" % number), range(500)))

        await asyncio.to_thread(send_all)
        assert stored(cluster) == Counter(b"%d" % number for number in range(500))
        assert proxy.lost > 0


def test_the_synchronous_face_stores_each_once_too() -> None:
    asyncio.run(send_from_threads())
