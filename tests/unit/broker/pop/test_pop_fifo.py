"""Pops in order: one attempt at a time for each queue, in Apache's file and with Apache's strings."""

from __future__ import annotations

from aerobee.model.dialect import loads_object
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.popkit import ack, bodies, change, pop, pop_request, popped, store, with_topic
from aerobee.testing.storekit import ROOT, small_config

ASYNC = small_config(segment=1 << 20, sync=False)


def test_fifo_blocks() -> None:
    """A second attempt finds nothing; the same one gets the same messages; all acknowledged: the next come."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 4)
        client = kit.connect()
        answer = await client.call(pop_request(kit, count=2, order=True, attempt_id="one"))
        first = popped(answer)
        assert [one.body for one in first] == [b"0", b"1"]
        assert answer.ext["reviveQid"] == "999"
        assert answer.ext["orderCountInfo"] == "0 0 0"
        assert await bodies(kit, order=True, attempt_id="two") == []
        again = await pop(kit, count=2, order=True, attempt_id="one")
        assert [one.body for one in again] == [b"0", b"1"]
        assert again[0].handle.split(" ")[1] != first[0].handle.split(" ")[1], "a new pop time"
        assert await ack(kit, first[0]) == 0, "of the attempt before: no effect"
        for one in again:
            assert await bodies(kit, order=True, attempt_id="two") == []
            assert await ack(kit, one) == 0
        assert await bodies(kit, order=True, attempt_id="two") == [b"2", b"3"]

    run_broker(main, store_config=ASYNC)


def test_fifo_counts() -> None:
    """It expires twice: orderCountInfo says 1, then 2; and the file is Apache's."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 3)
        client = kit.connect()
        infos = []
        for attempt in ("a", "b", "c"):
            answer = await client.call(pop_request(kit, count=2, order=True, attempt_id=attempt, invisible_ms=1_000))
            infos.append(answer.ext["orderCountInfo"])
            await kit.pass_time(1.1, 0.05)
        assert infos == ["0 0 0", "0 qo0%0 1;0 qo0%1 1;0 0 1", "0 qo0%0 2;0 qo0%1 2;0 0 2"]
        pop_time = int(answer.ext["popTime"])
        await kit.pass_time(11, 0.5)
        disk = kit.store.disk
        file = disk.open(f"{ROOT}/config/consumerOrderInfo.json", write=False)
        found = loads_object(file.read(0, file.size()))
        file.close()
        assert (found["orderInfoCount"], found["orderedConsumptionLevel"]) == (1, "QUEUE")
        assert found["table"] == {
            "T@G": {
                0: {"a": "c", "cm": 0, "i": 1000, "l": pop_time, "o": [0, 1], "oc": {0: 2, 1: 2}, "popTime": pop_time}
            }
        }

    run_broker(main, store_config=ASYNC)


def test_fifo_change_and_expiry() -> None:
    """A change sets when the queue is free; the pop time stays, and nothing goes to a retry topic."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 2)
        (one,) = await pop(kit, count=1, order=True, attempt_id="a", invisible_ms=10_000)
        await kit.pass_time(1, 0.1)
        answer = await change(kit, one, 500)
        assert answer.ext["popTime"] == one.handle.split(" ")[1]
        assert answer.ext["invisibleTime"] == "1500"
        client = kit.connect()
        client.send(pop_request(kit, count=1, order=True, attempt_id="b", poll_ms=10_000))
        await kit.pass_time(0.3, 0.05)
        assert not await client.answers()
        await kit.pass_time(0.4, 0.05)
        (came,) = await client.answers()
        (again,) = popped(came)
        assert again.body == b"0" and again.topic == "T"
        assert kit.store.max_offset(b"%RETRY%G_T", 0) == 0

    run_broker(main, store_config=ASYNC)


def test_fifo_ack_survives_kill() -> None:
    """Position and lock survive kill -9, although Apache's files are saved every few seconds only."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        await kit.pass_time(6, 0.5)
        store(kit, 4)
        for one in await pop(kit, count=2, order=True, attempt_id="a"):
            assert await ack(kit, one) == 0
        held = await pop(kit, count=1, order=True, attempt_id="b", invisible_ms=5_000)
        assert [one.body for one in held] == [b"2"]
        await kit.pass_time(0.1, 0.05)
        again = BrokerKit(kit.store.disk.kill(), kit.clock, None, ASYNC)  # type: ignore[attr-defined]
        assert await bodies(again, order=True, attempt_id="c") == []
        assert await ack(again, held[0]) == 0
        assert await bodies(again, order=True, attempt_id="c") == [b"3"]
        again.close()

    run_broker(main, store_config=ASYNC, close=False)


def test_fifo_reset() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        store(kit, 3)
        await pop(kit, count=3, order=True, attempt_id="a")
        assert kit.state.offsets.reset("G", "T", 0, 1)
        assert await bodies(kit, order=True, attempt_id="b") == [b"1", b"2"]

    run_broker(main, store_config=ASYNC)
