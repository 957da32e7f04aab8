"""The dashboard while a broker hangs (SIGSTOP): pages show what the others say, and name the one that is silent."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("starlette", reason="the extra `dashboard` is not installed")

from aerobee.dashboard.options import DashboardOptions
from aerobee.dashboard.registry import PAGES
from aerobee.runtime.loopthread import LoopThread
from aerobee.sync import Admin, Producer
from aerobee.testing.dashboardkit import Reader, RunningDashboard
from aerobee.testing.processes import ProcessCluster
from aerobee.testing.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals as Unix has them")

HUNG = "broker-b"
# These are not about the brokers of the topic, or show nothing without more words.
SILENT_PAGES = (
    "/audit", "/audit/servers", "/users", "/users/why", "/users/rights", "/find", "/tail", "/replicas/{broker}",
    "/brokers/{broker}/settings", "/spark/checkpoints", "/messages/{topic}/{message_id}",
)  # fmt: skip
PLACES = {"topic": "orders", "group": "billing", "broker": "broker-a", "name": "anna", "message_id": "none"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    thread = LoopThread("cluster")
    running = ProcessCluster(tmp_path_factory.mktemp("cluster"), brokers=2)
    try:
        thread.run(running.__aenter__())
        try:
            with Admin(running.namesrv.address) as admin:
                admin.topics.create("orders", queues=2)
                admin.topics.create("lonely", queues=1, broker=HUNG)
                admin.groups.create("billing")
                admin.topics.create("%DLQ%billing", queues=1)
            with Producer(running.namesrv.address) as producer:
                for number in range(20):
                    producer.send("orders", b"%d" % number, keys=f"o-{number}")
                    producer.send("lonely", b"%d" % number)
            yield running
        finally:
            running.resume(1)
            thread.run(running.__aexit__(None, None, None))
    finally:
        thread.stop()


@pytest.fixture(scope="module")
def reader(cluster: ProcessCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    options = DashboardOptions(namesrv=cluster.namesrv.address, port=0, step_s=1.0)
    with RunningDashboard(options) as running:
        found = Reader(running.address)
        found.meet()
        wait_until(lambda: kept(found) == {"orders": 20, "lonely": 20}, "the numbers of both topics are known")
        cluster.pause(1)
        wait_until(lambda: found.get("/api/topics").json()["problems"], "the broker is silent")
        yield found


def kept(reader: Reader) -> dict[str, int | None]:
    rows = reader.get("/api/topics").json()["topics"]["rows"]
    return {row["topic"]: row["messages"] for row in rows if row["topic"] in ("orders", "lonely")}


def test_pages_name_the_silent_broker_and_answer_soon(reader: Reader) -> None:
    queries = {"/messages": "?topic=orders", "/waiting/levels": "?level=3"}
    for entry in PAGES:
        if entry.path in SILENT_PAGES:
            continue
        path = entry.path.format(**PLACES) + queries.get(entry.path, "")
        times: list[float] = []
        # A busy machine may be slow. To wait for the broker takes two seconds each time.
        while len(times) < 5 and min(times, default=9.0) > 1.9:
            began_s = time.monotonic()
            reply = reader.get(path)
            times.append(time.monotonic() - began_s)
            assert reply.status == 200, (path, reply.text)
            assert HUNG in reply.text, path
        assert min(times) < 1.9, (path, times)


def test_what_a_silent_broker_holds_is_unknown_and_not_nothing(reader: Reader) -> None:
    wait_until(lambda: kept(reader) == {"orders": 10, "lonely": None}, "the sums leave the broker out")
    reply = reader.get("/topics/lonely")
    assert reply.status == 404
    assert "topic lonely is on no broker that answers" in reply.text
    assert HUNG in reply.text


def test_a_search_shows_what_the_others_have(reader: Reader) -> None:
    told = reader.get("/api/messages?topic=orders&limit=50").json()
    assert len(told["messages"]["rows"]) == 10
    assert f"which {HUNG} does not" in told["looked"]["text"]
    told = reader.get("/api/messages?topic=lonely").json()
    assert told["messages"]["empty"] == "The brokers that answer have no message of this topic."


def test_plans_and_failures_name_the_broker(reader: Reader) -> None:
    plan = reader.get("/api/topics/orders/delete").json()
    assert any(HUNG in one for one in plan["warnings"])
    assert any(HUNG in one for one in plan["problems"])
    reply = reader.get(f"/brokers/{HUNG}/settings")
    assert reply.status == 503
    assert f"broker {HUNG} at" in reply.text


def test_a_letter_on_a_silent_broker_is_not_said_to_be_missing(reader: Reader) -> None:
    one = "0" * 32
    plan = reader.get(f"/api/dead/billing/resend?plan=1&ids={one}").json()
    assert not any("not there" in text for text in plan["warnings"])
    assert any("cannot be read now" in text and HUNG in text for text in plan["warnings"])
    done = reader.post("/api/dead/billing/resend", {"ids": one})
    assert done.status == 409
    (row,) = done.json()["results"]["rows"]
    assert row["words"].startswith("it was not found: ")
    assert HUNG in row["words"]


def test_a_dashboard_starts_while_a_broker_hangs(reader: Reader, cluster: ProcessCluster) -> None:
    """It is started when something is wrong."""
    with RunningDashboard(DashboardOptions(namesrv=cluster.namesrv.address, port=0, patience_s=1.0)) as running:
        late = Reader(running.address)
        assert HUNG in late.get("/").text


def test_topics_and_charts_of_a_broker_come_back_with_it(reader: Reader, cluster: ProcessCluster) -> None:
    def values() -> list[float | None]:
        found: list[float | None] = reader.get("/api/series?names=topic:lonely").json()["series"]["topic:lonely"]
        return found

    before = len([one for one in values() if one is not None])
    assert before
    cluster.resume(1)
    all_known: Callable[[], bool] = lambda: kept(reader) == {"orders": 20, "lonely": 20}  # noqa: E731
    wait_until(all_known, "the broker answers again")
    wait_until(lambda: values()[-1] is not None, "the chart goes on")
    assert None in values()
