"""The puts of one tick: written together, judged one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aerobee.broker.log.puts import Puts, SendSettings
from aerobee.broker.send.handler import SendAnswers
from aerobee.hot.log.record import Draft
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.send import SendMessageRequestHeaderV2
from aerobee.replication.classic.acks import SlaveAcks
from aerobee.replication.classic.replicated import ReplicatedLog
from aerobee.testing.brokerkit import BrokerKit, run_broker, settle
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


def draft() -> Draft:
    return Draft(b"T", 0, 0, 0, 1, HOST, HOST, 0, 0, b"body", b"", 0, "", "")


def written_by(use: Callable[[Puts, list[int]], Awaitable[None]], *, gather: bool = False) -> list[int]:
    """Return how many drafts each write held. `use` gets the puts, and sees this list grow."""
    groups: list[int] = []

    async def main(kit: BrokerKit) -> None:
        answers = SendAnswers(SendSettings("C", "R", False, HOST, 1 << 20, writable=True))
        await use(
            Puts(
                kit.store, answers, kit.state.flow, kit.state.clock, timeout_s=1.0, gather=gather,
                stored=lambda drafts: groups.append(len(drafts)),
            ),
            groups,
        )  # fmt: skip
        await settle()

    run_broker(main)
    return groups


def groups_of(arriving: int, *, gather: bool) -> list[int]:
    """One send in each of so many turns of the loop, and how they were written."""

    async def use(puts: Puts, groups: list[int]) -> None:
        for _ in range(arriving):
            puts.send(None, 1, 0, draft())
            await asyncio.sleep(0)

    return written_by(use, gather=gather)


def test_where_a_sync_follows_a_write_waits_while_more_is_coming_but_not_for_ever() -> None:
    assert groups_of(4, gather=False) == [1, 1, 1, 1]
    assert groups_of(1, gather=True) == [1]
    assert groups_of(4, gather=True) == [4]
    without_end = groups_of(40, gather=True)
    assert sum(without_end) == 40
    assert 4 <= max(without_end) <= 8, "a flood does not keep the first of it waiting"


def test_a_send_is_written_at_once_while_sends_come_one_by_one() -> None:
    async def use(puts: Puts, groups: list[int]) -> None:
        for turn in range(4):
            puts.send_alone(None, 1, 0, draft(), read_s=float(turn))
            assert len(groups) == turn, "the first ones wait for the end of their turn"
            await asyncio.sleep(0)
        puts.send_alone(None, 1, 0, draft(), read_s=5.0)
        assert groups == [1] * 5
        puts.send_alone(None, 1, 0, draft(), read_s=5.00001)
        puts.send_alone(None, 1, 0, draft(), read_s=5.0001)
        puts.send(None, 1, 0, draft())
        assert groups == [1] * 5, "one that was there at the same time is written with those that follow"
        await asyncio.sleep(0)
        assert groups == [1, 1, 1, 1, 1, 3]
        puts.send_alone(None, 1, 0, draft(), read_s=6.0)
        assert len(groups) == 6, "a turn that brought several ends it"
        await asyncio.sleep(0)

    assert sum(written_by(use)) == 9


def test_where_a_sync_follows_no_send_is_written_at_once() -> None:
    async def use(puts: Puts, groups: list[int]) -> None:
        for turn in range(10):
            puts.send_alone(None, 1, 0, draft(), read_s=float(turn))
            assert len(groups) == turn
            for _ in range(10):
                await asyncio.sleep(0)

    assert written_by(use, gather=True) == [1] * 10


def test_a_send_written_at_once_is_answered_as_any_other() -> None:
    async def main(kit: BrokerKit) -> None:
        peer = kit.connect()
        await peer.call(send(b"creates the topic", 1))
        opaques = [2]

        async def ask(body: bytes, properties: str = "UNIQ_KEY\x01K\x02") -> Command:
            await asyncio.sleep(0.001)
            opaques[0] += 1
            return await peer.call(send(body, opaques[0], properties))

        plain = [await ask(b"%d" % i) for i in range(8)]
        assert [answer.ext["queueOffset"] for answer in plain] == [str(i + 1) for i in range(8)]
        assert {tuple(answer.ext) for answer in plain} == {tuple(plain[0].ext)}
        too_long = "UNIQ_KEY\x01K\x02a\x01" + "b" * 32_740 + "\x02"
        assert (await ask(b"refused", too_long)).code == ResponseCode.MESSAGE_ILLEGAL
        kit.store.refuse_full("no room")
        assert (await ask(b"refused")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        kit.store.refuse_full(None)
        kit.store.set_confirm_limit(kit.store.log_end)
        waiting = asyncio.ensure_future(ask(b"waits for a replica"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        kit.store.set_confirm_limit(None)
        assert (await waiting).code == ResponseCode.SUCCESS
        assert len(list(read_queue(kit.store, b"T", 0))) == 10

    run_broker(main)


def test_each_put_that_waits_for_slaves_is_told_in_its_own_time() -> None:
    told: list[tuple[str, int, float]] = []

    async def main(kit: BrokerKit) -> None:
        answers = SendAnswers(SendSettings("C", "R", False, HOST, 1 << 20, writable=True))
        puts = Puts(kit.store, answers, kit.state.flow, kit.state.clock, timeout_s=3.0)
        acks = SlaveAcks(needed=1)
        puts.slaves = ReplicatedLog(kit.store, acks)
        puts.late_code = lambda end: ResponseCode.FLUSH_SLAVE_TIMEOUT
        loop = asyncio.get_running_loop()
        began_s = loop.time()

        def put(name: str) -> None:
            puts.put([draft()], lambda code, _: told.append((name, code, loop.time() - began_s)), may_be_late=True)

        put("first")
        await asyncio.sleep(1)
        put("second")
        await asyncio.sleep(1.5)
        assert told == []
        await asyncio.sleep(1)
        put("third")
        await asyncio.sleep(1)
        acks.acked(1, kit.store.log_end)
        put("fourth")
        await asyncio.sleep(10)

    run_broker(main)
    late = ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert [(name, code) for name, code, _ in told] == [
        ("first", late),
        ("second", late),
        ("third", 0),
        ("fourth", late),
    ]
    assert [at for _, _, at in told] == pytest.approx([3.0, 4.0, 4.5, 7.5], abs=0.01)


def test_who_waits_again_when_he_is_told_delays_nobody() -> None:
    told: list[tuple[str, float]] = []

    async def main(kit: BrokerKit) -> None:
        answers = SendAnswers(SendSettings("C", "R", False, HOST, 1 << 20, writable=True))
        puts = Puts(kit.store, answers, kit.state.flow, kit.state.clock, timeout_s=3.0)
        puts.slaves = ReplicatedLog(kit.store, SlaveAcks(needed=1))
        loop = asyncio.get_running_loop()
        began_s = loop.time()

        def again(code: int, remark: str) -> None:
            told.append(("first", loop.time() - began_s))
            puts.when_safe(kit.store.log_end, lambda code, _: told.append(("again", loop.time() - began_s)))

        puts.put([draft()], again)
        await asyncio.sleep(1)
        puts.put([draft()], lambda code, _: told.append(("second", loop.time() - began_s)))
        await asyncio.sleep(10)

    run_broker(main)
    assert [name for name, _ in told] == ["first", "second", "again"]
    assert [at for _, at in told] == pytest.approx([3.0, 4.0, 6.0], abs=0.01)


def test_a_change_of_settings_leaves_senders_the_time_that_slaves_have() -> None:
    async def main(kit: BrokerKit) -> None:
        puts, config = kit.state.puts, kit.store.config
        puts.slaves = ReplicatedLog(kit.store, SlaveAcks(needed=1))
        kit.broker.live_settings.update({"traceOn": "false"})
        assert config.slave_timeout_ms != config.sync_flush_timeout_ms
        assert puts.timeout_s == config.slave_timeout_ms / 1000

    run_broker(main)
