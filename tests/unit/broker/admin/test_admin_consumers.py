"""Who consumes, how far, and what only a consumer can answer."""

from aerobee.broker.config import BrokerConfig
from aerobee.model.dialect import loads_object
from aerobee.model.ids import offset_message_id
from aerobee.model.queue import MessageQueue
from aerobee.model.topic import TopicConfig
from aerobee.protocol.bodies.offsets import ConsumeStats, GetConsumerStatusBody, ResetOffsetBody
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import request, response
from aerobee.protocol.headers.group import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
)
from aerobee.protocol.headers.message import QueryConsumeQueueRequestHeader
from aerobee.protocol.headers.offset import (
    CloneGroupOffsetRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from aerobee.protocol.headers.topic import QueryTopicConsumeByWhoRequestHeader, QueryTopicsByConsumerRequestHeader
from aerobee.testing.adminkit import AdminKit, run_admin
from aerobee.testing.brokerkit import settle
from aerobee.testing.storekit import HOST


def make_topic(kit: AdminKit, topic: str = "T", queues: int = 2) -> None:
    kit.kit.state.catalog.put_topic(TopicConfig(topic, queues, queues))


# -- connections


def test_consumers_and_producers_are_listed_while_they_are_connected() -> None:
    async def main(kit: AdminKit) -> None:
        member = await kit.consumer("G", "c1", "T")
        await kit.producer("P", "p1")
        ask = GetConsumerConnectionListRequestHeader(consumer_group="G")
        found = await kit.json(RequestCode.GET_CONSUMER_CONNECTION_LIST, ask)
        (one,) = found["connectionSet"]
        assert (one["clientId"], one["version"]) == ("c1", 513)
        assert one["clientAddr"].startswith("10.0.0.9:")
        assert found["subscriptionTable"]["T"]["subString"] == "*"
        assert (found["messageModel"], found["consumeFromWhere"]) == ("CLUSTERING", "CONSUME_FROM_FIRST_OFFSET")
        producers = GetProducerConnectionListRequestHeader(producer_group="P")
        listed = await kit.json(RequestCode.GET_PRODUCER_CONNECTION_LIST, producers)
        assert [one["clientId"] for one in listed["connectionSet"]] == ["p1"]
        await kit.kit.pass_time(3)
        everyone = await kit.json(RequestCode.GET_ALL_PRODUCER_INFO)
        (info,) = everyone["data"]["P"]
        assert info["lastUpdateTimestamp"] == kit.kit.clock.now_ms() - 3000
        member.close()
        await settle()
        answer = await kit.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, ask)
        assert (answer.code, answer.remark) == (206, "the consumer group[G] not online")
        unknown = GetProducerConnectionListRequestHeader(producer_group="nix")
        answer = await kit.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, unknown)
        assert (answer.code, answer.remark) == (1, "the producer group[nix] not exist")

    run_admin(main)


def test_who_consumes_what() -> None:
    async def main(kit: AdminKit) -> None:
        await kit.consumer("living", "c1", "T")
        kit.kit.state.offsets.commit("gone", "T", 0, 1)
        groups = await kit.json(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, QueryTopicConsumeByWhoRequestHeader(topic="T"))
        assert groups["groupList"] == ["gone", "living"]
        topics = await kit.json(RequestCode.QUERY_TOPICS_BY_CONSUMER, QueryTopicsByConsumerRequestHeader(group="gone"))
        assert topics == {"brokerAddr": "127.0.0.1:10911", "topicList": ["T"]}
        code = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
        found = await kit.json(code, QuerySubscriptionByConsumerRequestHeader(group="living", topic="T"))
        assert found["subscriptionData"]["topic"] == "T"
        found = await kit.json(code, QuerySubscriptionByConsumerRequestHeader(group="gone", topic="T"))
        assert "subscriptionData" not in found

    run_admin(main)


# -- progress


async def stats_of(kit: AdminKit, group: str, **values: object) -> dict[tuple[str, int], tuple[int, int, int]]:
    header = GetConsumeStatsRequestHeader(consumer_group=group, **values)  # type: ignore[arg-type]
    answer = await kit.call(RequestCode.GET_CONSUME_STATS, header)
    table = ConsumeStats.decode(answer.body).offset_table
    return {
        (queue.topic, queue.queue_id): (at.broker_offset, at.consumer_offset, at.pull_offset)
        for queue, at in table.items()
    }


