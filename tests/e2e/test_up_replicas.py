"""`aerobee up --replicas 3`: the group elects a master, survives its death, and keeps its messages over a restart."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import aerobee as client
from aerobee.model.dialect import loads_object
from aerobee.protocol.bodies.cluster import ClusterInfo
from aerobee.protocol.codes import RequestCode
from aerobee.replication.identity import Identity, decode_identity, identity_file
from aerobee.runtime.disk import InlineDisk
from aerobee.testing.commands import PATIENCE_S, aerobee, up
from aerobee.testing.workload import RawClient, eventually

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals as Unix has them")


async def members_of(namesrv: str, name: str = "broker-a") -> dict[int, str]:
    """Return the addresses of a group by broker id, as the name server tells them. The master's id is 0."""
    connection = RawClient(namesrv)
    try:
        answer = await connection.call(RequestCode.GET_BROKER_CLUSTER_INFO)
        table = ClusterInfo.from_json(loads_object(answer.body)).broker_addr_table
        return dict(table[name].broker_addrs) if name in table else {}
    finally:
        await connection.close()


async def send(namesrv: str, *bodies: bytes) -> None:
    async with client.Producer(namesrv) as producer:
        for body in bodies:
            await producer.send("orders", body, timeout=30)


async def received(namesrv: str, count: int, group: str = "readers") -> set[bytes]:
    found: set[bytes] = set()
    async with client.LitePullConsumer(namesrv, group=group, consume_from="first") as consumer:
        consumer.subscribe("orders")
        async with asyncio.timeout(PATIENCE_S):
            async for message in consumer:
                found.add(message.body)
                if len(found) >= count:
                    break
    return found


def test_another_replica_takes_over_and_nothing_is_lost(tmp_path: Path) -> None:
    async def scenario(ready: dict[str, Any]) -> None:
        namesrv = ready["namesrv"]
        await send(namesrv, b"1", b"2")
        (master,) = [one for one in ready["brokers"] if one["address"] == ready["broker"]]
        os.kill(master["pid"], signal.SIGKILL)

        async def moved() -> bool:
            return (await members_of(namesrv)).get(0, master["address"]) != master["address"]

        await eventually(moved, PATIENCE_S)
        await send(namesrv, b"3", b"4")
        assert await received(namesrv, 4) == {b"1", b"2", b"3", b"4"}

        async def whole() -> bool:
            members = await members_of(namesrv)
            return len(members) == 3 and 0 in members and master["address"] in members.values()

        await eventually(whole, PATIENCE_S)  # the dead one was started again and follows

    data = str(tmp_path / "data")
    with up("--replicas", "3", "--data", data) as running:
        ready = running.ready
        assert sorted(one["replica"] for one in ready["brokers"]) == [1, 2, 3]
        assert ready["broker"] in [one["address"] for one in ready["brokers"]]
        asyncio.run(scenario(ready))
        code, _, said = running.stop()
        assert code == 0, said
    with up("--replicas", "3", "--data", data) as running:
        # The first group has its offsets still, and would wait.
        assert asyncio.run(received(running.namesrv, 4, "others")) == {b"1", b"2", b"3", b"4"}
        assert running.stop()[0] == 0


def identities(data: Path) -> list[Identity]:
    disk = InlineDisk()
    found = [identity_file(disk, str(one)).load(decode_identity) for one in sorted(data.glob("broker-*"))]
    return [one for one in found if one is not None]


def test_two_directories_of_one_replica_are_refused(tmp_path: Path) -> None:
    """Both would lead the same epoch, and acknowledge what the other one does not have."""
    data = tmp_path / "data"
    with up("--replicas", "2", "--data", str(data)) as running:
        asyncio.run(send(running.namesrv, b"1", b"2"))
        assert running.stop()[0] == 0
    assert [one.clean_end > 0 for one in identities(data)] == [True, True], "all have stopped in order"
    # Who stops last is the only member of the set, so it must come back.
    (data / "broker-a-2").rename(tmp_path / "second")
    shutil.copytree(data / "broker-a", data / "broker-a-2")
    words = ("up", "--replicas", "2", "--data", str(data), "--namesrv-port", "0", "--broker-port", "0")
    refused = aerobee(*words)
    assert refused.returncode == 1
    assert f"{data}/broker-a and {data}/broker-a-2 are of one replica" in refused.stderr
    assert "Empty the directory of the copy" in refused.stderr
    shutil.rmtree(data / "broker-a-2")
    (tmp_path / "second").rename(data / "broker-a-2")
    with up("--replicas", "2", "--data", str(data)) as running:
        assert asyncio.run(received(running.namesrv, 2)) == {b"1", b"2"}


