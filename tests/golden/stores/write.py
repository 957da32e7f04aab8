"""Write the store of this version as a golden directory, which every later version must open.

    PYTHONPATH=src .venv/bin/python tests/golden/stores/write.py NAME

makes NAME-clean.tar.xz (stopped in order) and NAME-killed.tar.xz (the same, used again and killed) beside this file,
each with a NAME.json of what was acknowledged. Run it once for a release and never change its output:
`test_old_stores.py` opens them all.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import aerobee
from aerobee.errors import AerobeeError
from aerobee.hot.log.batch import encode_batch
from aerobee.hot.log.checksum import crc32
from aerobee.net.client import RemotingClient
from aerobee.protocol.codes import PrivateRequestCode
from aerobee.protocol.command import request
from aerobee.protocol.headers.batches import BatchEndRequestHeader, BatchRowsRequestHeader
from aerobee.testing.cluster import LocalCluster

HERE = Path(__file__).parent
SETTINGS = {
    "mappedFileSizeCommitLog": str(256 << 10),
    "mappedFileSizeConsumeQueue": str(20 * 256),
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "maxMessageSize": str(32 << 10),
    "enablePropertyFilter": "true",
    "fileReservedTime": "1000000",
}
LEASE_MS = 10**13
PLAN = json.dumps({"id": "plan-1", "groups": {"broker-a": {"attempt-1": 1}}}).encode()


async def fill(cluster: LocalCluster) -> dict[str, Any]:
    """Use every kind of message and state once; return what was acknowledged."""
    async with aerobee.Producer(cluster.namesrv, group="shop", on_check=lambda half: None) as producer:
        for number in range(30):
            await producer.send(
                "orders", f"order {number}".encode() * (1 + number % 3 * 400), tags="PAID" if number % 2 else "OPEN",
                keys=str(number), properties={"amount": str(number)},
            )  # fmt: skip
        await producer.send_batch([aerobee.Message("orders", f"batch {n}".encode()) for n in range(5)])
        await producer.send("later", b"by level", delay_level=18)
        await producer.send("later", b"by time", delay=7000)
        # Nobody ends this one: it stays a half message, which the next start asks about.
        try:
            async with producer.transaction("orders", b"half", keys="half"):
                raise RuntimeError("the producer does not know")
        except RuntimeError:
            pass
        async with producer.transaction("orders", b"committed", keys="committed"):
            pass
    async with aerobee.Producer(cluster.namesrv, group="once", idempotent=True) as producer:
        await producer.send("orders", b"idempotent", keys="idempotent")
    await _consume(cluster)
    await _batches(cluster)
    return {
        "orders": _described(cluster, "orders"),
        "held rows": ["row 0", "row 1"],
        "later": ["by level", "by time"],
        "offsets": cluster._run(_offsets(cluster))["orders@billing"],
    }


async def _consume(cluster: LocalCluster) -> None:
    """Commit offsets, fail one message so that it waits for its retry, and register an SQL filter."""
    seen: set[str] = set()
    enough = asyncio.Event()
    consumer = aerobee.PushConsumer(cluster.namesrv, group="billing", consume_from="first")

    @consumer.listener("orders", sql92="amount IS NOT NULL AND amount < 20")
    async def handle(message: aerobee.Message) -> None:
        seen.add(message.keys)
        if len(seen) == 20:
            enough.set()
        if message.keys == "7":
            raise AerobeeError("once more, please")

    async with consumer:
        await asyncio.wait_for(enough.wait(), 30)
        await asyncio.sleep(1.0)


async def _batches(cluster: LocalCluster) -> None:
    """Hold the rows of a batch that is prepared, and that nobody commits."""
    client = RemotingClient()
    rows = encode_batch([(0, f"row {n}".encode(), f"UNIQ_KEY\x01ROW{n}\x02".encode()) for n in range(2)])
    held = BatchRowsRequestHeader(
        query_id="query-1", batch_id=0, topic="rows", queue_id=0, producer_group="sink", default_topic="TBW102",
        lease_ms=LEASE_MS, attempt="attempt-1", sequence=0,
    )  # fmt: skip
    prepare = BatchEndRequestHeader(query_id="query-1", batch_id=0, action="prepare", lease_ms=LEASE_MS)
    address = cluster.broker_address(0)
    for code, header, body in (
        (PrivateRequestCode.BATCH_ROWS, held, rows),
        (PrivateRequestCode.BATCH_END, prepare, PLAN),
    ):
        await client.ask(address, request(code, header, body, opaque=client.next_opaque()))
    await client.close()


async def _offsets(cluster: LocalCluster) -> dict[str, dict[str, int]]:
    table = cluster._nodes[0].state.offsets.table
    return {key: {str(q): n for q, n in queues.items()} for key, queues in table.items() if key.startswith("orders@")}


def _described(cluster: LocalCluster, topic: str) -> list[list[Any]]:
    """Return a row for each message: where it is, what it is called, and the checksum of its body."""
    return [[m.queue_id, m.queue_offset, m.keys, m.tags, crc32(m.body)] for m in cluster.messages(topic)]


def pack(data: Path, name: str, said: dict[str, Any]) -> None:
    """Pack the directory; xz makes the unwritten rest of every file disappear."""
    with tarfile.open(HERE / f"{name}.tar.xz", "w:xz") as archive:
        archive.add(data / "broker-a", "broker-a")
    (HERE / f"{name}.json").write_text(json.dumps(said) + "\n")


async def some_more(cluster: LocalCluster) -> None:
    async with aerobee.Producer(cluster.namesrv) as producer:
        for number in range(3):
            await producer.send("orders", f"more {number}".encode(), keys=f"more {number}")


def main(name: str) -> None:
    with tempfile.TemporaryDirectory() as parent:
        data = Path(parent) / "data"
        with LocalCluster(data=data, settings=SETTINGS) as cluster:
            for topic in ("orders", "later", "rows"):
                cluster.create_topic(topic, queues=2)
            said = asyncio.run(fill(cluster))
        pack(data, f"{name}-clean", said)
        with LocalCluster(data=data, settings=SETTINGS) as cluster:
            asyncio.run(some_more(cluster))
            said["orders"] = _described(cluster, "orders")
            cluster.kill(0)
            pack(data, f"{name}-killed", said)


if __name__ == "__main__":
    main(sys.argv[1])
