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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        # The second one would win in silence.
        ({"startingOffsets": '{"t":{"b":{"0":1,"0":2}}}'}, "option startingOffsets: .* has '0' twice"),
        ({"endingOffsets": '{"t":{"b":{"0":1,"00":2}}}'}, "option endingOffsets: .* queue 0 of t on b is named twice"),
        ({"startingOffsets": '{"t":{"b":{"0":1}},"t":{"b":{"1":1}}}'}, "option startingOffsets: .* has 't' twice"),
        # They would read nothing, which looks like an empty topic.
        ({"assign": '{"t":[]}'}, "option assign: .* names no queue of t"),
        ({"assign": '{"t":{}}'}, "option assign: .* names no queue of t"),
        ({"assign": '{"t":{"b":[0],"c":[]}}'}, "option assign: .* names no queue of t"),
        ({"assign": '{"t":[0],"t":[1]}'}, "option assign: .* has 't' twice"),
        ({"endingTimestamp": "1763586000"}, "option endingTimestamp: '1763586000' is not in milliseconds"),
        ({"startingTimestamp": "1763586000000000"}, "option startingTimestamp: .* is not in milliseconds"),
        ({"startingTimestamp": "9" * 5000}, "option startingTimestamp: .* is not in milliseconds"),
        # Tasks would tell it, but not where there are no messages.
        ({"sql92": "n >"}, "option sql92: 'n >' is no SQL92 filter: .* at character 4"),
        ({"sql92": "n = 'x"}, "option sql92: .* is no SQL92 filter"),
        ({"sql92": "(" * 5000}, "option sql92: .* is no SQL92 filter"),
        ({"sql92": "n = 3 m = 4"}, "option sql92: .* goes on behind its end with 'm = 4', which brokers ignore"),
        # Clocks cannot count so far.
        ({"requestTimeoutMs": "9223372036854775807"}, "option requestTimeoutMs: .* must be at most 2147483647"),
        ({"requestTimeoutMs": "0"}, "option requestTimeoutMs: '0' must be at least 1"),
        ({"retryTimeoutMs": "2147483648"}, "option retryTimeoutMs: .* must be at most 2147483647"),
        ({"longPollMs": "2147483648"}, "option longPollMs: .* must be at most 2147483647"),
        ({"tags": None}, "option tags: None is no value"),
        ({"failOnDataLoss": None}, "option failOnDataLoss: None is no value"),
    ],
)
def test_values_that_would_mean_something_else_in_silence(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        read(**({} if "assign" in options else {"topic": "t"}), **options)


def test_values_that_look_odd_and_are_right() -> None:
    assert read(topic="t", startingTimestamp="0", endingTimestamp="1763586000000").ending_timestamp == 1763586000000
    assert read(topic="t", startingTimestamp="1970-06-01").starting_timestamp == 13046400000
    assert read(topic="t", sql92="n = '3' and (m is not null or k between 1 and 3)").filter.kind == "SQL92"
    assert read(assign='{"t":{"b":[0],"*":[1]}}').wanted.topics == ("t",)


def test_limits_that_contradict_and_options_of_writing() -> None:
    with pytest.raises(OptionError, match="minOffsetsPerTrigger is larger"):
        read(streaming=True, topic="t", minOffsetsPerTrigger="5", maxOffsetsPerTrigger="4")
    with pytest.raises(OptionError, match="deliveryGuarantee: it is an option of writing"):
        read(topic="t", deliveryGuarantee="idempotent")
    with pytest.raises(OptionError, match="no option maxOffsetPerTriger: did you mean maxOffsetsPerTrigger"):
        read(topic="t", maxOffsetPerTriger="5")
    with pytest.raises(OptionError, match="option group"):
        read(topic="t", group="a b")
