"""Cases of POP: extreme numbers, handles that are none, acknowledgements of what nobody holds, too many waits."""

from __future__ import annotations

import base64
import json

from aerobee.protocol.codes import PrivateRequestCode, RequestCode
from aerobee.testing.hostile.attacker import Attacker
from aerobee.testing.hostile.requests import NUMBERS, case, make_topic

_GROUP = "attack-pop"


def _pop(**fields: str) -> dict[str, str]:
    return {
        "consumerGroup": _GROUP, "topic": "witness", "queueId": "-1", "maxMsgNums": "1", "invisibleTime": "1000",
        "pollTime": "0", "bornTime": "0", "initMode": "0", **fields,
    }  # fmt: skip


def _ack(**fields: str) -> dict[str, str]:
    return {
        "consumerGroup": _GROUP, "topic": "witness", "queueId": "0", "offset": "0",
        "extraInfo": "0 1 1000 0 0 broker-a 0 0", "invisibleTime": "1", **fields,
    }  # fmt: skip


@case("pops, acknowledgements and changes at their extremes")
def extreme_pops(attacker: Attacker) -> None:
    line = attacker.line()
    for number in NUMBERS:
        handle = f"{number} {number} {number} {number} {number} b {number} {number}"
        for code, fields in (
            (RequestCode.POP_MESSAGE, _pop(queueId=number)),
            (RequestCode.POP_MESSAGE, _pop(maxMsgNums=number)),
            (RequestCode.POP_MESSAGE, _pop(invisibleTime=number)),
            (RequestCode.POP_MESSAGE, _pop(pollTime=number, bornTime=number)),
            (RequestCode.POP_MESSAGE, _pop(initMode=number, order="true", attemptId=number)),
            (RequestCode.POP_MESSAGE, _pop(exp=number, expType="SQL92")),
            (RequestCode.ACK_MESSAGE, _ack(offset=number)),
            (RequestCode.ACK_MESSAGE, _ack(queueId=number)),
            (RequestCode.ACK_MESSAGE, _ack(extraInfo=handle)),
            (RequestCode.CHANGE_MESSAGE_INVISIBLETIME, _ack(invisibleTime=number)),
            (RequestCode.CHANGE_MESSAGE_INVISIBLETIME, _ack(extraInfo=handle, offset=number)),
            (RequestCode.PEEK_MESSAGE, _pop(queueId=number, maxMsgNums=number)),
            (RequestCode.NOTIFICATION, _pop(queueId=number, pollTime=number)),
            (RequestCode.POLLING_INFO, _pop(queueId=number)),
            (PrivateRequestCode.POP_IN_FLIGHT, {"maxMsgNums": number, "topic": number}),
        ):
            if not line.tell(code, fields, b""):
                line = attacker.line()
    line.ask(RequestCode.GET_BROKER_RUNTIME_INFO)


@case("handles and names that are none")
def odd_handles(attacker: Attacker) -> None:
    line = attacker.line()
    for text in ("", " ", "0", "0 1", "0 x 1 1", "9" * 5_000, "0 " * 4_000, "0 1 1 999 0 b 0 0", "\u0000 1 1 1", "%%%"):
        for code in (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME):
            line.tell(code, _ack(extraInfo=text), b"")
    for name in ("a/b", "../x", "%RETRY%attack-pop_witness", "rmq_sys_AEROBEE_POP", "x" * 300, ""):
        line.tell(RequestCode.POP_MESSAGE, _pop(topic=name), b"")
        line.tell(RequestCode.POP_MESSAGE, _pop(consumerGroup=name), b"")
        line.tell(RequestCode.ACK_MESSAGE, _ack(topic=name), b"")
    line.ask(RequestCode.GET_BROKER_RUNTIME_INFO)


@case("acknowledgements of a whole queue at once")
def vast_acks(attacker: Attacker) -> None:
    line = attacker.line()
    bits = base64.b64encode(b"\xff" * 40_000).decode()
    one = {"c": _GROUP, "t": "witness", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1, "b": bits}
    for acks in ([one], [{**one, "so": 2**62}], [{**one, "b": "!"}], [{**one, "b": ""}] * 300, [None], {"a": 1}, 5):
        line.tell(RequestCode.BATCH_ACK_MESSAGE, {}, json.dumps({"brokerName": "b", "acks": acks}).encode())
    for body in (b"", b"[]", b"{}", b"\xff" * 100, b'{"acks":' * 3_000):
        line.tell(RequestCode.BATCH_ACK_MESSAGE, {}, body)
    line.ask(RequestCode.GET_BROKER_RUNTIME_INFO)


@case("pops that wait without end")
def many_waits(attacker: Attacker) -> None:
    line = attacker.line()
    for number in range(3_000):
        fields = _pop(consumerGroup=f"{_GROUP}-{number % 40}", pollTime="9223372036854775807", topic="witness")
        if not line.tell(RequestCode.POP_MESSAGE, {**fields, "exp": "nobody", "expType": "TAG"}, b""):
            line = attacker.line()
    line.ask(RequestCode.GET_BROKER_RUNTIME_INFO)


@case("pops, peeks and notifications of a topic with as many queues as there can be")
def vast_topic(attacker: Attacker) -> None:
    line = attacker.line()
    make_topic(line, "attack-pop-vast", "8192")
    fields = _pop(topic="attack-pop-vast", queueId="-1")
    for code in (RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE, RequestCode.NOTIFICATION):
        for number in range(2):
            group = {**fields, "consumerGroup": f"{_GROUP}-vast-{number}"}
            if not line.tell(code, group, b""):
                line = attacker.line()
    line.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
