"""Topics, groups, routes, queues and versions: Apache's objects both ways."""

import pytest

from aerobee.model.dataversion import DataVersion
from aerobee.model.dialect import DialectError, ObjectKey, dumps, loads
from aerobee.model.group import EXPONENTIAL, RetryPolicy, SimpleSubscription, SubscriptionGroupConfig
from aerobee.model.queue import MessageQueue
from aerobee.model.route import BrokerData, QueueData, TopicRouteData
from aerobee.model.topic import PERM_READ, TopicConfig, perm_text


def test_topic_both_ways() -> None:
    topic = TopicConfig("t", 8, 4, 6, "SINGLE_TAG", 1, True, {"+message.type": "FIFO"})
    assert dumps(topic.to_json()) == (
        b'{"attributes":{"+message.type":"FIFO"},"order":true,"perm":6,"readQueueNums":8,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"t","topicSysFlag":1,"writeQueueNums":4}'
    )
    assert TopicConfig.from_json(topic.to_json()) == topic
    assert TopicConfig.from_json({}, "named") == TopicConfig("named")
    assert topic.is_readable and topic.is_writable and not TopicConfig("r", perm=PERM_READ).is_writable
    assert perm_text(6) == "RW-" and perm_text(1) == "--X"


def test_a_topics_line() -> None:
    topic = TopicConfig("t", 8, 4, 6, attributes={"a": "b"})
    assert topic.to_text() == 't 8 4 6 SINGLE_TAG {"a":"b"}'
    assert TopicConfig.from_text(topic.to_text()) == topic
    assert TopicConfig.from_text("t 8 4 6 SINGLE_TAG") == TopicConfig("t", 8, 4, 6)
    assert TopicConfig.from_text('t 8 4 6 SINGLE_TAG {"a": "b c"}') == TopicConfig("t", 8, 4, 6)
    assert TopicConfig.from_text("t 8 4 6") is None


def test_group_both_ways() -> None:
    group = SubscriptionGroupConfig("g")
    assert b'"groupRetryPolicy":{"type":"CUSTOMIZED"}' in dumps(group.to_json())
    assert SubscriptionGroupConfig.from_json({}, "g") == group
    rich = SubscriptionGroupConfig(
        "g",
        consume_enable=False,
        retry_max_times=3,
        group_retry_policy=RetryPolicy(EXPONENTIAL, (1, 2), 10, 100, 3, True),
        subscription_data_set=(SimpleSubscription("t", "TAG", "*", 5),),
        attributes={"x": "y"},
    )
    assert SubscriptionGroupConfig.from_json(loads(dumps(rich.to_json()))) == rich
    names = list(rich.to_json())
    assert names == sorted(names)


def test_retry_delays() -> None:
    default = RetryPolicy()
    assert [default.delay_ms(n) for n in (-1, 0, 1, 15, 99)] == [10_000, 10_000, 30_000, 7_200_000, 7_200_000]
    exponential = RetryPolicy(EXPONENTIAL, None, 5_000, 7_200_000, 2, True)
    assert [exponential.delay_ms(n) for n in (0, 1, 99)] == [5_000, 10_000, 7_200_000]
    assert RetryPolicy(EXPONENTIAL).delay_ms(0) == 10_000


def test_route_both_ways() -> None:
    route = TopicRouteData(
        (QueueData("b", 4, 4, 6),),
        (BrokerData("c", "b", {0: "m:1", 2: "s:1"}, True, "z"),),
        "b:4",
        {},
        {"b": {"bname": "b"}},
    )
    assert TopicRouteData.from_json(loads(dumps(route.to_json()))) == route
    assert list(route.to_json()) == sorted(route.to_json())
    assert QueueData.from_json({"brokerName": "b", "topicSynFlag": 2}).topic_sys_flag == 2
    assert route.broker_datas[0].address() == "m:1"
    assert BrokerData("c", "b", {3: "y", 2: "x"}).address() == "x" and BrokerData("c", "b", {}).address() is None


@pytest.mark.parametrize(
    "data",
    [
        {"queueDatas": {}},
        {"queueDatas": [1]},
        {"brokerDatas": [{"brokerAddrs": {"x": "a"}}]},
        {"queueDatas": [{"perm": "six"}]},
        {"queueDatas": [{"perm": [6]}]},
        {"topicQueueMappingByBroker": {"b": 1}},
    ],
)
def test_a_route_of_the_wrong_shape_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(DialectError):
        TopicRouteData.from_json(data)


def test_queue_as_object_and_key() -> None:
    queue = MessageQueue("t", "b", 3)
    assert MessageQueue.from_json(queue.to_json()) == queue
    assert MessageQueue.from_key(queue.to_key()) == queue
    assert MessageQueue.from_key('{"brokerName":"b","queueId":3,"topic":"t"}') == queue
    assert sorted([MessageQueue("t", "c", 0), queue, MessageQueue("t", "b", 10)])[0] == queue
    for bad in (5, "[1]", "x", ObjectKey.of({"queueId": "x"})):
        with pytest.raises(DialectError):
            MessageQueue.from_key(bad)


def test_versions_compare_by_state_then_counter_then_time() -> None:
    base = DataVersion(5, 100, 0)
    assert DataVersion.from_json(base.to_json()) == base and DataVersion.from_json(None) == DataVersion()
    assert base.compare(base) == 0
    assert base.next(50) == DataVersion(6, 50, 0) and base.next(50).compare(base) == 1
    assert DataVersion(1, 1, 1).compare(base) == 1 and DataVersion(5, 99, 0).compare(base) == -1
