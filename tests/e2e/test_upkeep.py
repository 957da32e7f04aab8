"""The upkeep commands as an operator uses them: values, probes, cleaning, draining, export, traces and members."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from aerobee import MessageQueue, sync
from aerobee.cli.main import main
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.clusterkit import fill
from aerobee.testing.waiting import wait_until

BROKERS = 2


def run(cluster: LocalCluster, *words: str, given: str | None = None) -> Result:
    return CliRunner().invoke(main, [*words, "-n", cluster.namesrv], input=given)


def told(cluster: LocalCluster, *words: str) -> Any:
    result = run(cluster, *words, "--json")
    assert result.exit_code == 0, result.output + result.stderr
    return json.loads(result.stdout)


def test_values_of_the_name_servers(cluster: LocalCluster) -> None:
    words = ("-s", "ORDER_TOPIC_CONFIG", "-k", "T")
    assert run(cluster, "cluster", "kv", "get", *words).exit_code == 1
    dry = told(cluster, "cluster", "kv", "put", *words, "-v", "broker-a:4", "--dry-run")
    assert (dry["dry_run"], dry["before"]) == (True, None)
    refused = run(cluster, "cluster", "kv", "put", *words, "-v", "broker-a:4", given="n\n")
    assert refused.exit_code == 1 and "nothing was changed" in refused.stderr
    assert run(cluster, "cluster", "kv", "get", *words).exit_code == 1
    told(cluster, "cluster", "kv", "put", *words, "-v", "broker-a:4", "--yes")
    assert run(cluster, "cluster", "kv", "get", *words).stdout == "broker-a:4\n"
    assert told(cluster, "cluster", "kv", "get", "-s", "ORDER_TOPIC_CONFIG")["values"] == {"T": "broker-a:4"}
    told(cluster, "cluster", "kv", "delete", *words, "--yes")
    assert run(cluster, "cluster", "kv", "delete", *words, "--yes").exit_code == 1


def test_settings_of_the_name_servers(cluster: LocalCluster) -> None:
    (values,) = told(cluster, "cluster", "namesrv").values()
    assert values["orderMessageEnable"] == "false"
    told(cluster, "cluster", "namesrv", "orderMessageEnable=true", "--yes")
    assert "orderMessageEnable=true\n" in run(cluster, "cluster", "namesrv").stdout
    assert run(cluster, "cluster", "namesrv", "nonsense=1", "--yes").exit_code == 1


def test_a_probe_measures_every_broker(cluster: LocalCluster) -> None:
    found = told(cluster, "cluster", "probe", "--count", "3")["brokers"]
    assert [(one["broker"], one["sent"], one["failed"]) for one in found] == [("broker-a", 3, 0), ("broker-b", 3, 0)]
    assert all(0 < one["mean_ms"] <= one["worst_ms"] for one in found)
    assert "broker-b" in run(cluster, "cluster", "probe", "--count", "1").stdout


def test_cleaning_asks_first(cluster: LocalCluster) -> None:
    for what in ("queues", "log", "topics"):
        assert told(cluster, "cluster", "clean", what, "--dry-run")["brokers"] == ["broker-a", "broker-b"]
        assert told(cluster, "cluster", "clean", what, "-b", "broker-a", "--yes")["brokers"] == ["broker-a"]
    assert run(cluster, "cluster", "clean", "everything").exit_code == 2


def test_a_drained_broker_takes_nothing_until_it_is_opened(cluster: LocalCluster, topic: str) -> None:
    assert told(cluster, "cluster", "drain", "-b", "broker-a", "--dry-run")["dry_run"]
    drained = told(cluster, "cluster", "drain", "-b", "broker-a", "--wait", "1", "--yes")
    assert drained["broker"] == "broker-a" and drained["waited_s"] >= 1
    try:
        assert {one.broker for one in fill(cluster.namesrv, topic, 12)} == {"broker-b"}
        probe = run(cluster, "cluster", "probe", "-b", "broker-a", "--count", "1")
        assert probe.exit_code == 1
    finally:
        told(cluster, "cluster", "undrain", "-b", "broker-a")
    assert {one.broker for one in fill(cluster.namesrv, topic, 12)} == {"broker-a", "broker-b"}
    assert run(cluster, "cluster", "drain", "-b", "broker-x", "--yes").exit_code == 1


@pytest.fixture
def elsewhere() -> Iterator[LocalCluster]:
    with LocalCluster(cluster="Other") as running:
        yield running


def test_what_is_exported_is_imported_elsewhere(cluster: LocalCluster, elsewhere: LocalCluster, tmp_path: Path) -> None:
    with sync.Admin(cluster.namesrv) as admin:
        admin.topics.create("carried", queues=3, attributes={"message.type": "FIFO"})
        admin.groups.create("carriers", retry_max=5)
    file = tmp_path / "cluster.json"
    told(cluster, "cluster", "export", str(file))
    document = json.loads(file.read_text())
    assert json.loads(run(cluster, "cluster", "export").stdout) == document
    assert not [one for one in document["topics"] if one["topicName"].startswith(("%", "rmq_sys", "broker-", "RMQ_"))]
    dry = told(elsewhere, "cluster", "import", str(file), "--dry-run")
    assert "carried on broker-a" in dry["topics"] and "carriers on broker-a" in dry["groups"]
    told(elsewhere, "cluster", "import", str(file), "--yes")
    with sync.Admin(elsewhere.namesrv) as admin:
        (made,) = admin.topics.show("carried").settings
        assert (made.write_queues, made.attributes["message.type"]) == (3, "FIFO")
        assert admin.groups.show("carriers").settings[0].retry_max_times == 5
    again = told(elsewhere, "cluster", "import", str(file), "--dry-run")
    assert (again["topics"], again["groups"]) == ([], []) and again["same"] >= 2
    # On the same cluster nothing changes.
    assert told(cluster, "cluster", "import", str(file), "--dry-run")["topics"] == []


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format":1,"topics":[1]}', '{"format":1,"topics":[{"topicName":"a/b"}]}', "[" * 100_000]
)
def test_a_file_that_is_no_export_is_refused(cluster: LocalCluster, tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    result = run(cluster, "cluster", "import", str(file), "--yes")
    assert result.exit_code == 1 and result.stderr.startswith("error: "), result.output


def test_a_message_is_shown_by_its_place(cluster: LocalCluster, topic: str) -> None:
    receipt = fill(cluster.namesrv, topic, 2, queue=MessageQueue(topic, "broker-b", 1))[1]
    place = ("message", "show", "-t", topic, "--queue", "1", "--offset")
    assert told(cluster, *place, "1", "-b", "broker-b")["message_id"] == receipt.message_id
    assert "is on several brokers" in run(cluster, *place, "1").stderr
    missing = run(cluster, *place, "7", "-b", "broker-b")
    assert missing.exit_code == 1 and "It holds the offsets from 0 to 1" in missing.stderr
    assert run(cluster, "message", "show").exit_code == 2


def test_the_trace_of_a_message(cluster: LocalCluster, topic: str) -> None:
    seen = threading.Event()
    consumer = sync.PushConsumer(cluster.namesrv, group=f"g-{topic}", consume_from="first", trace=True)

    @consumer.listener(topic)
    def handle(message: object) -> None:
        seen.set()

    with consumer:
        with sync.Producer(cluster.namesrv, group="shop", trace=True) as producer:
            receipt = producer.send(topic, b"x", keys="order-1")
        assert seen.wait(30)
    wait_until(lambda: run(cluster, "message", "trace", receipt.message_id).stdout.count("\n") >= 4)
    events = told(cluster, "message", "trace", receipt.message_id)["events"]
    assert sorted(one["kind"] for one in events) == ["Pub", "SubAfter", "SubBefore"]
    assert {one["group"] for one in events} == {"shop", f"g-{topic}"}
    assert told(cluster, "message", "trace", "order-1", "--key")["events"] == events
    nothing = run(cluster, "message", "trace", "7F" * 16)
    assert nothing.exit_code == 1 and "are traces turned on" in nothing.stderr


def test_the_members_of_a_group_and_a_clone_of_its_offsets(cluster: LocalCluster, topic: str) -> None:
    group, other = f"g-{topic}", f"other-{topic}"
    fill(cluster.namesrv, topic, 6)
    consumer = sync.PushConsumer(cluster.namesrv, group=group, consume_from="first")

    @consumer.listener(topic)
    def handle(message: object) -> None:
        pass

    with consumer:
        wait_until(lambda: told(cluster, "group", "lag", "-g", group)["lag"] == 0)
        (member,) = told(cluster, "group", "members", "-g", group, "--stack")["members"]
        assert len(member["queues"]) >= 4 and member["language"] == "PYTHON"
        assert "Thread MainThread" in member["stack"] and "Task " in member["stack"]
        assert topic in run(cluster, "group", "members", "-g", group).stdout
    assert run(cluster, "group", "members", "-g", group).exit_code == 1
    with sync.Admin(cluster.namesrv) as admin:
        admin.groups.create(other)
    plan = told(cluster, "group", "clone", "-g", group, "--to", other, "--dry-run")
    assert plan["members"] == 0 and {one["before"] for one in plan["queues"]} <= {None, 0}
    told(cluster, "group", "clone", "-g", group, "--to", other, "--yes")
    assert told(cluster, "group", "lag", "-g", other)["lag"] == 0
    assert run(cluster, "group", "clone", "-g", group, "--to", group, "--yes").exit_code == 1


def test_the_groups_that_are_behind(cluster: LocalCluster, topic: str) -> None:
    with sync.Admin(cluster.namesrv) as admin:
        admin.groups.create(f"late-{topic}")
    fill(cluster.namesrv, topic, 5, queue=MessageQueue(topic, "broker-a", 0))
    with sync.LitePullConsumer(cluster.namesrv, group=f"late-{topic}") as puller:
        puller.commit({MessageQueue(topic, "broker-a", 0): 1})
    found = {one["group"]: one["lag"] for one in told(cluster, "cluster", "lag")["groups"]}
    assert found[f"late-{topic}"] == 4
    assert f"late-{topic}" not in run(cluster, "cluster", "lag", "--min", "100").stdout
