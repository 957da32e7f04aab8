"""Pulls that find nothing, through a whole broker: what wakes them, what answers them, what forgets them."""

from __future__ import annotations

from aerobee.hot.log.record import decode_records
from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.sendkit import send

SUSPEND, SUBSCRIPTION = 2, 4


def pull(opaque: int, *, offset: int = 0, tags: str = "*", hold_ms: int = 15_000) -> Command:
    header = PullMessageRequestHeader(
        consumer_group="G", topic="T", queue_id=0, queue_offset=offset, max_msg_nums=32,
        sys_flag=SUSPEND | SUBSCRIPTION, commit_offset=0, suspend_timeout_millis=hold_ms, subscription=tags,
        sub_version=1, expression_type="TAG",
    )  # fmt: skip
    return request(RequestCode.PULL_MESSAGE, header, opaque=opaque)


def bodies(answer: Command) -> list[bytes]:
    return [record.body for record in decode_records(answer.body)]


def test_a_held_pull_is_answered_when_a_message_comes() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 1, 1))
        readers, producer = [kit.connect(), kit.connect()], kit.connect()
        for opaque, reader in enumerate(readers):
            reader.send(pull(opaque))
            assert await reader.answers() == []
        assert (await producer.call(send("A", b"one"))).code == 0
        for opaque, reader in enumerate(readers):
            (answer,) = await reader.answers()
            assert (answer.opaque, answer.code, bodies(answer)) == (opaque, 0, [b"one"])
        assert len(kit.state.polls) == 0

    run_broker(main)


def test_a_message_with_another_tag_wakes_nobody_before_the_sweep() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 1, 1))
        reader, producer = kit.connect(), kit.connect()
        reader.send(pull(1, tags="PAID"))
        await producer.call(send("A", properties={"TAGS": "OPEN"}))
        assert await reader.answers() == []
        await kit.pass_time(6)
        (answer,) = await reader.answers()
        assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "1")

    run_broker(main)


def test_its_time_ends_it_and_a_lost_connection_forgets_it() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 1, 1))
        reader, gone = kit.connect(), kit.connect()
        reader.send(pull(1, hold_ms=2_000))
        gone.send(pull(2))
        await kit.pass_time(1.9, 0.1)
        assert await reader.answers() == []
        assert len(kit.state.polls) == 2
        gone.close()
        await kit.pass_time(0.3, 0.1)
        (answer,) = await reader.answers()
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert len(kit.state.polls) == 0

    run_broker(main)


def test_a_broker_that_stops_answers_the_pulls_that_it_holds() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 1, 1))
        reader = kit.connect()
        reader.send(pull(1))
        assert await reader.answers() == []
        kit.broker.release()
        (answer,) = await reader.answers()
        assert answer.code == ResponseCode.PULL_NOT_FOUND

    run_broker(main)
