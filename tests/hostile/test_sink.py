"""Batches of sinks over the wire: what can never be stored is refused when it is sent, no driver that was replaced is
heard, nothing that a request says takes long or much memory, and one bad row holds up nobody."""

from __future__ import annotations

import json
import time
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from aerobee.hot.log.batch import encode_batch
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command
from aerobee.store.config import StoreConfig
from aerobee.testing.brokerkit import BrokerKit, KitClient, run_broker, settle
from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.storekit import read_queue, small_config

STATUS, ROWS, END, BEGIN = 90002, 90003, 90004, 90005
GROUP = "broker-a"
# Interpreted; compiled it is 50 ms. Traced, everything takes several times as long.
BUSY_MAX_S = 3 * 0.3


def config(**settings: Any) -> StoreConfig:
    return small_config(segment=1 << 20, max_message_size=256 << 10, **settings)


def frame(code: int, body: bytes = b"", **ext: object) -> Command:
    return Command(code, 7, 0, {name: str(value) for name, value in ext.items()}, body)


def batch(*bodies: str, properties: str = "") -> bytes:
    return encode_batch([(0, one.encode(), f"UNIQ_KEY\x01{one[:9]}\x02{properties}".encode()) for one in bodies])


def rows(*bodies: str, body: bytes | None = None, **ext: object) -> Command:
    named = {
        "queryId": "Q", "batchId": 0, "topic": "T", "queueId": 0, "producerGroup": "P", "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4, "leaseMs": 120_000, "attempt": "a1", "sequence": 0,
    }  # fmt: skip
    return frame(ROWS, batch(*bodies) if body is None else body, **{**named, **ext})


def plan(attempts: dict[str, int], plan_id: str = "p1", groups: tuple[str, ...] = (GROUP,)) -> bytes:
    return json.dumps({"id": plan_id, "groups": dict.fromkeys(groups, attempts)}).encode()


def end(action: str, body: bytes = b"", **ext: object) -> Command:
    return frame(END, body, **{"queryId": "Q", "batchId": 0, "action": action, "leaseMs": 120_000, **ext})


def begin(epoch: int, run: str, query: str = "Q") -> Command:
    return frame(BEGIN, queryId=query, epoch=epoch, run=run, leaseMs=120_000)


async def done(client: KitClient, command: Command) -> Command:
    answer = await client.call(command)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


async def refused(client: KitClient, command: Command) -> str:
    answer = await client.call(command)
    assert answer.code != ResponseCode.SUCCESS
    return answer.remark or ""


async def commit(client: KitClient, attempts: dict[str, int], plan_id: str = "p1", **ext: object) -> None:
    await done(client, end("prepare", plan(attempts, plan_id), **ext))
    await done(client, end("commit", plan(attempts, plan_id), **ext))
    await settle()


def readable(kit: BrokerKit, topic: bytes = b"T") -> list[str]:
    return sorted(record.body.decode() for queue in range(4) for record in read_queue(kit.store, topic, queue))


def delete_topic(kit: BrokerKit, topic: str) -> None:
    """As DELETE_TOPIC_IN_BROKER does; the kit has no administration."""
    kit.store.delete_topics([topic.encode()])
    kit.state.catalog.delete_topic(topic)


# -- finding 8: what can never be copied


