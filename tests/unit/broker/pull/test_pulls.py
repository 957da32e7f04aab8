"""Pulls: Apache's checks in Apache's order, and its answers."""

import dataclasses
from typing import Any

import pytest

from aerobee.broker.membership.clients import Clients
from aerobee.broker.membership.members import BROADCASTING, CONSUME_ACTIVELY, Client, GroupHeartbeat
from aerobee.broker.membership.subscriptions import Subscription, parse_subscription
from aerobee.broker.pull import rules as pulls
from aerobee.broker.pull.rules import PullContext, PullRules, answer_code, check_pull, suggested_broker, suspend_ms
from aerobee.broker.refusal import Refusal
from aerobee.hot.wire.pull import PullFields
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import ResponseCode
from aerobee.store.reads import GetMessageStatus

RULES = PullRules("10.0.0.1")


def header(
    *,
    queue: int = 0,
    flag: int = pulls.FLAG_SUSPEND,
    subscription: str | None = None,
    kind: str | None = None,
    version: int = 5,
    suspend: int = 15_000,
) -> PullFields:
    return PullFields(
        consumer_group="g",
        topic="t",
        queue_id=queue,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=flag,
        commit_offset=0,
        suspend_timeout_millis=suspend,
        subscription=subscription,
        sub_version=version,
        expression_type=kind,
    )


def context(model: str = "CLUSTERING", consume_type: str = "CONSUME_PASSIVELY") -> PullContext:
    clients = Clients()
    data = GroupHeartbeat("g", consume_type, model, subscriptions=(parse_subscription("t", "A", version=5),))
    clients.register_consumer(data, Client("channel", "c"), 0.0)
    return PullContext(SubscriptionGroupConfig("g"), TopicConfig("t", 4, 4), clients, "channel", "10.0.0.9:5")


def changed(known: PullContext, **fields: Any) -> PullContext:
    """The same context but for some of what it says."""
    names = ("group", "topic", "clients", "channel", "address", "forbidden", "lite", "filters")
    return PullContext(**{name: getattr(known, name) for name in names} | fields)


def refusal(rules: PullRules = RULES, asked: PullFields | None = None, known: PullContext | None = None) -> Refusal:
    found = check_pull(rules, asked or header(), known or context(), 0.0)
    assert isinstance(found, Refusal), found
    return found


def test_a_known_consumer_reads_with_what_it_subscribed() -> None:
    found = check_pull(RULES, header(), context(), 0.0)
    assert isinstance(found, Subscription) and found.expression == "A"


def test_a_pull_may_carry_its_subscription() -> None:
    known = changed(context(), clients=Clients())
    asked = header(flag=pulls.FLAG_SUBSCRIPTION, subscription="B || C")
    found = check_pull(RULES, asked, known, 1.0)
    assert isinstance(found, Subscription) and found.tags == {"B", "C"}
    assert known.clients.subscription("g", "t") == found, "remembered for administration"


def test_refusals_in_apaches_order() -> None:
    known = context()
    everything_wrong = PullContext(None, None, Clients(), "x", "y", forbidden=True, lite=True)
    closed = PullRules("10.0.0.1", permission=2, lite_pull=False)
    assert refusal(closed, known=everything_wrong).forbidden_type == pulls.BROKER_FORBIDDEN
    lite = PullRules("10.0.0.1", lite_pull=False)
    assert "lite pull" in refusal(lite, known=everything_wrong).remark
    assert refusal(known=everything_wrong).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    stopped = changed(known, group=SubscriptionGroupConfig("g", consume_enable=False), topic=None)
    assert refusal(known=stopped).forbidden_type == pulls.GROUP_FORBIDDEN
    assert refusal(known=changed(known, topic=None)).code == ResponseCode.TOPIC_NOT_EXIST
    unreadable = changed(known, topic=TopicConfig("t", 4, 4, 2))
    assert refusal(known=unreadable).forbidden_type == pulls.TOPIC_FORBIDDEN


@pytest.mark.parametrize("queue", [-1, 4])
def test_a_queue_that_is_not_read(queue: int) -> None:
    found = refusal(asked=header(queue=queue))
    assert found.code == ResponseCode.INVALID_PARAMETER and "10.0.0.9:5" in found.remark


