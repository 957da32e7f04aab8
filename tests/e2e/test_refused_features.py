"""Features that Aerobee does not have are refused in words, over the wire and on the command line."""

from collections.abc import Iterator

import pytest

from aerobee.testing.cluster import LocalCluster
from aerobee.testing.commands import aerobee

LEVELS = " ".join(["1h"] * 18 + ["30s"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings={"messageDelayLevel": LEVELS}) as cluster:
        yield cluster


@pytest.mark.parametrize(
    "attribute, reason",
    [
        ("cleanup.policy=COMPACTION", "compaction topics do not exist"),
        ("queue.type=BatchCQ", "batch consume queues do not exist"),
        ("message.type=LITE", "lite topics do not exist yet"),
    ],
)
def test_a_topic_that_would_not_be_as_asked_is_not_made(cluster: LocalCluster, attribute: str, reason: str) -> None:
    done = aerobee("topic", "create", "-t", "refused", "-a", attribute, "-n", cluster.namesrv)
    assert done.returncode == 1
    assert f"{attribute} is not supported: {reason}" in done.stderr
    assert aerobee("topic", "show", "-t", "refused", "-n", cluster.namesrv).returncode == 1


def test_a_setting_that_promises_too_much_is_refused_while_the_broker_runs(cluster: LocalCluster) -> None:
    done = aerobee("cluster", "config", "enableLmq=true", "--yes", "-n", cluster.namesrv)
    assert done.returncode == 1
    assert "enableLmq=true promises that one message is delivered to several light queues, but" in done.stderr


def test_a_broker_may_have_more_than_18_delay_levels(cluster: LocalCluster) -> None:
    cluster.create_topic("levels", queues=1)
    sent = aerobee("produce", "-t", "levels", "-m", "late", "--delay-level", "19", "-n", cluster.namesrv)
    assert sent.returncode == 0, sent.stderr
    assert cluster.messages("levels") == []
    cluster.advance(seconds=31)
    assert [message.body for message in cluster.messages("levels")] == [b"late"]
