"""`aerobee replica` and the controller's admin codes, on a group of three replicas in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result

from aerobee.admin.connection import AdminConnection
from aerobee.admin.replicas import replicated_groups
from aerobee.cli.main import main
from aerobee.errors import BrokerError
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command
from aerobee.sync import Producer
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.workload import eventually

T = TypeVar("T")
GROUP = "broker-a"


@pytest.fixture
def three() -> Iterator[LocalCluster]:
    with LocalCluster(replicas=3) as cluster:
        wait(lambda: len(show(cluster)["in_sync"]) == 3)
        yield cluster


def run(cluster: LocalCluster, *words: str) -> Result:
    return CliRunner().invoke(main, ["replica", *words, "-n", cluster.namesrv], catch_exceptions=False)


def show(cluster: LocalCluster) -> Any:
    result = run(cluster, "status", "-b", GROUP, "--json")
    return json.loads(result.stdout)


def wait(holds: Callable[[], bool]) -> None:
    """Wait until something holds that needs an event loop of its own."""
    asyncio.run(eventually(lambda: asyncio.to_thread(holds)))


def ask(cluster: LocalCluster, work: Callable[[AdminConnection], Awaitable[T]]) -> T:
    async def asked() -> T:
        async with AdminConnection(cluster.namesrv) as admin:
            return await work(admin)

    return asyncio.run(asked())


def command(cluster: LocalCluster, replica: int, code: int, body: bytes = b"", **ext: str) -> Command:
    return ask(cluster, lambda admin: admin.ask(cluster.broker_address(0, replica), code, body=body, ext=ext))


def test_list_and_status(three: LocalCluster) -> None:
    found = show(three)
    assert (found["group"], found["epoch"], found["in_sync"], found["min_in_sync"]) == (GROUP, 1, [1, 2, 3], 2)
    assert found["master"] == three.master()
    assert sorted(one["role"] for one in found["replicas"]) == ["follower", "follower", "leader"]
    listed = run(three, "list")
    assert listed.exit_code == 0 and GROUP in listed.stdout and "1 2 3" in listed.stdout
    assert "leader" in run(three, "status", "-b", GROUP).stdout
    assert run(three, "status", "-b", "none").exit_code == 1
    added = json.loads(run(three, "add", "-b", GROUP, "--json").stdout)["settings"]
    assert (added["brokerName"], added["totalReplicas"], added["brokerRole"]) == (GROUP, "4", "SYNC_MASTER")


def test_switch_asks_first_and_hands_over(three: LocalCluster) -> None:
    master = three.master()
    target = master % 3 + 1
    assert "would hand the role" in run(three, "switch", "-b", GROUP, str(target), "--dry-run").stdout
    assert run(three, "switch", "-b", GROUP, str(target)).exit_code == 2  # nobody answers the question
    assert three.master() == master
    done = run(three, "switch", "-b", GROUP, str(target), "--yes")
    assert done.exit_code == 0, done.output
    assert three.master() == target
    assert run(three, "switch", "-b", GROUP, "9", "--yes").exit_code == 1


def test_a_dead_replica_is_removed_and_a_live_one_is_not(three: LocalCluster) -> None:
    victim = three.master() % 3 + 1
    refused = run(three, "remove", "-b", GROUP, str(victim), "--yes")
    assert refused.exit_code == 1 and "alive" in refused.output
    three.kill(0, victim)
    wait(lambda: victim not in show(three)["in_sync"])
    wait(lambda: run(three, "remove", "-b", GROUP, str(victim), "--yes").exit_code == 0)
    assert victim not in [one["replica"] for one in show(three)["replicas"]]
    assert run(three, "remove", "-b", GROUP, str(victim), "--yes").exit_code == 1


def test_force_only_while_nobody_better_is_alive() -> None:
    with LocalCluster(replicas=2) as cluster:
        cluster.create_topic("orders", queues=1)
        master = cluster.master()
        other = 3 - master
        wait(lambda: show(cluster)["in_sync"] == [1, 2])
        refused = run(cluster, "force", "-b", GROUP, str(other), "--yes")
        assert refused.exit_code == 1 and "can lead without loss" in refused.output
        cluster.kill(0, other)
        wait(lambda: show(cluster)["in_sync"] == [master])
        with Producer(cluster.namesrv) as producer:
            producer.send("orders", b"only on the master", timeout=30)
        cluster.kill(0, master)
        cluster.restart(0, other)
        wait(lambda: run(cluster, "force", "-b", GROUP, str(other), "--yes").exit_code == 0)
        assert cluster.master() == other
        assert "was forced to lead" in show(cluster)["forced"]


def test_the_controllers_codes_answer_as_apaches(three: LocalCluster) -> None:
    master = three.master()
    other = master % 3 + 1
    address = three.broker_address(0, master)
    metadata = command(three, other, RequestCode.CONTROLLER_GET_METADATA_INFO).ext
    assert (metadata["controllerLeaderAddress"], metadata["isLeader"]) == (address, "false")
    info = command(three, other, RequestCode.CONTROLLER_GET_REPLICA_INFO, brokerName=GROUP)
    assert (info.ext["masterBrokerId"], info.ext["masterAddress"]) == (str(master), address)
    assert json.loads(info.body)["syncStateSet"] == [1, 2, 3]
    state = command(three, other, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, json.dumps([GROUP, "x"]).encode())
    table = json.loads(state.body)["replicasInfoTable"]
    assert list(table) == [GROUP] and len(table[GROUP]["inSyncReplicas"]) == 3
    epochs = json.loads(command(three, master, RequestCode.GET_BROKER_EPOCH_CACHE).body)
    assert [one["epoch"] for one in epochs["epochList"]] == [1]
    status = json.loads(command(three, master, RequestCode.GET_BROKER_HA_STATUS).body)
    assert status["master"] and status["inSyncSlaveNums"] == 2 and len(status["haConnectionInfo"]) == 2
    status = json.loads(command(three, other, RequestCode.GET_BROKER_HA_STATUS).body)
    assert not status["master"] and status["haClientRuntimeInfo"]["activated"]
    assert b"minInSyncReplicas=2" in command(three, other, RequestCode.GET_CONTROLLER_CONFIG).body
    elected = command(
        three, master, RequestCode.CONTROLLER_ELECT_MASTER,
        brokerName=GROUP, clusterName="LocalCluster", brokerId=str(other), designateElect="true",
    )  # fmt: skip
    assert (elected.ext["masterBrokerId"], elected.ext["masterEpoch"]) == (str(other), "2")
    assert json.loads(elected.body)["brokerAddrs"]["0"] == three.broker_address(0, other)
    with pytest.raises(BrokerError) as refused:
        command(three, other, RequestCode.UPDATE_CONTROLLER_CONFIG)
    assert refused.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    for body in (b"{", b"[1]", b"[" * 5000, json.dumps(["n"] * 5000).encode()):
        with pytest.raises(BrokerError):
            command(three, other, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body)
    for ids in ("x", "9" * 5000, "", "-1", "99"):
        with pytest.raises(BrokerError):
            command(three, other, RequestCode.CLEAN_BROKER_DATA, brokerName=GROUP, brokerControllerIdsToClean=ids)


def test_a_broker_without_replicas_says_so() -> None:
    with LocalCluster() as cluster:
        assert ask(cluster, replicated_groups) == ()
        with pytest.raises(BrokerError, match="has no replicas"):
            ask(cluster, lambda admin: admin.ask(cluster.broker_address(0), RequestCode.GET_BROKER_EPOCH_CACHE))
        assert "no broker group has replicas" in run(cluster, "list").stdout
