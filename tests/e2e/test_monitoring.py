"""The port for monitoring of real servers: health, readiness with its reasons, and a scrape of 10,000 topics."""

from __future__ import annotations

import gzip
import json
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from aerobee.app.broker import BrokerNode
from aerobee.errors import StoreFencedError
from aerobee.model.topic import TopicConfig
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.commands import aerobee, up

ON = {"metricsExporterType": "PROM"}
TOPICS = 10_000


def get(address: str, path: str, *, timeout_s: float = 10, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """Return status, body and headers of a page."""
    asked = urllib.request.Request(f"http://{address}{path}", headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=timeout_s) as answer:
            return answer.status, answer.read(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read(), dict(error.headers)


def reasons(address: str) -> list[str]:
    """Return why the broker is not ready; nothing if it is."""
    status, body, _ = get(address, "/readyz")
    told = json.loads(body)
    assert (status == 200) is told["ready"] is (not told["reasons"])
    found: list[str] = told["reasons"]
    return found


def in_loop(cluster: LocalCluster, work: Callable[[BrokerNode], None]) -> None:
    """Do something with the first broker in the thread of its loop."""

    async def run() -> None:
        work(cluster._nodes[0])

    assert cluster._thread is not None
    cluster._thread.run(run())


def test_healthz_readyz() -> None:
    with LocalCluster(settings=ON) as cluster:
        address = cluster.metrics_address(0)
        assert get(address, "/healthz")[0] == 200
        assert reasons(address) == []

        # drained
        assert aerobee(
            "cluster", "config", "-n", cluster.namesrv, "--yes", "brokerPermission=4"
        ).returncode == 0  # fmt: skip
        assert [one.partition(":")[0] for one in reasons(address)] == ["draining"]
        assert aerobee(
            "cluster", "config", "-n", cluster.namesrv, "--yes", "brokerPermission=6"
        ).returncode == 0  # fmt: skip
        assert reasons(address) == []

        # disk full, and room again
        in_loop(cluster, lambda node: node.state.store.refuse_full("99% of the disk is in use"))
        assert reasons(address) == ["disk full: 99% of the disk is in use"]
        in_loop(cluster, lambda node: node.state.store.refuse_full(None))

        # no name server
        cluster.stop_namesrv(0)
        deadline_s = time.monotonic() + 60
        while not reasons(address):
            assert time.monotonic() < deadline_s
        assert reasons(address)[0].startswith("unregistered: none of 127.0.0.1:")
        cluster.restart_namesrv(0)
        while reasons(address):
            assert time.monotonic() < deadline_s

        # fenced
        in_loop(cluster, lambda node: node.state.store.fence(StoreFencedError("the disk failed")))
        assert [one.partition(":")[0] for one in reasons(address)] == ["fenced"]
        assert get(address, "/healthz")[0] == 200, "a restart would not help the disk"


def replica_series(cluster: LocalCluster) -> list[dict[str, float]]:
    """Return what each replica of the first group tells of itself, by name; the lags by the follower."""
    found = []
    for node in cluster._nodes.values():
        page = get(f"127.0.0.1:{node.monitoring.port}", "/metrics")[1].decode()
        lines = re.findall(r"^aerobee_replica_(\w+)\{(.*)\} (\S+)$", page, re.MULTILINE)
        names = [name + "".join(re.findall(r',follower="\d+"', labels)) for name, labels, _ in lines]
        found.append({name: float(value) for name, (_, _, value) in zip(names, lines, strict=True)})
    return found


def test_replicas_tell_who_leads_and_how_far_the_others_are() -> None:
    rules = (Path(__file__).parents[2] / "deploy" / "prometheus" / "rules.yml").read_text()
    with LocalCluster(1, replicas=3, settings=ON) as cluster:
        cluster.create_topic("T", 1)
        deadline_s = time.monotonic() + 60
        while True:
            told = replica_series(cluster)
            if all(one.get("in_sync") == 3 and not one["unconfirmed_bytes"] for one in told):
                break
            assert time.monotonic() < deadline_s, told
        assert sorted(one["leads"] for one in told) == [0, 0, 1]
        assert {(one["epoch"], one["members"]) for one in told} == {(1, 3)}
        master = max(told, key=lambda one: one["leads"])
        # One change may add both followers.
        assert master["elections_total"] == 1 and master["set_changes_total"] >= 1
        assert len([name for name in master if name.startswith("lag_bytes")]) == 2
        unknown = set(re.findall(r"aerobee_replica_(\w+)", rules)) - set(master)
        assert not unknown, "a rule asks for what nobody tells"


def test_while_the_store_is_recovered_probes_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, list[str]]] = []
    with LocalCluster(settings=ON) as cluster:
        build = BrokerNode.build

        def slow(node: BrokerNode) -> object:
            address = f"127.0.0.1:{node.monitoring.port}"
            seen.append((get(address, "/healthz")[0], reasons(address)))
            return build(node)

        monkeypatch.setattr(BrokerNode, "build", slow)
        cluster.kill(0)
        cluster.restart(0)
        assert seen == [(200, ["recovering: the store is being opened"])]
        assert reasons(cluster.metrics_address(0)) == []


