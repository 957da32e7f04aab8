"""Subscriptions: tags by Java's hash, and what counts as the same."""

import pytest

from aerobee.broker.membership.subscriptions import Subscription, parse_subscription
from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.javahash import java_hash


def test_everything() -> None:
    for expression in (None, "", "*"):
        subscription = parse_subscription("t", expression)
        assert subscription.expression == "*"
        assert subscription.tag_codes() is None


def test_tags_match_by_hash_code() -> None:
    subscription = parse_subscription("t", " PAID||  REFUND || ")
    assert subscription.tags == {"PAID", "REFUND"}
    assert subscription.tag_codes() == {java_hash("PAID"), java_hash("REFUND")}
    assert parse_subscription("t", "Aa").tag_codes() == {java_hash("BB")}, "equal hashes pass; the client looks again"


def test_only_separators_are_no_expression() -> None:
    with pytest.raises(InvalidArgumentError, match="split error"):
        parse_subscription("t", "||")


def test_sql_is_kept_whole_and_never_filtered_by_tag() -> None:
    subscription = parse_subscription("t", "a > 5", "SQL92", version=7)
    assert (subscription.expression, subscription.by_tags, subscription.version) == ("a > 5", False, 7)
    assert subscription.tag_codes() is None
    with pytest.raises(InvalidArgumentError, match="can't be null"):
        parse_subscription("t", "", "SQL92")


def test_order_spacing_and_version_make_no_difference() -> None:
    one = parse_subscription("t", "A || B", version=1)
    assert one.same_as(parse_subscription("t", "B||A", version=2))
    assert not one.same_as(parse_subscription("t", "A"))
    assert not one.same_as(parse_subscription("t", "*"))
    assert not one.same_as(parse_subscription("t", "A || B", "SQL92"))


def test_a_heartbeat_is_read_and_written_in_apaches_names() -> None:
    data = {
        "classFilterMode": False,
        "codeSet": [2448421],
        "expressionType": "TAG",
        "subString": "PAID",
        "subVersion": 1700000000000,
        "tagsSet": ["PAID"],
        "topic": "orders",
    }
    subscription = Subscription.from_json(data)
    assert subscription.tag_codes() == {2448421}
    assert subscription.to_json() == data


def test_a_heartbeat_with_gaps() -> None:
    subscription = Subscription.from_json({"topic": "t", "subString": None, "tagsSet": None, "expressionType": None})
    assert subscription.same_as(parse_subscription("t", "*"))
    with pytest.raises(InvalidArgumentError, match="names no topic"):
        Subscription.from_json({"subString": "*"})
