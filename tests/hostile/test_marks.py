"""Every consumer can read the mark of an idempotent producer: who uses it must not swallow the producer's messages."""

from __future__ import annotations

from aerobee.protocol.codes import RequestCode
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.hostile.attacker import Line
from aerobee.testing.hostile.requests import send_ext

PRODUCER = "00112233aabbccdd"


def properties(sequence: int, unique: str) -> str:
    return f"UNIQ_KEY\x01{unique}\x02__AEROBEE_PID\x01{PRODUCER}:{sequence}\x02"


def test_a_message_under_a_mark_that_somebody_used_before_is_stored() -> None:
    with LocalCluster() as cluster:
        cluster.create_topic("orders", queues=1)
        with Line(cluster.broker_address(0)) as line:

            def send(sequence: int, unique: str, body: bytes) -> str:
                ext = send_ext(topic="orders", properties=properties(sequence, unique))
                answer = line.ask(RequestCode.SEND_MESSAGE_V2, ext, body)
                assert answer is not None and answer.code == 0
                return answer.ext["queueOffset"]

            assert send(7, "A" * 32, b"forged ahead") == "0"
            assert send(7, "B" * 32, b"the producer's own") == "1"
            assert send(7, "B" * 32, b"the producer's own") == "1"  # a repeat
        cluster.kill(0)
        cluster.restart(0)
        with Line(cluster.broker_address(0)) as line:
            ext = send_ext(topic="orders", properties=properties(7, "B" * 32))
            answer = line.ask(RequestCode.SEND_MESSAGE_V2, ext, b"the producer's own")
            assert answer is not None and answer.ext["queueOffset"] == "1"
        assert [message.body for message in cluster.messages("orders")] == [b"forged ahead", b"the producer's own"]
