"""10,000 topics and 2,000 groups: every list is fast, also while a broker is silent, and memory is bounded."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra `dashboard` is not installed")


from aerobee.dashboard.options import DashboardOptions
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.dashboardkit import Reader, RunningDashboard

pytestmark = pytest.mark.slow

TOPICS, GROUPS = 10_000, 2_000
PAGES = (
    "/", "/topics", "/topics?q=999", "/topics?sort=messages&falls=1&page=100", "/topics?kind=every&size=500", "/groups",
    "/groups?sort=lag&falls=1", "/groups?kind=behind", "/brokers", "/dead", "/find?q=topic-00", "/audit", "/spark",
    "/topics/topic-00042", "/groups/group-0042", "/clients", "/waiting",
)  # fmt: skip
SERVER_MS = 300.0
SILENT_MS = 1_000.0
PATIENCE_S = 120.0


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster of two brokers whose state files hold all topics and groups: to make them one by one takes minutes."""
    with LocalCluster(brokers=2, data=tmp_path) as first:
        first.create_topic("topic-00000", 4)
    for path in tmp_path.rglob("config/topics.json"):
        known = json.loads(path.read_text())
        table = known["topicConfigTable"]
        for number in range(1, TOPICS):
            name = f"topic-{number:05}"
            table[name] = {**table["topic-00000"], "topicName": name}
        path.write_text(json.dumps(known))
    for path in tmp_path.rglob("config/subscriptionGroup.json"):
        known = json.loads(path.read_text())
        table = known["subscriptionGroupTable"]
        form = next(iter(table.values()))
        for number in range(GROUPS):
            name = f"group-{number:04}"
            table[name] = {**form, "groupName": name}
        path.write_text(json.dumps(known))
    with LocalCluster(brokers=2, data=tmp_path) as running:
        yield running


def server_ms(reader: Reader, path: str) -> float:
    """Return what the server needed for a page, the median of five."""
    found = []
    for _ in range(5):
        reply = reader.get(path)
        assert reply.status == 200, (path, reply.text[-500:])
        told = re.search(r"dur=([\d.]+)", reply.headers["server-timing"])
        assert told is not None
        found.append(float(told[1]))
    return sorted(found)[2]


def test_dashboard_10k(crowd: LocalCluster) -> None:
    with RunningDashboard(DashboardOptions(namesrv=crowd.namesrv, port=0)) as running:
        reader = Reader(running.address)
        until_s = time.monotonic() + PATIENCE_S
        while reader.get("/api/groups").json()["groups"]["total"] < GROUPS:
            assert time.monotonic() < until_s
        assert reader.get("/api/topics").json()["topics"]["total"] >= TOPICS
        times = {path: server_ms(reader, path) for path in PAGES}
        print("\nserver time in ms:", {path: round(ms) for path, ms in times.items()})
        crowd.pause(1)
        try:
            until_s = time.monotonic() + PATIENCE_S
            while not (problems := reader.get("/api/topics").json()["problems"]):
                assert time.monotonic() < until_s
            assert crowd.broker_name(1) in problems[0]
            assert "silent" in problems[0]
            silent = {path: server_ms(reader, path) for path in PAGES}
        finally:
            crowd.resume(1)
        print("with a silent broker:", {path: round(ms) for path, ms in silent.items()})
    assert {path: ms for path, ms in times.items() if ms > SERVER_MS} == {}
    assert {path: ms for path, ms in silent.items() if ms > SILENT_MS} == {}
