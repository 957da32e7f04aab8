"""Heartbeats, goodbyes, notices to groups: frames in, frames out."""

import logging

import pytest

from aerobee.broker.config import BrokerConfig
from aerobee.model.names import retry_topic
from aerobee.model.topic import TOPIC_UNIT_SUB, TopicConfig
from aerobee.protocol.bodies.groups import ConsumerList
from aerobee.protocol.bodies.heartbeat import (
    CONSUME_ACTIVELY,
    SQL92,
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from aerobee.protocol.codes import BINARY, RequestCode, ResponseCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.group import GetConsumerListByGroupRequestHeader, UnregisterClientRequestHeader
from aerobee.testing.brokerkit import BrokerKit, KitClient, run_broker


def subscription(topic: str = "T", expression: str = "*", version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic, expression, sub_version=version)


def consumer(*subscriptions: SubscriptionData, group: str = "G", **more: object) -> ConsumerData:
    return ConsumerData(group, "CONSUME_PASSIVELY", "CLUSTERING", None, subscriptions, **more)  # type: ignore[arg-type]


def heartbeat(client_id: str, *consumers: ConsumerData, codec: int = 0, **more: object) -> Command:
    body = HeartbeatData(client_id, (ProducerData("P"),), consumers, **more)  # type: ignore[arg-type]
    return request(RequestCode.HEART_BEAT, body=body.encode(), opaque=1, codec=codec)


async def ids(client: KitClient, group: str = "G") -> tuple[str, ...] | Command:
    header = GetConsumerListByGroupRequestHeader(consumer_group=group)
    answer = await client.call(request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header, opaque=2))
    return ConsumerList.decode(answer.body).consumer_id_list if answer.code == 0 else answer


def goodbye(client_id: str, group: str = "G") -> Command:
    header = UnregisterClientRequestHeader(client_id=client_id, producer_group="P", consumer_group=group)
    return request(RequestCode.UNREGISTER_CLIENT, header, opaque=3)


def notices(pushed: list[Command]) -> list[str]:
    assert all(one.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and one.is_oneway for one in pushed)
    return [one.ext["consumerGroup"] for one in pushed]


@pytest.mark.parametrize("codec", [0, BINARY])
def test_a_second_member_is_known_and_both_are_told(codec: int) -> None:
    async def main(kit: BrokerKit) -> None:
        one, two = kit.connect(), kit.connect()
        answer = await one.call(heartbeat("c1", consumer(subscription()), codec=codec))
        assert (answer.code, answer.codec) == (0, codec)
        assert answer.ext["IS_SUPPORT_HEART_BEAT_V2"] == "true"
        assert answer.ext["IS_SUB_CHANGE"] == "true"
        assert notices(await one.pushes()) == ["G"]
        await two.call(heartbeat("c2", consumer(subscription()), codec=codec))
        assert notices(await one.pushes()) == ["G"]
        assert notices(await two.pushes()) == ["G"]
        assert await ids(one) == ("c1", "c2")
        await one.call(heartbeat("c1", consumer(subscription())))
        assert await two.pushes() == [], "nothing changed"
        assert one.channel.client_id == "c1"
        kit.state.clients.validate()

    run_broker(main)


def test_goodbye_and_a_lost_connection_tell_the_rest() -> None:
    async def main(kit: BrokerKit) -> None:
        clients = [kit.connect() for _ in range(3)]
        for number, client in enumerate(clients):
            await client.call(heartbeat(f"c{number}", consumer(subscription())))
        for client in clients:
            await client.pushes()
        assert (await clients[0].call(goodbye("c0"))).code == 0
        assert notices(await clients[1].pushes()) == ["G"]
        assert await clients[0].pushes() == [], "who left is not told"
        clients[2].close()
        assert notices(await clients[1].pushes()) == ["G"]
        assert await ids(clients[0]) == ("c1",)
        clients[1].close()
        await clients[1].pushes()
        refused = await ids(clients[0])
        assert isinstance(refused, Command)
        assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "no consumer for this group, G")
        assert kit.state.clients.producer_by_id("c0") is None

    run_broker(main)


def test_a_silent_client_is_cut_after_120_s_and_its_queues_are_free() -> None:
    async def main(kit: BrokerKit) -> None:
        silent, living = kit.connect(), kit.connect()
        await silent.call(heartbeat("silent", consumer(subscription())))
        for _ in range(7):
            await living.call(heartbeat("living", consumer(subscription())))
            await kit.pass_time(20, 10)
        assert silent.is_closed
        assert not living.is_closed
        assert await ids(living) == ("living",)
        assert notices(await living.pushes())[-1] == "G"

    run_broker(main)


