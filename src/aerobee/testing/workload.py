"""Load for runs with faults: producers that continue whatever happens, and consumers that read every queue by raw
pulls.

Nothing here judges. `checkers` judges what is noted here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aerobee.client.producer import Producer
from aerobee.errors import AerobeeError, TransportError
from aerobee.hot.log.record import decode_records
from aerobee.model.numbers import parse_int
from aerobee.net.client import RemotingClient
from aerobee.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.base import Header
from aerobee.protocol.headers.offset import GetMaxOffsetRequestHeader
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.protocol.headers.send import SendMessageRequestHeaderV2
from aerobee.protocol.headers.topic import CreateTopicRequestHeader
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.seams import Net
from aerobee.runtime.tasks import Tasks
from aerobee.testing.checkers import Acked, Queue, Read

_CLOCK: Final = SystemClock()
# Answers of a broker that has just started: ask again.
_LATER: Final = frozenset((ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SYSTEM_BUSY))
_PULL_FLAGS: Final = 2 | 4  # the pull may be held, and it carries its subscription
_RETRY_S: Final = 0.05
_POLL_S: Final = 0.005


async def eventually(holds: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Wait until `holds()` is true (or what it awaits is). This is for what another process or thread brings about."""
    async with asyncio.timeout(timeout_s):
        while True:
            found = holds()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(_POLL_S)


class RawClient:
    """One connection to one server. Requests go to the wire as they are."""

    def __init__(self, address: str, net: Net | None = None) -> None:
        self.address = address
        self.remoting = RemotingClient(net=net)

    async def call(
        self, code: int, header: Header | None = None, body: bytes = b"", *, timeout_s: float = 10.0
    ) -> Command:
        command = request(code, header, body, opaque=self.remoting.next_opaque())
        return await self.remoting.call(self.address, command, timeout_s)

    async def ask(
        self, code: int, header: Header | None = None, body: bytes = b"", *, timeout_s: float = 10.0
    ) -> Command:
        command = request(code, header, body, opaque=self.remoting.next_opaque())
        return await self.remoting.ask(self.address, command, timeout_s)

    async def create_topic(self, topic: str, queues: int) -> None:
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=False,
        )
        await self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header, timeout_s=60.0)

    async def send(self, topic: str, queue_id: int, body: bytes, *, timeout_s: float = 10.0) -> Command:
        return await self.call(RequestCode.SEND_MESSAGE_V2, send_header(topic, queue_id), body, timeout_s=timeout_s)

    async def heartbeat(self, client_id: str, group: str, *, timeout_s: float = 10.0) -> float:
        """Return the seconds until the heartbeat was answered."""
        consumer = ConsumerData(group, "CONSUME_ACTIVELY", "CLUSTERING")
        data = HeartbeatData(client_id, (ProducerData(group),), (consumer,))
        began_s = _CLOCK.monotonic()
        await self.ask(RequestCode.HEART_BEAT, None, data.encode(), timeout_s=timeout_s)
        return _CLOCK.monotonic() - began_s

    async def pull(
        self, topic: str, queue_id: int, offset: int, *, group: str = "raw", hold_ms: int = 1000, count: int = 1000
    ) -> tuple[int, int, list[tuple[int, str]]]:
        """Return (code, next offset, [(offset, body)])."""
        answer = await self.call(
            RequestCode.PULL_MESSAGE, pull_header(topic, queue_id, offset, group, hold_ms, count), timeout_s=20.0
        )
        if answer.code not in (
            ResponseCode.SUCCESS,
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        ):
            raise AerobeeError(f"pull refused: {answer.remark}", code=answer.code, broker=self.address)
        found = [(record.queue_offset, record.body.decode()) for record in decode_records(answer.body)]
        return answer.code, parse_int(answer.ext["nextBeginOffset"]), found

    async def max_offset(self, topic: str, queue_id: int) -> int:
        header = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
        return parse_int((await self.ask(RequestCode.GET_MAX_OFFSET, header)).ext["offset"])

    async def close(self) -> None:
        await self.remoting.close()


def send_header(topic: str, queue_id: int, properties: str = "") -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2(
        producer_group="raw",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=_CLOCK.now_ms(),
        flag=0,
        properties=properties,
        reconsume_times=0,
        unit_mode=False,
        batch=False,
    )


def pull_header(
    topic: str, queue_id: int, offset: int, group: str, hold_ms: int, count: int = 1000
) -> PullMessageRequestHeader:
    return PullMessageRequestHeader(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=_PULL_FLAGS if hold_ms else _PULL_FLAGS & ~2,
        commit_offset=0,
        suspend_timeout_millis=hold_ms,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )


