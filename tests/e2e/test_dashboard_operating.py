"""Pages for operators, on real servers: replicas with a switch, what waits, Spark, audit logs, quotas."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra `dashboard` is not installed")

from aerobee.admin.connection import AdminConnection
from aerobee.dashboard.options import DashboardOptions, LocalPlaces
from aerobee.dashboard.pages.brokers import is_secret
from aerobee.dashboard.security import Role
from aerobee.dashboard.usersfile import line_of
from aerobee.protocol.command import Command
from aerobee.runtime.disk import InlineDisk
from aerobee.runtime.entropy import SystemEntropy
from aerobee.sync import Producer
from aerobee.testing.batchkit import ended, plan, rows
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.dashboardkit import Reader, RunningDashboard
from aerobee.testing.secrets import secret_for
from aerobee.testing.workload import eventually
from pyspark_rocketmq_store.manifest import Archived, ArchivedFile, write_manifest

GROUP = "broker-a"
PASSWORD = secret_for("people")
EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(replicas=3) as running:
        running.create_topic("orders", 2)
        running.create_topic("T", 1)
        yield running


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> LocalPlaces:
    """Return an audit log, a project and an archive as their writers leave them."""
    here = tmp_path_factory.mktemp("places")
    events = [
        {"time": 1_700_000_000_000, "event": "login", "user": "anna", "source": "10.0.0.9", "decision": "allowed"},
        {"time": 1_700_000_001_000, "event": "request", "user": EVIL, "source": "10.0.0.9", "code": "10 SEND_MESSAGE",
         "resource": "Topic:orders", "actions": ["Pub"], "decision": "refused", "rule": "no entry matches"},
        {"time": 1_700_000_002_000, "event": "admin", "user": "anna", "source": "10.0.0.9", "decision": "allowed",
         "before": None, "after": {"username": "bert", "password": "wrong-to-show-4711"}},
    ]  # fmt: skip
    log = here / "audit.log"
    log.write_text("".join(json.dumps(one) + "\n" for one in events) + "no event\n" + '{"event": "half a li')
    checkpoint = here / "shop" / "state" / "start" / "checkpoints" / "totals"
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
    for batch, offset in enumerate((0, 1, 2)):
        told = {"v": 1, "offsets": {"orders": {GROUP: {"0": offset, "1": 0}}}}
        (checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(told)}\n")
        (checkpoint / "offsets" / f".{batch}.crc").write_bytes(b"crc")
        if batch < 2:
            done = checkpoint / "commits" / str(batch)
            done.write_text("v1\n{}")
            os.utime(done, (1_700_000_000 + 10 * batch,) * 2)
    archive = str(here / "archive")
    file = ArchivedFile("topic=orders/date=2026-11-15/x.parquet", "orders", "2026-11-15", 7, 4096, "0")
    write_manifest(InlineDisk(), archive, Archived(GROUP, 0, 1 << 20, 9, 7, 1, 1_700_000_000_000, (file,)))
    return LocalPlaces((str(log), str(here / "none.log")), (str(here / "shop"),), (archive, str(here / "nothing")))


@pytest.fixture(scope="module")
def address(cluster: LocalCluster, places: LocalPlaces, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    people = tmp_path_factory.mktemp("people") / "people"
    people.write_text("\n".join(line_of(role.name, role, PASSWORD, SystemEntropy().token) for role in Role))
    options = DashboardOptions(namesrv=cluster.namesrv, port=0, users=str(people), step_s=1.0, places=places)
    with RunningDashboard(options) as running:
        yield running.address


def reader_as(address: str, role: Role) -> Reader:
    reader = Reader(address)
    assert reader.login(role.name, PASSWORD).status == 303
    return reader


def wait(holds: Callable[[], bool]) -> None:
    asyncio.run(eventually(lambda: asyncio.to_thread(holds)))


def told(reader: Reader, path: str) -> Any:
    reply = reader.get(f"/api{path}")
    assert reply.status == 200, reply.text
    return reply.json()


# -- replicas


def test_a_switch_says_what_it_will_do_and_did(address: str, cluster: LocalCluster) -> None:
    admin, operator = reader_as(address, Role.admin), reader_as(address, Role.operator)
    path = f"/replicas/{GROUP}"
    wait(lambda: told(admin, path)["group"]["State"] == "sound")
    (row,) = told(admin, "/replicas")["groups"]["rows"]
    assert (row["group"], row["insync"], row["state"]) == (GROUP, "3 of 3", "sound")
    before = told(admin, path)
    (master,) = [one["replica"] for one in before["replicas"]["rows"] if one["role"] == "master"]
    other = next(one["replica"] for one in before["replicas"]["rows"] if one["role"] == "follower")
    assert "Switch the master" not in operator.get(path).text
    assert operator.get(f"{path}/switch").status == 403
    assert operator.post(f"{path}/switch", {"replica": other, "typed": GROUP}).status == 403
    asked = told(admin, f"{path}/switch?plan=1&replica={other}")
    assert f"Replica {other} becomes the master of {GROUP} in place of replica {master}" in asked["plan"][0]
    assert "leads already" in told(admin, f"{path}/switch?plan=1&replica={master}")["problem"]
    assert "no such replica" in told(admin, f"{path}/switch?plan=1&replica=99")["problem"]
    assert admin.post(f"{path}/switch", {"replica": other}).status == 400
    assert admin.post(f"{path}/switch", {"replica": 99, "typed": GROUP}).status == 400
    assert told(admin, path)["group"]["Epoch"] == before["group"]["Epoch"]
    done = admin.post(f"{path}/switch", {"replica": other, "typed": GROUP})
    assert done.status == 200
    assert f"Replica {other} leads {GROUP} now, in epoch {before['group']['Epoch'] + 1}" in done.text
    with Producer(cluster.namesrv) as producer:
        producer.send("orders", b"after the switch")
    wait(lambda: len(told(admin, path)["epochs"]["rows"]) > len(before["epochs"]["rows"]))
    after = told(admin, path)
    assert after["epochs"]["rows"][0]["epoch"] == after["group"]["Epoch"]
    assert after["group"]["Master"] == f"replica {other}"
    results = [one["result"] for one in told(admin, "/audit")["events"]["rows"] if one["what"] == "Switch the master"]
    assert sorted(results) == ["done", "failed", "failed", "refused"]


# -- waiting


def test_timed_messages_are_listed_by_their_time(address: str, cluster: LocalCluster) -> None:
    viewer = reader_as(address, Role.viewer)
    with Producer(cluster.namesrv) as producer:
        for minutes in (30, 10, 20):
            producer.send("orders", b"later", delay=60 * minutes, keys=f"in-{minutes}")
        producer.send("T", b"later", delay=3600, keys="other")
    shown = told(viewer, "/waiting/timed?topic=orders")["timed"]["rows"]
    assert [one["keys"] for one in shown] == ["in-10", "in-20", "in-30"]
    assert shown[0]["due"] - shown[0]["stored"] == 600_000
    assert [one["keys"] for one in told(viewer, "/waiting/timed?topic=T")["timed"]["rows"]] == ["other"]
    page = viewer.get("/waiting/timed?topic=orders&limit=1")
    assert "Go on" in page.text
    link = page.text.partition('id="b-looked"')[2].partition('href="')[2].partition('"')[0].replace("&amp;", "&")
    following = told(viewer, link)["timed"]["rows"]
    assert len(following) == 1
    assert following[0]["keys"] != "in-20"


def test_delay_levels_lead_to_their_messages(address: str, cluster: LocalCluster) -> None:
    viewer = reader_as(address, Role.viewer)
    with Producer(cluster.namesrv) as producer:
        for number in range(3):
            producer.send("orders", b"later", delay_level=18, keys=f"level-{number}")
    found = told(viewer, "/waiting/levels?level=18")
    assert [one["keys"] for one in found["messages"]["rows"]] == ["level-0", "level-1", "level-2"]
    assert {one["due"] - one["stored"] for one in found["messages"]["rows"]} == {7_200_000}
    assert {one["delay"] for one in found["levels"]["rows"] if one["level"] == "18"} == {"2h"}
    cut = told(viewer, "/waiting/levels?level=18&messages.size=2&messages.page=2")["messages"]
    assert (len(cut["rows"]), cut["total"]) == (1, 3)


def test_only_transactions_without_an_end_wait(address: str, cluster: LocalCluster) -> None:
    viewer = reader_as(address, Role.viewer)
    with Producer(cluster.namesrv, group="payers", on_check=lambda message: None) as producer:
        with producer.transaction("orders", b"paid", keys="ended"):
            pass
        open_one = producer.transaction("orders", b"unsure", keys="open")
        with pytest.raises(RuntimeError, match="nobody knows"), open_one:
            raise RuntimeError("nobody knows")
        (row,) = told(viewer, "/waiting/half")["half"]["rows"]
        assert (row["keys"], row["group"], row["topic"]) == ("open", "payers", "orders")


# -- Spark


def test_checkpoints_tell_the_progress_of_queries(address: str, cluster: LocalCluster) -> None:
    found = told(reader_as(address, Role.viewer), "/spark/checkpoints")
    (row,) = found["queries"]["rows"]
    assert (row["project"], row["query"], row["batch"], row["rows"]) == ("shop", "totals", 1, 1)
    assert row["rate"] == 0.1
    assert row["topics"] == ["orders"]
    held = len(cluster.messages("orders"))
    assert row["lag"] == held - 1


def test_archives_tell_what_they_hold(address: str) -> None:
    found = told(reader_as(address, Role.viewer), "/spark/archives")
    (row,) = found["archives"]["rows"]
    assert (row["broker"], row["segments"], row["rows"], row["bytes"], row["end"]) == (GROUP, 1, 7, 4096, 1 << 20)
    assert any("nothing cannot be read" in one for one in found["problems"])


def test_sink_batches_tell_their_phase(address: str, cluster: LocalCluster) -> None:
    viewer = reader_as(address, Role.viewer)

    async def ask(*commands: Command) -> None:
        async with AdminConnection(cluster.namesrv) as admin:
            (master,) = await admin.masters(broker=GROUP)
            for one in commands:
                await admin.ask(master.address, one.code, body=bytes(one.body), ext=one.ext)

    asyncio.run(ask(rows("one", "two", query="totals")))
    (row,) = told(viewer, "/spark/batches")["batches"]["rows"]
    assert (row["query"], row["batch"], row["phase"], row["rows"], row["topics"]) == ("totals", 0, "open", 2, ["T"])
    asyncio.run(ask(ended("prepare", plan(a1=1), query="totals")))
    (row,) = told(viewer, "/spark/batches")["batches"]["rows"]
    assert row["phase"] == "prepared"
    asyncio.run(ask(ended("commit", plan(a1=1), query="totals")))
    (row,) = told(viewer, "/spark/batches")["batches"]["rows"]
    assert (row["phase"], row["rows"]) == ("committed", 2)


# -- audit


def test_audit_logs_of_servers_are_shown_to_admins_only(address: str) -> None:
    admin, operator = reader_as(address, Role.admin), reader_as(address, Role.operator)
    assert "events" not in told(operator, "/audit/servers")
    found = told(admin, "/audit/servers")
    assert [one["event"] for one in found["events"]["rows"]] == ["admin", "request", "login"]
    assert found["events"]["rows"][1]["why"] == "no entry matches"
    assert [one["user"] for one in told(admin, "/audit/servers?decision=refused")["events"]["rows"]] == [EVIL]
    page = admin.get("/audit/servers").text
    assert EVIL not in page
    assert "wrong-to-show-4711" not in page + json.dumps(found)
    assert any("audit.log has lines that are no audit events: 1 of the last 4" in one for one in found["problems"])
    assert any("there is no audit log" in one for one in found["problems"])


def test_people_see_their_own_events_and_admins_all(address: str) -> None:
    reader_as(address, Role.viewer)
    operator, admin = reader_as(address, Role.operator), reader_as(address, Role.admin)
    assert {one["person"] for one in told(operator, "/audit")["events"]["rows"]} == {"operator"}
    assert {"viewer", "operator", "admin"} <= {one["person"] for one in told(admin, "/audit")["events"]["rows"]}


# -- settings


def test_settings_lead_to_their_change_and_back(address: str) -> None:
    operator, path = reader_as(address, Role.operator), f"/brokers/{GROUP}/settings"
    assert operator.post(f"{path}/change", {"key": "fileReservedTime", "value": "70"}).status == 200
    (row,) = told(operator, f"{path}?source=wire")["settings"]["rows"]
    assert (row["key"], row["value"], row["change"]) == ("fileReservedTime", "70", ["Change", "Take back"])
    page = operator.get(f"{path}?source=wire").text.replace("&amp;", "&")
    assert f'{path}/change?key=fileReservedTime&unset=1&plan=1"' in page
    assert "Take back" not in reader_as(address, Role.viewer).get(path).text
    assert operator.post(f"{path}/change", {"key": "fileReservedTime", "unset": "1"}).status == 200
    assert told(operator, f"{path}?source=wire")["settings"]["rows"] == []


def test_settings_with_secrets_are_hidden_and_not_changed_here(address: str) -> None:
    operator, path = reader_as(address, Role.operator), f"/brokers/{GROUP}/settings"
    for key in ("initAuthenticationUser", "innerClientAuthenticationCredentials"):
        assert is_secret(key)
        assert operator.post(f"{path}/change", {"key": key, "value": "marker"}).status == 400


def test_a_drained_broker_says_so(address: str) -> None:
    operator, path = reader_as(address, Role.operator), f"/brokers/{GROUP}"

    def states() -> set[str]:
        return {row["state"] for row in told(operator, path)["brokers"]["rows"]}

    assert operator.post(f"{path}/drain").status == 200
    wait(lambda: "drained: reads only" in states())
    assert any("because it is drained" in one for one in told(operator, "")["problems"])
    assert f'href="{path}/drain"' not in operator.get(path).text
    assert operator.post(f"{path}/undrain").status == 200
    wait(lambda: states() == {"answers"})


# -- quotas


def test_a_quota_is_set_changed_and_removed(address: str) -> None:
    operator = reader_as(address, Role.operator)
    asked = told(operator, "/quotas/set?plan=1&kind=topic&name=orders&messages=1000")
    assert asked["plan"] == [f"Broker {GROUP} sets topic:orders messages=1000, in place of no quota."]
    assert told(operator, "/quotas")["quotas"]["rows"] == []
    assert operator.post("/quotas/set", {"kind": "topic", "name": "orders", "messages": "1000"}).status == 200
    assert operator.post("/quotas/set", {"kind": "topic", "name": "orders", "bytes": "5000000"}).status == 200
    (row,) = told(operator, "/quotas")["quotas"]["rows"]
    assert (row["kind"], row["name"], row["messages"], row["bytes"]) == ("topic", "orders", "any", 5_000_000)
    for wrong in ({"name": "x"}, {"name": "x", "messages": "-1"}, {"name": "a;b", "bytes": "1"}, {"kind": "no",
                  "name": "x", "bytes": "1"}, {"name": "x", "bytes": "1" * 30}):  # fmt: skip
        assert operator.post("/quotas/set", wrong).status == 400, wrong
    assert operator.post("/quotas/remove", {"kind": "topic", "name": "orders"}).status == 200
    assert operator.post("/quotas/remove", {"kind": "topic", "name": "orders"}).status == 400
    assert told(operator, "/quotas")["quotas"]["rows"] == []
    assert reader_as(address, Role.viewer).post("/quotas/set", {"name": "x", "bytes": "1"}).status == 403
