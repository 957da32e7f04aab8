"""What the source's options say together, and the errors where they contradict."""

from __future__ import annotations

import pytest

from aerobee.model.queue import MessageQueue
from pyspark_rocketmq.options import OptionError
from pyspark_rocketmq.source.settings import COMMITTED, Filter, SourceSettings, source_settings


def read(*, streaming: bool = False, **options: str) -> SourceSettings:
    return source_settings({"nameServer": "h:1", **options}, {}, streaming=streaming)


def test_a_path_is_the_topic() -> None:
    assert read(path="orders").wanted.topics == ("orders",)
    assert read(topic="a, b,a").wanted.topics == ("a", "b")
    assert read(path="a", topic="a").wanted.topics == ("a",)
    with pytest.raises(OptionError, match="name two topics"):
        read(path="a", topic="b")


def test_no_topic_says_what_create_table_does() -> None:
    with pytest.raises(OptionError, match=r"no topic: .*CREATE TABLE .* loses its options"):
        read()


def test_one_way_to_say_what_is_wanted() -> None:
    assert read(subscribePattern="o.*").wanted.pattern == "o.*"
    with pytest.raises(OptionError, match="topic and topicPattern: give one"):
        read(topic="a", topicPattern="b")
    with pytest.raises(OptionError, match=r"option topicPattern: .* is not a regular expression"):
        read(topicPattern="(")
    with pytest.raises(OptionError, match="illegal characters"):
        read(topic="a b")


def test_assigned_queues() -> None:
    wanted = read(assign='{"t":[0,2],"u":{"b":[1]}}').wanted
    takes = [
        wanted.takes(MessageQueue(*one))
        for one in (("t", "x", 0), ("t", "x", 1), ("u", "b", 1), ("u", "c", 1), ("t", "y", 2))
    ]
    assert takes == [True, False, True, False, True]
    for wrong in ("[]", "{", '{"t":"0"}', '{"t":[-1]}', "{}"):
        with pytest.raises(OptionError, match="option assign"):
            read(assign=wrong)


def test_filters() -> None:
    assert read(topic="t", tags="A || B").filter == Filter("A || B", "TAG")
    assert read(topic="t", sql92="n > 3").filter == Filter("n > 3", "SQL92")
    assert read(topic="t", tags="*").filter == Filter()
    with pytest.raises(OptionError, match="tags and sql92"):
        read(topic="t", tags="A", sql92="n > 3")
    with pytest.raises(OptionError, match="names no tag"):
        read(topic="t", tags="||")


def test_edges() -> None:
    queue = MessageQueue("t", "b", 0)
    assert read(topic="t", startingOffsets='{"t":{"b":{"0":7}}}').starting == {queue: 7}
    assert read(topic="t", startingOffsets='{"v":1,"offsets":{"t":{"b":{"0":7}}}}').starting == {queue: 7}
    assert read(topic="t", startingOffsets="Committed", group="g").starting == COMMITTED
    wrong = {
        "startingOffsets": (
            "sometime",
            '{"t":7}',
            '{"t":{"b":{"0":-3}}}',
            '{"t":{"b":{"x":1}}}',
            "latest",
            "committed",
        ),
        "endingOffsets": ("earliest", '{"t":{"b":{"0":-2}}}'),
    }
    for name, texts in wrong.items():
        for one in texts:
            with pytest.raises(OptionError, match=f"option {name}"):
                read(topic="t", **{name: one})
    for option, said in (("startingOffsets", "'orders'"), ("endingOffsets", "'orders'")):
        with pytest.raises(OptionError, match=f"option {option} names topic 'ordres', which is not read: .* {said}"):
            read(topic="orders,others", **{option: '{"orders":{"b":{"0":7}},"ordres":{"b":{"0":7}}}'})
    read(topicPattern="or.*", startingOffsets='{"ordres":{"b":{"0":7}}}')
    with pytest.raises(OptionError, match="startingOffsets and startingTimestamp"):
        read(topic="t", startingOffsets="earliest", startingTimestamp="1")
    offsets = '{"t":{"b":{"0":7,"5":7}}}'
    for option in ("startingOffsets", "endingOffsets"):
        with pytest.raises(
            OptionError, match=f"option {option} names queue 5 of t on b, which option assign leaves out"
        ):
            read(assign='{"t":[0,1]}', **{option: offsets})
    with pytest.raises(OptionError, match="option startingTimestamp: 2000 is after endingTimestamp, 1000"):
        read(topic="t", startingTimestamp="2000", endingTimestamp="1000")
    with pytest.raises(OptionError, match="a stream has no end"):
        read(streaming=True, topic="t", endingTimestamp="1")
    assert read(streaming=True, topic="t", startingOffsets="latest").starting == -1


def test_limits_that_contradict_and_options_of_writing() -> None:
    with pytest.raises(OptionError, match="minOffsetsPerTrigger is larger"):
        read(streaming=True, topic="t", minOffsetsPerTrigger="5", maxOffsetsPerTrigger="4")
    with pytest.raises(OptionError, match="deliveryGuarantee: it is an option of writing"):
        read(topic="t", deliveryGuarantee="idempotent")
    with pytest.raises(OptionError, match="no option maxOffsetPerTriger: did you mean maxOffsetsPerTrigger"):
        read(topic="t", maxOffsetPerTriger="5")
    with pytest.raises(OptionError, match="option group"):
        read(topic="t", group="a b")
