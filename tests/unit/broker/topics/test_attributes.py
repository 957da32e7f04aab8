"""Attributes: parsed, altered, refused."""

import pytest

from aerobee.broker.topics.attributes import (
    GROUP_ATTRIBUTES,
    TOPIC_ATTRIBUTES,
    alter_attributes,
    message_type,
    parse_attributes,
)
from aerobee.errors import InvalidArgumentError


def test_changes_are_read_from_a_header() -> None:
    assert parse_attributes("+message.type=FIFO,-reserve.time") == {
        "+message.type": "FIFO",
        "-reserve.time": "",
    }
    assert parse_attributes(None) == parse_attributes("") == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [("a=b", "add/alter"), ("a", "delete attribute"), ("+a=b,+a=c", "duplication"), ("-a,-a", "duplication")],
)
def test_a_header_that_makes_no_sense(text: str, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        parse_attributes(text)


def test_creation_sets_what_can_never_change() -> None:
    made = alter_attributes(TOPIC_ATTRIBUTES, None, {"+queue.type": "BatchCQ", "+message.type": "FIFO"})
    assert made == {"queue.type": "BatchCQ", "message.type": "FIFO"}
    with pytest.raises(InvalidArgumentError, match="unchangeable"):
        alter_attributes(TOPIC_ATTRIBUTES, made, {"+queue.type": "SimpleCQ"})
    with pytest.raises(InvalidArgumentError, match="unchangeable"):
        alter_attributes(TOPIC_ATTRIBUTES, made, {"-queue.type": ""})
    changed = alter_attributes(TOPIC_ATTRIBUTES, made, {"+message.type": "DELAY"})
    assert changed == {"queue.type": "BatchCQ", "message.type": "DELAY"}
    assert alter_attributes(TOPIC_ATTRIBUTES, changed, {"-message.type": ""}) == {"queue.type": "BatchCQ"}


@pytest.mark.parametrize(
    ("current", "changes", "why"),
    [
        (None, {"-message.type": ""}, "only add"),
        (None, {"message.type": "FIFO"}, "wrong format"),
        (None, {"+message.type": "NONE"}, "not in set"),
        (None, {"+nothing.such": "1"}, "unsupported key"),
        (None, {"+": "1"}, "format wrong"),
        (None, {"+a-b": "1"}, "format wrong"),
        (None, {"+reserve.time": "-2"}, "not in range"),
        (None, {"+reserve.time": "x"}, "whole number"),
        ({}, {"-message.type": ""}, "nonexistent"),
        ({"message.type": "FIFO"}, {"+message.type": "FIFO", "-message.type": ""}, "duplication"),
    ],
)
def test_changes_that_are_refused(current: dict[str, str] | None, changes: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        alter_attributes(TOPIC_ATTRIBUTES, current, changes)


def test_groups_have_their_own() -> None:
    changes = {"+lite.sub.reset.offset.exclusive": "TRUE", "+priority.factor": "0", "+lite.bind.topic": "any"}
    assert len(alter_attributes(GROUP_ATTRIBUTES, None, changes)) == 3
    with pytest.raises(InvalidArgumentError, match="boolean"):
        alter_attributes(GROUP_ATTRIBUTES, None, {"+lite.sub.reset.offset.exclusive": "yes"})


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, "NORMAL"),
        ({"TRAN_MSG": "true", "DELAY": "3"}, "TRANSACTION"),
        ({"TRAN_MSG": "false", "DELAY": "3"}, "DELAY"),
        ({"TIMER_DELAY_SEC": "3", "__SHARDINGKEY": "k"}, "DELAY"),
        ({"__SHARDINGKEY": "k"}, "FIFO"),
        ({"_SYS_MSG_PRIORITY_": "1"}, "PRIORITY"),
        ({"__LITE_TOPIC": "x"}, "LITE"),
    ],
)
def test_the_kind_of_a_message(properties: dict[str, str], kind: str) -> None:
    assert message_type(properties) == kind
