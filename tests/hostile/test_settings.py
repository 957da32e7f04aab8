"""Settings that would lie, and settings whose effect nothing else shows."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aerobee import AerobeeError, Producer
from aerobee.admin.cluster import change_broker_settings
from aerobee.admin.connection import AdminConnection
from aerobee.broker.config import BrokerConfig
from aerobee.broker.topics import topic_rules
from aerobee.errors import ConfigError
from aerobee.net.client import RemotingClient
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import request
from aerobee.protocol.headers.kv import GetKVConfigRequestHeader, PutKVConfigRequestHeader
from aerobee.store.config import StoreConfig
from aerobee.store.retention import DeleteSegment, DiskFacts, Retention, SegmentFacts
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.commands import PATIENCE_S, aerobee, command, environment

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    "word",
    [
        "brokerRole=SLAVE",
        "brokerId=1",
        "minInSyncReplicas=1000",
        "enableControllerMode=true",
        "enableDLegerCommitLog=true",
    ],
)
def test_a_promise_of_replicas_stops_the_start(word: str, tmp_path: Path) -> None:
    done = aerobee("broker", "--set", word, "--set", f"storePathRootDir={tmp_path}/store", "--set", "listenPort=0")
    key = word.partition("=")[0]
    assert done.returncode != 0
    assert f"error: {key}" in done.stderr or f": {key}" in done.stderr
    assert not (tmp_path / "store").exists()


def test_replicas_that_must_be_in_sync_stop_a_cluster_too() -> None:
    settings = {"totalReplicas": "2", "inSyncReplicas": "2", "minInSyncReplicas": "2"}
    with pytest.raises(ConfigError) as told, LocalCluster(settings=settings):
        pass
    for key in ("inSyncReplicas", "minInSyncReplicas"):
        assert f"{key}=2 cannot be honoured" in str(told.value)


def test_two_directories_for_the_log_are_refused(tmp_path: Path) -> None:
    done = aerobee("broker", "--set", f"storePathCommitLog={tmp_path}/a,{tmp_path}/b")
    assert done.returncode == 2
    assert "names several directories, only one is supported" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_file_names_the_name_server_before_the_environment_does(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("namesrvAddr = 127.0.0.1:1111\n")
    told = aerobee("broker", "-c", str(conf), "-p", NAMESRV_ADDR="127.0.0.1:2222").stdout
    assert "namesrvAddr=127.0.0.1:1111\n" in told
    conf.write_text("brokerName = mine\n")
    told = aerobee("broker", "-c", str(conf), "-p", NAMESRV_ADDR="127.0.0.1:2222").stdout
    assert "namesrvAddr=127.0.0.1:2222\n" in told


@pytest.mark.skipif(sys.platform == "win32", reason="signals as Unix has them")
def test_a_name_server_remembers_its_keys_and_the_order_of_topics(tmp_path: Path) -> None:
    place = environment(HOME=str(tmp_path))
    words = command("namesrv", "--json", "--set", "listenPort=0")

    def run(how: signal.Signals, code: int, header: object) -> str | None:
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=place) as server:
            try:
                assert server.stdout is not None
                address = server.stdout.readline().split('"')[3]
                return asyncio.run(_ask(address, code, header))
            finally:
                server.send_signal(how)
                server.wait(PATIENCE_S)

    put = PutKVConfigRequestHeader(namespace="ORDER_TOPIC_CONFIG", key="orders", value="broker-a:4")
    run(signal.SIGKILL, RequestCode.PUT_KV_CONFIG, put)
    get = GetKVConfigRequestHeader(namespace="ORDER_TOPIC_CONFIG", key="orders")
    assert run(signal.SIGTERM, RequestCode.GET_KV_CONFIG, get) == "broker-a:4"
    assert os.listdir(tmp_path) == ["namesrv"]


async def _ask(address: str, code: int, header: object) -> str | None:
    client = RemotingClient()
    try:
        answer = await client.ask(address, request(code, header, opaque=client.next_opaque()))  # type: ignore[arg-type]
        return answer.ext.get("value")
    finally:
        await client.close()


def test_how_many_segments_go_in_a_round_and_how_fast() -> None:
    """deleteFileBatchMax and deleteCommitLogFilesInterval."""
    config = StoreConfig(delete_file_batch_max=2, delete_commit_log_files_interval_ms=700)
    machine = Retention(config)
    old = [SegmentFacts(n * 1000, (n + 1) * 1000, NOW_MS - 10**9) for n in range(5)]
    first = machine.step(DiskFacts(0.0, NOW_MS, 4, 0.5, old))
    assert [type(effect) for effect in first] == [DeleteSegment]
    assert machine.next_s == 0.7
    assert len(machine.step(DiskFacts(0.7, NOW_MS, 4, 0.5, old[1:]))) == 1
    assert machine.next_s == config.clean_resource_interval_ms / 1000


def test_the_trace_topic_has_the_name_it_was_given() -> None:
    """msgTraceTopicName."""
    config = BrokerConfig(trace_topic_enable=True, msg_trace_topic_name="MY_TRACE")
    assert topic_rules(config).trace_topic == "MY_TRACE"


@pytest.mark.parametrize("allowed", [True, False])
def test_recall_where_nothing_may_be_written(allowed: bool) -> None:
    """allowRecallWhenBrokerNotWriteable."""

    async def recall(cluster: LocalCluster) -> None:
        async with Producer(cluster.namesrv) as producer, AdminConnection(cluster.namesrv) as admin:
            timed = await producer.send("reminders", b"later", delay=60)
            await change_broker_settings(admin, {"brokerPermission": "4"})
            await producer.cancel(timed)

    settings = {"recallMessageEnable": "true", "allowRecallWhenBrokerNotWriteable": str(allowed).lower()}
    with LocalCluster(settings=settings) as cluster:
        cluster.create_topic("reminders", queues=1)
        if allowed:
            asyncio.run(recall(cluster))
        else:
            with pytest.raises(AerobeeError, match="not available"):
                asyncio.run(recall(cluster))
