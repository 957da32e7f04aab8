"""Sends the broker acts upon, messages sent back, replies, assignment: frames in, records and frames out."""

from dataclasses import replace

import pytest

from aerobee.broker.config import BrokerConfig
from aerobee.broker.send.special import group_of_retry_topic
from aerobee.broker.stats import BROKER_PUT_NUMS, SNDBCK_PUT_NUMS, TOPIC_PUT_NUMS, TOPIC_PUT_SIZE
from aerobee.hot.log.properties import decode_properties, encode_properties
from aerobee.hot.log.record import Record
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.names import SCHEDULE_TOPIC
from aerobee.model.queue import MessageQueue
from aerobee.model.topic import TopicConfig
from aerobee.protocol.bodies.groups import (
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from aerobee.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from aerobee.protocol.codes import BINARY, RequestCode, ResponseCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    RecallMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.storekit import bodies, draft, read_queue, small_config

DELAYS_S = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


def send(topic: str = "T", body: bytes = b"body", *, oneway: bool = False, codec: int = 0, **named: object) -> Command:
    properties = named.pop("properties", {})
    assert isinstance(properties, dict)
    fields: dict[str, object] = {
        "producer_group": "P", "topic": topic, "default_topic": "TBW102", "default_topic_queue_nums": 4,
        "queue_id": 2, "sys_flag": 0, "born_timestamp": 1, "flag": 0,
        "properties": encode_properties({"UNIQ_KEY": "K", **properties}).decode(), **named,
    }  # fmt: skip
    header = SendMessageRequestHeaderV2(**fields)  # type: ignore[arg-type]
    return request(RequestCode.SEND_MESSAGE_V2, header, body, opaque=8, oneway=oneway, codec=codec)


def back(offset: int, level: int = 0, group: str = "G", **more: object) -> Command:
    header = ConsumerSendMsgBackRequestHeader(offset=offset, group=group, delay_level=level, **more)  # type: ignore[arg-type]
    return request(RequestCode.CONSUMER_SEND_MSG_BACK, header, opaque=6)


def records(kit: BrokerKit, topic: str, queue_id: int = 0) -> list[Record]:
    return read_queue(kit.store, topic.encode(), queue_id)


# -- sent back


def test_a_message_is_retried_16_times_with_growing_delays_and_then_a_dead_letter() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        assert (await client.call(send(properties={"KEYS": "k", "TAGS": "t"}))).code == 0
        message = records(kit, "T", 2)[0]
        for times, delay_s in enumerate(DELAYS_S, 1):
            assert (await client.call(back(message.physical_offset))).code == 0
            await kit.pass_time(delay_s - 1, 5000)
            assert len(records(kit, "%RETRY%G")) == times - 1, f"retry {times} came early"
            await kit.pass_time(1.1)
            retries = records(kit, "%RETRY%G")
            assert len(retries) == times
            message = retries[-1]
            assert (message.reconsume_times, message.body) == (times, b"body")
            properties = decode_properties(message.properties)
            assert properties["RETRY_TOPIC"] == "T"
            assert properties["KEYS"] == "k"
        assert (await client.call(back(message.physical_offset))).code == 0
        dead = records(kit, "%DLQ%G")
        assert [record.reconsume_times for record in dead] == [17]
        properties = decode_properties(dead[0].properties)
        assert properties["ORIGIN_MESSAGE_ID"].endswith(f"{records(kit, 'T', 2)[0].physical_offset:016X}")
        await kit.pass_time(8000, 1000)
        assert len(records(kit, "%RETRY%G")) == 16, "a dead letter stays dead"
        assert kit.state.stats.total(SNDBCK_PUT_NUMS, "T@G") == 17
        topic = kit.state.catalog.find("%DLQ%G")
        assert topic is not None
        assert (topic.write_queue_nums, topic.perm) == (1, 6)

    run_broker(main)


@pytest.mark.parametrize("level", [-1, 2])
def test_a_client_may_name_the_level_or_give_up_at_once(level: int) -> None:
    async def main(kit: BrokerKit) -> None:
        kit.store.append([draft(topic=b"T")])
        assert (await kit.connect().call(back(0, level))).code == 0
        if level < 0:
            assert len(records(kit, "%DLQ%G")) == 1
        else:
            assert len(records(kit, SCHEDULE_TOPIC, level - 1)) == 1

    run_broker(main)


def test_send_backs_that_cannot_be_served() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        kit.store.append([draft(topic=b"T")])
        answer = await client.call(back(5))
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "look message by offset failed, 5")
        assert (await client.call(back(0, group="nobody"))).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        kit.state.catalog.put_group(SubscriptionGroupConfig("Keeps-none", retry_queue_nums=0))
        assert (await client.call(back(0, group="Keeps-none"))).code == 0
        retry = kit.state.catalog.find("%RETRY%G")
        assert retry is not None
        kit.state.catalog.put_topic(replace(retry, perm=4))
        assert (await client.call(back(0))).code == ResponseCode.NO_PERMISSION
        assert kit.store.max_offset(SCHEDULE_TOPIC.encode(), 2) == 0

    groups = BrokerConfig(broker_name="b", auto_create_subscription_group=False)

    async def prepared(kit: BrokerKit) -> None:
        kit.state.catalog.put_group(SubscriptionGroupConfig("G"))
        await main(kit)

    run_broker(prepared, config=groups)


