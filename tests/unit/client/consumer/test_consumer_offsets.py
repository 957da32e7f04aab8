"""Where a consumer starts: an error on the way to the answer is never taken for the answer (and local offsets)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aerobee import AerobeeError, Message, MessageQueue, PushConsumer
from aerobee.client.consumer.offsetstore import LocalOffsets
from aerobee.hot.log.record import Draft, encode_records
from aerobee.net.channel import Channel
from aerobee.protocol.bodies.groups import ConsumerList
from aerobee.protocol.bodies.offsets import ResetOffsetBody
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.offset import GetMaxOffsetResponseHeader, QueryConsumerOffsetResponseHeader
from aerobee.protocol.headers.pull import PullMessageResponseHeader

QUEUE = MessageQueue("T", "broker-a", 0)


class ConsumedBroker:
    """Adds what a consumer asks to a scripted broker: one queue, whose committed offset fails to be told at first."""

    def __init__(self, broker: Any, query: Callable[[int, Command], Command]) -> None:
        self.pulled_at: list[int] = []
        self.saved: list[int] = []
        self._broker = broker
        self._query = query
        self._asked = 0
        handlers = broker.handlers
        handlers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = self._members
        handlers[RequestCode.QUERY_CONSUMER_OFFSET] = self._offset
        handlers[RequestCode.GET_MAX_OFFSET] = self._end
        handlers[RequestCode.PULL_MESSAGE] = self._pull
        handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = self._save

    def _members(self, channel: Channel, command: Command) -> Command:
        ids = tuple(beat.client_id for beat in self._broker.heartbeats)
        return response(command, body=ConsumerList(tuple(dict.fromkeys(ids))).encode())

    def _offset(self, channel: Channel, command: Command) -> Command:
        self._asked += 1
        return self._query(self._asked, command)

    def _end(self, channel: Channel, command: Command) -> Command:
        return response(command, ResponseCode.SUCCESS, GetMaxOffsetResponseHeader(offset=100))

    def _pull(self, channel: Channel, command: Command) -> Command | None:
        offset = int(command.ext["queueOffset"])
        self.pulled_at.append(offset)
        self._broker.changed.set()
        if command.ext["topic"] != "T" or len(self.pulled_at) > 1:
            return None
        draft = Draft(
            b"T", 0, 0, 0, 1, bytes(8), bytes(8), 0, 0, b"body", b"UNIQ_KEY\x01id\x02", 0, "", "id"
        )  # fmt: skip
        draft.queue_offset = offset
        header = PullMessageResponseHeader(
            suggest_which_broker_id=0, next_begin_offset=offset + 1, min_offset=0, max_offset=100
        )
        return response(command, ResponseCode.SUCCESS, header, encode_records([draft], 0, 1, False))

    def _save(self, channel: Channel, command: Command) -> Command:
        self.saved.append(int(command.ext["commitOffset"]))
        return response(command)


def consume(new_cluster: Any, query: Callable[[int, Command], Command], **options: Any) -> ConsumedBroker:
    async def main() -> ConsumedBroker:
        async with new_cluster("broker-a", queue_nums=1, unknown={"%RETRY%g"}) as cluster:
            consumed = ConsumedBroker(cluster.brokers[0], query)
            consumer = PushConsumer(cluster.namesrv, group="g", **options)
            done = asyncio.Event()

            @consumer.listener("T")
            async def handle(message: Message) -> None:
                done.set()

            async with consumer, asyncio.timeout(60):
                await done.wait()
            return consumed

    return asyncio.run(main())


def failing_twice_then(answer: Callable[[Command], Command]) -> Callable[[int, Command], Command]:
    def query(count: int, command: Command) -> Command:
        if count == 1:
            return response(command, ResponseCode.SYSTEM_ERROR, remark="not now")
        if count == 2:
            return response(command, ResponseCode.SYSTEM_BUSY, remark="busy")
        return answer(command)

    return query


def known(command: Command) -> Command:
    return response(command, ResponseCode.SUCCESS, QueryConsumerOffsetResponseHeader(offset=42))


def unknown(command: Command) -> Command:
    return response(command, ResponseCode.QUERY_NOT_FOUND, remark="Not found")


@pytest.mark.parametrize("where", ["first", "last", "timestamp"])
def test_an_error_on_the_offset_query_starts_nowhere(new_cluster: Any, where: str) -> None:
    consumed = consume(new_cluster, failing_twice_then(known), consume_from=where)
    assert consumed.pulled_at[0] == 42
    assert consumed.saved == [43]


def test_a_group_that_never_consumed_starts_at_the_end_and_that_is_saved(new_cluster: Any) -> None:
    consumed = consume(new_cluster, failing_twice_then(unknown), consume_from="last")
    assert consumed.pulled_at[0] == 100
    assert consumed.saved == [101]


class TestLocalOffsets:
    def test_are_found_again(self, tmp_path: Path) -> None:
        path = tmp_path / "client" / "g" / "offsets.json"

        async def main() -> None:
            first = LocalOffsets(str(path))
            await first.load()
            assert await first.read(QUEUE) is None
            first.table.reset(QUEUE, 7)
            assert await first.persist()
            first.table.advance(QUEUE, 9)
            assert await first.persist([QUEUE])
            second = LocalOffsets(str(path))
            await second.load()
            assert await second.read(QUEUE) == 9

        asyncio.run(main())
        assert ResetOffsetBody.decode(path.read_bytes()).offset_table == {QUEUE: 9}
        assert b'{"brokerName":"broker-a","queueId":0,"topic":"T"}:9' in path.read_bytes()

    def test_a_damaged_file_falls_back_on_its_copy_and_two_stop_the_start(self, tmp_path: Path) -> None:
        path = tmp_path / "offsets.json"
        path.write_bytes(b'{"offsetTable":{')
        path.with_name("offsets.json.bak").write_bytes(ResetOffsetBody({QUEUE: 3}).encode())

        async def read() -> int | None:
            offsets = LocalOffsets(str(path))
            await offsets.load()
            return await offsets.read(QUEUE)

        assert asyncio.run(read()) == 3
        path.with_name("offsets.json.bak").write_bytes(b"junk")
        with pytest.raises(AerobeeError, match="cannot be read"):
            asyncio.run(read())
