"""Cases of offsets, locks, queries and statistics with extreme values, and of forged records."""

from __future__ import annotations

import json
import threading

from aerobee.model.numbers import parse_int
from aerobee.protocol.codes import PrivateRequestCode, RequestCode
from aerobee.testing.hostile.attacker import Attacker
from aerobee.testing.hostile.requests import (
    NUMBERS,
    case,
    end_ext,
    heartbeat,
    make_topic,
    place_of,
    pull_ext,
    send,
    send_ext,
)

_FOREVER = {"beginTimestamp": "0", "endTimestamp": "9223372036854775807"}


@case("offsets at their extremes")
def extreme_offsets(attacker: Attacker) -> None:
    line = attacker.line()
    commit = {"consumerGroup": "g", "topic": "witness", "queueId": "0", "commitOffset": "1"}
    query = {"topic": "witness", "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"}
    end = end_ext(0, group="p")
    for number in NUMBERS:
        for code, fields in (
            (RequestCode.UPDATE_CONSUMER_OFFSET, {**commit, "queueId": number}),
            (RequestCode.UPDATE_CONSUMER_OFFSET, {**commit, "commitOffset": number}),
            (RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": "g", "topic": "witness", "queueId": number}),
            (RequestCode.GET_MAX_OFFSET, {"topic": "witness", "queueId": number}),
            (RequestCode.GET_MIN_OFFSET, {"topic": "witness", "queueId": number}),
            (RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": "witness", "queueId": number}),
            (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": "witness", "queueId": "0", "timestamp": number}),
            (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": number}),
            (RequestCode.PULL_MESSAGE, {**pull_ext(), "queueOffset": number}),
            (RequestCode.PULL_MESSAGE, {**pull_ext(), "maxMsgNums": number}),
            (RequestCode.PULL_MESSAGE, {**pull_ext(), "queueId": number}),
            (RequestCode.PULL_MESSAGE, {**pull_ext(hold_ms="1"), "suspendTimeoutMillis": number}),
            (RequestCode.PULL_MESSAGE, {**pull_ext(), "maxMsgBytes": number}),
            (RequestCode.QUERY_MESSAGE, {**query, "maxNum": number}),
            (RequestCode.QUERY_MESSAGE, {**query, "beginTimestamp": number}),
            (RequestCode.QUERY_CONSUME_QUEUE, {"topic": "witness", "queueId": "0", "index": number, "count": number}),
            (RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": number, "group": "g", "delayLevel": number}),
            (RequestCode.END_TRANSACTION, {**end, "commitLogOffset": number}),
            (RequestCode.END_TRANSACTION, {**end, "tranStateTableOffset": number}),
        ):
            for codec in (0, 1):
                if not line.tell(code, fields, b"", codec=codec):
                    line = attacker.line()
    line.ask(RequestCode.GET_BROKER_RUNTIME_INFO)


@case("offsets of a hundred thousand queues")
def many_offsets(attacker: Attacker) -> None:
    line = attacker.line()
    for group in range(5):
        line.ask(RequestCode.HEART_BEAT, {}, heartbeat(group=f"many-{group}", topic="witness"))
        for queue_id in range(20_000):
            commit = {
                "consumerGroup": f"many-{group}",
                "topic": "witness",
                "queueId": str(queue_id),
                "commitOffset": "1",
            }
            if not line.tell(RequestCode.UPDATE_CONSUMER_OFFSET, commit, oneway=True):
                line = attacker.line()
        line.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
    for group in range(5):
        line.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": f"many-{group}", "cleanOffset": "true"})


@case("ends of transactions that are none")
def false_ends(attacker: Attacker) -> None:
    line = attacker.line()
    for offset in range(0, 4_000, 7):
        ext = end_ext(offset, offset, (0, 8, 12, -1)[offset % 4], topic="a/b", fromTransactionCheck="true")
        line.ask(RequestCode.END_TRANSACTION, ext)


@case("transactions ended by others, twice, and one-way")
def ended_by_others(attacker: Attacker) -> None:
    line, other = attacker.line(), attacker.line()
    for number in range(50):
        half = f"UNIQ_KEY\x01{number:032X}\x02TRAN_MSG\x01true\x02PGROUP\x01shop\x02"
        answer = send(line, b"half", topic="halves", properties=half, sys_flag="4")
        assert answer is not None and answer.code == 0, answer
        offset, queue_offset = place_of(answer), parse_int(answer.ext["queueOffset"])
        ext = end_ext(offset, queue_offset, 8, "not-the-shop")
        taken = other.ask(RequestCode.END_TRANSACTION, ext)
        assert taken is not None and taken.code != 0, "a transaction was committed in another group's name"
        for how in (12, 8, 8, 12):
            ext = end_ext(offset, queue_offset, how)
            line.tell(RequestCode.END_TRANSACTION, ext, oneway=True)
            other.ask(RequestCode.END_TRANSACTION, ext)


@case("locks of queues beyond number")
def locks(attacker: Attacker) -> None:
    for number in range(5):
        queues = [{"brokerName": "broker-a", "queueId": n, "topic": f"witness-{number}"} for n in range(100_000)]
        body = json.dumps({"clientId": "c", "consumerGroup": f"g{number}", "mqSet": queues}).encode()
        attacker.ask(RequestCode.LOCK_BATCH_MQ, {}, body)
    attacker.ask(RequestCode.UNLOCK_BATCH_MQ, {}, body)


@case("locks by clients and groups of a megabyte")
def locks_of_names(attacker: Attacker) -> None:
    line = attacker.line()
    for number in range(60):
        queues = [{"brokerName": "b" * 1000, "queueId": number, "topic": "t" * 1000}]
        asked = {
            "clientId": f"c{number}" + "c" * 500_000,
            "consumerGroup": f"g{number}" + "g" * 500_000,
            "mqSet": queues,
        }
        line.ask(RequestCode.LOCK_BATCH_MQ, {}, json.dumps(asked).encode())


@case("queries by key without bounds")
def queries(attacker: Attacker) -> None:
    line = attacker.line()
    for number in range(2_000):
        send(line, topic="keyed", properties=f"UNIQ_KEY\x01{number:032X}\x02KEYS\x01same\x02")
    for _ in range(20):
        line.ask(RequestCode.QUERY_MESSAGE, {"topic": "keyed", "key": "same", "maxNum": "2147483647", **_FOREVER})


@case("fifty queries by key at once, for keys of a megabyte")
def queries_at_once(attacker: Attacker) -> None:
    lines = [attacker.line() for _ in range(50)]
    for line in lines:
        for number in range(3):
            asked = {"topic": "keyed", "key": f"{number}" + "k" * 1_000_000, "maxNum": "2147483647", **_FOREVER}
            line.tell(RequestCode.QUERY_MESSAGE, asked)
    for line in lines:
        line.ask(RequestCode.GET_MAX_OFFSET, {"topic": "keyed", "queueId": "0"})


@case("answers larger than a frame")
def large_answers(attacker: Attacker) -> None:
    line = attacker.line()
    for number in range(8):
        properties = f"UNIQ_KEY\x01{number:032X}\x02KEYS\x01large\x02"
        send(line, b"x" * 4_000_000, topic="large", queue_id="0", properties=properties)
    answer = line.ask(RequestCode.QUERY_MESSAGE, {"topic": "large", "key": "large", "maxNum": "64", **_FOREVER})
    assert answer is None or answer.code != 0 or answer.body, "success without a body"


@case("questions whose words of a megabyte come back in the answer")
def echoes(attacker: Attacker) -> None:
    name = "g" * 1_040_000
    for code, ext in (
        (RequestCode.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": name, "clientId": "c", "msgId": "0" * 32}),
        (RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": name, "clientId": "c", "jstackEnable": "false"}),
        (RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": name}),
        (RequestCode.GET_TOPIC_STATS_INFO, {"topic": name}),
        (RequestCode.GET_TOPIC_CONFIG, {"topic": name}),
        (RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": name, "topic": "t"}),
        (RequestCode.PULL_MESSAGE, pull_ext(topic=name)),
        (RequestCode.SEND_MESSAGE_V2, send_ext(topic=name)),
    ):
        for codec in (0, 1):
            line = attacker.line()
            line.ask(code, ext, codec=codec)
            line.close()


@case("statistics of a topic that is named a hundred thousand times in one request")
def repeated_topics(attacker: Attacker) -> None:
    line = attacker.line()
    send(line, topic="repeated")
    line.ask(RequestCode.HEART_BEAT, {}, heartbeat(group="repeated", topic="repeated"))
    line.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "repeated", "topicList": "repeated;" * 110_000})
    line.ask(
        RequestCode.GET_CONSUME_STATS,
        {"consumerGroup": "repeated", "topicList": "".join(f"t{n};" for n in range(130_000))},
    )
    line.ask(RequestCode.QUERY_CORRECTION_OFFSET, {
        "topic": "repeated", "filterGroups": "".join(f"g{n}," for n in range(130_000)), "compareGroup": "repeated",
    })  # fmt: skip


@case("statistics under names by the thousand")
def statistics(attacker: Attacker) -> None:
    line = attacker.line()
    for number in range(3_000):
        ext = {"statsName": "TOPIC_PUT_NUMS", "statsKey": f"k{number}" + "x" * 5_000}
        line.tell(RequestCode.VIEW_BROKER_STATS_DATA, ext)
        line.tell(RequestCode.GET_CONSUME_STATS, {"consumerGroup": f"g{number}" + "x" * 200, "topic": "witness"})
    line.ask(RequestCode.GET_BROKER_RUNTIME_INFO)


@case("offsets cloned and reset for groups and topics by the hundred")
def cloned(attacker: Attacker) -> None:
    line = attacker.line()
    make_topic(line, "cloned", "8")
    line.ask(RequestCode.HEART_BEAT, {}, heartbeat(group="source", topic="cloned"))
    for queue_id in range(8):
        commit = {"consumerGroup": "source", "topic": "cloned", "queueId": str(queue_id), "commitOffset": "0"}
        line.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    for number in range(500):
        line.tell(
            RequestCode.CLONE_GROUP_OFFSET,
            {"srcGroup": "source", "destGroup": f"clone-{number}", "topic": "cloned", "offline": "true"},
        )
        line.tell(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {
            "topic": "cloned", "group": f"clone-{number}", "timestamp": "-1", "isForce": "true", "queueId": "-1",
            "offset": "9223372036854775807",
        })  # fmt: skip
    line.ask(RequestCode.GET_BROKER_RUNTIME_INFO)


@case("bulk pulls of everything, ten at once, from readers that do not read")
def bulk_pulls(attacker: Attacker) -> None:
    writer = attacker.line()
    for _ in range(20):
        send(writer, b"x" * 1_000_000, topic="bulk")
    for _ in range(10):
        line = attacker.line()
        for _ in range(20):
            line.write(line.frame(PrivateRequestCode.BULK_PULL, {
                "topic": "bulk", "queueId": "0", "queueOffset": "0", "endOffset": "9223372036854775807",
                "maxMsgBytes": "2147483647", "subscription": "*", "expressionType": "TAG",
            }))  # fmt: skip


@case("bulk pulls of small messages, from sixty readers that do not read")
def unread_pulls(attacker: Attacker) -> None:
    writer = attacker.line()
    make_topic(writer, "small", "1")
    frame = writer.frame(RequestCode.SEND_MESSAGE_V2, send_ext(topic="small"), b"x" * 400)
    for _ in range(40):
        writer.write(frame * 500)
        writer.ask(RequestCode.GET_MAX_OFFSET, {"topic": "small", "queueId": "0"})
    asked = {
        "topic": "small", "queueId": "0", "queueOffset": "0", "endOffset": "9223372036854775807",
        "maxMsgBytes": "2147483647", "subscription": "*", "expressionType": "TAG",
    }  # fmt: skip
    for line in [attacker.line() for _ in range(60)]:
        line.write(line.frame(PrivateRequestCode.BULK_PULL, asked) * 40)
    threading.Event().wait(2)


@case("request modes of topics and groups that are none")
def modes(attacker: Attacker) -> None:
    line = attacker.line()
    for topic in ("witness", "a/b", "x" * 100_000, "%RETRY%x"):
        for group in ("g", "a/b", "x" * 100_000):
            for mode in ("PULL", "POP", "", DEEP):
                said = {"topic": topic, "consumerGroup": group, "mode": mode, "popShareQueueNum": 1 << 70}
                line.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(said).encode())
    for strategy in ("AVG", "AVG_BY_CIRCLE", "x" * 100_000, ""):
        asked = {"topic": "witness", "consumerGroup": "g", "clientId": "c", "strategyName": strategy,
                 "messageModel": "BROADCASTING"}  # fmt: skip
        line.ask(RequestCode.QUERY_ASSIGNMENT, {}, json.dumps(asked).encode())


DEEP = "{" * 1_000
