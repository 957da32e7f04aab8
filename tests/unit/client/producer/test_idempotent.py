"""The idempotent producer against scripted brokers: what its second tries look like."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import aerobee
from aerobee import Message
from aerobee.client.producer.sequences import Sequences
from aerobee.errors.codes import MessageIllegalError
from aerobee.model.producermark import PRODUCER_MARK, SEQUENCE_WINDOW, parse_mark
from aerobee.net.channel import Channel
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.sync import Producer


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


def test_a_lost_answer_is_asked_for_again_on_the_same_queue_with_the_same_mark(new_cluster: Any) -> None:
    async def work() -> None:
        async with (
            new_cluster("a", "b") as cluster,
            aerobee.Producer(cluster.namesrv, idempotent=True, attempt_timeout=0.05, retries=0, timeout=30) as producer,
        ):
            tries: list[str] = []
            for broker in cluster.brokers:

                def silent(channel: Channel, command: Command, count: int, broker: Any = broker) -> Command | None:
                    answer: Command | None = broker.store(channel, command, count)
                    tries.append(broker.name)
                    if len(tries) == 1:
                        channel.abort()
                    return answer if len(tries) > 3 else None

                broker.answer_send = silent
            receipt = await producer.send("t", b"x")
            broker = next(one for one in cluster.brokers if one.name == receipt.broker)
            # More where an answer took its time.
            assert len(tries) >= 4 and set(tries) == {broker.name}
            assert {(one.queue_id, one.properties[PRODUCER_MARK]) for one in broker.stored} == {
                (receipt.queue_id, broker.stored[0].properties[PRODUCER_MARK])
            }
            await producer.send("t", b"y")
            marks = {parse_mark(one.properties[PRODUCER_MARK]) for broker in cluster.brokers for one in broker.stored}
            assert {mark.sequence for mark in marks if mark is not None} == {0, 1}
            assert len({mark.producer_id for mark in marks if mark is not None}) == 1

    run(work())


def test_what_the_broker_refuses_for_good_is_not_sent_again(new_cluster: Any) -> None:
    async def work() -> None:
        async with (
            new_cluster("a") as cluster,
            aerobee.Producer(cluster.namesrv, idempotent=True) as producer,
        ):
            counts: list[int] = []

            def refuse(channel: Channel, command: Command, count: int) -> Command:
                counts.append(count)
                return response(command, ResponseCode.MESSAGE_ILLEGAL, remark="no")

            cluster.brokers[0].answer_send = refuse
            with pytest.raises(MessageIllegalError):
                await producer.send("t", b"x")
            assert len(counts) == 1

    run(work())


def test_batches_are_refused_and_one_way_sends_have_no_mark(new_cluster: Any) -> None:
    async def work() -> None:
        async with (
            new_cluster("a") as cluster,
            aerobee.Producer(cluster.namesrv, idempotent=True) as producer,
        ):
            with pytest.raises(aerobee.InvalidArgumentError, match="no batches"):
                await producer.send_batch([Message("t", b"x")])
            await producer.send_oneway("t", b"x")
            await producer.send("t", b"y")
            marked = {one.body: PRODUCER_MARK in one.properties for one in cluster.brokers[0].stored}
            assert marked == {b"x": False, b"y": True}

    run(work())


def test_the_synchronous_face_sends_again_with_the_same_mark(served_cluster: Any) -> None:
    broker = served_cluster.brokers[0]
    lost: set[bytes] = set()

    def silent_once(channel: Channel, command: Command, count: int) -> Command | None:
        answer: Command | None = broker.store(channel, command, count)
        if command.body in lost:
            return answer
        lost.add(command.body)
        return None

    broker.answer_send = silent_once
    bodies = [b"%d" % number for number in range(20)]
    with Producer(served_cluster.namesrv, idempotent=True, attempt_timeout=0.1, retries=0, timeout=25) as producer:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda body: producer.send("t", body), bodies[:10]))
        futures = [producer.send_nowait("t", body) for body in bodies[10:]]
        producer.flush()
        assert all(future.result(0).broker == "a" for future in futures)
        with pytest.raises(aerobee.InvalidArgumentError, match="no batches"):
            producer.send_batch([Message("t", b"x")])
    marks: dict[bytes, set[str]] = {}
    for one in broker.stored:
        marks.setdefault(one.body, set()).add(one.properties[PRODUCER_MARK])
    assert len(broker.stored) >= 40
    assert sorted(marks) == sorted(bodies)
    assert all(len(own) == 1 for own in marks.values()), "a second try carries the first one's mark"
    assert len(set.union(*marks.values())) == 20


def test_no_send_stays_behind_further_than_brokers_remember() -> None:
    sequences = Sequences("a" * 16)
    first, _ = sequences.next()
    for _ in range(SEQUENCE_WINDOW - 1):
        assert not sequences.is_full
        sequences.end(sequences.next()[0])
    assert sequences.is_full
    sequences.end(first)
    assert not sequences.is_full
