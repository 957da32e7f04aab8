"""Transactions, delay levels and timed messages of Apache's Java clients, 4.9.8 and 5.5.0, on our broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from aerobee.testing import apache
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.javachecks import of_kind
from aerobee.testing.javasession import PATIENT, JavaSession


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    settings = {**PATIENT, "recallMessageEnable": "true", "channelExpiredTimeout": "86400000"}
    with LocalCluster(data=tmp_path_factory.mktemp("cluster"), settings=settings) as started:
        yield started


def bodies(cluster: LocalCluster, topic: str) -> list[str]:
    return sorted(message.body.decode() for message in cluster.messages(topic))


def until(java: JavaSession, holds: Callable[[], bool], what: str) -> None:
    java.wait_until(holds, what, 30)


def test_commit_rollback_and_unknown_then_check(java: JavaSession, cluster: LocalCluster) -> None:
    topic, group = java.named("tx"), java.named("tx-g")
    cluster.create_topic(topic, queues=4)
    states = "commit,rollback,unknown,commit,unknown"
    run = java.start("transact", topic=topic, group=group, states=states, answer="commit", hold=True)
    sent = run.wait_for_events("sent", 5)
    assert all(one["status"] == "SEND_OK" for one in sent)
    until(java, lambda: bodies(cluster, topic) == ["0:commit", "3:commit"], "the commits")
    cluster.advance(seconds=7)
    checked = run.wait_for_events("check", 2)
    assert sorted(one["body"] for one in checked) == ["2:unknown", "4:unknown"]
    ids = {one["body"]: one["msgId"] for one in sent}
    for one in checked:
        assert (one["transactionId"], one["topic"], one["times"]) == (ids[one["body"]], topic, "1")
    until(java, lambda: len(bodies(cluster, topic)) == 4, "what was checked")
    cluster.advance(seconds=60)
    run.stop()
    assert bodies(cluster, topic) == ["0:commit", "2:unknown", "3:commit", "4:unknown"]
    assert len(run.events("check")) == 2
    read = of_kind(java.run("pull-all", topic=topic), "message")
    assert {one["msgId"] for one in read} == {ids[body] for body in bodies(cluster, topic)}
    print(f"{java.label}: 2 commits, 1 rollback, 2 checked, each once")


def test_the_producer_is_killed_and_another_of_its_group_answers(
    java: JavaSession, cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    topic, group = java.named("killed"), java.named("killed-g")
    cluster.create_topic(topic, queues=4)
    version, codec = java.label.split(" ")
    first = JavaSession(tmp_path_factory.mktemp("first"), cluster.namesrv, version=version, codec=codec)
    with first:
        run = first.start("transact", topic=topic, group=group, states="unknown,unknown,commit", hold=True)
        run.wait_for_events("sent", 3)
        first.process.kill()
        first.process.wait(30)
    until(java, lambda: group not in cluster._nodes[0].state.clients.producers(), "the killed producer gone")
    cluster.advance(seconds=7)
    other = java.start("transact", topic=java.named("other"), group=group, states="commit", answer="commit", hold=True)
    other.wait_for_events("sent", 1)
    cluster.advance(seconds=31)
    checked = other.wait_for_events("check", 2)
    assert sorted(one["body"] for one in checked) == ["0:unknown", "1:unknown"]
    assert {one["times"] for one in checked} == {"1"}, "nobody was there to be asked before"
    until(java, lambda: bodies(cluster, topic) == ["0:unknown", "1:unknown", "2:commit"], "all three")
    other.stop()


def test_delay_levels_and_times(java: JavaSession, cluster: LocalCluster) -> None:
    topic = java.named("timed")
    cluster.create_topic(topic, queues=4)
    java.run("produce", topic=topic, count=1, delay=14)
    for number, name in enumerate(("TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"), 1):
        # The clocks of the client and of the broker that tests move differ.
        shift_ms = int(cluster.clock.shift_s * 1000) if name == "TIMER_DELIVER_MS" else 0
        java.run("timed", topic=topic, delays_ms=str(number * 3_600_000 + shift_ms), property=name)
    seen = []
    for minutes in (9, 2, 50, 60, 60):
        cluster.advance(minutes=minutes)
        until(java, lambda: settled(cluster), "deliveries")
        seen.append(len(bodies(cluster, topic)))
    assert seen == [0, 1, 2, 3, 4]


def settled(cluster: LocalCluster) -> bool:
    """Everything due by now is delivered."""
    side, now_ms = cluster._nodes[0].broker, cluster.clock.now_ms()
    time.sleep(0.05)
    due = side.timers.index.next_key() <= now_ms or side.timers.ledger.frontier_ms < now_ms - 50
    return not due and not side.timers._held and side.scheduler.next_due_ms >= now_ms


def test_recall(java: JavaSession, cluster: LocalCluster) -> None:
    if java.label.startswith("4."):
        pytest.skip("this client cannot recall")
    topic = java.named("recalled")
    cluster.create_topic(topic, queues=4)
    events = java.run("timed", topic=topic, delays_ms="3600000", recall=True)
    assert of_kind(events, "recalled")[0]["msgId"] == of_kind(events, "sent")[0]["msgId"]
    java.run("timed", topic=topic, delays_ms="3600001")
    cluster.advance(minutes=61)
    until(java, lambda: bodies(cluster, topic) == ["3600001"], "the one that was not recalled")
