"""The parts of cases: the table of cases, the worst names and numbers, and the fields of requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from aerobee.model.ids import decode_offset_message_id
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command
from aerobee.testing.hostile.attacker import Attacker, Line

Case = Callable[[Attacker], None]
CASES: Final[dict[str, Case]] = {}

# Names that a client may send.
NAMES: Final = (
    "a/b", "../../outside", "..", ".", "/etc/passwd", "a\x00b", "a\nb", "a" * 4000, "\ud800", "", " ", "a@b", "a b",
    "%", "%RETRY%", "%RETRY%a/b", "%DLQ%..", "rmq_sys_", "CON", "a" * 127, "a" * 128, "|", "\u202e", "{}", '"', "a\\b",
    "~",
)  # fmt: skip
# Numbers that a client may send.
NUMBERS: Final = (
    "-1", "0", "2147483647", "-2147483648", "2147483648", "9223372036854775807", "-9223372036854775808",
    "9223372036854775808", "9" * 5000, "-" + "9" * 5000, "1.5", "1e999", "NaN", "0x10", "1_000", " 1", "+1", "\u0661",
    "",
)  # fmt: skip
# Topics that only the broker itself writes.
PROTECTED: Final = (
    "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "rmq_sys_wheel_timer",
    "OFFSET_MOVED_EVENT", "rmq_sys_AEROBEE_BATCH", "rmq_sys_AEROBEE_STATE", "rmq_sys_AEROBEE_POP",
    "TRANS_CHECK_MAX_TIME_TOPIC",
)  # fmt: skip
DIGITS: Final = "9" * 5000
# The properties that delay a message.
DELAYED: Final = "DELAY\x011\x02"
TIMED: Final = "TIMER_DELAY_SEC\x011\x02"
HALF: Final = "TRAN_MSG\x01true\x02PGROUP\x01shop\x02"
WAYS: Final = ("", DELAYED, TIMED, HALF)


def case(name: str) -> Callable[[Case], Case]:
    """Put a function into the table of cases under a description."""

    def put(one: Case) -> Case:
        assert name not in CASES, name
        CASES[name] = one
        return one

    return put


# -- fields


def send_ext(topic: str = "orders", queue_id: str = "0", properties: str = "", sys_flag: str = "0") -> dict[str, str]:
    """Return the fields of SEND_MESSAGE_V2."""
    return {
        "a": "shop", "b": topic, "c": "TBW102", "d": "4", "e": queue_id, "f": sys_flag, "g": "1700000000000", "h": "0",
        "i": properties or "UNIQ_KEY\x017F00000100002A9F0000000000000001\x02", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip


def send_ext_v1(topic: str = "orders", properties: str = "", sys_flag: str = "0") -> dict[str, str]:
    """Return the fields of SEND_MESSAGE."""
    return {
        "producerGroup": "shop", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
        "sysFlag": sys_flag, "bornTimestamp": "1700000000000", "flag": "0", "properties": properties,
        "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
    }  # fmt: skip


def send(line: Line, body: bytes = b"body", **fields: str) -> Command | None:
    """Send a message by SEND_MESSAGE_V2."""
    return line.ask(RequestCode.SEND_MESSAGE_V2, send_ext(**fields), body)


def half_flag(way: str) -> str:
    """Return the sysFlag of a kind of delayed message."""
    return "4" if way == HALF else "0"


def pull_ext(
    group: str = "g",
    topic: str = "witness",
    subscription: str = "*",
    kind: str = "TAG",
    queue_id: str = "0",
    hold_ms: str = "0",
) -> dict[str, str]:
    """Return the fields of a pull with its subscription. The broker holds it for `hold_ms`."""
    return {
        "consumerGroup": group, "topic": topic, "queueId": queue_id, "queueOffset": "0", "maxMsgNums": "32",
        "sysFlag": "4" if hold_ms == "0" else "6", "commitOffset": "0", "suspendTimeoutMillis": hold_ms,
        "subscription": subscription, "subVersion": "0", "expressionType": kind,
    }  # fmt: skip


def topic_ext(topic: str, queues: str = "4", perm: str = "6", **more: str) -> dict[str, str]:
    """Return the fields that make a topic."""
    return {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": perm,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false", **more,
    }  # fmt: skip


def make_topic(line: Line, topic: str, queues: str = "4") -> None:
    """Make a topic that the case needs."""
    answer = line.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, queues))
    assert answer is not None and answer.code == 0, answer


def subscription(topic: str = "orders", expression: str = "*", kind: str = "TAG") -> dict[str, object]:
    """Return a subscription as a heartbeat carries it."""
    return {
        "topic": topic, "subString": expression, "subVersion": 1, "expressionType": kind, "tagsSet": [], "codeSet": [],
        "classFilterMode": False,
    }  # fmt: skip


def heartbeat_of(group: str, subscriptions: list[dict[str, object]], client: str = "c") -> bytes:
    """Return the body of a heartbeat."""
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": subscriptions,
    }  # fmt: skip
    said = {"clientID": client, "producerDataSet": [{"groupName": "shop"}], "consumerDataSet": [consumer]}
    return json.dumps(said).encode()


def heartbeat(
    group: str = "g", topic: str = "orders", expression: str = "*", kind: str = "TAG", client: str = "c"
) -> bytes:
    """Return the body of a heartbeat with one subscription."""
    return heartbeat_of(group, [subscription(topic, expression, kind)], client)


def end_ext(offset: int, queue_offset: int = 0, how: int = 8, group: str = "shop", **more: str) -> dict[str, str]:
    """Return the fields of END_TRANSACTION."""
    return {
        "producerGroup": group, "tranStateTableOffset": str(queue_offset), "commitLogOffset": str(offset),
        "commitOrRollback": str(how), "fromTransactionCheck": "false", "msgId": "m", "transactionId": "x", **more,
    }  # fmt: skip


def place_of(answer: Command) -> int:
    """Return where in the log a message lies, from the answer to its send."""
    return decode_offset_message_id(answer.ext["msgId"]).physical_offset


def refused(answer: Command | None, what: str) -> None:
    """Assert that a request was refused. A closed connection is a refusal too."""
    assert answer is None or answer.code != 0, f"{what} was taken"
