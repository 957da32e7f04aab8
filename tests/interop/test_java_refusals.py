"""What Apache's Java clients tell their users when our broker refuses: the code and the words arrive."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aerobee.testing import apache
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.javachecks import Event, of_kind
from aerobee.testing.javasession import PATIENT, JavaSession

SETTINGS = {
    **PATIENT,
    "autoCreateTopicEnable": "false",
    "autoCreateSubscriptionGroup": "false",
    "maxMessageSize": "100000",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    with LocalCluster(settings=SETTINGS) as started:
        yield started


@pytest.fixture(scope="module")
def admin(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaSession]:
    with JavaSession(tmp_path_factory.mktemp("admin"), cluster.namesrv) as session:
        yield session


def test_refusals_say_why(java: JavaSession, admin: JavaSession, cluster: LocalCluster) -> None:
    topic = java.named("closed")
    cluster.create_topic(topic, 1)

    def refusal(command: str, **options: object) -> str:
        run = java.start(command, **options)
        run.wait_for_events("end")
        failure: Event = (run.events("failed") + run.events("error"))[0]
        print(f"{java.label} {command}: {failure['class']}: {failure['message'].partition(chr(10))[0]}")
        return f"{failure['class']}: {failure['message']}"

    assert "No route info of this topic: absent" in refusal("produce", topic="absent")
    large = refusal("produce", topic=topic, size=200_000, compress=1 << 30)
    assert "MQBrokerException: CODE: 13 " in large and "body" in large and "100000" in large
    assert "illegal" in refusal("produce", topic="bad topic!")

    # A topic closed to writers refuses at once (Apache's brokers go on taking); clients stop with its new route.
    producer = java.start("produce", topic=topic, count=10_000, pause_ms=50, carry_on=True)
    producer.wait_for_events("sent", 1)
    admin.mqadmin("updateTopicPerm", "-b", cluster.broker_address(0), "-t", topic, "-p", "4")
    assert "still failed" in producer.wait_for_events("failed")[0]["message"]
    producer.wait_for_message("failed", "No route info of this topic")
    producer.stop()

    # A group that does not exist, and one that may not consume.
    assert "CODE: 26 " in (unknown := refusal("pull-all", topic=topic, group="nobody")) and "nobody" in unknown
    group = java.named("banned")
    admin.mqadmin("updateSubGroup", "-b", cluster.broker_address(0), "-g", group, "-s", "false")
    assert "CODE: 16 " in (banned := refusal("pull-all", topic=topic, group=group)) and group in banned
    admin.mqadmin("updateSubGroup", "-b", cluster.broker_address(0), "-g", group, "-s", "true")
    assert len(of_kind(java.run("pull-all", topic=topic, group=group), "message")) == len(producer.events("sent"))
