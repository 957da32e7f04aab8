"""Cases of groups, heartbeats, subscriptions and filters."""

from __future__ import annotations

import json

from aerobee.protocol.codes import PrivateRequestCode, RequestCode
from aerobee.testing.hostile.attacker import Attacker
from aerobee.testing.hostile.requests import (
    NAMES,
    NUMBERS,
    case,
    heartbeat,
    heartbeat_of,
    place_of,
    pull_ext,
    send,
    send_ext,
    subscription,
    topic_ext,
)

_EXPRESSIONS = (
    "(" * 20_000 + "a = 1" + ")" * 20_000,
    " OR ".join(f"a{n} = {n}" for n in range(30_000)),
    "NOT " * 50_000 + "a",
    "a IN (" + ",".join(f"'{n}'" for n in range(60_000)) + ")",
    "a = " + "9" * 100_000,
    "a = '" + "x" * 500_000 + "'",
    "a BETWEEN 1 AND",
    "-" * 100_000 + "1 = 1",
    "a = 1" + " AND a = 1" * 60_000,
    "'" * 200_000,
)


@case("topics with invalid names, by send, pull and admin")
def topic_names(attacker: Attacker) -> None:
    line = attacker.line()
    for name in NAMES:
        offset = {"consumerGroup": "g", "topic": name, "queueId": "0", "commitOffset": "1"}
        for code, fields in (
            (RequestCode.SEND_MESSAGE_V2, send_ext(topic=name)),
            (RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(name)),
            (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name}),
            (RequestCode.PULL_MESSAGE, pull_ext(topic=name)),
            (RequestCode.UPDATE_CONSUMER_OFFSET, offset),
        ):
            if line.ask(code, fields, b"body") is None:
                line = attacker.line()


@case("groups with invalid names, by every request that stores one")
def group_names(attacker: Attacker) -> None:
    line = attacker.line()
    for name in NAMES:
        group = json.dumps({"groupName": name, "retryQueueNums": 1}).encode()
        offset = {"consumerGroup": name, "topic": "witness", "queueId": "0", "commitOffset": "1"}
        for code, fields, body in (
            (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group),
            (RequestCode.HEART_BEAT, {}, heartbeat(group=name)),
            (RequestCode.PULL_MESSAGE, pull_ext(group=name), b""),
            (RequestCode.UPDATE_CONSUMER_OFFSET, offset, b""),
            (RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": name}, b""),
            (RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": "0", "group": name, "delayLevel": "0"}, b""),
            (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": name, "cleanOffset": "true"}, b""),
        ):
            if line.ask(code, fields, body) is None:
                line = attacker.line()


@case("SQL filters on topics with invalid names")
def filters_of_names(attacker: Attacker) -> None:
    line = attacker.line()
    for name in NAMES:
        line.ask(RequestCode.HEART_BEAT, {}, heartbeat(topic=name, expression="a > 1", kind="SQL92"))


@case("SQL expressions that are long, deep or wrong")
def expressions(attacker: Attacker) -> None:
    line = attacker.line()
    for expression in _EXPRESSIONS:
        line.ask(RequestCode.HEART_BEAT, {}, heartbeat(expression=expression, kind="SQL92", group="sql"))
        asked = {"topic": "orders", "subString": expression, "expressionType": "SQL92"}
        check = {"clientId": "c", "group": "sql", "subscriptionData": asked}
        line.ask(RequestCode.CHECK_CLIENT_CONFIG, {}, json.dumps(check).encode())
        line.ask(RequestCode.PULL_MESSAGE, pull_ext(subscription=expression, kind="SQL92"))


@case("a costly filter over ten thousand messages")
def costly_filter(attacker: Attacker) -> None:
    line = attacker.line()
    for number in range(40):
        frame = line.frame(
            RequestCode.SEND_MESSAGE_V2, send_ext(topic="filtered", properties="a\x011\x02UNIQ_KEY\x01A\x02"), b"x"
        )
        line.write(frame * 250)
        line.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        assert number < 40
    expression = " AND ".join(f"a <> {n + 100}" for n in range(400)) + " AND a = 2"
    for number in range(4):
        for _ in range(5):
            line.ask(
                RequestCode.PULL_MESSAGE,
                pull_ext(topic="filtered", subscription=expression, kind="SQL92", queue_id=str(number)),
            )
            line.ask(PrivateRequestCode.BULK_PULL, {
                "topic": "filtered", "queueId": str(number), "queueOffset": "0", "endOffset": "100000",
                "maxMsgBytes": "8000000", "subscription": expression, "expressionType": "SQL92",
            })  # fmt: skip


@case("a heartbeat of twelve megabytes with one key unquoted")
def unquoted(attacker: Attacker) -> None:
    attacker.ask(RequestCode.HEART_BEAT, {}, b'{clientID:"c","x":"' + b"y" * (12 << 20) + b'"}')


@case("heartbeats of twelve megabytes in every shape")
def large_heartbeats(attacker: Attacker) -> None:
    producers = ",".join(f'{{"groupName":"p{n}"}}' for n in range(300_000))
    for body in (
        b"[" * (12 << 20), b'{"a":' * (2 << 20), b'{"a":1,' * (1 << 20), b'"' + b"\\u0041" * (2 << 20) + b'"',
        b"9" * (12 << 20), b'{"consumerDataSet":[' + b'{"groupName":"g"},' * 500_000 + b"{}]}",
        f'{{"clientID":"c","producerDataSet":[{producers}]}}'.encode(), b" " * (12 << 20),
        b'{"clientID":"' + b"c" * (12 << 20) + b'","producerDataSet":[{"groupName":"p"}]}',
    ):  # fmt: skip
        attacker.ask(RequestCode.HEART_BEAT, {}, body)


@case("fifty thousand subscriptions in one heartbeat, by tags and by SQL")
def wide_heartbeats(attacker: Attacker) -> None:
    for kind, expression in (("TAG", "a"), ("SQL92", "a > 1")):
        first, second = attacker.line(), attacker.line()
        many = [subscription(f"wide-{n}", expression, kind) for n in range(50_000)]
        for line, client in ((first, "c1"), (second, "c2"), (first, "c1")):
            line.ask(RequestCode.HEART_BEAT, {}, heartbeat_of("wide", many, client))
        first.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "wide"})


@case("as many groups and topics as heartbeats can name")
def many_groups(attacker: Attacker) -> None:
    line = attacker.line()
    for number in range(500):
        body = heartbeat(group=f"flood-{number}", topic=f"flood-{number}", expression="a > 1", kind="SQL92")
        line.ask(RequestCode.HEART_BEAT, {}, body)


@case("two thousand groups in one heartbeat")
def groups_at_once(attacker: Attacker) -> None:
    line = attacker.line()
    groups = [
        {"groupName": f"once-{n}", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
         "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [subscription()]}
        for n in range(2_000)
    ]  # fmt: skip
    line.ask(RequestCode.HEART_BEAT, {}, json.dumps({"clientID": "c", "consumerDataSet": groups}).encode())


@case("subscriptions that change with every heartbeat, in a group of two hundred")
def alternating(attacker: Attacker) -> None:
    lines = [attacker.line() for _ in range(200)]
    for number, line in enumerate(lines):
        line.tell(RequestCode.HEART_BEAT, {}, heartbeat(group="crowd", client=f"c{number}"))
    for number in range(100):
        lines[0].tell(RequestCode.HEART_BEAT, {}, heartbeat(group="crowd", expression=f"t{number}", client="c0"))
        lines[1].tell(RequestCode.UNREGISTER_CLIENT, {"clientID": "c1", "consumerGroup": "crowd"})
        lines[1].tell(RequestCode.HEART_BEAT, {}, heartbeat(group="crowd", client="c1"))
    for line in lines:
        line.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "crowd"})