KEYED = {"queryId": "Q", "batchId": 0, "topic": "T", "queueId": 0, "producerGroup": "P"}
NEVER_STORED = {
    "queue below 0": (rows("1", queueId=-1), "queue -1"),
    "lowest queue": (rows("1", queueId=-(2**31)), "queue -2147483648"),
    "queue above the last": (rows("1", queueId=4), "queueId"),
    "highest queue": (rows("1", queueId=2**31 - 1), "queueId"),
    "full properties": (rows(body=batch("1", properties="k\x01" + "v" * 32_700 + "\x02")), "properties"),
    "full and timed": (
        rows(body=batch("1", properties="k\x01" + "v" * 32_000 + "\x02TIMER_DELAY_SEC\x015\x02")), "properties",
    ),
    "long body": (rows("x" * (257 << 10)), "illegal"),
    "empty body": (rows(body=encode_batch([(0, b"", b"UNIQ_KEY\x01u\x02")])), "illegal"),
    "no rows": (rows(body=b""), "illegal"),
    "not rows": (rows(body=b"\xff" * 100), "illegal"),
    "slash": (rows("1", topic="a/b"), "topic"),
    "dots": (rows("1", topic=".."), "topic"),
    "retry topic": (rows("1", topic="%RETRY%g"), "retry"),
    "batch topic": (rows("1", topic="rmq_sys_AEROBEE_BATCH"), "forbidden"),
    "schedule topic": (rows("1", topic="SCHEDULE_TOPIC_XXXX"), "forbidden"),
    "op topic": (rows("1", topic="RMQ_SYS_TRANS_OP_HALF_TOPIC"), "forbidden"),
    "no query": (rows("1", queryId=""), "queryId"),
    "query of two lines": (rows("1", queryId="q\n2026-11-16 ERROR"), "queryId"),
    "long query": (rows("1", queryId="q" * 4_000), "queryId"),
    "long attempt": (rows("1", attempt="a" * 4_000), "attempt"),
    "attempt with NUL": (rows("1", attempt="a\x00"), "attempt"),
    "nameless attempt": (rows("1", attempt=""), "attempt"),
    "negative batch": (rows("1", batchId=-1), "batchId"),
    "negative sequence": (rows("1", sequence=-1), "sequence"),
    "highest sequence": (rows("1", sequence=2**31 - 1), "sequence"),
    "epoch without a run": (rows("1", epoch=3), "epoch"),
    "negative epoch": (rows("1", epoch=-1, run="r"), "epoch"),
    "negative keys": (frame(ROWS, batch("1"), keys=-1, **KEYED), "keys"),
    "too many keys": (frame(ROWS, batch("1"), keys=2**31 - 1, **KEYED), "keys"),
    "long groups": (frame(ROWS, b"k" * 16 + batch("1"), keys=1, groups="g," * 4_000, **KEYED), "groups"),
}  # fmt: skip


@pytest.mark.parametrize("case", NEVER_STORED)
def test_what_can_never_be_stored_is_refused_when_it_is_sent(case: str) -> None:
    command, says = NEVER_STORED[case]

    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        await done(client, rows("good", attempt="a0"))
        assert says in await refused(client, command)
        await done(client, rows("other", queryId="R"))
        await commit(client, {"a1": 1}, queryId="R")
        assert readable(kit) == ["other"]

    run_broker(main, store_config=config())


def test_a_topic_that_may_not_be_written_is_refused() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        await done(client, rows("1"))
        found = kit.state.catalog.find("T")
        assert found is not None
        kit.state.catalog.put_topic(replace(found, perm=4))
        assert "forbidden" in await refused(client, rows("2", sequence=1))

    run_broker(main, store_config=config())


def test_rows_whose_topic_was_deleted_hold_up_nobody_and_fail_their_batch() -> None:
    """Over kill -9 as well: said again to whoever asks, not tried again."""
    disk = RecordingDisk(seed=5)

    async def told(client: KitClient) -> tuple[str, str]:
        status = await done(client, frame(STATUS, queryId="Q", batchId=0))
        return status.ext["remaining"], status.ext["setAside"]

    async def first(kit: BrokerKit) -> None:
        client = kit.connect()
        await done(client, rows("lost", "too", topic="Gone"))
        await done(client, rows("kept", sequence=1))
        await done(client, rows("other", queryId="R"))
        await done(client, end("prepare", plan({"a1": 2})))
        delete_topic(kit, "Gone")
        await done(client, end("commit", plan({"a1": 2})))
        await commit(client, {"a1": 1}, queryId="R")
        await kit.pass_time(3)
        assert readable(kit) == ["kept", "other"]
        assert await told(client) == ("0", "2")
        assert kit.broker.pending()["batchRowsSetAside"] == "2"
        disk.sync_everything()

    async def second(kit: BrokerKit) -> None:
        client = kit.connect()
        await kit.pass_time(3)
        assert await told(client) == ("0", "2")
        assert kit.broker.pending()["batchChunksPending"] == "0"
        await kit.pass_time(13 * 3600, 600.0)  # the commit is stored again by now
        assert await told(client) == ("0", "2")
        assert readable(kit) == ["kept", "other"]

    run_broker(first, disk=disk, store_config=config(), close=False)
    run_broker(second, disk=disk.crash(CrashMode.NONE), store_config=config(), close=False)