def test_progress_of_a_group() -> None:
    async def main(kit: AdminKit) -> None:
        make_topic(kit)
        make_topic(kit, "other", 1)
        kit.put("T", 5)
        offsets = kit.kit.state.offsets
        offsets.commit("G", "T", 0, 2)
        offsets.note_pulled("G", "T", 0, 4)
        offsets.commit("G", "deleted", 0, 2)
        assert await stats_of(kit, "G") == {("T", 0): (5, 2, 4), ("T", 1): (0, 0, 0)}
        assert await stats_of(kit, "G", topic="other") == {("other", 0): (0, 0, 0)}
        assert set(await stats_of(kit, "G", topic_list="other;T")) == {("T", 0), ("T", 1), ("other", 0)}
        # A living group counts only what it subscribes to.
        await kit.consumer("G", "c1", "other")
        assert await stats_of(kit, "G") == {}
        assert await stats_of(kit, "nobody") == {}

    run_admin(main)


def test_progress_tells_when_the_last_consumed_message_was_stored() -> None:
    async def main(kit: AdminKit) -> None:
        make_topic(kit)
        kit.put("T", 1)
        first_ms = kit.kit.store.log.store_timestamp
        await kit.kit.pass_time(10)
        kit.put("T", 1)
        kit.kit.state.offsets.commit("G", "T", 0, 1)
        header = GetConsumeStatsRequestHeader(consumer_group="G")
        answer = await kit.call(RequestCode.GET_CONSUME_STATS, header)
        found = ConsumeStats.decode(answer.body).offset_table[MessageQueue("T", "broker-a", 0)]
        assert found.last_timestamp == first_ms
        span = await kit.json(
            RequestCode.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpanRequestHeader(topic="T", group="G")
        )
        one = span["consumeTimeSpanSet"][0]
        assert (one["minTimeStamp"], one["maxTimeStamp"]) == (first_ms, kit.kit.store.log.store_timestamp)
        assert one["consumeTimeStamp"] == first_ms
        assert one["delayTime"] == 0
        assert span["consumeTimeSpanSet"][1]["minTimeStamp"] == -1
        gone = QueryConsumeTimeSpanRequestHeader(topic="nix", group="G")
        assert (await kit.call(RequestCode.QUERY_CONSUME_TIME_SPAN, gone)).code == 17

    run_admin(main)


def test_progress_of_the_whole_broker() -> None:
    async def main(kit: AdminKit) -> None:
        make_topic(kit)
        kit.put("T", 5)
        kit.kit.state.catalog.group("G")
        kit.kit.state.offsets.commit("G", "T", 0, 2)
        found = await kit.json(RequestCode.GET_BROKER_CONSUME_STATS, GetConsumeStatsInBrokerHeader())
        assert (found["totalDiff"], found["brokerAddr"]) == (3, "127.0.0.1:10911")
        (stats,) = next(one["G"] for one in found["consumeStatsList"] if "G" in one)
        assert len(stats["offsetTable"]) == 2
        ordered = await kit.json(RequestCode.GET_BROKER_CONSUME_STATS, GetConsumeStatsInBrokerHeader(is_order=True))
        assert ordered["totalDiff"] == 0

    run_admin(main)


def test_whole_tables_for_slaves() -> None:
    async def main(kit: AdminKit) -> None:
        kit.kit.state.offsets.commit("G", "T", 1, 7)
        found = await kit.json(RequestCode.GET_ALL_CONSUMER_OFFSET)
        assert found["offsetTable"] == {"T@G": {1: 7}}
        assert set(found["dataVersion"]) == {"counter", "stateVersion", "timestamp"}
        assert set(await kit.json(RequestCode.GET_ALL_DELAY_OFFSET)) == {"dataVersion", "offsetTable"}
        assert await kit.json(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE) == {"messageRequestModeMap": {}}

    run_admin(main)


def test_offsets_are_cloned_for_every_topic() -> None:
    async def main(kit: AdminKit) -> None:
        make_topic(kit)
        make_topic(kit, "U")
        offsets = kit.kit.state.offsets
        offsets.commit("G", "T", 0, 3)
        offsets.commit("G", "U", 1, 4)
        offsets.commit("G", "deleted", 0, 1)
        header = CloneGroupOffsetRequestHeader(src_group="G", dest_group="H")
        assert (await kit.call(RequestCode.CLONE_GROUP_OFFSET, header)).code == 0
        assert (offsets.of("H", "T"), offsets.of("H", "U"), offsets.of("H", "deleted")) == ({0: 3}, {1: 4}, {})

    run_admin(main)


