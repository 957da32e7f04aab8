"""Cases of sends: protected topics, flags, properties, names, batches, replies."""

from __future__ import annotations

import threading

from aerobee.hot.log.batch import encode_batch
from aerobee.protocol.codes import RequestCode
from aerobee.runtime.clock import SystemClock
from aerobee.testing.hostile.attacker import Attacker
from aerobee.testing.hostile.requests import (
    DELAYED,
    DIGITS,
    HALF,
    NAMES,
    PROTECTED,
    TIMED,
    WAYS,
    case,
    half_flag,
    refused,
    send,
    send_ext,
    send_ext_v1,
)

_SYSTEM_PROPERTIES = (
    "REAL_QID", "DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "TIMER_ROLL_TIMES",
    "TIMER_ENQUEUE_MS", "INNER_NUM", "INNER_BASE", "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "PGROUP", "_SYS_MSG_PRIORITY_", "DELAY_TIMES", "__AEROBEE_PID",
    "__AEROBEE_AFTER",
)  # fmt: skip


@case("plain sends to topics that only the broker writes")
def protected_topics(attacker: Attacker) -> None:
    line = attacker.line()
    for topic in PROTECTED:
        for properties in ("", "UNIQ_KEY\x01A\x02" + DELAYED):
            refused(send(line, b"0,", topic=topic, properties=properties), topic)


@case("sends to protected topics as batches, one-way, in the first version and as replies")
def protected_by_other_ways(attacker: Attacker) -> None:
    line = attacker.line()
    batch = encode_batch([(0, b"0,", b"UNIQ_KEY\x01A\x02")])
    for topic in PROTECTED:
        line.tell(RequestCode.SEND_MESSAGE_V2, send_ext(topic=topic), b"0,", oneway=True)
        refused(line.ask(RequestCode.SEND_MESSAGE, send_ext_v1(topic), b"0,"), topic)
        refused(line.ask(RequestCode.SEND_BATCH_MESSAGE, {**send_ext(topic=topic), "m": "true"}, batch), topic)
        for code, ext in (
            (RequestCode.SEND_REPLY_MESSAGE, send_ext_v1(topic)),
            (RequestCode.SEND_REPLY_MESSAGE_V2, send_ext(topic=topic)),
        ):
            refused(line.ask(code, ext, b"0,"), f"a reply to {topic}")


@case("very long numbers in the system properties of a message")
def digits_in_properties(attacker: Attacker) -> None:
    line = attacker.line()
    for name in _SYSTEM_PROPERTIES:
        for value in (DIGITS, "-1", "\u0661\u0662", "1_0", ""):
            for way in WAYS:
                properties = f"UNIQ_KEY\x01A\x02{way}{name}\x01{value}\x02REAL_TOPIC\x01orders\x02"
                send(line, properties=properties, sys_flag=half_flag(way))


@case("invalid names as the topic of a delayed message")
def names_of_waiting(attacker: Attacker) -> None:
    line = attacker.line()
    for name in NAMES:
        for way in (DELAYED, TIMED, HALF):
            properties = f"UNIQ_KEY\x01A\x02REAL_TOPIC\x01{name}\x02REAL_QID\x010\x02{way}"
            if send(line, properties=properties, sys_flag=half_flag(way)) is None:
                line = attacker.line()


@case("flags of inner batches and unknown ones")
def inner_batches(attacker: Attacker) -> None:
    line = attacker.line()
    for flag in (0x40, 0x80, 0xC0):
        for properties in ("", "UNIQ_KEY\x01A\x02INNER_NUM\x0150\x02INNER_BASE\x010\x02"):
            refused(send(line, b"\xff" * 64, sys_flag=str(flag), properties=properties), f"sysFlag {flag:#x}")
    for flag in (0x100, 0x7FFFFFFF, -1, 0x1000):
        send(line, sys_flag=str(flag))


@case("properties near their limit, for every way a message can wait")
def long_properties(attacker: Attacker) -> None:
    line = attacker.line()
    for way in ("", DELAYED, "TIMER_DELAY_MS\x0110\x02", HALF):
        for size in (32_500, 32_700, 32_760, 32_767, 32_768, 40_000):
            head = f"UNIQ_KEY\x01A\x02{way}p\x01"
            filled = head + "x" * max(1, size - len(head) - 1) + "\x02"
            send(line, properties=filled, sys_flag=half_flag(way))


@case("properties of a megabyte, and ten thousand of them")
def many_properties(attacker: Attacker) -> None:
    line = attacker.line()
    many = "".join(f"k{n}\x01v\x02" for n in range(10_000))
    for properties in (many, many + DELAYED, "k\x01" + "v" * 1_000_000 + "\x02", "\x02" * 30_000, "\x01" * 30_000):
        for _ in range(5):
            refused(send(line, properties=properties) if len(properties) > 32_767 else None, "long properties")


@case("batches with wrong lengths and counts")
def batches(attacker: Attacker) -> None:
    line = attacker.line()
    ext = {**send_ext(), "m": "true"}
    small = encode_batch([(0, b"x", b"")])
    for body in (
        b"", b"\x00" * 4000, small * 20_000, small[:-1], b"\x7f\xff\xff\xff" * 100, b"\xff" * 100,
        small[:10] + b"\xff" * 30, small * 10_000,
    ):  # fmt: skip
        for code in (RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2):
            if line.ask(code, ext, body) is None:
                line = attacker.line()


