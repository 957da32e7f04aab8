"""Cases of settings of topics, groups and the broker with extreme values."""

from __future__ import annotations

import json
from typing import Final

from aerobee.protocol.codes import RequestCode
from aerobee.testing.hostile.attacker import Attacker, Line
from aerobee.testing.hostile.requests import (
    DIGITS,
    NUMBERS,
    case,
    heartbeat,
    make_topic,
    send,
    send_ext,
    topic_ext,
)

_GROUP_FIELDS: Final = (
    "retryQueueNums", "retryMaxTimes", "brokerId", "whichBrokerWhenConsumeSlowly", "consumeTimeoutMinute",
    "groupSysFlag",
)  # fmt: skip
# An administrator turns these off on purpose. The witness would be refused, as the setting says.
_TURNED_OFF: Final = frozenset(
    (
        "brokerPermission",
        "rejectPullConsumerEnable",
        "maxMessageSize",
        "messageStorePlugIn",
        "fileReservedTime",
        "logMaxBytes",
    )
)


@case("topics with too many queues")
def wide_topics(attacker: Attacker) -> None:
    line = attacker.line()
    for queues in NUMBERS:
        line.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("wide", queues))
        line.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "wide"})
    line.ask(RequestCode.SEND_MESSAGE_V2, {**send_ext(topic="made-wide"), "d": "2147483647"}, b"x")
    line.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "made-wide"})


@case("the widest topic that is allowed, and every question about it")
def widest_topic(attacker: Attacker) -> None:
    line = attacker.line()
    for queues in ("65536", "16384", "4096", "1024"):
        answer = line.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("widest", queues))
        if answer is not None and answer.code == 0:
            break
    line.ask(RequestCode.HEART_BEAT, {}, heartbeat(group="widest", topic="widest"))
    send(line, topic="widest")
    for _ in range(3):
        line.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "widest"})
        line.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "widest", "topic": "widest"})
        line.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "widest", "group": "widest"})
        reset = {"topic": "widest", "group": "widest", "timestamp": "0", "isForce": "true"}
        line.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
        asked = {"topic": "widest", "consumerGroup": "widest", "clientId": "c", "strategyName": "AVG",
                 "messageModel": "CLUSTERING"}  # fmt: skip
        line.ask(RequestCode.QUERY_ASSIGNMENT, {}, json.dumps(asked).encode())
        line.ask(RequestCode.QUERY_CORRECTION_OFFSET, {"topic": "widest", "filterGroups": "", "compareGroup": "widest"})


@case("a group with a million retry queues, and its statistics")
def wide_retries(attacker: Attacker) -> None:
    line = attacker.line()
    for number in ("1000000", "2147483647", "-1"):
        body = b'{"groupName":"wide","retryQueueNums":%s,"consumeEnable":true}' % number.encode()
        line.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
        line.ask(RequestCode.HEART_BEAT, {}, heartbeat(group="wide", topic="witness"))
        ext = {"offset": "0", "group": "wide", "delayLevel": "0", "maxReconsumeTimes": "3"}
        line.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext)
        for topic in ("%RETRY%wide", "witness"):
            line.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
            line.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "wide", "topic": topic})
        line.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "wide", "cleanOffset": "true"})


@case("groups with settings at their extremes")
def group_settings(attacker: Attacker) -> None:
    line = attacker.line()
    for field in _GROUP_FIELDS:
        for number in ("-1", "2147483648", "1e999", DIGITS, '"x"', "null", "[]", "{}", "true"):
            body = f'{{"groupName":"odd","{field}":{number}}}'.encode()
            line.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    steps = ",".join(["1"] * 200_000)
    for policy in (
        '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1,"max":9223372036854775807,"multiplier":9999}}',
        f'{{"type":"CUSTOMIZED","customizedRetryPolicy":{{"next":[{steps}]}}}}',
    ):
        body = f'{{"groupName":"odd","groupRetryPolicy":{policy}}}'.encode()
        line.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
        line.ask(RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": "0", "group": "odd", "delayLevel": "0"})


@case("huge attributes of topics")
def attributes(attacker: Attacker) -> None:
    line = attacker.line()
    for text in (
        "+message.type=x", "+a=b," * 100_000, "+" * 100_000, "-message.type,+message.type=FIFO",
        "+cleanup.policy=\ud800", "+message.type=FIFO," * 50_000 + "+message.type=FIFO",
    ):  # fmt: skip
        if line.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("attributed", attributes=text)) is None:
            line = attacker.line()