def test_a_group_gets_its_retry_topic_with_the_flags_of_its_members() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("Ordered", order=True))
        client = kit.connect()
        await client.call(heartbeat("c", consumer(subscription("Ordered"), unit_mode=True)))
        made = kit.state.catalog.find(retry_topic("G"))
        assert made is not None
        assert (made.write_queue_nums, made.perm, made.order, made.topic_sys_flag) == (1, 6, True, TOPIC_UNIT_SUB)
        short = heartbeat("c", consumer(), heartbeat_fingerprint=7, without_sub=True)
        await client.call(short)
        assert kit.state.catalog.find(retry_topic("G")) == made, "a short heartbeat tells no subscriptions"
        await client.call(heartbeat("c", consumer(subscription("T"))))
        again = kit.state.catalog.find(retry_topic("G"))
        assert again is not None
        assert not again.order

    run_broker(main)


def test_version_2_asks_for_a_full_heartbeat_when_the_group_s_last_was_another() -> None:
    async def main(kit: BrokerKit) -> None:
        one, two = kit.connect(), kit.connect()

        async def changed(client: KitClient, command: Command) -> str:
            return (await client.call(command)).ext["IS_SUB_CHANGE"]

        full_1 = heartbeat("c1", consumer(subscription()), heartbeat_fingerprint=11)
        full_2 = heartbeat("c2", consumer(subscription("U")), heartbeat_fingerprint=22)
        short_1 = heartbeat("c1", consumer(), heartbeat_fingerprint=11, without_sub=True)
        assert await changed(one, full_1) == "false"
        assert await changed(one, short_1) == "false"
        group = kit.state.clients.group("G")
        assert group is not None
        assert list(group.subscriptions) == ["T"], "a short heartbeat leaves what is subscribed"
        assert await changed(two, full_2) == "true"
        assert await changed(one, short_1) == "true", "and so the first sends all of it again"
        assert await changed(one, heartbeat("c1", consumer(subscription()))) == "true", "version 1 is always changed"
        assert await changed(one, full_1) == "true"

    run_broker(main)


def test_a_short_heartbeat_to_a_broker_that_knows_nothing_is_answered_with_change() -> None:
    async def main(kit: BrokerKit) -> None:
        short = heartbeat("c1", consumer(), heartbeat_fingerprint=11, without_sub=True)
        assert (await kit.connect().call(short)).ext["IS_SUB_CHANGE"] == "true"

    run_broker(main)


def test_members_that_subscribe_differently_are_both_named_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main(kit: BrokerKit) -> None:
        one, two = kit.connect(), kit.connect()
        await one.call(heartbeat("client-one", consumer(subscription("T", "a"))))
        for _ in range(2):
            await two.call(heartbeat("client-two", consumer(subscription("U"))))

    with caplog.at_level(logging.WARNING, "aerobee.broker.membership.clients"):
        run_broker(main)
    lines = [record.getMessage() for record in caplog.records if "subscribe differently" in record.getMessage()]
    assert len(lines) == 1
    assert "client-one" in lines[0]
    assert "client-two" in lines[0]


def test_a_group_that_may_not_come_by_itself_is_not_registered() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        assert (await client.call(heartbeat("c", consumer(subscription())))).code == 0
        assert isinstance(await ids(client), Command)
        assert kit.state.clients.producer_by_id("c") == client.channel.id

    run_broker(main, config=BrokerConfig(broker_name="b", auto_create_subscription_group=False))


def test_pull_consumers_are_passed_over_where_they_are_refused() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        active = ConsumerData("G", CONSUME_ACTIVELY, "CLUSTERING", None, (subscription(),))
        await client.call(heartbeat("c", active))
        assert isinstance(await ids(client), Command)

    run_broker(main, config=BrokerConfig(broker_name="b", reject_pull_consumer_enable=True))


@pytest.mark.parametrize(
    ("kind", "enabled", "code"),
    [("TAG", False, 0), (SQL92, False, ResponseCode.SYSTEM_ERROR), (SQL92, True, 0)],
)
def test_a_subscription_is_checked_before_it_is_used(kind: str, enabled: bool, code: int) -> None:
    async def main(kit: BrokerKit) -> None:
        wanted = SubscriptionData("T", "a > 1", expression_type=kind)
        body = CheckClientRequestBody("c", "G", wanted)
        asked = request(RequestCode.CHECK_CLIENT_CONFIG, body=body.encode(), opaque=9)
        answer = await kit.connect().call(asked)
        assert answer.code == code
        assert ("by SQL92: it runs with enablePropertyFilter=false" in (answer.remark or "")) == bool(code)

    run_broker(main, config=BrokerConfig(broker_name="b", enable_property_filter=enabled))


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"producerDataSet":[]}', b'{"clientID":[]}'])
def test_nonsense_in_a_heartbeat_is_an_answer_not_a_broken_connection(body: bytes) -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        answer = await client.call(request(RequestCode.HEART_BEAT, body=body, opaque=1))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert not client.is_closed
        assert await ids(client) is not None

    run_broker(main)
