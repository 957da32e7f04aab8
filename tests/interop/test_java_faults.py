"""Apache's Java clients while brokers, name servers and clients of theirs come and go.

Everything acknowledged is taken by every group; within a queue, messages are first seen in order; a repeat is fine only
where the client that had it, or the broker that knew how far it was, went away.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.testing import apache
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.javachecks import Event, first_takes_in_order, lost, of_kind, queue_of, repeated
from aerobee.testing.javasession import CLIENTS, PATIENT, JavaSession, Jvms, SessionRun

QUEUES = 8
# How long the broker keeps a dead client's queues locked. RocketMQ: RebalanceLockManager.
LOCK_S = 61


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    data = tmp_path_factory.mktemp("cluster")
    with LocalCluster(brokers=2, namesrvs=2, data=data, settings=PATIENT) as started:
        yield started


@pytest.fixture(scope="module", params=[CLIENTS[1], CLIENTS[2]], ids=lambda client: f"{client[0]}-{client[1]}")
def either(request: pytest.FixtureRequest, cluster: LocalCluster, jvms: Jvms) -> JavaSession:
    """Both versions and both codecs, but not each with each: where the codec has no part in what is tested."""
    return jvms.at(cluster.namesrv, *request.param)


def new_jvm(client: tuple[str, str], cluster: LocalCluster, work: Path) -> JavaSession:
    version, codec = client
    return JavaSession(work, cluster.namesrv, version=version, codec=codec)


class Members:
    """A concurrent and an ordered consumer of one JVM."""

    def __init__(self, jvm: JavaSession, topic: str) -> None:
        self.jvm = jvm
        every = {"topic": topic, "limit_ms": 300_000}
        self.runs: list[SessionRun] = [
            jvm.start("consume", group=f"{topic}-concurrent", **every),
            jvm.start("consume", group=f"{topic}-ordered", orderly=True, **every),
        ]
        for run in self.runs:
            run.facts()

    def wait_for_more(self, count: int) -> None:
        """Each of the two takes `count` more."""
        for run in self.runs:
            run.wait_for_events("message", len(run.events("message")) + count)

    def wait_for_every_queue(self) -> None:
        """Each of the two takes something new from every queue."""
        for run in self.runs:
            seen = len(run.events("message"))

            def all_queues(run: SessionRun = run, seen: int = seen) -> bool:
                return len({queue_of(message) for message in run.events("message")[seen:]}) == QUEUES

            self.jvm.wait_until(all_queues, "messages from every queue", 60)

    def stop(self) -> None:
        for run in self.runs:
            run.stop()

    def taken(self, which: int) -> list[Event]:
        return self.runs[which].events("message")


def test_consumers_join_leave_and_die(
    java: JavaSession, cluster: LocalCluster, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    topic = java.named("rebalance")
    cluster.create_topic(topic, QUEUES // 2)
    client = request.node.callspec.params["java"]
    producer = java.start("produce", topic=topic, count=100_000, pause_ms=15)
    first = Members(java, topic)
    first.wait_for_every_queue()
    with new_jvm(client, cluster, tmp_path / "leaves") as jvm:
        leaves = Members(jvm, topic)
        leaves.wait_for_more(30)
        leaves.stop()
    first.wait_for_every_queue()
    with new_jvm(client, cluster, tmp_path / "dies") as jvm:
        dies = Members(jvm, topic)
        dies.wait_for_more(30)
        jvm.kill()
    cluster.advance(seconds=LOCK_S)
    first.wait_for_every_queue()
    sent = of_kind(producer.stop(), "sent")

    def all_taken() -> bool:
        return all(not lost(sent, first.taken(which) + leaves.taken(which) + dies.taken(which)) for which in (0, 1))

    java.wait_until(all_taken, "all messages", 60)
    first.stop()
    for which in (0, 1):
        everybody = [first.taken(which), leaves.taken(which), dies.taken(which)]
        twice = set(repeated(message for taken in everybody for message in taken))
        moved = {message["sequence"] for taken in everybody[1:] for message in taken}
        assert twice <= moved  # one of the two who had it went away
        kind = ("concurrent", "ordered")[which]
        shares = " + ".join(str(len(taken)) for taken in everybody)
        print(f"{java.label} {kind}: {len(sent)} sent, taken by stays + leaves + dies: {shares}, {len(twice)} repeated")
    for taken in (first.taken(1), leaves.taken(1), dies.taken(1)):
        assert positions_grow(taken)


def positions_grow(taken: list[Event]) -> bool:
    """One ordered consumer never goes back in a queue, also not when the queue was away for a while."""
    last: dict[object, int] = {}
    for message in taken:
        queue = queue_of(message)
        if message["queueOffset"] <= last.get(queue, -1):
            return False
        last[queue] = message["queueOffset"]
    return True


def test_brokers_restart_under_running_clients(either: JavaSession, cluster: LocalCluster) -> None:
    java = either
    topic = java.named("restarts")
    cluster.create_topic(topic, QUEUES // 2)
    members = Members(java, topic)
    producer = java.start("produce", topic=topic, count=100_000, pause_ms=10, carry_on=True, timeout_ms=2000)
    members.wait_for_every_queue()
    cluster.restart(0)
    members.wait_for_every_queue()
    cluster.kill(1)
    producer.wait_for_events("sent", len(producer.events("sent")) + 50)  # the other broker takes them
    cluster.restart(1)
    members.wait_for_every_queue()
    events = producer.stop()
    sent, failed = of_kind(events, "sent"), of_kind(events, "failed")
    java.wait_until(lambda: not any(lost(sent, members.taken(which)) for which in (0, 1)), "all messages", 60)
    members.stop()
    assert first_takes_in_order(members.taken(1))
    twice = [len(repeated(members.taken(which))) for which in (0, 1)]
    print(f"{java.label}: {len(sent)} sent over a restart and a kill, {len(failed)} failed, repeated {twice}")
    # What clients committed in good order is there after the brokers' restart, and nothing comes again.
    for broker in (0, 1):
        cluster.restart(broker)
    more = of_kind(java.run("produce", topic=topic, count=40, from_=500_000, carry_on=True), "sent")
    later = Members(java, topic)
    java.wait_until(lambda: not any(lost(more, later.taken(which)) for which in (0, 1)), "the new messages", 60)
    later.stop()
    for which in (0, 1):
        assert repeated(later.taken(which)) == [] and len(later.taken(which)) == len(more)


def test_one_name_server_is_enough(either: JavaSession, cluster: LocalCluster) -> None:
    """Each is down once: what was running goes on, what starts finds its way, new topics are routed."""
    java = either
    topic = java.named("names")
    cluster.create_topic(topic, 2)
    producer = java.start("produce", topic=topic, count=100_000, pause_ms=50)
    producer.wait_for_events("sent", 10)
    for index in (0, 1):
        cluster.stop_namesrv(index)
        made = java.named(f"names-{index}")
        cluster.create_topic(made, 2)
        sent = of_kind(persist(java, "produce", topic=made, count=20), "sent")
        taken = of_kind(persist(java, "consume", topic=made, group=f"{made}-group", expect=20), "message")
        assert lost(sent, taken) == [] and repeated(taken) == []
        producer.wait_for_events("sent", len(producer.events("sent")) + 10)
        cluster.restart_namesrv(index)
        java.wait_until(
            lambda index=index: len(apache.registered_brokers(cluster.namesrv_address(index))) == 2, "registration", 30
        )
    assert of_kind(producer.stop(), "failed") == []


def persist(java: JavaSession, command: str, **options: object) -> list[Event]:
    """A starting client asks one name server, chosen by chance, and gives up when that one is down; try again."""
    for _ in range(9):
        try:
            return java.run(command, **options)
        except apache.ApacheError as error:
            assert "RemotingConnectException" in str(error), error
    return java.run(command, **options)
