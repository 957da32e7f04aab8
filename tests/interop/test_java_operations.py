"""What operators see of Apache's Java clients: their message traces, and a quota that they meet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.sync import Admin
from aerobee.testing import apache
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.commands import aerobee
from aerobee.testing.javachecks import of_kind
from aerobee.testing.javasession import PATIENT, JavaSession
from aerobee.testing.waiting import wait_until

QUOTA = 100


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    with LocalCluster(settings={**PATIENT, "recallMessageEnable": "true", "traceTopicEnable": "true"}) as started:
        yield started


@pytest.fixture(scope="module", params=[apache.LEGACY, apache.NEWEST])
def traced(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[JavaSession]:
    # Without the property the client traces no recall.
    system = {"com.rocketmq.recall.default.trace.enable": "true"}
    with JavaSession(tmp_path_factory.mktemp("java"), cluster.namesrv, version=request.param, system=system) as session:
        yield session


def events_of(cluster: LocalCluster, message_id: str, kinds: list[str]) -> list[dict[str, object]]:
    """Return the trace of a message when it has these events: clients write them some time later."""

    said = [""]

    def looked() -> list[dict[str, object]]:
        done = aerobee("message", "trace", message_id, "-n", cluster.namesrv, "--json")
        said[0] = done.stdout + done.stderr
        found: list[dict[str, object]] = json.loads(done.stdout)["events"] if done.returncode == 0 else []
        return found if sorted(str(event["kind"]) for event in found) == sorted(kinds) else []

    return wait_until(looked, lambda: f"{kinds} of {message_id}: {said[0]}")


def test_trace_reader_java_messages(traced: JavaSession, cluster: LocalCluster) -> None:
    """Test 38: every event that Java's clients write is shown by `aerobee message trace`.

    A consumer of 5.5.0 wrote no trace in this session, so those of consumers are checked with 4.9.8 only.
    """
    topic, group = traced.named("traced"), traced.named("tracing")
    cluster.create_topic(topic, 1)
    consumer = traced.start("consume", topic=topic, group=group, fail_times=1, trace=True, limit_ms=120_000)
    (sent,) = of_kind(traced.run("produce", topic=topic, count=1, keys="k", tags="T", trace=True), "sent")
    cluster.advance(seconds=15)  # the message that failed once comes again
    twice = ["SubBefore", "SubAfter"] if traced.label.startswith("4.") else []
    # Traces are gathered for some seconds.
    shown = events_of(cluster, str(sent["msgId"]), ["Pub", *twice, *twice])
    consumer.stop()
    first = shown[0]
    assert (first["kind"], first["topic"], first["tags"], first["success"]) == ("Pub", topic, "T", True)
    assert first["host"] == "127.0.0.1" or str(first["host"]).count(".") == 3
    if not twice:
        return
    after = [event for event in shown if event["kind"] == "SubAfter"]
    assert sorted(bool(event["success"]) for event in after) == [False, True]
    before = [event for event in shown if event["kind"] == "SubBefore"]
    assert {event["group"] for event in before} == {group} and [event["retries"] for event in before] == [0, 1]
    text = aerobee("message", "trace", str(sent["msgId"]), "-n", cluster.namesrv).stdout
    assert all(word in text for word in ("sent", "received, retry 1", "processed", "failed", group)), text


def test_the_end_of_javas_transaction_is_shown(traced: JavaSession, cluster: LocalCluster) -> None:
    topic = traced.named("ended")
    cluster.create_topic(topic, 1)
    run = traced.run("transact", topic=topic, group=traced.named("tx"), states="commit", trace=True)
    (sent,) = of_kind(run, "sent")
    shown = events_of(cluster, str(sent["msgId"]), ["Pub", "EndTransaction"])
    end = next(event for event in shown if event["kind"] == "EndTransaction")
    assert (end["transaction_state"], end["from_check"]) == ("COMMIT_MESSAGE", False)


def test_javas_recall_is_shown(traced: JavaSession, cluster: LocalCluster) -> None:
    if traced.label.startswith("4."):
        pytest.skip("this client cannot recall")
    topic = traced.named("recalled")
    cluster.create_topic(topic, 1)
    run = traced.run("timed", topic=topic, delays_ms="3600000", recall=True, trace=True)
    (sent,) = of_kind(run, "sent")
    shown = events_of(cluster, str(sent["msgId"]), ["Pub", "Recall"])
    assert next(event for event in shown if event["kind"] == "Recall")["success"] is True


def test_quota_java_sees_215(traced: JavaSession, cluster: LocalCluster, tmp_path: Path) -> None:
    """Test 54: a Java producer that does not wait is refused with FLOW_CONTROL, and does not try again."""
    topic = traced.named("loud")
    cluster.create_topic(topic, 1)
    with Admin(cluster.namesrv) as admin:
        admin.quotas.set(f"topic:{topic}", messages_s=QUOTA)
        try:
            count = 10 * QUOTA
            run = traced.run("produce", topic=topic, count=count, mode="async", carry_on=True, timeout_ms=20_000)
            sent, failed = of_kind(run, "sent"), of_kind(run, "failed")
            assert len(sent) + len(failed) == count and sent
            assert {"215" in str(one["message"]) for one in failed} == {True}, failed[:2]
            assert len(cluster.messages(topic)) == len(sent), "a refused message is nowhere"
            print(f"{traced.label}: {len(sent)} sent, {len(failed)} refused: {failed[0]['message']}")
            # One that waits for each answer is slowed down, and never refused.
            slow = traced.run("produce", topic=topic, count=2 * QUOTA, timeout_ms=20_000)
            assert not of_kind(slow, "failed")
        finally:
            admin.quotas.remove(f"topic:{topic}")
