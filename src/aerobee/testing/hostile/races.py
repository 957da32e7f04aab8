"""Cases of races: deletion against sends, readers and offsets, and the same creation from many connections."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

from aerobee.protocol.codes import RequestCode
from aerobee.testing.hostile.attacker import Attacker, Line
from aerobee.testing.hostile.requests import case, heartbeat, make_topic, pull_ext, send, send_ext, topic_ext


def _together(attacker: Attacker, *parts: Callable[[Line], None]) -> None:
    """Run each part on a connection and a thread of its own; raise the failure of any part."""
    problems: list[BaseException] = []

    def run(part: Callable[[Line], None]) -> None:
        try:
            with Line(attacker.broker) as line:
                part(line)
        except (OSError, AssertionError) as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


@case("a topic deleted while it is written, read and committed")
def deleted_in_use(attacker: Attacker) -> None:
    def write(line: Line) -> None:
        for number in range(300):
            send(line, b"racing %d" % number, topic="racing", queue_id=str(number % 4))

    def read(line: Line) -> None:
        line.ask(RequestCode.HEART_BEAT, {}, heartbeat(group="racing", topic="racing"))
        for number in range(200):
            line.ask(RequestCode.PULL_MESSAGE, pull_ext("racing", "racing", queue_id=str(number % 4)))
            commit = {"consumerGroup": "racing", "topic": "racing", "queueId": "0", "commitOffset": str(number)}
            line.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)

    def delete(line: Line) -> None:
        for _ in range(60):
            line.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "racing"})
            line.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("racing"))

    _together(attacker, write, read, delete)
    # A message that comes after the last deletion stays.
    line = attacker.line()
    make_topic(line, "racing")
    for number in range(20):
        body = b"after %d" % number
        attacker.keep("racing", send(line, body, topic="racing"), body)


@case("a topic of delayed, timed and half messages, deleted before they are due")
def deleted_before_due(attacker: Attacker) -> None:
    line = attacker.line()
    for number in range(20):
        topic = f"due-{number % 4}"
        make_topic(line, topic)
        for way in ("DELAY\x011\x02", "TIMER_DELAY_MS\x01500\x02"):
            for _ in range(10):
                send(line, b"x", topic=topic, properties=f"UNIQ_KEY\x01{number:032X}\x02{way}")
        half = f"UNIQ_KEY\x01{number:032X}\x02TRAN_MSG\x01true\x02PGROUP\x01shop\x02"
        send(line, b"x", topic=topic, properties=half, sys_flag="4")
        line.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    threading.Event().wait(2)


@case("a group deleted while it consumes")
def group_deleted(attacker: Attacker) -> None:
    def consume(line: Line) -> None:
        for number in range(200):
            line.ask(RequestCode.HEART_BEAT, {}, heartbeat(group="brief", topic="witness", client=f"c{number % 3}"))
            line.ask(RequestCode.PULL_MESSAGE, pull_ext("brief"))
            line.ask(RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": "0", "group": "brief", "delayLevel": "1"})
            queues = [{"topic": "witness", "brokerName": "broker-a", "queueId": 0}]
            body = json.dumps({"consumerGroup": "brief", "clientId": "c", "mqSet": queues}).encode()
            line.ask(RequestCode.LOCK_BATCH_MQ, {}, body)

    def delete(line: Line) -> None:
        for _ in range(100):
            line.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "brief", "cleanOffset": "true"})
            line.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "%RETRY%brief"})

    _together(attacker, consume, consume, delete)


@case("the same topic made by twenty connections with different settings")
def made_together(attacker: Attacker) -> None:
    def make(number: int) -> Callable[[Line], None]:
        def part(line: Line) -> None:
            for step in range(20):
                line.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("together", str(1 + (number + step) % 16)))
                send(line, topic="together", queue_id=str(step))

        return part

    _together(attacker, *(make(number) for number in range(20)))


@case("connections that vanish in the middle of sends, pulls and heartbeats")
def vanishing(attacker: Attacker) -> None:
    whole = b"".join(
        (
            Line.frame(attacker.line(), RequestCode.HEART_BEAT, {}, heartbeat(group="vanishing", topic="witness")),
            Line.frame(attacker.line(), RequestCode.SEND_MESSAGE_V2, send_ext(topic="vanishing"), b"x" * 1000),
            Line.frame(attacker.line(), RequestCode.PULL_MESSAGE, pull_ext("vanishing", "vanishing", hold_ms="30000")),
        )
    )
    for size in range(1, len(whole), 17):
        line = attacker.line()
        line.write(whole[:size])
        line.reset()


@case("the broker stopped while it is flooded")
def stopped_while_flooded(attacker: Attacker) -> None:
    """End the case while sends are on their way. Those that were answered are checked after the restart."""
    lines = [attacker.line() for _ in range(5)]
    for number in range(100):
        for line in lines:
            body = b"flooded %d" % number
            attacker.keep("flooded", send(line, body, topic="flooded"), body)
    for line in lines:
        line.write(line.frame(RequestCode.SEND_MESSAGE_V2, send_ext(topic="flooded"), b"late") * 2_000)