# -- reset


async def reset(kit: AdminKit, **values: object) -> tuple[int, str | None, dict[int, int]]:
    wanted = {"group": "G", "topic": "T", "timestamp": -1, **values}
    answer = await kit.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader(**wanted))  # type: ignore[arg-type]
    table = ResetOffsetBody.decode(answer.body).offset_table if answer.body else {}
    return answer.code, answer.remark, {queue.queue_id: offset for queue, offset in table.items()}


def test_a_reset_on_the_broker_to_a_time_to_the_end_and_to_an_offset() -> None:
    async def main(kit: AdminKit) -> None:
        make_topic(kit)
        kit.kit.state.catalog.group("G")
        kit.put("T", 2)
        await kit.kit.pass_time(10)
        later_ms = kit.kit.clock.now_ms()
        kit.put("T", 3)
        offsets = kit.kit.state.offsets
        assert await reset(kit) == (0, None, {0: 5, 1: 0})
        assert offsets.query("G", "T", 0) == 5
        assert await reset(kit, timestamp=later_ms) == (0, None, {0: 2, 1: 0})
        assert await reset(kit, queue_id=0, offset=1) == (0, None, {0: 1})
        assert offsets.take_reset("G", "T", 0) == 1
        code, remark, _ = await reset(kit, queue_id=0, offset=99)
        assert (code, remark) == (1, "Target offset 99 not in consume queue range [0-5]")

    run_admin(main)


def test_resets_that_are_refused() -> None:
    async def main(kit: AdminKit) -> None:
        assert (await reset(kit))[:2] == (17, "Topic T does not exist")
        make_topic(kit)
        assert (await reset(kit))[:2] == (26, "Group G does not exist")

    run_admin(main)


def test_a_reset_by_the_members() -> None:
    async def main(kit: AdminKit) -> None:
        make_topic(kit, queues=1)
        kit.put("T", 5)
        assert (await reset(kit))[1] == "THe consumer group <G> not exist"
        kit.kit.state.offsets.commit("G", "T", 0, 3)
        code, remark, _ = await reset(kit)
        assert code == ResponseCode.CONSUMER_NOT_ONLINE
        assert remark == "Consumer not online, so can not reset offset, Group: G Topic: T Timestamp: -1"
        member = await kit.consumer("G", "c1", "T")
        # Unforced, a reset only goes back.
        assert await reset(kit) == (0, None, {0: 3})
        assert await reset(kit, is_force=True) == (0, None, {0: 5})
        pushed = await member.pushes()
        assert [(one.code, one.is_oneway) for one in pushed] == [(220, True), (220, True)]
        assert ResetOffsetBody.decode(pushed[1].body).offset_table == {MessageQueue("T", "broker-a", 0): 5}
        assert pushed[1].ext["group"] == "G"

    config = BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1", use_server_side_reset_offset=False)
    run_admin(main, config=config)


# -- asked of the consumer


def running(group: str = "G", client_id: str = "c1") -> GetConsumerRunningInfoRequestHeader:
    return GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id=client_id, jstack_enable=True)


def test_a_question_to_a_consumer_comes_back_with_its_answer() -> None:
    async def main(kit: AdminKit) -> None:
        member = await kit.consumer("G", "c1", "T")
        kit.client.send(request(RequestCode.GET_CONSUMER_RUNNING_INFO, running(), opaque=77))
        (asked,) = await member.pushes()
        assert asked.code == RequestCode.GET_CONSUMER_RUNNING_INFO
        assert (asked.ext["clientId"], asked.ext["jstackEnable"]) == ("c1", "true")
        assert await kit.client.answers() == []
        member.send(response(asked, 0, body=b'{"jstack":"..."}', remark="fine"))
        (answer,) = await kit.client.answers()
        assert (answer.opaque, answer.code, answer.remark) == (77, 0, "fine")
        assert loads_object(answer.body) == {"jstack": "..."}

    run_admin(main)


