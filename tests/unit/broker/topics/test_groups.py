"""Consumer groups: made by themselves when allowed, changed only as allowed."""

from aerobee.broker.refusal import Refusal
from aerobee.broker.topics.groups import (
    GroupRules,
    change,
    is_forbidden,
    not_there,
    system_groups,
    with_forbidden,
)
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.protocol.codes import ResponseCode


def test_a_group_comes_by_itself_unless_that_is_off_or_its_name_is_not_allowed() -> None:
    rules = GroupRules()
    mine = SubscriptionGroupConfig("g", consume_enable=False)
    assert rules.find("g", {"g": mine}) is mine
    assert rules.find("new", {}) == SubscriptionGroupConfig("new")
    assert rules.find("bad name", {}) is None
    assert rules.find("x" * 121, {}) is None
    closed = GroupRules(auto_create=False)
    assert closed.find("new", {}) is None
    assert closed.find("CID_RMQ_SYS_x", {}) is not None
    assert GroupRules(auto_create=False, auto_create_system=False).find("CID_RMQ_SYS_x", {}) is None


def test_every_broker_has_these_groups() -> None:
    names = {group.group_name for group in system_groups()}
    assert {"TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS", "SELF_TEST_C_GROUP"} <= names


def test_changes() -> None:
    new = change(SubscriptionGroupConfig("g", retry_max_times=3, attributes={"+priority.factor": "5"}), None)
    assert new == SubscriptionGroupConfig("g", retry_max_times=3, attributes={"priority.factor": "5"})
    refusal = change(SubscriptionGroupConfig("a b"), None)
    assert isinstance(refusal, Refusal) and refusal.code == ResponseCode.INVALID_PARAMETER
    refusal = change(SubscriptionGroupConfig("g", attributes={"+x": "5"}), None)
    assert isinstance(refusal, Refusal) and refusal.code == ResponseCode.SYSTEM_ERROR
    assert "subscription group [g] does not exist" in not_there("g").remark


def test_reading_can_be_forbidden_for_one_topic_and_allowed_again_alone() -> None:
    topics = with_forbidden({}, "t", 2, forbid=True)
    topics = with_forbidden(topics, "u", 2, forbid=True)
    table = {"g": topics}
    assert is_forbidden(table, "g", "t") and is_forbidden(table, "g", "u")
    assert not is_forbidden(table, "g", "v") and not is_forbidden(table, "h", "t")
    topics = with_forbidden(topics, "t", 2, forbid=False)
    assert topics == {"u": 4}, "Apache would have forgotten u as well"
    assert with_forbidden(topics, "u", 2, forbid=False) == {}
    assert not is_forbidden({"g": with_forbidden({}, "t", 1, forbid=True)}, "g", "t"), "another bit"
