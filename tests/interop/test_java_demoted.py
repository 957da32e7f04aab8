"""Java clients whose master is replaced: they look up routes every 30 s, and until then the old master passes on."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from aerobee.testing import apache
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.commands import aerobee
from aerobee.testing.javachecks import Event, lost, of_kind, repeated
from aerobee.testing.javasession import CLIENTS, PATIENT, JavaSession, Jvms

GROUP = "broker-a"
QUEUES = 4
# Sooner than Java's clients look up routes. RocketMQ: ClientConfig.pollNameServerInterval, 30 s.
STALE_S = 15


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    with LocalCluster(1, replicas=3, data=tmp_path_factory.mktemp("cluster"), settings=PATIENT) as started:
        yield started


@pytest.fixture(params=[CLIENTS[1], CLIENTS[2]], ids=lambda client: f"{client[0]}-{client[1]}")
def java(request: pytest.FixtureRequest, cluster: LocalCluster, jvms: Jvms) -> JavaSession:
    """Both versions and both codecs."""
    return jvms.at(cluster.namesrv, *request.param)


def switch(cluster: LocalCluster) -> None:
    """Hand the role of master to another replica, as an operator does."""
    ports = {cluster.broker_address(0, number): number for number in (1, 2, 3)}
    target = ports[cluster.broker_address(0)] % 3 + 1
    done = aerobee("replica", "switch", "-b", GROUP, str(target), "--yes", NAMESRV_ADDR=cluster.namesrv)
    assert done.returncode == 0, done.stderr
    assert ports[cluster.broker_address(0)] == target


def goes_forward(taken: list[Event]) -> bool:
    """Tell whether an ordered consumer took each queue from its first message to its last, without a step back."""
    last: dict[int, int] = {}
    for message in taken:
        if message["queueOffset"] <= last.get(message["queueId"], -1):
            return False
        last[message["queueId"]] = message["queueOffset"]
    return True


def test_clients_of_a_demoted_master_go_on(java: JavaSession, cluster: LocalCluster) -> None:
    topic = java.named("demoted")
    cluster.create_topic(topic, QUEUES)
    every = {"topic": topic, "limit_ms": 300_000}
    push = java.start("consume", group=f"{topic}-push", **every)
    ordered = java.start("consume", group=f"{topic}-ordered", orderly=True, **every)
    producer = java.start("produce", topic=topic, count=100_000, pause_ms=20, carry_on=True, timeout_ms=20_000)
    for run in (push, ordered):
        run.wait_for_events("message", 20)
    switch(cluster)
    switched_s = time.monotonic()
    for run, kind in ((producer, "sent"), (push, "message"), (ordered, "message")):
        run.wait_for_events(kind, len(run.events(kind)) + 50, STALE_S)
    assert time.monotonic() - switched_s < STALE_S, "the clients may have looked up the new route by now"
    events = producer.stop()
    sent, failed = of_kind(events, "sent"), of_kind(events, "failed")
    java.wait_until(lambda: not any(lost(sent, run.events("message")) for run in (push, ordered)), "all messages", 60)
    for run in (push, ordered):
        run.stop()
    assert failed == [] and goes_forward(ordered.events("message")) and repeated(ordered.events("message")) == []