def test_a_consumer_that_is_not_there_or_does_not_answer() -> None:
    async def main(kit: AdminKit) -> None:
        answer = await kit.call(RequestCode.GET_CONSUMER_RUNNING_INFO, running())
        assert (answer.code, answer.remark) == (1, "The Consumer <G> <c1> not online")
        member = await kit.consumer("G", "c1", "T")
        kit.client.send(request(RequestCode.GET_CONSUMER_RUNNING_INFO, running(), opaque=77))
        await settle()
        member.close()
        (answer,) = await kit.client.answers()
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "invoke consumer <G> <c1> Exception" in (answer.remark or "")

    run_admin(main)


def test_one_message_is_consumed_now() -> None:
    async def main(kit: AdminKit) -> None:
        make_topic(kit)
        kit.put("T", 2)
        second = kit.kit.store.queues.find(b"T", 0)
        assert second is not None
        unit = second.unit(1)
        assert unit is not None
        member = await kit.consumer("G", "c1", "T")
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group="G", client_id="c1", msg_id=offset_message_id(HOST, unit[0]), topic="T"
        )
        kit.client.send(request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, opaque=5))
        (asked,) = await member.pushes()
        assert asked.ext["brokerName"] == "broker-a"
        assert (asked.ext["topicSysFlag"], asked.ext["groupSysFlag"]) == ("0", "0")
        assert asked.body == kit.kit.store.read_log(unit[0], unit[1])
        member.answer(asked)
        assert [one.opaque for one in await kit.client.answers()] == [5]
        lost = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group="G", client_id="c1", msg_id=offset_message_id(HOST, 1 << 40)
        )
        answer = await kit.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, lost)
        assert answer.code == 1
        assert "no message at offset" in (answer.remark or "")
        nonsense = ConsumeMessageDirectlyResultRequestHeader(consumer_group="G", client_id="c1", msg_id="xyz")
        assert (await kit.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, nonsense)).code == 1

    run_admin(main)


def test_where_each_member_stands() -> None:
    async def main(kit: AdminKit) -> None:
        header = GetConsumerStatusRequestHeader(topic="T", group="G")
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        answer = await kit.call(code, header)
        assert (answer.code, answer.remark) == (1, "No Any Consumer online in the consumer group: [G]")
        one, two = await kit.consumer("G", "c1", "T"), await kit.consumer("G", "c2", "T")
        kit.client.send(request(code, header, opaque=9))
        queue = MessageQueue("T", "broker-a", 0)
        for member, offset in ((one, 4), (two, None)):
            asked = [push for push in await member.pushes() if push.code == 221]
            assert len(asked) == 1
            if offset is None:
                member.send(response(asked[0], 1, remark="no"))
            else:
                member.send(response(asked[0], body=GetConsumerStatusBody({queue: offset}).encode()))
        (answer,) = await kit.client.answers()
        assert GetConsumerStatusBody.decode(answer.body).consumer_table == {"c1": {queue: 4}}
        only = GetConsumerStatusRequestHeader(topic="T", group="G", client_addr="c2")
        kit.client.send(request(code, only, opaque=10))
        assert [push.code for push in await one.pushes()] == []
        (asked,) = await two.pushes()
        two.answer(asked)
        assert [answer.opaque for answer in await kit.client.answers()] == [10]

    run_admin(main)


# -- queues


def test_a_look_into_a_queue() -> None:
    async def main(kit: AdminKit) -> None:
        make_topic(kit)
        kit.put("T", 40, tags="A")
        header = QueryConsumeQueueRequestHeader(topic="T", queue_id=0, index=5, count=30, consumer_group="G")
        found = await kit.json(RequestCode.QUERY_CONSUME_QUEUE, header)
        assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 40)
        assert found["filterData"] == "G@T is not online!"
        offsets = [one["physicOffset"] for one in found["queueData"]]
        assert len(offsets) == 30
        assert offsets == sorted(offsets)
        assert {one["tagsCode"] for one in found["queueData"]} == {65}
        missing = QueryConsumeQueueRequestHeader(topic="T", queue_id=9, index=0, count=1)
        answer = await kit.call(RequestCode.QUERY_CONSUME_QUEUE, missing)
        assert (answer.code, answer.remark) == (1, "9@T is not exist!")
        beyond = QueryConsumeQueueRequestHeader(topic="T", queue_id=0, index=40, count=1)
        answer = await kit.call(RequestCode.QUERY_CONSUME_QUEUE, beyond)
        assert (answer.code, answer.remark, answer.body) == (0, "Index 40 of 0@T is not exist!", b"")

    run_admin(main)
