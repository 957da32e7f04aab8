"""Deleted is deleted: over the wire, against a real broker that is stopped, killed, robbed of its derived files."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from aerobee.hot.log.record import decode_records
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.base import Header
from aerobee.protocol.headers.message import QueryMessageRequestHeader, ViewMessageRequestHeader
from aerobee.protocol.headers.offset import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from aerobee.protocol.headers.topic import DeleteTopicRequestHeader, GetTopicConfigRequestHeader
from aerobee.runtime.disk import InlineDisk
from aerobee.testing.commands import aerobee
from aerobee.testing.processes import HOST, SMALL_STORE, ServerProcess
from aerobee.testing.workload import RawClient, send_header
from pyspark_rocketmq_store.planning import plan
from pyspark_rocketmq_store.reading import read_stretch
from pyspark_rocketmq_store.settings import read_settings

TOPIC = "orders"
OTHER = "payments"
OLD = [f"old {number}" for number in range(20)]
NEW = [f"new {number}" for number in range(5)]
KEPT = ["kept 0", "kept 1"]


class Wire:
    """One broker and what a test asks of it."""

    def __init__(self, broker: ServerProcess, store: Path) -> None:
        self._broker = broker
        self.store = store
        self.client = RawClient(broker.address)

    async def stop(self) -> None:
        await self.client.close()
        assert await self._broker.stop() == 0

    async def start(self) -> None:
        await self._broker.start()
        self.client = RawClient(self._broker.address)

    async def killed(self) -> None:
        """Kill -9 and start."""
        await self.client.close()
        await self._broker.kill()
        await self.start()

    async def without(self, *names: str) -> None:
        """Stop in order, lose directories of the store, start."""
        await self.stop()
        self.lose(*names)
        await self.start()

    def lose(self, *names: str) -> None:
        for name in names:
            for path in self.store.glob(name):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()

    async def send(self, topic: str, *bodies: str, properties: str = "") -> list[int]:
        """The places in the log, of which the message ids tell."""
        places = []
        for body in bodies:
            header = send_header(topic, 0, f"KEYS\x01key\x02{properties}")
            answer = await self.client.call(RequestCode.SEND_MESSAGE_V2, header, body.encode())
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            places.append(int(answer.ext["msgId"][-16:], 16) if not properties else -1)
        return places

    async def delete(self, topic: str) -> None:
        await self.client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))

    async def code(self, request: RequestCode, header: Header) -> int:
        return (await self.client.call(request, header)).code

    async def exists(self, topic: str) -> bool:
        return not await self.code(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic=topic))

    async def bodies(self, topic: str) -> list[str]:
        """Everything the queue serves, from its very first offset on."""
        found: list[str] = []
        offset = 0
        while True:
            _, following, messages = await self.client.pull(topic, 0, offset, hold_ms=0)
            found += [body for _, body in messages]
            assert [at for at, _ in messages] == list(range(offset, offset + len(messages)))
            if following == offset:
                return found
            offset = following

    async def by_key(self, topic: str) -> list[str]:
        header = QueryMessageRequestHeader(topic=topic, key="key", max_num=64, begin_timestamp=0, end_timestamp=1 << 62)
        answer = await self.client.call(RequestCode.QUERY_MESSAGE, header)
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND), answer.remark
        return [record.body.decode() for record in decode_records(answer.body)]

    async def offset_code(self) -> int:
        asked = QueryConsumerOffsetRequestHeader(
            consumer_group="g", topic=TOPIC, queue_id=0, set_zero_if_not_found=False
        )
        return await self.code(RequestCode.QUERY_CONSUMER_OFFSET, asked)

    async def views(self, place: int) -> bool:
        return not await self.code(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=place))


def on_wire(directory: Path, test: Callable[[Wire], Awaitable[None]], **settings: str) -> None:
    async def run() -> None:
        store = directory / "store"
        # A loaded machine must not lead to busy answers.
        own = {"brokerIP1": HOST, "storePathRootDir": str(store), "brokerFastFailureEnable": "false"}
        broker = ServerProcess("broker", {**SMALL_STORE, **own, **settings}, directory / "broker.log")
        await broker.start()
        wire = Wire(broker, store)
        try:
            await test(wire)
        finally:
            await wire.client.close()
            await broker.kill()

    asyncio.run(run())


def scanned(store: Path, topic: str) -> list[str]:
    """What Spark reads of a topic straight from the log."""
    settings = read_settings({"path": str(store), "topic": topic})
    disk = InlineDisk()
    return [
        value.decode()
        for stretch in plan(disk, settings)
        for batch in read_stretch(disk, settings, stretch, ["body"])
        for value in batch.column(0).to_pylist()
    ]


def test_a_deleted_topic_stays_away(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        for topic in (TOPIC, OTHER):
            await wire.client.create_topic(topic, 1)
        places = await wire.send(TOPIC, *OLD)
        await wire.send(OTHER, *KEPT)
        await wire.delete(TOPIC)
        assert not await wire.by_key(TOPIC)

        async def is_gone() -> None:
            assert not await wire.exists(TOPIC)
            assert await wire.client.max_offset(TOPIC, 0) == 0
            assert not await wire.by_key(TOPIC)
            assert not [place for place in places if await wire.views(place)]
            assert await wire.bodies(OTHER) == await wire.by_key(OTHER) == KEPT

        await wire.without()
        await is_gone()
        await wire.stop()
        assert not scanned(wire.store, TOPIC)
        assert scanned(wire.store, OTHER) == KEPT
        wire.lose("index", "consumequeue", "config/queueTable.*")
        await wire.start()
        await is_gone()

    on_wire(tmp_path, test)


def test_a_topic_made_in_place_of_a_deleted_one_has_its_own_messages_and_no_others(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        await wire.client.create_topic(TOPIC, 1)
        await wire.client.heartbeat("c", "g")
        old = await wire.send(TOPIC, *OLD)
        committed = UpdateConsumerOffsetRequestHeader(consumer_group="g", topic=TOPIC, queue_id=0, commit_offset=20)
        await wire.client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, committed)
        await wire.without()  # the offset is saved
        assert await wire.offset_code() == ResponseCode.SUCCESS
        await wire.delete(TOPIC)
        await wire.client.create_topic(TOPIC, 1)
        new = await wire.send(TOPIC, *NEW)

        async def is_new() -> None:
            assert await wire.bodies(TOPIC) == await wire.by_key(TOPIC) == NEW
            assert not [place for place in old if await wire.views(place)]
            assert all([await wire.views(place) for place in new])
            assert await wire.offset_code() == ResponseCode.QUERY_NOT_FOUND

        await wire.killed()
        await is_new()
        await wire.without("index")
        await is_new()
        await wire.stop()
        assert scanned(wire.store, TOPIC) == NEW
        wire.lose("index", "consumequeue")
        repaired = aerobee("store", "repair", str(wire.store), "--yes", "--json")
        assert repaired.returncode == 0, repaired.stderr
        verified = aerobee("store", "verify", str(wire.store), "--json")
        assert verified.returncode == 0, verified.stdout
        await wire.start()
        await is_new()

    on_wire(tmp_path, test)


def test_what_was_put_away_for_a_deleted_topic_is_not_delivered_to_the_next_one(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        for topic in (TOPIC, OTHER):
            await wire.client.create_topic(topic, 1)
        put_away = ("DELAY\x011\x02", "TIMER_DELAY_MS\x01500\x02")
        for properties in put_away:
            await wire.send(TOPIC, "old", properties=properties)
        await wire.delete(TOPIC)
        await wire.client.create_topic(TOPIC, 1)
        for number in range(20):
            await wire.send("again", f"round {number}")
            await wire.delete("again")
            await wire.delete(f"never-there-{number}")
        await wire.killed()
        for properties in put_away:
            await wire.send(OTHER, "later", properties=properties)
        # Theirs is the later time: once both are here, the others would be.
        offset = 0
        while offset < len(put_away):
            _, offset, _ = await wire.client.pull(OTHER, 0, offset, hold_ms=5000)
        assert await wire.bodies(TOPIC) == []
        # One entry for a name, and none for names that never were.
        content = (wire.store / "config" / "deletedTopics.json").read_text()
        assert set(json.loads(content)["deletedBelow"]) == {TOPIC, "again"}

    on_wire(tmp_path, test, messageDelayLevel="1s", timerPrecisionMs="100")