# -- sends with a meaning


@pytest.mark.parametrize("codec", [0, BINARY])
def test_a_delayed_message_waits_and_its_sender_is_told_the_queue_it_chose(codec: int) -> None:
    async def main(kit: BrokerKit) -> None:
        sent = send(properties={"DELAY": "3", "TAGS": "a"}, codec=codec)
        answer = await kit.connect().call(sent)
        assert (answer.code, answer.ext["queueId"], answer.ext["queueOffset"]) == (0, "2", "0")
        assert answer.ext["transactionId"] == "K"
        assert len(records(kit, SCHEDULE_TOPIC, 2)) == 1
        await kit.pass_time(9.9, 9.9)
        assert records(kit, "T", 2) == []
        await kit.pass_time(0.2)
        assert [record.body for record in records(kit, "T", 2)] == [b"body"]
        result = kit.store.get_messages(b"T", 2, 0, tags={97})
        assert result.count == 1, "the copy is found by its tag again"

    run_broker(main)


def test_a_level_too_high_is_the_highest_and_wins_over_a_timer() -> None:
    async def main(kit: BrokerKit) -> None:
        answer = await kit.connect().call(send(properties={"DELAY": "99", "TIMER_DELAY_SEC": "1"}))
        assert answer.code == 0
        stored = decode_properties(records(kit, SCHEDULE_TOPIC, 17)[0].properties)
        assert (stored["DELAY"], stored.get("TIMER_DELAY_SEC")) == ("18", None)

    run_broker(main)


@pytest.mark.parametrize(
    ("properties", "code", "remark"),
    [
        (
            {"TRAN_MSG": "true"},
            ResponseCode.NO_PERMISSION,
            "the broker[127.0.0.1] sending transaction message is forbidden",
        ),
        (
            {"TIMER_DELAY_SEC": "5"},
            ResponseCode.SYSTEM_ERROR,
            "accurate timer message is not enabled, timerWheelEnable is false",
        ),
        ({"__LITE_TOPIC": "l"}, ResponseCode.SYSTEM_ERROR, "lite topics are not served by this broker"),
    ],
)
def test_what_is_not_served_is_refused_in_words(properties: dict[str, str], code: int, remark: str) -> None:
    async def main(kit: BrokerKit) -> None:
        answer = await kit.connect().call(send(properties=properties))
        assert (answer.code, answer.remark) == (code, remark)
        assert kit.store.log_end == 0

    config = BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1", reject_transaction_message=True)
    run_broker(main, config=config, store_config=small_config(segment=1 << 20, timer_wheel_enable=False))


def test_a_message_without_a_body_is_illegal() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 4, 4))
        answer = await kit.connect().call(send(body=b""))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert (answer.remark or "").startswith("the message is illegal")

    run_broker(main)


def test_a_compacted_topic_wants_keys() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 4, 4, attributes={"cleanup.policy": "COMPACTION"}))
        client = kit.connect()
        answer = await client.call(send())
        assert (answer.code, answer.remark) == (ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")
        assert (await client.call(send(properties={"KEYS": "k"}))).code == 0

    run_broker(main)


@pytest.mark.parametrize(
    ("properties", "queue_id", "kept"),
    [
        ({"_SYS_MSG_PRIORITY_": "1"}, 1, True),
        ({"_SYS_MSG_PRIORITY_": "9"}, 3, True),
        ({"_SYS_MSG_PRIORITY_": "1", "__SHARDINGKEY": "s"}, 2, False),
        ({"_SYS_MSG_PRIORITY_": "high"}, 2, True),
    ],
)
def test_a_priority_is_the_queue(properties: dict[str, str], queue_id: int, kept: bool) -> None:
    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 4, 4))
        answer = await kit.connect().call(send(properties=properties))
        assert answer.ext["queueId"] == str(queue_id)
        stored = records(kit, "T", queue_id)
        assert ("_SYS_MSG_PRIORITY_" in decode_properties(stored[0].properties)) is kept

    run_broker(main)