def test_a_frozen_process_fails_its_probe() -> None:
    with up("--set", "metricsExporterType=PROM", "--set", "metricsPromExporterPort=0") as running:
        (url,) = running.ready["metrics"]
        address = url.removeprefix("http://").removesuffix("/metrics")
        assert get(address, "/healthz")[0] == 200
        assert b"\naerobee_namesrv_brokers 1\n" in get(address, "/metrics")[1]
        running.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(TimeoutError):
                get(address, "/healthz", timeout_s=2)
        finally:
            running.process.send_signal(signal.SIGCONT)
        assert get(address, "/healthz")[0] == 200
    with pytest.raises(urllib.error.URLError):
        get(address, "/healthz")


def test_scrape_10k_topics() -> None:
    with LocalCluster(settings=ON) as cluster:

        def fill(node: BrokerNode) -> None:
            state = node.state
            now_ms = state.clock.now_ms()
            for number in range(TOPICS):
                topic, group = f"topic-{number}", f"group-{number % 100}"
                state.catalog.topic_table.put(TopicConfig(topic, 8, 8), now_ms)
                state.stats.add("TOPIC_PUT_NUMS", topic, 5, now_ms)
                state.stats.add("TOPIC_PUT_SIZE", topic, 500, now_ms)
                node.broker.counts.sizes[topic] = [5, 0, 0, 0, 0, 0, 0]
                state.stats.get(group, topic, 5, 500, now_ms)
                state.offsets.commit(group, topic, 0, 0)

        in_loop(cluster, fill)
        address = cluster.metrics_address(0)
        get(address, "/metrics")
        # Other work on the machine takes time from a turn, so the best of some counts.
        turns: list[float] = []
        times: list[float] = []
        while len(turns) < 30 and not (turns and min(turns) <= 0.005 and min(times) <= 0.5):
            in_loop(cluster, lambda node: setattr(node.monitoring.http, "longest_turn_s", 0.0))
            began_s = time.monotonic()
            status, body, headers = get(address, "/metrics", **{"Accept-Encoding": "gzip"})
            times.append(time.monotonic() - began_s)
            in_loop(cluster, lambda node: turns.append(node.monitoring.http.longest_turn_s))  # type: ignore[union-attr]
            assert (status, headers["Content-Encoding"]) == (200, "gzip")
        text = gzip.decompress(body).decode()
        assert text.count("rocketmq_messages_in_total{") == TOPICS
        assert text.count("rocketmq_message_size_bucket{") == 7 * TOPICS
        assert text.count("rocketmq_messages_out_total{") == TOPICS
        print(f"{len(text) >> 10} KiB, {len(body) >> 10} KiB packed, turns {turns}, answers {times}")
        assert min(turns) <= 0.005
        assert min(times) <= 0.5


def test_the_port_is_off_unless_asked_for_and_on_loopback(tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        assert cluster.metrics_address(0).endswith(":0")
    beyond = ("--set", "metricsExporterType=PROM", "--set", "metricsPromExporterHost=0.0.0.0")
    for words in (
        ("up",),
        ("up", "--brokers", "2"),
        ("broker", "--set", f"storePathRootDir={tmp_path}/s"),
        ("namesrv",),
    ):
        done = aerobee(*words, *beyond)
        assert done.returncode == 1, done.stderr
        assert "other machines can reach 0.0.0.0" in done.stderr


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        asked = ("--set", "metricsExporterType=PROM", "--set", f"metricsPromExporterPort={port}")
        for words in (("up", "--namesrv-port", "0", "--broker-port", "0"), ("namesrv", "--set", "listenPort=0")):
            done = aerobee(*words, *asked)
            assert done.returncode == 1, done.stderr
            assert f"port {port} of 127.0.0.1 is in use (metrics)" in done.stderr
            assert "metricsPromExporterPort" in done.stderr