def test_subscriptions_that_do_not_do() -> None:
    known = context()
    nobody = changed(known, clients=Clients())
    assert refusal(known=nobody).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    group = SubscriptionGroupConfig("g", consume_broadcast_enable=False)
    broadcasting = changed(context(BROADCASTING), group=group)
    assert refusal(known=broadcasting).forbidden_type == pulls.BROADCASTING_FORBIDDEN
    forbidden = changed(known, forbidden=True)
    assert refusal(known=forbidden).forbidden_type == pulls.SUBSCRIPTION_FORBIDDEN
    assert refusal(asked=header(version=6)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    other = Clients()
    data = GroupHeartbeat("g", subscriptions=(parse_subscription("u", "*"),))
    other.register_consumer(data, Client("channel", "c"), 0.0)
    found = refusal(known=changed(known, clients=other))
    assert found.code == ResponseCode.SUBSCRIPTION_NOT_EXIST and "subscription not exist" in found.remark


def test_sql_only_where_it_is_on() -> None:
    asked = header(flag=pulls.FLAG_SUBSCRIPTION, subscription="a > 1", kind="SQL92")
    assert "filter message by SQL92" in refusal(asked=asked).remark
    assert isinstance(check_pull(PullRules("x", property_filter=True), asked, context(), 0.0), Subscription)
    broken = header(flag=pulls.FLAG_SUBSCRIPTION, subscription="", kind="SQL92")
    assert refusal(asked=broken).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_pull_consumers_can_be_refused() -> None:
    rules = PullRules("x", reject_pull_consumer=True)
    asked = header(flag=pulls.FLAG_SUBSCRIPTION, subscription="*")
    stranger = changed(context(consume_type=CONSUME_ACTIVELY), channel="other")
    assert refusal(rules, asked, stranger).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    assert isinstance(check_pull(rules, asked, context(consume_type=CONSUME_ACTIVELY), 0.0), Subscription)
    assert isinstance(check_pull(rules, asked, changed(context(), channel="other"), 0.0), Subscription)


@pytest.mark.parametrize(
    ("status", "offset", "code"),
    [
        (GetMessageStatus.FOUND, 5, ResponseCode.SUCCESS),
        (GetMessageStatus.NO_MATCHED_MESSAGE, 5, ResponseCode.PULL_RETRY_IMMEDIATELY),
        (GetMessageStatus.MESSAGE_WAS_REMOVING, 5, ResponseCode.PULL_RETRY_IMMEDIATELY),
        (GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, ResponseCode.PULL_NOT_FOUND),
        (GetMessageStatus.NO_MESSAGE_IN_QUEUE, 5, ResponseCode.PULL_OFFSET_MOVED),
        (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 5, ResponseCode.PULL_OFFSET_MOVED),
        (GetMessageStatus.OFFSET_FOUND_NULL, 5, ResponseCode.PULL_NOT_FOUND),
        (GetMessageStatus.OFFSET_OVERFLOW_ONE, 5, ResponseCode.PULL_NOT_FOUND),
        (GetMessageStatus.OFFSET_OVERFLOW_BADLY, 5, ResponseCode.PULL_OFFSET_MOVED),
        (GetMessageStatus.OFFSET_TOO_SMALL, 5, ResponseCode.PULL_OFFSET_MOVED),
        (GetMessageStatus.OFFSET_RESET, 5, ResponseCode.PULL_OFFSET_MOVED),
    ],
)
def test_answers(status: GetMessageStatus, offset: int, code: int) -> None:
    assert answer_code(status.value, offset) == code


def test_which_broker_next() -> None:
    group = SubscriptionGroupConfig("g", broker_id=0, which_broker_when_consume_slowly=1)
    slave_read = PullRules("x", slave_read=True)
    assert suggested_broker(RULES, group, far_behind=True, master_alive=True) == 0
    assert suggested_broker(slave_read, group, far_behind=True, master_alive=True) == 1
    assert suggested_broker(slave_read, group, far_behind=False, master_alive=True) == 0
    slave_read = dataclasses.replace(slave_read, broker_id=1)
    far = dataclasses.replace(group, broker_id=2)
    assert suggested_broker(slave_read, far, far_behind=False, master_alive=False) == 2
    assert suggested_broker(slave_read, far, far_behind=False, master_alive=True) == 0


def test_only_an_empty_first_look_is_held() -> None:
    empty = ResponseCode.PULL_NOT_FOUND
    assert suspend_ms(RULES, empty, header(), may_suspend=True) == 15_000
    assert suspend_ms(RULES, empty, header(), may_suspend=False) == 0
    assert suspend_ms(RULES, empty, header(flag=0), may_suspend=True) == 0
    assert suspend_ms(RULES, ResponseCode.PULL_OFFSET_MOVED, header(), may_suspend=True) == 0
    assert suspend_ms(PullRules("x", long_polling=False), empty, header(), may_suspend=True) == 1000
    assert suspend_ms(RULES, empty, header(suspend=-5), may_suspend=True) == 0


def test_the_offset_in_a_pull_is_committed_once() -> None:
    asked = header(flag=pulls.FLAG_COMMIT_OFFSET)
    assert pulls.commits_offset(asked, may_suspend=True)
    assert not pulls.commits_offset(asked, may_suspend=False)
    assert not pulls.commits_offset(header(), may_suspend=True)