@pytest.mark.parametrize(
    ("times", "own_limit", "locked", "dead"),
    [
        (16, None, False, False),
        (17, None, False, True),
        (4, 3, False, True),
        (3, 3, False, False),
        (0, None, True, True),
    ],
)
def test_a_retry_that_a_client_sends_itself(times: int, own_limit: int | None, locked: bool, dead: bool) -> None:
    async def main(kit: BrokerKit) -> None:
        if locked:
            kit.state.locks.lock("G", [MessageQueue("T", "broker-a", 0)], "c", kit.clock.monotonic())
        sent = send(
            "%RETRY%G", queue_id=0, properties={"DELAY": "4"}, reconsume_times=times, max_reconsume_times=own_limit
        )
        assert (await kit.connect().call(sent)).code == 0
        assert len(records(kit, "%DLQ%G")) == dead
        assert len(records(kit, SCHEDULE_TOPIC, 3)) == (not dead)
        if dead:
            assert decode_properties(records(kit, "%DLQ%G")[0].properties)["DELAY"] == "-1"

    run_broker(main)


def test_the_group_of_a_retry_topic() -> None:
    assert group_of_retry_topic("%RETRY%G") == "G"
    assert group_of_retry_topic("%RETRY%G+T") == "G"
    assert group_of_retry_topic("%RETRY%G_T") == "G_T"
    assert group_of_retry_topic("%RETRY%a+b+c") == "a+b+c"


def test_sends_are_counted_by_topic_also_oneway_ones() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        for _ in range(3):
            client.send(send(oneway=True))
        await client.call(send(properties={"DELAY": "1"}))
        assert await client.answers() == []
        await kit.pass_time(11)
        stats = kit.state.stats
        assert stats.total(TOPIC_PUT_NUMS, "T") == 4, "three, and the delayed one delivered"
        assert stats.total(TOPIC_PUT_NUMS, SCHEDULE_TOPIC) == 1
        assert stats.total(BROKER_PUT_NUMS) == 5
        assert stats.total(TOPIC_PUT_SIZE, "T") == sum(record.size for record in records(kit, "T", 2))
        assert stats.tps(TOPIC_PUT_NUMS, "T") > 0

    run_broker(main)


def test_recall_is_refused_as_apache_refuses_it() -> None:
    async def main(kit: BrokerKit) -> None:
        header = RecallMessageRequestHeader(topic="T", recall_handle="h")
        answer = await kit.connect().call(request(RequestCode.RECALL_MESSAGE, header, opaque=1))
        assert answer.code == ResponseCode.NO_PERMISSION
        assert (answer.remark or "").startswith("recall failed, operation is forbidden: ")

    run_broker(main)


# -- request and reply


def reply_to(client_id: str | None) -> Command:
    properties = {"UNIQ_KEY": "R", "CORRELATION_ID": "c-1"}
    if client_id is not None:
        properties["REPLY_TO_CLIENT"] = client_id
    header = SendMessageRequestHeader(
        producer_group="P", topic="DefaultCluster_REPLY_TOPIC", default_topic="TBW102", default_topic_queue_nums=4,
        queue_id=0, sys_flag=0, born_timestamp=7, flag=0, properties=encode_properties(properties).decode(),
    )  # fmt: skip
    return request(RequestCode.SEND_REPLY_MESSAGE, header, b"the reply", opaque=77)


async def heartbeat(kit: BrokerKit, client_id: str, *groups: str):  # type: ignore[no-untyped-def]
    client = kit.connect()
    consumers = tuple(ConsumerData(group) for group in groups)
    body = HeartbeatData(client_id, (ProducerData("P"),), consumers)
    await client.call(request(RequestCode.HEART_BEAT, body=body.encode(), opaque=1))
    await client.pushes()
    return client


