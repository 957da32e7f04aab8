"""Batches of sinks on one broker: held, prepared, committed, aborted, known by key; killed at every write."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.batches.records import BatchEntry, Kind, entry_draft
from aerobee.hot.log.batch import encode_batch
from aerobee.hot.log.properties import decode_properties
from aerobee.model.names import BATCH_TOPIC
from aerobee.protocol.codes import PrivateRequestCode, ResponseCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.batches import (
    BatchStatusRequestHeader,
)
from aerobee.store.config import StoreConfig
from aerobee.testing.batchkit import LEASE_MS, ended, keyed, plan, rows
from aerobee.testing.brokerkit import BrokerKit, KitClient, run_broker, settle
from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.sendkit import send
from aerobee.testing.storekit import read_queue, small_config


def store_config(*, sync: bool = True, **settings: Any) -> StoreConfig:
    return small_config(
        sync=sync, segment=1 << 18, max_message_size=32 << 10, mapped_file_size_consume_queue=20 * 400, **settings
    )


async def done(client: KitClient, command: Command) -> Command:
    answer = await client.call(command)
    assert answer.code == 0, answer.remark
    return answer


async def status(client: KitClient, query: str = "Q", batch: int = 0) -> tuple[str, int]:
    header = BatchStatusRequestHeader(query_id=query, batch_id=batch)
    answer = await done(client, request(PrivateRequestCode.BATCH_STATUS, header, opaque=3))
    return answer.ext["state"], int(answer.ext["committed"])


def readable(kit: BrokerKit, queues: int = 2) -> list[str]:
    return [record.body.decode() for queue in range(queues) for record in read_queue(kit.store, b"T", queue)]


def run(main: Any, **options: Any) -> BrokerKit:
    return run_broker(main, store_config=store_config(), **options)


def test_rows_are_readable_with_the_commit_and_not_before() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        await done(client, rows("1", "2"))
        await done(client, rows("3", sequence=1, queue_id=1, properties="TAGS\x01PAID\x02KEYS\x01k\x02"))
        assert (await status(client), readable(kit)) == (("open", -1), [])
        await done(client, ended("prepare", plan(a1=2)))
        assert (await status(client), readable(kit)) == (("prepared", -1), [])
        await done(client, ended("commit", plan(a1=2)))
        await settle()
        assert (await status(client), readable(kit)) == (("committed", 0), ["1", "2", "3"])
        stored = decode_properties(read_queue(kit.store, b"T", 1)[0].properties)
        assert (stored["TAGS"], stored["KEYS"], stored["UNIQ_KEY"]) == ("PAID", "k", "3")
        assert not [name for name in stored if name.startswith("__AEROBEE")]

    run(main)


def test_only_the_attempts_of_the_plan_count() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        await done(client, rows("zombie", attempt="a0"))
        await done(client, rows("1"))
        await done(client, rows("1"))  # its answer was lost
        await done(client, ended("prepare", plan(a1=1)))
        await done(client, ended("commit", plan(a1=1)))
        await done(client, ended("commit", plan(a1=1)))
        late = await client.call(rows("late", attempt="a2"))
        assert late.code == ResponseCode.ILLEGAL_OPERATION and "is committed" in (late.remark or "")
        assert readable(kit) == ["1"]

    run(main)


def test_a_batch_has_one_plan() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        await done(client, rows("1"))
        await done(client, rows("2", attempt="a2"))
        refused = await client.call(ended("prepare", plan(a1=2)))
        assert "chunk 1 of 2 of attempt a1 is not here" in (refused.remark or "")
        refused = await client.call(ended("commit", plan(a1=1)))
        assert "not prepared" in (refused.remark or "")
        await done(client, ended("prepare", plan(a1=1)))
        refused = await client.call(ended("prepare", plan("p2", a2=1)))
        assert "another plan" in (refused.remark or "")
        await done(client, ended("abort"))  # Spark's abort after a commit that failed half-way
        assert (await status(client))[0] == "prepared"
        await done(client, ended("abort", plan(a1=1)))
        assert (await status(client))[0] == "open"
        await done(client, rows("3", attempt="a3"))
        await done(client, ended("prepare", plan("p3", a3=1)))
        await done(client, ended("commit", plan("p3", a3=1)))
        refused = await client.call(ended("commit", plan("p4", a3=1)))
        assert "committed with another plan" in (refused.remark or "")
        assert readable(kit) == ["3"]

    run(main)


def test_rows_that_nobody_ends_are_dropped_when_the_lease_is_over() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        await done(client, rows("orphan", query="dead"))
        await done(client, rows("1"))
        await done(client, rows("2", query="doubt"))
        await done(client, ended("prepare", plan("p2", a1=1), query="doubt"))
        for _ in range(5):
            await kit.pass_time(LEASE_MS / 2000, 10.0)
            await status(client)  # Q lives
        refused = await client.call(ended("prepare", plan(a1=1), query="dead"))
        assert "not here any more" in (refused.remark or "")
        await done(client, ended("prepare", plan(a1=1)))
        await done(client, ended("commit", plan(a1=1)))
        # What may be committed elsewhere is never given up.
        await done(client, ended("commit", plan("p2", a1=1), query="doubt"))
        assert sorted(readable(kit)) == ["1", "2"]

    run(main)


def test_delivery_times_are_kept() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        at_ms = kit.clock.now_ms() + 30_000
        await done(client, rows("later", properties=f"TIMER_DELIVER_MS\x01{at_ms}\x02"))
        await done(client, ended("prepare", plan(a1=1)))
        await done(client, ended("commit", plan(a1=1)))
        await kit.pass_time(25)
        assert readable(kit) == []
        await kit.pass_time(10)
        assert readable(kit) == ["later"]
        refused = await client.call(rows("never", batch=1, properties=f"TIMER_DELIVER_MS\x01{at_ms * 2}\x02"))
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL

    run(main)


def test_keys_are_stored_once_in_a_batch() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        assert (await done(client, keyed("1", "2", "2"))).ext["stored"] == "2"
        assert (await done(client, keyed("3", "2", "1", queue_id=1))).ext["stored"] == "1"
        assert (await done(client, keyed("1", "2", batch=1))).ext["stored"] == "2"
        refused = await client.call(keyed("9", batch=0))
        assert "is over" in (refused.remark or "")
        refused = await client.call(keyed("9", batch=1, groups="broker-a,broker-b"))
        assert "begun over broker groups broker-a" in (refused.remark or "")
        assert readable(kit) == ["1", "2", "1", "2", "3"]

    run(main)


def test_the_memory_survives_kills_and_is_read_from_the_log_alone() -> None:
    disk = RecordingDisk(seed=3)

    async def first(kit: BrokerKit) -> None:
        client = kit.connect()
        for number in range(3):
            await done(client, rows(f"{number}", batch=number))
            await done(client, ended("prepare", plan(f"p{number}", a1=1), batch=number))
            await done(client, ended("commit", plan(f"p{number}", a1=1), batch=number))
        await done(client, keyed("k1", "k2", query="K", batch=7))
        await done(client, rows("held", batch=3))
        await kit.pass_time(5)

    async def second(kit: BrokerKit) -> None:
        client = kit.connect()
        assert await status(client, batch=2) == ("committed", 2)
        assert (await done(client, keyed("k2", "k3", query="K", batch=7))).ext["stored"] == "1"
        await done(client, ended("prepare", plan(a1=1), batch=3))

    async def third(kit: BrokerKit) -> None:
        client = kit.connect()
        assert await status(client, batch=3) == ("prepared", 2)
        await done(client, ended("commit", plan(a1=1), batch=3))
        assert sorted(readable(kit)) == ["0", "1", "2", "held", "k1", "k2", "k3"]
        await kit.pass_time(5)
        # A start reads only what still counts.
        saved = kit.state.offsets.table[f"{BATCH_TOPIC}@CID_RMQ_SYS_AEROBEE_BATCH"][0]
        assert saved == kit.broker.batches.table.lowest() > 3

    for main in (first, second, third):
        run(main, disk=disk, close=False)
        disk = disk.crash(CrashMode.NONE)


def test_a_commit_is_stored_again_before_it_is_too_far_back() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        await done(client, rows("1"))
        await done(client, ended("prepare", plan(a1=1)))
        await done(client, ended("commit", plan(a1=1)))
        offset = kit.broker.batches.table.queries["Q"].commit_offset
        await kit.pass_time(13 * 3600, 600.0)
        assert kit.broker.batches.table.queries["Q"].commit_offset > offset
        assert await status(client) == ("committed", 0)
        await kit.pass_time(31 * 86_400, 6 * 3600.0)
        assert await status(client) == ("open", -1)
        assert readable(kit) == ["1"]

    run(main)


@pytest.mark.parametrize("seed", range(60))
def test_writes_cut_short_are_finished(seed: int) -> None:
    """The power goes inside the copies of a chunk, and again inside the rest of them: as many as are there are kept,
    the others follow."""
    names = [f"row-{number}" + "x" * 200 for number in range(12)]
    keys = [f"k{number}" for number in range(20)]
    config = store_config(sync=False)
    disk = RecordingDisk(seed=seed)

    async def first(kit: BrokerKit) -> None:
        client = kit.connect()
        await done(client, rows(*names))
        await done(client, ended("prepare", plan(a1=1)))
        await done(client, keyed("k0", query="K"))
        disk.sync_everything()
        if seed % 2:
            client.send(ended("commit", plan(a1=1)))
        client.send(keyed(*keys, query="K"))
        await settle()

    async def second(kit: BrokerKit) -> None:
        client = kit.connect()
        await done(client, rows("another query's", query="R"))
        await kit.pass_time(2)
        if seed % 3 == 0:
            await done(client, ended("commit", plan(a1=1)))
        if seed % 5 == 0:
            await done(client, keyed(*keys[:15], query="K"))

    async def third(kit: BrokerKit) -> None:
        client = kit.connect()
        await done(client, send("other", topic="T", queue_id=1, body=b"other"))
        await done(client, keyed(*keys, query="K"))
        await done(client, ended("commit", plan(a1=1)))
        await kit.pass_time(2)
        assert sorted(readable(kit)) == sorted([*names, *keys, "other"])

    run_broker(first, store_config=config, disk=disk, close=False)
    disk = disk.crash(CrashMode.TORN, seed)
    run_broker(second, store_config=config, disk=disk, close=False)
    run_broker(third, store_config=config, disk=disk.crash(CrashMode.TORN, seed // 2))


@pytest.mark.parametrize("seed", range(20))
def test_keys_that_are_sent_again_before_the_cut_is_told(seed: int) -> None:
    """The power goes inside rows with keys. They come again before the broker has said how many it found, and once more
    after another start: the cut takes away no key of the second request."""
    keys = [f"k{number}" for number in range(200)]
    disk = RecordingDisk(seed=seed)
    config = store_config(sync=False)

    async def first(kit: BrokerKit) -> None:
        client = kit.connect()
        await done(client, keyed("k", query="K"))
        disk.sync_everything()
        client.send(keyed(*keys, query="K"))
        await settle()

    async def second(kit: BrokerKit) -> None:
        await done(kit.connect(), keyed(*keys, query="K"))
        await kit.pass_time(2)

    async def third(kit: BrokerKit) -> None:
        await done(kit.connect(), keyed("k", *keys, query="K"))
        assert sorted(readable(kit)) == sorted(["k", *keys])

    run_broker(first, store_config=config, disk=disk, close=False)
    disk = disk.crash(CrashMode.TORN, seed)
    run_broker(second, store_config=config, disk=disk)
    run_broker(third, store_config=config, disk=disk)


def test_keys_and_rows_must_match() -> None:
    async def main(kit: BrokerKit) -> None:
        client = kit.connect()
        command = keyed("1", "2")
        command.ext["keys"] = "1"
        command.body = command.body[16:]
        refused = await client.call(command)
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL and "1 keys for 2 rows" in (refused.remark or "")

    run(main)


def test_rows_that_an_older_broker_took_and_no_record_can_hold() -> None:
    """Row by row: the others of their chunk, later chunks and other queries go on, also at the next start."""
    disk = RecordingDisk(seed=9)
    full = (0, b"full", b"UNIQ_KEY\x01u\x02k\x01" + b"v" * 32_740 + b"\x02")
    good = [(0, text, b"UNIQ_KEY\x01" + text + b"\x02") for text in (b"before", b"behind")]
    held = [
        (BatchEntry(Kind.ROWS, "Q", 0, "a1", 0, 1, "T", -1, serial=1 << 62 | 1), encode_batch([good[0]])),
        (BatchEntry(Kind.ROWS, "Q", 0, "a1", 1, 3, "T", 0, serial=1 << 62 | 2), encode_batch([good[0], full, good[1]])),
        (BatchEntry(Kind.ROWS, "Q", 0, "a1", 2, 9, "T", 0, serial=1 << 62 | 3), b"no rows"),
    ]

    async def old(kit: BrokerKit) -> None:
        client = kit.connect()
        await done(client, rows("other", query="R"))
        host = kit.state.store_host
        drafts = [entry_draft(entry, body, kit.clock.now_ms(), host, host) for entry, body in held]
        codes: list[int] = []
        kit.state.puts.put(drafts, lambda code, remark: codes.append(code))
        await settle()
        assert codes == [0]
        await kit.pass_time(2)

    async def new(kit: BrokerKit) -> None:
        client = kit.connect()
        await done(client, ended("prepare", plan(a1=3)))
        await done(client, ended("commit", plan(a1=3)))
        await done(client, ended("prepare", plan(a1=1), query="R"))
        await done(client, ended("commit", plan(a1=1), query="R"))
        await kit.pass_time(2)
        assert sorted(readable(kit)) == ["before", "behind", "other"]

    async def again(kit: BrokerKit) -> None:
        await kit.pass_time(2)
        assert kit.broker.batches.pending == 0
        assert kit.broker.batches.table.set_aside("Q", 0) == 1 + 1 + 9
        assert sorted(readable(kit)) == ["before", "behind", "other"]

    config = small_config(segment=1 << 20, max_message_size=128 << 10)
    for main in (old, new, again):
        run_broker(main, store_config=config, disk=disk, close=False)
        disk.sync_everything()
        disk = disk.crash(CrashMode.NONE)
