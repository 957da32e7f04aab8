"""The puts of one tick: written together, judged one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aerobee.broker.handlers.send import SendAnswers, SendSettings
from aerobee.broker.puts import Puts
from aerobee.errors import StoreError
from aerobee.hot.draft import Draft
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.send import SendMessageRequestHeaderV2
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.storekit import HOST, read_queue


def send(body: bytes, opaque: int, properties: str = "UNIQ_KEY\x01K\x02") -> Command:
    header = SendMessageRequestHeaderV2(
        producer_group="P",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties=properties,
    )
    return request(RequestCode.SEND_MESSAGE_V2, header, body, opaque=opaque)


def test_an_illegal_message_does_not_refuse_those_of_others_in_its_tick() -> None:
    async def main(kit: BrokerKit) -> None:
        await kit.connect().call(send(b"creates the topic", 1))
        good, bad, last = kit.connect(), kit.connect(), kit.connect()
        too_long = "UNIQ_KEY\x01K\x02a\x01" + "b" * 32_740 + "\x02"
        good.send(send(b"one", 1))
        bad.send(send(b"two", 1, too_long))
        last.send(send(b"three", 1))
        assert [answer.code for answer in await good.answers()] == [ResponseCode.SUCCESS]
        assert [answer.code for answer in await bad.answers()] == [ResponseCode.MESSAGE_ILLEGAL]
        assert [answer.code for answer in await last.answers()] == [ResponseCode.SUCCESS]
        bodies = [record.body for record in read_queue(kit.store, b"T", 0)]
        assert bodies == [b"creates the topic", b"one", b"three"]

    run_broker(main)


class Writes:
    """A log that takes everything: the groups it was given."""

    confirmed_offset = 1 << 40

    def __init__(self) -> None:
        self.groups: list[int] = []

    def append(self, drafts: list[Draft]) -> int:
        self.groups.append(len(drafts))
        return len(self.groups)

    def on_safe(self, end_offset: int, callback: Callable[[StoreError | None], None], /) -> None:
        callback(None)


def groups_of(arriving: int, *, gather: bool) -> list[int]:
    """One send in each of so many turns of the loop, and how they were written."""
    log = Writes()

    async def main(kit: BrokerKit) -> None:
        state = kit.state
        answers = SendAnswers(SendSettings("C", "R", False, HOST, 1 << 20, writable=True))
        puts = Puts(log, answers, state.flow, state.clock, timeout_s=1.0, gather=gather)
        for _ in range(arriving):
            puts.send(None, 1, 0, Draft(b"T", 0, 0, 0, 1, HOST, HOST, 0, 0, b"body", b"", 0, "", ""))
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)

    run_broker(main)
    return log.groups


def test_where_a_sync_follows_a_write_waits_while_more_is_coming_but_not_for_ever() -> None:
    assert groups_of(4, gather=False) == [1, 1, 1, 1]
    assert groups_of(1, gather=True) == [1]
    assert groups_of(4, gather=True) == [4]
    without_end = groups_of(40, gather=True)
    assert sum(without_end) == 40
    assert 4 <= max(without_end) <= 8, "a flood does not keep the first of it waiting"