# -- finding 8: a driver that was replaced


def test_a_replaced_driver_is_refused_everywhere_also_at_abort() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        old: dict[str, object] = {"epoch": 1, "run": "old"}
        new: dict[str, object] = {"epoch": 2, "run": "new"}
        await done(client, begin(1, "old"))
        await done(client, begin(1, "old"))  # its answer was lost
        await done(client, rows("1", **old))
        await done(client, end("prepare", plan({"a1": 1}), **old))
        await done(client, begin(2, "new"))
        for command in (
            end("abort", plan({"a1": 1}), **old),
            end("abort", **old),
            end("commit", plan({"a1": 1}), **old),
            end("prepare", plan({"a1": 1}), **old),
            rows("2", sequence=1, **old),
            frame(STATUS, queryId="Q", batchId=0, **old),
            begin(1, "old"),
            begin(3, "old"),
            end("abort", plan({"a1": 1})),  # a client from before there were epochs
            rows("2", sequence=1),
        ):
            answer = await client.call(command)
            assert answer.code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, command
            assert "was replaced" in (answer.remark or ""), command
        assert "has not begun here" in await refused(client, end("abort", plan({"a1": 1}), epoch=3, run="later"))
        shown = (await done(client, frame(STATUS, queryId="Q", batchId=0, run="old"))).ext
        assert (shown["state"], shown["epoch"], shown["run"], shown["replaced"]) == ("prepared", "2", "new", "true")
        await commit(client, {"a1": 1}, **new)
        assert readable(kit) == ["1"]

    run_broker(main, store_config=config())


def test_an_epoch_outlives_kills_and_the_records_that_said_it() -> None:
    disk = RecordingDisk(seed=6)

    async def first(kit: BrokerKit) -> None:
        client = kit.connect()
        await done(client, begin(1, "old"))
        await done(client, begin(2, "new"))
        await done(client, rows("1", epoch=2, run="new"))
        await commit(client, {"a1": 1}, epoch=2, run="new")
        await kit.pass_time(13 * 3600, 600.0)

    async def second(kit: BrokerKit) -> None:
        client = kit.connect()
        assert "was replaced" in await refused(client, end("abort", epoch=1, run="old"))
        assert "was replaced" in await refused(client, begin(3, "old"))
        await done(client, begin(3, "newest"))

    async def third(kit: BrokerKit) -> None:
        client = kit.connect()
        assert "was replaced" in await refused(client, end("abort", epoch=2, run="new"))
        assert "was replaced" in await refused(client, begin(4, "old"))

    for main in (first, second, third):
        run_broker(main, disk=disk, store_config=config(), close=False)
        disk.sync_everything()
        disk = disk.crash(CrashMode.NONE)


def test_a_store_of_a_broker_without_epochs_opens() -> None:
    """Its queries have epoch 0, and whoever begins takes them over."""
    disk = RecordingDisk(seed=7)

    async def first(kit: BrokerKit) -> None:
        client = kit.connect()
        await done(client, rows("1"))
        await done(client, end("prepare", plan({"a1": 1})))
        disk.sync_everything()

    async def second(kit: BrokerKit) -> None:
        client = kit.connect()
        shown = (await done(client, frame(STATUS, queryId="Q", batchId=0))).ext
        assert (shown["state"], shown["epoch"]) == ("prepared", "0")
        await done(client, begin(1, "new"))
        assert "was replaced" in await refused(client, end("abort", plan({"a1": 1})))
        await commit(client, {"a1": 1}, epoch=1, run="new")
        assert readable(kit) == ["1"]

    run_broker(first, disk=disk, store_config=config(), close=False)
    run_broker(second, disk=disk.crash(CrashMode.NONE), store_config=config())