@case("huge attributes of groups")
def group_attributes(attacker: Attacker) -> None:
    line = attacker.line()
    for number in range(20):
        many = {f"+k{number}-{n}": "v" * 100 for n in range(20_000)}
        body = json.dumps({"groupName": "attributed", "attributes": many}).encode()
        line.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    subscriptions = [{"topic": f"t{n}", "subString": "*"} for n in range(50_000)]
    body = json.dumps({"groupName": "attributed", "subscriptionDataSet": subscriptions}).encode()
    line.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)


@case("topics by the thousand, made and deleted")
def fleeting(attacker: Attacker) -> None:
    line = attacker.line()
    for number in range(400):
        topic = f"fleeting-{number % 20}"
        line.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic))
        send(line, topic=topic)
        line.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})


@case("a list of a hundred thousand topics in one request")
def topic_list(attacker: Attacker) -> None:
    topics = [{"topicName": f"listed-{n}", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6} for n in range(100_000)]
    attacker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, json.dumps({"topicConfigList": topics}).encode())


@case("a list of a hundred thousand groups in one request")
def group_list(attacker: Attacker) -> None:
    groups = [{"groupName": f"listed-{n}"} for n in range(100_000)]
    body = json.dumps({"groupConfigList": groups}).encode()
    attacker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, body)


@case("a topic that is widened and narrowed while it is read and written")
def changing_topic(attacker: Attacker) -> None:
    admin, reader, writer = attacker.line(), attacker.line(), attacker.line()
    make_topic(admin, "changing", "8")
    for number in range(200):
        admin.tell(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("changing", ("8", "1", "4")[number % 3]))
        for queue_id in ("0", "3", "7"):
            ext = {**send_ext(topic="changing", queue_id=queue_id)}
            body = b"changing %d" % number
            attacker.keep("changing", writer.ask(RequestCode.SEND_MESSAGE_V2, ext, body), body)
            reader.tell(RequestCode.PULL_MESSAGE, {
                "consumerGroup": "g", "topic": "changing", "queueId": queue_id, "queueOffset": "0", "maxMsgNums": "32",
                "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "5000", "subscription": "*",
                "subVersion": "0", "expressionType": "TAG",
            })  # fmt: skip
    # A message in a queue that the topic no longer has is not lost: it is there when the topic has that queue again.
    make_topic(admin, "changing", "8")


def _settings(line: Line) -> dict[str, str]:
    """Return the broker's settings."""
    answer = line.ask(RequestCode.GET_BROKER_CONFIG)
    assert answer is not None and answer.code == 0
    return dict(row.partition("=")[::2] for row in answer.body.decode().splitlines())


@case("settings of the broker that are no values")
def broker_settings(attacker: Attacker) -> None:
    line = attacker.line()
    for key, known in _settings(line).items():
        # A path or an address may be any text. A number is refused or brought within its bounds.
        is_text = not known.lstrip("-").isdigit() and known not in ("true", "false")
        for value in ("-1", DIGITS, "1e999", "x" * 10_000, "\ud800".encode("utf-8", "surrogatepass").decode("latin-1")):
            told = line.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, f"{key}={value}".encode())
            if told is not None and told.code == 0 and not is_text and value != known:
                assert _settings(line)[key] != value, f"{key}={value[:10]} was taken"
    line.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"a=b\n" * 500_000)
    line.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"".join(b"k%d=v\n" % n for n in range(300_000)))


@case("settings of the broker at zero, one and the largest number")
def extreme_settings(attacker: Attacker) -> None:
    line = attacker.line()
    before = _settings(line)
    changed = []
    for key in before:
        if key in _TURNED_OFF:
            continue
        for value in ("0", "1", "2147483647", "9223372036854775807"):
            told = line.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, f"{key}={value}".encode())
            if told is not None and told.code == 0:
                changed.append(key)
                send(line, topic="extreme")
        if key in changed:
            line.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, f"{key}={before[key]}".encode())
    assert changed, "no setting could be changed: the case tries nothing"