@case("batches with delays, halves and keys inside")
def batches_that_wait(attacker: Attacker) -> None:
    line = attacker.line()
    for inner in (DELAYED, TIMED, HALF, f"REAL_QID\x01{DIGITS}\x02", "INNER_NUM\x015\x02", "WAIT\x01false\x02"):
        body = encode_batch([(0, b"x", b"UNIQ_KEY\x01A\x02" + inner.encode())] * 20)
        for outer in ("", DELAYED, TIMED, HALF):
            ext = {**send_ext(properties="UNIQ_KEY\x01A\x02" + outer, sys_flag=half_flag(outer)), "m": "true"}
            line.ask(RequestCode.SEND_BATCH_MESSAGE, ext, body)


@case("ten thousand keys in each message")
def many_keys(attacker: Attacker) -> None:
    line = attacker.line()
    for number in range(60):
        keys = " ".join(f"{number}k{n}" for n in range(4_000))
        send(line, topic="keys", properties=f"UNIQ_KEY\x01{number:032X}\x02KEYS\x01{keys}\x02")


@case("replies for clients that are not there, with fields at their extremes")
def replies(attacker: Attacker) -> None:
    line = attacker.line()
    properties = "UNIQ_KEY\x01A\x02REPLY_TO_CLIENT\x01nobody\x02CLUSTER\x01x\x02"
    for more in (
        {"e": "2147483647"}, {"e": "-1"}, {"e": "99999"}, {"f": "192"}, {"f": "-1"}, {"j": "2147483647"}, {"b": "a/b"},
        {"i": properties + "p\x01" + "x" * 40_000 + "\x02"}, {"i": properties + f"REAL_QID\x01{DIGITS}\x02"},
        {"g": "-1"}, {"h": "2147483647"},
    ):  # fmt: skip
        for body in (b"reply", b"", b"x" * (5 << 20)):
            ext = {**send_ext(topic="replies", properties=properties), **more}
            if line.ask(RequestCode.SEND_REPLY_MESSAGE_V2, ext, body) is None:
                line = attacker.line()


@case("replies into queues that the topic does not have")
def replies_into_queues(attacker: Attacker) -> None:
    line = attacker.line()
    properties = "UNIQ_KEY\x01A\x02REPLY_TO_CLIENT\x01nobody\x02"
    for queue_id in range(100, 2_000):
        ext = send_ext(topic="replies", queue_id=str(queue_id), properties=properties)
        refused(line.ask(RequestCode.SEND_REPLY_MESSAGE_V2, ext, b"reply"), f"a reply into queue {queue_id}")
    answer = line.ask(RequestCode.GET_MAX_OFFSET, {"topic": "replies", "queueId": "1999"})
    assert answer is not None and answer.ext.get("offset", "0") == "0", "queue 1999 of a topic with four was made"


@case("two thousand topics made by sends")
def topics_by_sends(attacker: Attacker) -> None:
    line = attacker.line()
    for number in range(2_000):
        line.tell(RequestCode.SEND_MESSAGE_V2, send_ext(topic=f"made-{number}"), b"x")
    attacker.keep("made-0", send(line, b"kept", topic="made-0"), b"kept")


@case("a flood of one-way sends")
def oneway_flood(attacker: Attacker) -> None:
    lines = [attacker.line() for _ in range(10)]
    for _ in range(30):
        for line in lines:
            frame = line.frame(RequestCode.SEND_MESSAGE_V2, send_ext(topic="flood"), b"x" * 100, oneway=True)
            line.write(frame * 50)
    for line in lines:
        line.ask(RequestCode.GET_BROKER_RUNTIME_INFO)


@case("sends of the same opaque, a thousand times in one write")
def same_opaque(attacker: Attacker) -> None:
    line = attacker.line()
    line.write(line.frame(RequestCode.SEND_MESSAGE_V2, send_ext(topic="same"), b"x") * 1_000)
    assert sum(1 for _, _ in zip(range(1_000), line.commands(), strict=False)) == 1_000, "not all were answered"


@case("retries and dead letters sent by hand")
def retries_by_hand(attacker: Attacker) -> None:
    line = attacker.line()
    for topic in (
        "%RETRY%nobody",
        "%DLQ%nobody",
        "%RETRY%g+witness",
        "%RETRY%",
        "%DLQ%",
        "%RETRY%a/b",
        "%LMQ%x",
        "%LMQ%a/b",
    ):
        for times in ("0", "2147483647", "-1"):
            for properties in (
                "UNIQ_KEY\x01A\x02",
                "UNIQ_KEY\x01A\x02RETRY_TOPIC\x01a/b\x02",
                f"UNIQ_KEY\x01A\x02{DELAYED}",
            ):
                ext = {**send_ext(topic=topic, properties=properties), "j": times, "l": times}
                if line.ask(RequestCode.SEND_MESSAGE_V2, ext, b"x") is None:
                    line = attacker.line()


@case("queues of multi-dispatch and lite topics in a message's properties")
def multi_dispatch(attacker: Attacker) -> None:
    line = attacker.line()
    many = ",".join(f"%LMQ%q{n}" for n in range(1_500))
    for name in ("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "LITE_TOPIC", "__SHARDINGKEY"):
        for value in (many, "%LMQ%../../x", "%LMQ%a/b,%LMQ%\x00", ",", DIGITS):
            send(line, topic="lmq", properties=f"UNIQ_KEY\x01A\x02{name}\x01{value}\x02")


@case("four thousand timed and delayed messages that are due at once")
def due_at_once(attacker: Attacker) -> None:
    line = attacker.line()
    due_ms = SystemClock().now_ms() + 2_500
    for number in range(2_000):
        for way in (f"TIMER_DELIVER_MS\x01{due_ms}\x02", DELAYED):
            ext = send_ext(topic="due", properties=f"UNIQ_KEY\x01{number:032X}\x02{way}")
            line.tell(RequestCode.SEND_MESSAGE_V2, ext, b"x" * 200)
    line.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    threading.Event().wait(4)
