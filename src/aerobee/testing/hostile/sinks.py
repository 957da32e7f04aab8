"""Cases of batches of sinks: impossible plans and rows."""

from __future__ import annotations

import json

from aerobee.hot.log.batch import encode_batch
from aerobee.protocol.codes import PrivateRequestCode
from aerobee.testing.hostile.attacker import Attacker
from aerobee.testing.hostile.requests import DIGITS, NAMES, case


def rows_ext(**more: str) -> dict[str, str]:
    """Return the fields of BATCH_ROWS."""
    return {
        "queryId": "Q", "batchId": "0", "topic": "rows", "queueId": "0", "producerGroup": "sink",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "leaseMs": "1000", "attempt": "a", "sequence": "0", "epoch": "1", **more,
    }  # fmt: skip


def end_ext(action: str, **more: str) -> dict[str, str]:
    """Return the fields of BATCH_END."""
    return {"queryId": "Q", "batchId": "0", "action": action, "leaseMs": "1", "epoch": "1", **more}


@case("a plan of a sink with chunks beyond number")
def plans(attacker: Attacker) -> None:
    line = attacker.line()
    for count in ("30000000", "2147483647", "-1", "1e999", DIGITS, '"x"'):
        plan = f'{{"id":"p","groups":{{"broker-a":{{"a":{count}}}}}}}'.encode()
        for action in ("prepare", "commit", "abort"):
            line.ask(PrivateRequestCode.BATCH_END, end_ext(action), plan)
    wide = {"id": "p", "groups": {"broker-a": {f"a{n}": 1 for n in range(200_000)}}}
    line.ask(PrivateRequestCode.BATCH_END, end_ext("prepare", queryId="W"), json.dumps(wide).encode())


@case("rows of a sink that can never be stored")
def rows(attacker: Attacker) -> None:
    line = attacker.line()
    near = encode_batch([(0, b"row", b"UNIQ_KEY\x01A\x02p\x01" + b"x" * 32_700 + b"\x02")])
    plain = encode_batch([(0, b"row", b"UNIQ_KEY\x01A\x02")])
    for body, more in (
        (near, {}), (plain, {"queueId": "-1"}), (plain, {"queueId": "99999"}), (plain, {"topic": "a/b"}),
        (plain, {"topic": "SCHEDULE_TOPIC_XXXX"}), (plain, {"queryId": "x" * 100_000}), (plain, {"batchId": DIGITS}),
        (b"\xff" * 100, {}), (b"", {}), (plain, {"keys": "1000000"}), (plain, {"groups": "," * 100_000, "keys": "1"}),
        (plain, {"attempt": "a" * 100_000}), (plain, {"sequence": "2147483647"}),
        (plain, {"leaseMs": "9223372036854775807"}),
    ):  # fmt: skip
        line.ask(PrivateRequestCode.BATCH_ROWS, rows_ext(**more), body)


@case("queries of sinks by the thousand")
def many_queries(attacker: Attacker) -> None:
    line = attacker.line()
    body = encode_batch([(0, b"x" * 1000, b"UNIQ_KEY\x01A\x02")])
    for number in range(2_000):
        line.ask(PrivateRequestCode.BATCH_ROWS, rows_ext(queryId=f"Q{number}"), body)


@case("queries and batches of sinks with names that are none")
def names(attacker: Attacker) -> None:
    line = attacker.line()
    body = encode_batch([(0, b"row", b"UNIQ_KEY\x01A\x02")])
    for name in NAMES:
        plan = json.dumps({"id": name, "groups": {name: {name: 1}}}).encode()
        for code, ext, said in (
            (PrivateRequestCode.BATCH_STATUS, {"queryId": name, "batchId": "0", "leaseMs": "1", "epoch": "1"}, b""),
            (PrivateRequestCode.BATCH_ROWS, rows_ext(queryId=name, attempt=name), body),
            (PrivateRequestCode.BATCH_END, end_ext("prepare", queryId=name), plan),
            (PrivateRequestCode.BATCH_END, end_ext("commit", queryId=name), plan),
        ):
            if line.ask(code, ext, said) is None:
                line = attacker.line()


@case("plans prepared, committed and aborted by two drivers at once")
def two_drivers(attacker: Attacker) -> None:
    first, second = attacker.line(), attacker.line()
    body = encode_batch([(0, b"row", b"UNIQ_KEY\x01A\x02")])
    for number in range(100):
        plan = json.dumps({"id": f"p{number}", "groups": {"broker-a": {"a": 1}}}).encode()
        batch = {"queryId": "two", "batchId": str(number)}
        first.tell(PrivateRequestCode.BATCH_ROWS, rows_ext(**batch), body)
        for action in ("prepare", "commit", "abort"):
            first.tell(PrivateRequestCode.BATCH_END, end_ext(action, **batch), plan)
            second.tell(PrivateRequestCode.BATCH_END, {**end_ext(action, **batch), "epoch": str(1 + number % 2)}, plan)
    first.ask(PrivateRequestCode.BATCH_STATUS, {"queryId": "two", "batchId": "0", "leaseMs": "1", "epoch": "1"})