def test_a_directory_of_replicas_is_used_once_and_as_a_whole(tmp_path: Path) -> None:
    """A second run would overwrite what the first one agreed on. A broker alone would store what the others lack."""
    data = str(tmp_path / "data")
    with up("--replicas", "2", "--data", data) as running:
        asyncio.run(send(running.namesrv, b"1"))
        before = [(one.id, one.starts[-1:]) for one in identities(Path(data))]
        for words, said in (
            (("--replicas", "2"), f"{data}/lock is held by another process"),
            ((), f"{data} holds the stores of several brokers"),
        ):
            refused = aerobee("up", *words, "--data", data, "--namesrv-port", "0", "--broker-port", "0")
            assert refused.returncode in (1, 2) and said in refused.stderr, refused.stderr
        store = f"storePathRootDir={data}/broker-a"
        refused = aerobee("broker", "--set", store, "--set", "listenPort=0", "--namesrv", running.namesrv)
        assert refused.returncode == 2 and "is the directory of a replica" in refused.stderr, refused.stderr
        assert [(one.id, one.starts[-1:]) for one in identities(Path(data))] == before
        asyncio.run(send(running.namesrv, b"2"))
        assert running.stop()[0] == 0
    refused = aerobee("up", "--brokers", "2", "--data", data, "--namesrv-port", "0", "--broker-port", "0")
    assert refused.returncode == 1 and "broker-a is the directory of a replica" in refused.stderr, refused.stderr
    with up("--replicas", "2", "--data", data) as running:
        assert asyncio.run(received(running.namesrv, 2)) == {b"1", b"2"}


def test_a_copy_of_a_running_replica_becomes_a_new_one(tmp_path: Path) -> None:
    """It lacks what was acknowledged since it was made, and must not count as the replica that it is a copy of."""

    async def scenario(ready: dict[str, Any]) -> None:
        namesrv = ready["namesrv"]
        await send(namesrv, b"1")
        (master,) = [one for one in ready["brokers"] if one["address"] == ready["broker"]]
        other = next(one for one in ready["brokers"] if one is not master)
        shutil.copytree(master["data"], tmp_path / "copy", ignore=shutil.ignore_patterns("*.tmp"))
        await send(namesrv, b"2")
        os.kill(other["pid"], signal.SIGKILL)
        shutil.rmtree(other["data"])
        (tmp_path / "copy").rename(other["data"])
        await eventually(lambda: sorted(one.id for one in identities(tmp_path / "data"))[-1] == 4, PATIENCE_S)
        await send(namesrv, b"3")
        assert await received(namesrv, 3) == {b"1", b"2", b"3"}

    with up("--replicas", "3", "--data", str(tmp_path / "data")) as running:
        asyncio.run(scenario(running.ready))
        assert running.stop()[0] == 0


def test_a_group_that_is_ready_takes_messages_and_changes() -> None:
    with up("--replicas", "3") as running:
        told = running.json("replica", "list")["groups"][0]
        assert told["master"] is not None and len(told["in_sync"]) >= told["min_in_sync"] == 2
        running.json("topic", "create", "-t", "orders")


def test_a_group_without_replicas_gets_them_without_copying(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with up("--brokers", "2", "--data", data) as running:
        asyncio.run(send(running.namesrv, b"1", b"2", b"3"))
        assert running.stop()[0] == 0
    with up("--brokers", "2", "--replicas", "2", "--data", data) as running:
        assert len(running.ready["brokers"]) == 4
        assert asyncio.run(received(running.namesrv, 3)) == {b"1", b"2", b"3"}
        assert running.stop()[0] == 0


def test_replicas_need_no_setting_twice() -> None:
    refused = aerobee(
        "up", "--replicas", "3", "--set", "minInSyncReplicas=9", "--namesrv-port", "0", "--broker-port", "0"
    )
    assert refused.returncode != 0
    assert "minInSyncReplicas" in refused.stderr