def test_an_epoch_that_leaves_no_room_for_the_next_is_refused() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        assert "too far ahead" in await refused(client, begin(2**63 - 1, "r"))
        for epoch, run in ((0, "r"), (-5, "r"), (1, ""), (1, "r\n"), (1, "r" * 65), (1, "\x00")):
            await refused(client, begin(epoch, run))
        await done(client, begin(1, "r"))

    run_broker(main, store_config=config())


# -- finding 7: a prepare with a chunk count of 3*10^7, and others that take long


PLANS = {
    "one count": plan({"a1": 30_000_000}),
    "many counts": plan({f"a{number}": 30_000_000 for number in range(1_000)}),
    "highest count": plan({"a1": 2**31 - 1}),
    "negative count": plan({"a1": -1}),
    "many attempts": plan({f"{number:016x}": 1 for number in range(60_000)}),
    "long id": plan({"a1": 1}, "p" * 100_000),
    "surrogate": plan({"a1": 1}, "\ud800"),
    "many groups": plan({}, groups=tuple(f"g{number}" for number in range(100_000))),
    "16 MiB": plan({f"{number:016x}": 1 for number in range(600_000)}),
    "digits": b'{"id":"p","groups":{"broker-a":{"a1":' + b"9" * 5_000 + b"}}}",
    "real number": b'{"id":"p","groups":{"broker-a":{"a1":1e308}}}',
    "list": b'{"id":"p","groups":[]}',
    "text for epoch": b'{"id":"p","epoch":"x","groups":{}}',
    "epoch above the driver's": b'{"id":"p","epoch":5,"groups":{}}',
    "deep": b"[" * 200_000,
    "bytes": b"\xff" * 100,
}


@pytest.mark.parametrize("case", PLANS)
@pytest.mark.parametrize("action", ["prepare", "commit", "abort"])
def test_no_plan_takes_long_or_much_memory(case: str, action: str) -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        await done(client, rows("1"))
        tracemalloc.start()
        begun_s = time.process_time()
        try:
            answer = await client.call(end(action, PLANS[case]))
            took_s = time.process_time() - begun_s
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert answer.code != ResponseCode.SUCCESS or action == "abort"
        assert took_s < BUSY_MAX_S
        assert peak < 64 << 20
        if answer.code != ResponseCode.SUCCESS:
            await commit(client, {"a1": 1}, "good")
            assert readable(kit) == ["1"]

    run_broker(main, store_config=config())


def test_plans_and_queries_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """With small limits: what is said when they are reached, and that they are free again when nobody comes back."""
    from aerobee.broker.batches import table

    monkeypatch.setattr(table, "QUERIES_MAX", 10)
    monkeypatch.setattr(table, "CHUNKS_MAX", 8)
    monkeypatch.setattr(table, "OPEN_BATCHES_MAX", 4)

    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        for number in range(10):
            await done(client, begin(1, "r", query=f"q{number}"))
        assert "10 queries are known here already" in await refused(client, begin(1, "r", query="q10"))
        assert "10 queries" in await refused(client, rows("1", queryId="q11"))
        ours: dict[str, object] = {"queryId": "q0", "epoch": 1, "run": "r"}
        for number in range(4):
            await done(client, rows("1", batchId=number, **ours))
        assert "4 unfinished batches" in await refused(client, rows("1", batchId=4, **ours))
        for number in range(1, 5):
            await done(client, rows("1", sequence=number, **ours))
        full = await client.call(rows("1", sequence=5, **ours))
        assert full.code == ResponseCode.SYSTEM_BUSY
        await kit.pass_time(300, 10.0)
        await done(client, begin(1, "r", query="q10"))
        await done(client, rows("1", queryId="q10", epoch=1, run="r"))

    run_broker(main, store_config=config())


def test_many_ends_at_once_are_answered_and_wait_within_bounds() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        big = plan({f"{number:016x}": 1 for number in range(6_000)}, "big", groups=("broker-b",))
        for _ in range(300):
            client.send(end("prepare", big))
        answers: list[Command] = []
        for _ in range(100):
            answers += await client.answers()
        codes = {answer.code for answer in answers}
        assert len(answers) == 300
        assert codes == {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY}

    run_broker(main, store_config=config())
