"""A store directory of every earlier version is opened by this one, and everything acknowledged is there."""

from __future__ import annotations

import asyncio
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

import aerobee
from aerobee.errors import StoreError
from aerobee.hot.log.checksum import crc32
from aerobee.net.client import RemotingClient
from aerobee.protocol.codes import PrivateRequestCode, RequestCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.base import Header
from aerobee.protocol.headers.batches import BatchEndRequestHeader, BatchStatusRequestHeader
from aerobee.protocol.headers.offset import QueryConsumerOffsetRequestHeader
from aerobee.testing import commands
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.workload import eventually

STORES = Path(__file__).parent / "stores"
# As write.py had them: file sizes belong to a store.
SETTINGS = {
    "mappedFileSizeCommitLog": str(256 << 10),
    "mappedFileSizeConsumeQueue": str(20 * 256),
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "maxMessageSize": str(32 << 10),
    "enablePropertyFilter": "true",
    "fileReservedTime": "1000000",
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "1000",
}
LEASE_MS = 10**13


def unpacked(name: str, directory: Path) -> dict[str, Any]:
    """Unpack a golden directory; return what its writer was acknowledged."""
    with tarfile.open(STORES / f"{name}.tar.xz") as archive:
        if hasattr(tarfile, "data_filter"):  # not in every 3.11
            archive.extraction_filter = staticmethod(tarfile.data_filter)
        archive.extractall(directory)
    said: dict[str, Any] = json.loads((STORES / f"{name}.json").read_text())
    return said


async def ask(cluster: LocalCluster, code: int, header: Header, body: bytes = b"") -> Command:
    client = RemotingClient()
    try:
        return await client.ask(cluster.broker_address(0), request(code, header, body, opaque=client.next_opaque()))
    finally:
        await client.close()


async def until(cluster: LocalCluster, topic: str, bodies: set[bytes]) -> None:
    """Wait until the topic holds these."""
    await eventually(lambda: bodies <= {message.body for message in cluster.messages(topic)})


async def ended_transaction(cluster: LocalCluster) -> None:
    """The half message is still pending: its producer is asked, and commits."""
    asked = asyncio.Event()

    async def on_check(half: aerobee.Message) -> bool:
        assert (half.body, half.keys) == (b"half", "half")
        asked.set()
        return True

    async with aerobee.Producer(cluster.namesrv, group="shop", on_check=on_check) as producer:
        await producer.send("orders", b"hello")  # a producer is known to the brokers it has sent to
        await asyncio.wait_for(asked.wait(), 30)
        await until(cluster, "orders", {b"half"})


async def committed_batch(cluster: LocalCluster) -> None:
    """The prepared batch waits for whoever goes on with the query."""
    status = await ask(
        cluster, PrivateRequestCode.BATCH_STATUS, BatchStatusRequestHeader(query_id="query-1", batch_id=0)
    )
    assert status.ext["state"] == "prepared"
    assert not cluster.messages("rows")
    commit = BatchEndRequestHeader(query_id="query-1", batch_id=0, action="commit", lease_ms=LEASE_MS)
    await ask(cluster, PrivateRequestCode.BATCH_END, commit, status.body)
    await until(cluster, "rows", {b"row 0", b"row 1"})
    assert len(cluster.messages("rows")) == 2


async def committed_offsets(cluster: LocalCluster) -> dict[str, int]:
    found = {}
    for queue_id in range(2):
        header = QueryConsumerOffsetRequestHeader(consumer_group="billing", topic="orders", queue_id=queue_id)
        found[str(queue_id)] = int((await ask(cluster, RequestCode.QUERY_CONSUMER_OFFSET, header)).ext["offset"])
    return found


def test_a_store_of_a_newer_version_is_refused_in_words(tmp_path: Path) -> None:
    unpacked("wave1-clean", tmp_path)
    newer = tmp_path / "broker-a/config/storeFormat.json"
    newer.write_text('{"format": 99}')
    words = "written by a newer version of Aerobee (store format 99"
    with pytest.raises(StoreError, match=re.escape(words)), LocalCluster(data=tmp_path, settings=SETTINGS):
        pass
    offline = commands.aerobee("store", "verify", str(tmp_path / "broker-a"))
    assert offline.returncode == 2
    assert words in " ".join(offline.stderr.split())
    newer.unlink()
    with LocalCluster(data=tmp_path, settings=SETTINGS) as cluster:
        assert cluster.messages("orders")


@pytest.mark.parametrize("name", sorted(path.name.partition(".")[0] for path in STORES.glob("*.tar.xz")))
def test_an_old_store_is_opened_and_nothing_is_missing(name: str, tmp_path: Path) -> None:
    said = unpacked(name, tmp_path)
    with LocalCluster(data=tmp_path, settings=SETTINGS) as cluster:
        orders = [[m.queue_id, m.queue_offset, m.keys, m.tags, crc32(m.body)] for m in cluster.messages("orders")]
        assert orders == said["orders"]
        assert asyncio.run(committed_offsets(cluster)) == said["offsets"]
        assert '"orders"' in (tmp_path / "broker-a/config/consumerFilter.json").read_text()
        cluster.advance(hours=3)
        asyncio.run(until(cluster, "later", {text.encode() for text in said["later"]}))
        asyncio.run(committed_batch(cluster))
        asyncio.run(ended_transaction(cluster))
        before = [(m.queue_id, m.queue_offset, m.body) for m in cluster.messages("orders")]
        cluster.restart(0)
        assert [(m.queue_id, m.queue_offset, m.body) for m in cluster.messages("orders")] == before
        assert len(cluster.messages("rows")) == 2
        assert len(cluster.messages("later")) == 2