@case("goodbyes in the name of other clients")
def goodbyes(attacker: Attacker) -> None:
    member, other = attacker.line(), attacker.line()
    member.ask(RequestCode.HEART_BEAT, {}, heartbeat(group="stay", client="member"))
    for client in ("member", "", "x" * 100_000):
        ext = {"clientID": client, "consumerGroup": "stay", "producerGroup": "shop"}
        other.ask(RequestCode.UNREGISTER_CLIENT, ext)
    answer = other.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "stay"})
    assert answer is not None and b"member" in answer.body, "somebody else's goodbye took a member away"


@case("bulk pulls with a subscription of a megabyte each")
def bulk_subscriptions(attacker: Attacker) -> None:
    line = attacker.line()
    for number in range(200):
        line.ask(PrivateRequestCode.BULK_PULL, {
            "topic": "witness", "queueId": "0", "queueOffset": "0", "endOffset": "1", "maxMsgBytes": "1000",
            "subscription": f"t{number}||" + "x" * 1_000_000, "expressionType": "TAG",
        })  # fmt: skip


@case("bulk pulls in the name of a group of a megabyte each")
def bulk_groups(attacker: Attacker) -> None:
    line = attacker.line()
    for number in range(200):
        line.ask(PrivateRequestCode.BULK_PULL, {
            "topic": "witness", "queueId": "0", "queueOffset": "0", "endOffset": "1", "maxMsgBytes": "1000",
            "subscription": "*", "expressionType": "TAG", "consumerGroup": f"{number}" + "g" * 1_000_000,
        })  # fmt: skip


