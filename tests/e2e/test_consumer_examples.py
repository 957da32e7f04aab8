"""Every example of a consumer, run as printed against a local cluster; the endless ones until a signal."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.sync import Producer
from aerobee.testing.cluster import LocalCluster

EXAMPLES = Path(__file__).parents[2] / "examples"
ENDLESS = {
    "consume.py": "PAID order 0",
    "consume_sync.py": "batch: ",
    "consume_ordered.py": "queue broker-a/",
    "broadcast.py": "invalidate ",
    "retries.py": "to %DLQ%payments",
}
ENDING = {
    "pull.py": "again: True",
    "pull_sync.py": "order 9",
    "arrow.py": "10 rows of topic, broker, queue_id",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=1, settings={"messageDelayLevel": "1s 1s 1s 1s"}) as running:
        running.create_topic("orders", queues=2)
        running.create_topic("prices", queues=1)
        with Producer(running.namesrv) as producer:
            for i in range(10):
                producer.send("orders", b"order %d" % i, tags="PAID")
        yield running


@contextlib.contextmanager
def start(cluster: LocalCluster, name: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "NAMESRV_ADDR": cluster.namesrv, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, str(EXAMPLES / name)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def lines_until(process: subprocess.Popen[str], words: str) -> list[str]:
    assert process.stdout is not None
    seen: list[str] = []
    for line in process.stdout:
        seen.append(line)
        if words in line:
            break
    return seen


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM to send")
@pytest.mark.parametrize("name", ENDLESS)
def test_an_example_that_runs_until_it_is_stopped(cluster: LocalCluster, name: str) -> None:
    with start(cluster, name) as process:
        seen = lines_until(process, ENDLESS[name])
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert ENDLESS[name] in seen[-1]
    assert process.returncode == 0


@pytest.mark.parametrize("name", ENDING)
def test_an_example_that_ends(cluster: LocalCluster, name: str) -> None:
    if name == "arrow.py":
        pytest.importorskip("pyarrow")
    with start(cluster, name) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and ENDING[name] in output


def test_request_and_reply_find_each_other(cluster: LocalCluster) -> None:
    with start(cluster, "reply.py") as replier:
        answered = ""
        # The one who replies may not be there for the first question.
        for _ in range(10):
            with start(cluster, "request.py") as asking:
                answered, _ = asking.communicate(timeout=60)
            if "42 cents" in answered:
                break
        replier.send_signal(signal.SIGINT)
        replier.communicate(timeout=30)
    assert "answer: an apple is 42 cents" in answered
    assert replier.returncode == 0