class Producers:
    """`count` senders that share one producer. Each sends one message after the other."""

    def __init__(self, namesrv: str, topic: str, count: int, *, interval_s: float = 0.0) -> None:
        self.topic = topic
        self.acked: list[Acked] = []
        self.failures: list[str] = []
        # Sends that every try refused as busy: a broker was stopped, or the machine has too much to do.
        self.busy = 0
        # The longest time in which nobody got an acknowledgement.
        self.worst_gap_s = 0.0
        self._last_ack_s = _CLOCK.monotonic()
        self._count = count
        self._interval_s = interval_s
        self._stopping = False
        self._tasks = Tasks()
        self._senders: list[asyncio.Task[None]] = []
        self._waiting: list[tuple[Callable[[Acked], bool], asyncio.Event]] = []
        self._producer = Producer(
            namesrv,
            group="load",
            timeout=8.0,
            attempt_timeout=1.0,
            retries=8,
            route_interval_ms=300,
            heartbeat_interval_ms=1_000,
        )

    async def start(self) -> None:
        await self._producer.start()
        self._last_ack_s = _CLOCK.monotonic()
        for number in range(self._count):
            self._senders.append(self._tasks.start(self._send(number), name=f"producer {number}"))

    async def stop(self) -> None:
        """Stop sending. Every send has its answer when this returns."""
        self._stopping = True
        if self._senders:
            await asyncio.wait(self._senders)
        await self._tasks.close()
        await self._producer.close()

    async def _send(self, number: int) -> None:
        sequence = 0
        while not self._stopping:
            try:
                receipt = await self._producer.send(self.topic, f"{number}-{sequence}".encode())
            except AerobeeError as error:
                # Nobody promised anything; the message may be stored or not.
                if error.code == ResponseCode.SYSTEM_BUSY:
                    self.busy += 1
                else:
                    self.failures.append(f"{number}-{sequence}: {error}")
            else:
                self._note(Acked(number, sequence, receipt.broker, receipt.queue_id, receipt.queue_offset))
            sequence += 1
            if self._interval_s:
                await asyncio.sleep(self._interval_s)

    def _note(self, one: Acked) -> None:
        now_s = _CLOCK.monotonic()
        self.worst_gap_s = max(self.worst_gap_s, now_s - self._last_ack_s)
        self._last_ack_s = now_s
        self.acked.append(one)
        for waits in list(self._waiting):
            if waits[0](one):
                waits[1].set()
                self._waiting.remove(waits)

    async def until(self, count: int, *, broker: str | None = None, timeout_s: float = 20.0) -> None:
        """Wait until so many more were acknowledged, by that broker if one is named."""
        left = count

        def counted(one: Acked) -> bool:
            nonlocal left
            left -= broker in (None, one.broker)
            return left <= 0

        event = asyncio.Event()
        self._waiting.append((counted, event))
        async with asyncio.timeout(timeout_s):
            await event.wait()


class Consumers:
    """One reader for each queue of a topic. What it reads is noted. It outlives its brokers."""

    def __init__(self, topic: str, queues: int, addresses: Mapping[str, str]) -> None:
        self.topic = topic
        self.reads: list[Read] = []
        self.problems: list[str] = []
        self._queues = queues
        self._clients = {name: RawClient(address) for name, address in addresses.items()}
        self._next: dict[Queue, int] = {(name, queue): 0 for name in addresses for queue in range(queues)}
        self._tasks = Tasks()
        self._moved = asyncio.Event()

    def start(self) -> None:
        for broker, queue_id in self._next:
            self._tasks.start(self._read(broker, queue_id), name=f"reader {broker} {queue_id}")

    async def _read(self, broker: str, queue_id: int) -> None:
        client = self._clients[broker]
        while True:
            try:
                await self._pull(client, broker, queue_id, hold_ms=1000)
            except TransportError:
                await asyncio.sleep(_RETRY_S)
            except AerobeeError as error:
                if error.code not in _LATER:
                    self.problems.append(f"{broker} {queue_id}: {error}")
                await asyncio.sleep(_RETRY_S)

    async def _pull(self, client: RawClient, broker: str, queue_id: int, hold_ms: int) -> int:
        offset = self._next[broker, queue_id]
        code, following, found = await client.pull(self.topic, queue_id, offset, hold_ms=hold_ms)
        if code == ResponseCode.PULL_OFFSET_MOVED and following != offset:
            # The broker holds less than was read from it before.
            self.problems.append(f"{broker} {queue_id}: moved from {offset} to {following}")
        expected = offset
        for queue_offset, body in found:
            if queue_offset != expected:
                self.problems.append(f"{broker} {queue_id}: {queue_offset} came where {expected} was due")
            expected = queue_offset + 1
            self.reads.append(Read(broker, queue_id, queue_offset, body))
        self._next[broker, queue_id] = following
        self._moved.set()
        return len(found)

    async def drain(self, timeout_s: float = 30.0) -> None:
        """Wait until every reader has everything that its queue holds, then stop the readers."""
        async with asyncio.timeout(timeout_s):
            for (broker, queue_id), _ in list(self._next.items()):
                high = await self._clients[broker].max_offset(self.topic, queue_id)
                while self._next[broker, queue_id] < high:
                    self._moved.clear()
                    await self._moved.wait()
        await self._tasks.close()

    async def read_all(self) -> list[Read]:
        """Return everything that the queues hold, read again from the start."""
        self._next = dict.fromkeys(self._next, 0)
        before, self.reads = self.reads, []
        for broker, queue_id in self._next:
            while await self._pull(self._clients[broker], broker, queue_id, hold_ms=0):
                pass
        again, self.reads = self.reads, before
        return again

    async def close(self) -> None:
        await self._tasks.close()
        for client in self._clients.values():
            await client.close()
