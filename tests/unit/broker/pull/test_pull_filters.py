"""Pulls with a filter, held and woken: frames in, frames out, on virtual time."""

from __future__ import annotations

from aerobee.broker.config import BrokerConfig
from aerobee.broker.pull.rules import FLAG_SUBSCRIPTION, FLAG_SUSPEND
from aerobee.hot.log.properties import encode_properties
from aerobee.hot.log.record import decode_records
from aerobee.model.topic import TopicConfig
from aerobee.protocol.bodies.heartbeat import (
    SQL92,
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
)
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.testing.brokerkit import BrokerKit, KitClient, run_broker, settle
from aerobee.testing.storekit import draft

CONFIG = BrokerConfig(broker_name="b", broker_ip1="127.0.0.1", enable_property_filter=True)


class Pulls:
    """A broker that serves pulls, with messages that carry `n`, or nothing."""

    def __init__(self, kit: BrokerKit) -> None:
        self.kit = kit
        kit.state.catalog.put_topic(TopicConfig("T", 1, 1))

    def append(self, *values: int | None) -> None:
        for value in values:
            one = draft(b"%d" % (value or 0), b"T")
            one.properties = b"" if value is None else encode_properties({"n": str(value)})
            self.kit.store.append([one])
        self.kit.tick()

    def pull(self, offset: int, expression: str = "n > 5", opaque: int = 7, count: int = 32) -> Command:
        header = PullMessageRequestHeader(
            consumer_group="G", topic="T", queue_id=0, queue_offset=offset, max_msg_nums=count,
            sys_flag=FLAG_SUBSCRIPTION | FLAG_SUSPEND, commit_offset=0, suspend_timeout_millis=15_000,
            subscription=expression, sub_version=1, expression_type=SQL92,
        )  # fmt: skip
        return request(RequestCode.PULL_MESSAGE, header, opaque=opaque)


def told(answer: Command) -> tuple[int, int, list[bytes]]:
    bodies = [record.body for record in decode_records(answer.body)] if answer.body else []
    return answer.code, int(answer.ext["nextBeginOffset"]), bodies


async def only(client: KitClient) -> Command:
    (answer,) = await client.answers()
    return answer


def test_what_matches_is_read_and_a_batch_without_a_match_says_where_to_go_on() -> None:
    async def main(kit: BrokerKit) -> None:
        pulls, client = Pulls(kit), kit.connect()
        pulls.append(1, 7, None, 3, 9, 2)
        assert told(await client.call(pulls.pull(0))) == (0, 6, [b"7", b"9"])
        assert told(await client.call(pulls.pull(0, count=1))) == (0, 2, [b"7"])
        assert told(await client.call(pulls.pull(2, "n IS NULL"))) == (0, 6, [b"0"])
        nothing = await client.call(pulls.pull(0, "n > 100"))
        assert told(nothing) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 6, [])
        assert nothing.remark == "NO_MATCHED_MESSAGE"

    run_broker(main, config=CONFIG)


def test_a_held_pull_waits_on_behind_what_does_not_match() -> None:
    async def main(kit: BrokerKit) -> None:
        pulls, client = Pulls(kit), kit.connect()
        pulls.append(9)
        client.send(pulls.pull(1))
        assert await client.answers() == []
        pulls.append(1, None, 2)
        assert await client.answers() == [], "woken, looked at, held again"
        await kit.pass_time(5)
        assert await client.answers() == []
        pulls.append(3, 8)
        assert told(await only(client)) == (0, 6, [b"8"])
        kit.state.polls.validate()

    run_broker(main, config=CONFIG)


def test_its_time_does_not_begin_anew_and_its_answer_moves_the_reader_on() -> None:
    async def main(kit: BrokerKit) -> None:
        pulls, client = Pulls(kit), kit.connect()
        pulls.append(9)
        client.send(pulls.pull(1))
        for _ in range(3):
            await kit.pass_time(4)
            pulls.append(1)
            assert await client.answers() == []
        await kit.pass_time(2.8)
        assert await client.answers() == []
        await kit.pass_time(0.4)
        assert told(await only(client)) == (ResponseCode.PULL_NOT_FOUND, 4, [])

    run_broker(main, config=CONFIG)


def test_a_group_is_filtered_by_what_its_heartbeat_said() -> None:
    async def main(kit: BrokerKit) -> None:
        pulls, client = Pulls(kit), kit.connect()
        pulls.append(1, 2, 3)
        header = PullMessageRequestHeader(
            consumer_group="G", topic="T", queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=0, commit_offset=0,
            suspend_timeout_millis=0, sub_version=1,
        )  # fmt: skip
        asked = request(RequestCode.PULL_MESSAGE, header, opaque=3)

        async def beat(expression: str, version: int) -> None:
            wanted = SubscriptionData("T", expression, sub_version=version, expression_type=SQL92)
            consumer = ConsumerData("G", "CONSUME_PASSIVELY", "CLUSTERING", None, (wanted,))
            body = HeartbeatData("c", (), (consumer,)).encode()
            await client.call(request(RequestCode.HEART_BEAT, body=body, opaque=1))

        await beat("n >", 1)
        assert (await client.call(asked)).code == ResponseCode.FILTER_DATA_NOT_EXIST
        await beat("n = 2", 2)
        assert told(await client.call(asked)) == (0, 3, [b"2"])
        client.close()
        await settle()
        data = kit.state.filters.get("T", "G")
        assert data is not None
        assert data.is_dead

    run_broker(main, config=CONFIG)


def test_a_subscription_with_a_wrong_expression_is_refused_before_it_is_used() -> None:
    async def main(kit: BrokerKit) -> None:
        for expression, code in (("a > 1", 0), ("a > 'x'", ResponseCode.SUBSCRIPTION_PARSE_FAILED)):
            wanted = SubscriptionData("T", expression, expression_type=SQL92)
            body = CheckClientRequestBody("c", "G", wanted).encode()
            answer = await kit.connect().call(request(RequestCode.CHECK_CLIENT_CONFIG, body=body, opaque=9))
            assert answer.code == code
            if code:
                assert (answer.remark or "").endswith("at character 5\n  a > 'x'\n      ^")

    run_broker(main, config=CONFIG)
