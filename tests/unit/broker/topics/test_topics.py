"""Topics: made by themselves when allowed, changed only as allowed."""

import pytest

from aerobee.broker.log.sendrules import topic_refusal
from aerobee.broker.refusal import Refusal
from aerobee.broker.topics.rules import (
    TopicRules,
    create_for_send_back,
)
from aerobee.model.topic import MULTI_TAG, TopicConfig
from aerobee.protocol.codes import ResponseCode

RULES = TopicRules(cluster="DefaultCluster", broker="broker-a")


def table(rules: TopicRules = RULES) -> dict[str, TopicConfig]:
    return {config.topic_name: config for config in rules.system_topics()}


def made(result: TopicConfig | Refusal) -> TopicConfig:
    assert isinstance(result, TopicConfig), result
    return result


def refused(result: TopicConfig | Refusal | None) -> Refusal:
    assert isinstance(result, Refusal), result
    return result


def test_every_broker_has_these_topics() -> None:
    topics = table()
    assert (topics["TBW102"].perm, topics["TBW102"].write_queue_nums) == (7, 8)
    assert topics["SCHEDULE_TOPIC_XXXX"].read_queue_nums == 18
    assert (topics["DefaultCluster"].perm, topics["broker-a"].write_queue_nums) == (7, 1)
    assert topics["rmq_sys_REVIVE_LOG_DefaultCluster"].write_queue_nums == 8
    assert topics["rmq_sys_SYNC_BROKER_MEMBER_broker-a"].perm == 1
    assert "DefaultCluster_REPLY_TOPIC" in topics and "rmq_sys_wheel_timer" in topics
    assert "RMQ_SYS_TRACE_TOPIC" not in topics
    bare = TopicRules("c", "b", auto_create=False, cluster_topic=False, broker_topic=False, timer_topic=False)
    topics = table(bare)
    assert "TBW102" not in topics and "rmq_sys_wheel_timer" not in topics
    assert (topics["c"].perm, topics["b"].perm) == (1, 1)
    assert "traces" in table(TopicRules("c", "b", trace_topic="traces"))


@pytest.mark.parametrize(("asked", "given"), [(4, 4), (8, 8), (100, 8), (0, 0), (-3, 0)])
def test_a_send_makes_its_topic_with_the_smaller_number_of_queues(asked: int, given: int) -> None:
    topic = made(RULES.create_for_send("orders", table(), default_topic="TBW102", queue_nums=asked))
    assert topic == TopicConfig("orders", given, given, 6)


def test_the_default_topic_gives_permission_and_filter_type() -> None:
    topics = {"mine": TopicConfig("mine", 3, 3, 5, MULTI_TAG)}
    topic = made(RULES.create_for_send("t", topics, default_topic="mine", queue_nums=9, unit_mode=True))
    assert topic == TopicConfig("t", 3, 3, 4, MULTI_TAG, 1)


def test_a_topic_is_not_made_when_creation_is_off_or_the_default_gives_nothing() -> None:
    closed = TopicRules("c", "b", auto_create=False)
    with_leftover = table() | table(closed)
    for rules, topics, default in (
        (closed, with_leftover, "TBW102"),
        (RULES, table(), "SELF_TEST_TOPIC"),
        (RULES, table(), "nowhere"),
    ):
        refusal = refused(rules.create_for_send("orders", topics, default_topic=default, queue_nums=4))
        assert refusal.code == ResponseCode.TOPIC_NOT_EXIST
        assert "topic[orders] not exist, apply first please!" in refusal.remark


def test_a_retry_topic_is_made_in_any_case() -> None:
    closed = TopicRules("c", "b", auto_create=False)
    topic = made(closed.create_for_send("%RETRY%g", {}, default_topic="TBW102", queue_nums=4, unit_mode=True))
    assert topic == TopicConfig("%RETRY%g", 1, 1, 6, topic_sys_flag=2)
    assert create_for_send_back("%RETRY%g", 3, order=True).order


def test_what_a_client_may_send_to_by_name() -> None:
    assert RULES.check_send("orders") is None
    assert refused(RULES.check_send("or ders")).code == ResponseCode.INVALID_PARAMETER
    assert refused(RULES.check_send("x" * 128)).code == ResponseCode.INVALID_PARAMETER
    assert RULES.check_send("%RETRY%" + "x" * 200) is None
    assert refused(RULES.check_send("SCHEDULE_TOPIC_XXXX")).code == ResponseCode.NO_PERMISSION


def test_which_queues_may_be_named() -> None:
    config = TopicConfig("t", 8, 4)
    assert topic_refusal(config, -1, "p") is None
    assert topic_refusal(config, 7, "p") is None, "a queue that is still read may be written while it shrinks"
    refusal = refused(topic_refusal(config, 8, "10.0.0.9:1"))
    assert refusal.code == ResponseCode.INVALID_PARAMETER and "10.0.0.9:1" in refusal.remark


def test_an_administrator_creates_and_changes() -> None:
    new = made(RULES.change(TopicConfig("orders", 4, 4, attributes={"+message.type": "FIFO"}), None))
    assert new.attributes == {"message.type": "FIFO"}
    later = made(RULES.change(TopicConfig("orders", 8, 4, 4), new))
    assert (later.read_queue_nums, later.perm, later.attributes) == (8, 4, {"message.type": "FIFO"})


@pytest.mark.parametrize(
    ("wanted", "code", "why"),
    [
        (TopicConfig("a b"), ResponseCode.INVALID_PARAMETER, "illegal characters"),
        (TopicConfig("TBW102"), ResponseCode.INVALID_PARAMETER, "conflict with system topic"),
        (TopicConfig("broker-a"), ResponseCode.INVALID_PARAMETER, "conflict with system topic"),
        (TopicConfig("t", -1, 4), ResponseCode.INVALID_PARAMETER, "read queue nums -1"),
        (TopicConfig("t", 4, 100_000), ResponseCode.INVALID_PARAMETER, "write queue nums 100000"),
        (TopicConfig("t", perm=8), ResponseCode.INVALID_PARAMETER, "perm 8"),
        (TopicConfig("t", attributes={"+message.type": "MIXED"}), ResponseCode.INVALID_PARAMETER, "MIXED"),
        (TopicConfig("t", attributes={"+reserve.time": "-5"}), ResponseCode.SYSTEM_ERROR, "reserve.time"),
        (TopicConfig("t", attributes={"message.type": "FIFO"}), ResponseCode.SYSTEM_ERROR, "wrong format"),
    ],
)
def test_changes_that_are_refused(wanted: TopicConfig, code: int, why: str) -> None:
    refusal = refused(RULES.change(wanted, None))
    assert refusal.code == code
    assert why in refusal.remark


def test_switches_that_allow_more() -> None:
    open_ = TopicRules("c", "b", mixed_message_type=True, guard_system_topics=False)
    assert isinstance(open_.change(TopicConfig("TBW102"), None), TopicConfig)
    assert isinstance(open_.change(TopicConfig("t", attributes={"+message.type": "MIXED"}), None), TopicConfig)
    assert open_.check_delete("TBW102") is None


def test_deletion() -> None:
    assert RULES.check_delete("orders") is None
    assert "blank" in refused(RULES.check_delete("  ")).remark
    assert "illegal characters" in refused(RULES.check_delete("../../outside")).remark
    assert RULES.check_delete("%RETRY%group+topic") is None, "POP's retry topics have a plus"
    assert "system topic" in refused(RULES.check_delete("rmq_sys_x")).remark
