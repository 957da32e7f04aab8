"""A consumer that never succeeds: 16 redeliveries, each after the delay of its level, then one dead letter.

Frames in and out on virtual time: messages are sent, pulled and sent back as a client does it. The consumer keeps its
own offsets, as one whose commits are never lost. Over kills and power cuts it knows only what was answered: what was
not answered it does again, so there may be more copies, but nothing is missing, early or beyond 16.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

import pytest

from aerobee.broker.pull.rules import FLAG_SUBSCRIPTION
from aerobee.hot.log.properties import encode_properties
from aerobee.hot.log.record import Record, decode_records
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.protocol.headers.send import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeaderV2
from aerobee.store.config import StoreConfig
from aerobee.testing.brokerkit import BrokerKit, KitClient, run_broker, settle
from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.storekit import read_queue, small_config

START_MS = 1_700_000_000_000
DELAYS_S = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
TOPIC, RETRY, DEAD = "T", "%RETRY%G", "%DLQ%G"
PULLED_MAX = 32
# Of the runs with crashes: messages, and how many batches and ticks a broker lives at most.
COUNT, STEPS_MAX = 200, 40


def config() -> StoreConfig:
    """Acknowledged is on disk: a power cut takes nothing that was answered."""
    return small_config(sync=True, segment=16 << 20, mapped_file_size_consume_queue=20 * 50_000)


class DeadError(Exception):
    """The broker is no more."""


class Fate:
    """When a broker dies: in the midst of the last of so many exchanges and ticks, its syncs half done."""

    def __init__(self, entropy: SeededEntropy, disk: RecordingDisk, steps: int) -> None:
        self._entropy = entropy
        self._disk = disk
        self._steps = steps

    @property
    def is_over(self) -> bool:
        return self._steps <= 0

    def draw_near(self) -> None:
        self._steps -= 1
        if self.is_over:
            self._disk.complete_queued()

    async def last_moments(self) -> None:
        for _ in range(self._entropy.below(6)):
            await asyncio.sleep(0)
            self._disk.run_pending(self._entropy.below(4))

    def reached(self, commands: list[Command]) -> list[Command]:
        """Those of the last exchange that come through."""
        return commands[: self._entropy.below(len(commands) + 1)]

    def answers_arrive(self) -> bool:
        return self._entropy.chance(0.5)


class FailingConsumer:
    """A sender and a consumer that fails at everything: what they know outlives any broker."""

    def __init__(self, count: int) -> None:
        self.unsent = [b"%d" % number for number in range(count)]
        self.names = frozenset(self.unsent)
        self.offsets = {TOPIC: 0, RETRY: 0}
        # How often a message came, by the times it was consumed before.
        self.deliveries: dict[bytes, Counter[int]] = defaultdict(Counter)
        # When a message was first sent back, by the times it has then been consumed.
        self.asked_ms: dict[tuple[bytes, int], int] = {}
        self.late_ms: list[int] = []
        # What may come twice: an answer about it was lost.
        self.doubtful: set[bytes] = set()
        self.fate: Fate | None = None
        self._opaque = 0

    @property
    def is_done(self) -> bool:
        return not self.unsent and all(16 in self.deliveries[name] for name in self.names)

    async def send_some(self, client: KitClient) -> None:
        """Messages not acknowledged yet."""
        batch = self.unsent[:PULLED_MAX]
        commands = {self._next(): name for name in batch}
        answered = await self._exchange(client, [_send(name, opaque) for opaque, name in commands.items()])
        sent = {commands[opaque] for opaque in answered}
        self.unsent = [name for name in self.unsent if name not in sent]
        self._end_of_exchange({name for name in batch if name not in sent})

    async def consume(self, kit: BrokerKit, client: KitClient, topic: str) -> int:
        """Pull one batch and fail at all of it; how many. The offset moves past what the broker took back."""
        offset = self.offsets[topic]
        records = decode_records((await client.call(_pull(topic, offset, self._next()))).body)
        for record in records:
            self._saw(record, topic, kit.clock.now_ms())
        commands = {self._next(): record for record in records}
        asked = [_back(record.physical_offset, opaque) for opaque, record in commands.items()]
        taken = {commands[opaque].queue_offset for opaque in await self._exchange(client, asked)}
        while offset in taken:
            offset += 1
        self.offsets[topic] = offset
        self._end_of_exchange({record.body for record in records if record.queue_offset >= offset})
        return len(records)

    async def tick(self, kit: BrokerKit) -> None:
        if self.fate is not None:
            self.fate.draw_near()
        kit.tick()
        if self.fate is not None and self.fate.is_over:
            await self.fate.last_moments()
            raise DeadError
        await settle()

    async def _exchange(self, client: KitClient, commands: list[Command]) -> list[int]:
        """Which were answered, and with success."""
        if self.fate is not None and commands:
            self.fate.draw_near()
            if self.fate.is_over:
                commands = self.fate.reached(commands)
        for command in commands:
            client.send(command)
        if self.fate is not None and self.fate.is_over:
            await self.fate.last_moments()
            if not self.fate.answers_arrive():
                return []
        return [answer.opaque for answer in await client.answers() if answer.code == 0]

    def _end_of_exchange(self, unanswered: set[bytes]) -> None:
        if self.fate is not None and self.fate.is_over:
            self.doubtful |= unanswered
            raise DeadError
        assert not unanswered

    def _saw(self, record: Record, topic: str, now_ms: int) -> None:
        name, times = record.body, record.reconsume_times
        self.deliveries[name][times] += 1
        self.asked_ms.setdefault((name, times + 1), now_ms)
        if topic == TOPIC:
            assert times == 0
            return
        assert 1 <= times <= 16
        late_ms = record.store_timestamp - self.asked_ms[name, times] - DELAYS_S[times - 1] * 1000
        assert late_ms >= 0, f"retry {times} of {name!r} is {-late_ms} ms early"
        self.late_ms.append(late_ms)

    def _next(self) -> int:
        self._opaque += 1
        return self._opaque


def _send(name: bytes, opaque: int) -> Command:
    header = SendMessageRequestHeaderV2(
        producer_group="P", topic=TOPIC, default_topic="TBW102", default_topic_queue_nums=1, queue_id=0, sys_flag=0,
        born_timestamp=1, flag=0, properties=encode_properties({"UNIQ_KEY": name.decode()}).decode(),
    )  # fmt: skip
    return request(RequestCode.SEND_MESSAGE_V2, header, name, opaque=opaque)


def _pull(topic: str, offset: int, opaque: int) -> Command:
    header = PullMessageRequestHeader(
        consumer_group="G", topic=topic, queue_id=0, queue_offset=offset, max_msg_nums=PULLED_MAX,
        sys_flag=FLAG_SUBSCRIPTION, commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=1,
    )  # fmt: skip
    return request(RequestCode.PULL_MESSAGE, header, opaque=opaque)


def _back(offset: int, opaque: int) -> Command:
    header = ConsumerSendMsgBackRequestHeader(offset=offset, group="G", delay_level=0)
    return request(RequestCode.CONSUMER_SEND_MSG_BACK, header, opaque=opaque)


def start(kit: BrokerKit) -> KitClient:
    """A broker that serves pulls, with one queue for the topic and one for retries."""
    if kit.state.catalog.find(TOPIC) is None:
        kit.state.catalog.put_topic(TopicConfig(TOPIC, 1, 1))
        kit.state.catalog.put_topic(TopicConfig(RETRY, 1, 1))
        kit.state.catalog.put_group(SubscriptionGroupConfig("G"))
    return kit.connect()


async def work(kit: BrokerKit, client: KitClient, consumer: FailingConsumer) -> None:
    """Send and consume until nothing is left to do now."""
    while consumer.unsent:
        await consumer.send_some(client)
    for topic in (TOPIC, RETRY):
        while await consumer.consume(kit, client, topic):
            pass


def dead_letters(kit: BrokerKit) -> Counter[bytes]:
    records = read_queue(kit.store, DEAD.encode())
    assert {record.reconsume_times for record in records} == {17}
    return Counter(record.body for record in records)


ONCE = Counter(range(17))


def test_a_thousand_messages_that_always_fail() -> None:
    consumer = FailingConsumer(1000)

    async def main(kit: BrokerKit) -> None:
        client = start(kit)
        await work(kit, client, consumer)
        for delay_s in DELAYS_S:
            await kit.pass_time(delay_s - 1, 3600)
            await kit.pass_time(2, 0.1)
            await work(kit, client, consumer)
        assert dead_letters(kit) == Counter(consumer.names)
        await kit.pass_time(8000, 1000)
        await work(kit, client, consumer)
        assert dead_letters(kit) == Counter(consumer.names), "a dead letter stays dead"

    run_broker(main, store_config=config())
    assert [name for name in consumer.names if consumer.deliveries[name] != ONCE] == []
    assert len(consumer.late_ms) == 16_000
    assert max(consumer.late_ms) <= 1000


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_over_kills_and_power_cuts_only_what_was_not_answered_may_come_twice(seed: int, cut: bool) -> None:
    consumer, entropy, disk = FailingConsumer(COUNT), SeededEntropy(seed), RecordingDisk(seed=seed)
    wall_ms, deaths, is_over = START_MS, 0, False

    async def live(kit: BrokerKit) -> None:
        nonlocal wall_ms, deaths, is_over
        client = start(kit)
        try:
            while not consumer.is_done:
                await work(kit, client, consumer)
                await asyncio.sleep(entropy.between(0.1, 120))
                await consumer.tick(kit)
            await work(kit, client, consumer)
        except DeadError:
            deaths += 1
            wall_ms = kit.clock.now_ms() + entropy.below(3000)
            return
        dead = dead_letters(kit)
        assert set(dead) == consumer.names
        assert {name for name, count in dead.items() if count > 1} <= consumer.doubtful
        is_over = True

    while not is_over:
        assert deaths < 50, "it gets nowhere"
        consumer.fate = Fate(entropy, disk, 1 + entropy.below(STEPS_MAX))
        run_broker(live, disk=disk, store_config=config(), wall_ms=wall_ms, close=False)
        disk = disk.crash(entropy.choose(list(CrashMode)), seed * 100 + deaths) if cut else disk.kill()
    assert deaths >= 10
    assert 0 < len(consumer.doubtful) < COUNT
    for name in consumer.names:
        assert set(consumer.deliveries[name]) == set(ONCE)
        assert consumer.deliveries[name] == ONCE or name in consumer.doubtful