@pytest.mark.parametrize("kept", [True, False])
def test_a_reply_is_pushed_to_who_asked_and_then_answered(kept: bool) -> None:
    async def main(kit: BrokerKit) -> None:
        asker, replier = await heartbeat(kit, "asker"), kit.connect()
        replier.send(reply_to("asker"))
        assert await replier.answers() == [], "not before the asker has it"
        (push,) = await asker.pushes()
        assert (push.code, push.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"the reply")
        properties = decode_properties(push.ext["properties"].encode())
        assert properties["CORRELATION_ID"] == "c-1"
        assert properties["PUSH_REPLY_TIME"] == push.ext["storeTimestamp"] == str(kit.clock.now_ms())
        assert push.ext["bornHost"] == replier.channel.remote_address
        assert push.ext["storeHost"] == "127.0.0.1:10911"
        asker.answer(push)
        (answer,) = await replier.answers()
        assert (answer.code, answer.opaque) == (0, 77)
        assert (answer.ext["msgId"] != "0") is kept
        assert bodies(kit.store, b"DefaultCluster_REPLY_TOPIC") == ([b"the reply"] if kept else [])

    run_broker(main, config=BrokerConfig(broker_name="b", store_reply_message_enable=kept))


def test_a_reply_that_nobody_can_take() -> None:
    async def main(kit: BrokerKit) -> None:
        asker, replier = await heartbeat(kit, "asker"), kit.connect()
        answer = await replier.call(reply_to("stranger"))
        remark = "push reply message fail, channel of <stranger> not found."
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        answer = await replier.call(reply_to(None))
        assert answer.remark == "reply message properties[REPLY_TO_CLIENT] is null"
        replier.send(reply_to("asker"))
        (push,) = await asker.pushes()
        asker.answer(push, ResponseCode.SYSTEM_ERROR)
        (answer,) = await replier.answers()
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "push reply message to askerfail.")
        replier.send(reply_to("asker"))
        await asker.pushes()
        asker.close()
        (answer,) = await replier.answers()
        assert answer.code == ResponseCode.SYSTEM_ERROR

    run_broker(main)


# -- assignment


async def assigned(
    kit: BrokerKit, client_id: str, strategy: str = "AVG", model: str = "CLUSTERING"
) -> list[int] | None:
    body = QueryAssignmentRequestBody("T", "G", client_id, strategy, model)
    answer = await kit.connect().call(request(RequestCode.QUERY_ASSIGNMENT, body=body.encode(), opaque=1))
    assert answer.code == 0
    if answer.body == b"{}":
        return None
    given = QueryAssignmentResponseBody.decode(answer.body).message_queue_assignments
    assert {one.mode for one in given} <= {"PULL"}
    return [one.message_queue.queue_id for one in given if one.message_queue is not None]


def test_the_broker_shares_queues_among_members() -> None:
    async def main(kit: BrokerKit) -> None:
        assert await assigned(kit, "a") is None, "no topic: the client keeps what it has"
        kit.state.catalog.put_topic(TopicConfig("T", 5, 5))
        assert await assigned(kit, "a") is None, "no members"
        assert await assigned(kit, "a", model="BROADCASTING") == [0, 1, 2, 3, 4]
        for name in ("b", "a"):
            await heartbeat(kit, name, "G")
        assert (await assigned(kit, "a"), await assigned(kit, "b")) == ([0, 1, 2], [3, 4])
        assert await assigned(kit, "a", "AVG_BY_CIRCLE") == [0, 2, 4]
        assert await assigned(kit, "b", "AVG_BY_CIRCLE") == [1, 3]
        assert await assigned(kit, "stranger") == []
        assert await assigned(kit, "a", "NO_SUCH") is None

    run_broker(main)


@pytest.mark.parametrize(
    ("topic", "mode", "code"),
    [
        ("T", "PULL", 0),
        ("T", "POP", 0),
        ("none", "PULL", ResponseCode.TOPIC_NOT_EXIST),
        ("%RETRY%G", "PULL", ResponseCode.NO_PERMISSION),
    ],
)
def test_the_request_mode_of_a_group(topic: str, mode: str, code: int) -> None:
    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 4, 4))
        body = SetMessageRequestModeRequestBody(topic, "G", mode)
        asked = request(RequestCode.SET_MESSAGE_REQUEST_MODE, body=body.encode(), opaque=1)
        assert (await kit.connect().call(asked)).code == code
        assert (kit.broker.tables.modes.get(topic) is not None) is (code == 0)

    run_broker(main)