@case("bulk pulls of parts and ranges that are none")
def bulk_parts(attacker: Attacker) -> None:
    line = attacker.line()
    base = {
        "topic": "witness", "queueId": "0", "queueOffset": "0", "endOffset": "100", "maxMsgBytes": "100000",
        "subscription": "*", "expressionType": "TAG",
    }  # fmt: skip
    for number in NUMBERS:
        for field in ("parts", "endOffset", "queueOffset", "maxMsgBytes", "queueId"):
            fields = {**base, "parts": "0", field: number}
            if not line.tell(PrivateRequestCode.BULK_PULL, fields, b""):
                line = attacker.line()
    for parts in ("-1", "0", "1", "2", "3", "-4", "2147483647"):
        answer = attacker.line().ask(PrivateRequestCode.BULK_PULL, {**base, "parts": parts})
        assert answer is not None
    line.ask(RequestCode.GET_BROKER_RUNTIME_INFO)


@case("pulls with a subscription of a megabyte each")
def pull_subscriptions(attacker: Attacker) -> None:
    line = attacker.line()
    for number in range(100):
        line.ask(RequestCode.PULL_MESSAGE, pull_ext(subscription=f"t{number}||" + "x||" * 300_000))


@case("tags by the hundred thousand")
def many_tags(attacker: Attacker) -> None:
    line = attacker.line()
    tags = "||".join(f"t{n}" for n in range(100_000))
    for number in range(20):
        line.ask(RequestCode.PULL_MESSAGE, pull_ext(subscription=f"{tags}||{number}"))
        line.ask(RequestCode.HEART_BEAT, {}, heartbeat(expression=f"{tags}||{number}"))


@case("tag sets and code sets by the hundred thousand")
def many_codes(attacker: Attacker) -> None:
    line = attacker.line()
    for number in range(5):
        one = {**subscription("orders", f"t{number}"), "tagsSet": [f"t{n}" for n in range(100_000)],
               "codeSet": list(range(100_000))}  # fmt: skip
        line.ask(RequestCode.HEART_BEAT, {}, heartbeat_of("codes", [one]))
        line.ask(RequestCode.PULL_MESSAGE, {**pull_ext(group="codes", topic="orders"), "sysFlag": "0"})


@case("a client that answers for others: pushed replies and relayed questions")
def false_answers(attacker: Attacker) -> None:
    member, admin = attacker.line(), attacker.line()
    member.ask(RequestCode.HEART_BEAT, {}, heartbeat(group="relay", client="member"))
    for number in range(5):
        ext = {"consumerGroup": "relay", "clientId": "member", "jstackEnable": "false"}
        admin.write(admin.frame(RequestCode.GET_CONSUMER_RUNNING_INFO, ext))
        properties = "UNIQ_KEY\x01A\x02REPLY_TO_CLIENT\x01member\x02"
        replied = send_ext(topic="replies", properties=properties)
        admin.write(admin.frame(RequestCode.SEND_REPLY_MESSAGE_V2, replied, b"reply"))
        asked = 0
        for request in member.commands():
            if request.flag & 2:
                continue
            remark = "r" * (number * 1_000_000)
            sized = {"x": "y" * (number * 1_000_000)}
            head = json.dumps({"code": 0, "flag": 1, "opaque": request.opaque, "remark": remark, "version": 0,
                               "language": "JAVA", "extFields": sized}).encode()  # fmt: skip
            member.write((len(head) + 4).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head)
            asked += 1
            if asked == 2:
                break
        answered = admin.answers(admin.opaque - 1, admin.opaque)
        assert len(answered) == 2, f"{len(answered)} of two questions were answered"


@case("a question for a client that fills a frame before it is passed on")
def large_questions(attacker: Attacker) -> None:
    member, admin = attacker.line(), attacker.line()
    member.ask(RequestCode.HEART_BEAT, {}, heartbeat(group="relay", client="member"))
    ext = {"consumerGroup": "relay", "clientId": "member", "jstackEnable": "false", "junk": "j" * 1_000_000}
    body = b"x" * (16_777_000 - 1_000_400)
    assert admin.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, ext, body) is not None, "the connection was closed"
    properties = "UNIQ_KEY\x01A\x02REPLY_TO_CLIENT\x01member\x02"
    replied = {**send_ext(topic="relayed", properties=properties), "junk": "j" * 1_000_000}
    assert admin.ask(RequestCode.SEND_REPLY_MESSAGE_V2, replied, body) is not None, "the connection was closed"


@case("messages sent back by groups that never saw them")
def sent_back(attacker: Attacker) -> None:
    line = attacker.line()
    answer = send(line, b"once", topic="back")
    assert answer is not None and answer.code == 0
    offset = str(place_of(answer))
    for number in range(300):
        for level in ("0", "-1", "2147483647", "3"):
            ext = {"offset": offset, "group": f"back-{number % 50}", "delayLevel": level, "originTopic": "a/b",
                   "originMsgId": "x" * 1000, "maxReconsumeTimes": "2147483647", "unitMode": "true"}  # fmt: skip
            line.tell(RequestCode.CONSUMER_SEND_MSG_BACK, ext)
    line.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
