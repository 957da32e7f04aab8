"""Our page of metrics beside that of Apache's broker, after the same traffic from the same client."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from aerobee.admin.connection import AdminConnection
from aerobee.admin.topics import TopicChange, create_topic
from aerobee.sync import LitePullConsumer, Producer
from aerobee.testing import apache
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.waiting import wait_until

COUNT = 60
T = TypeVar("T")

# Names of Apache's that we do not have, by their beginning, and why.
NOT_OURS = {
    "pop_": "POP has its own counts",
    "rocksdb_": "there is no RocksDB",
    "timer_": "aerobee_timers_*",
    "timing_": "aerobee_timers_*",
    "delay_message_latency": "not measured",
    "finish_message_latency": "not measured",
    "commit_messages_total": "appears with the first transaction",
    "rollback_messages_total": "appears with the first transaction",
}
# Names of ours that Apache shows only after traffic that this test does not make.
NOT_YET_THEIRS = {"rocketmq_half_messages"}


@dataclass
class Family:
    kind: str
    labels: set[str] = field(default_factory=set)
    values: dict[tuple[str, ...], float] = field(default_factory=dict)


def families(text: str) -> dict[str, Family]:
    """Return the families of a page that begin with Apache's word, with the names of their labels."""
    found: dict[str, Family] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE rocketmq_"):
            _, _, name, kind = line.split(" ")
            found[name] = Family(kind)
            continue
        matched = re.match(r"(rocketmq_\w+)\{(.*)\} (\S+)", line)
        if matched is None:
            continue
        name = matched[1] if matched[1] in found else re.sub(r"_(bucket|count|sum)$", "", matched[1])
        labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', matched[2]))
        found[name].labels |= set(labels) - {"otel_scope_name", "otel_scope_version"}
        if matched[1] == name:
            found[name].values[labels.get("topic", ""), labels.get("consumer_group", "")] = float(matched[3])
    return found


def page(address: str) -> dict[str, Family]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
        return families(answer.read().decode())


def traffic(namesrv: str, broker: str) -> None:
    async def create() -> None:
        async with AdminConnection(namesrv) as admin:
            await create_topic(admin, "orders", TopicChange(2, 2), broker=broker)

    asyncio.run(create())
    with Producer(namesrv) as producer:
        for number in range(COUNT):
            producer.send("orders", b"x" * 100, keys=f"k{number}")
    with LitePullConsumer(namesrv, group="billing", consume_from="first") as consumer:
        consumer.subscribe("orders")
        messages = iter(consumer)
        for _ in range(COUNT):
            assert next(messages) is not None


def test_metrics_names_equal_apache(apache_namesrv: apache.ApacheNameServer, tmp_path: Path) -> None:
    port = apache.free_ports()
    settings = {"metricsExporterType": "PROM", "metricsPromExporterHost": "127.0.0.1", "metricsPromExporterPort": port}
    work = tmp_path / "measured"
    with (
        apache.ApacheBroker(work, work / "store", apache_namesrv.address, name="measured", settings=settings),
        LocalCluster(settings={"metricsExporterType": "PROM"}) as cluster,
    ):
        traffic(apache_namesrv.address, "measured")
        traffic(cluster.namesrv, cluster.broker_name(0))
        key = ("orders", "")

        def counted(address: str, *others: str) -> dict[str, Family]:
            """Return the page, or nothing while it does not count all messages or one of the other families."""
            found = page(address)
            got = found.get("rocketmq_messages_in_total")
            is_whole = got is not None and got.values.get(key) == COUNT and set(others) <= set(found)
            return found if is_whole else {}

        theirs = wait_until(lambda: counted(f"127.0.0.1:{port}"))
        ours = wait_until(lambda: counted(cluster.metrics_address(0), "rocketmq_consumer_lag_messages"))
    expected = {name: one for name, one in theirs.items() if not name[9:].startswith(tuple(NOT_OURS))}
    assert len(expected) >= 20, sorted(expected)
    missing = expected.keys() - ours.keys()
    assert not missing
    assert not ours.keys() - theirs.keys() - NOT_YET_THEIRS
    for name, one in expected.items():
        assert ours[name].kind == one.kind, name
        # A family without a series shows no labels.
        if one.labels and ours[name].labels:
            assert ours[name].labels == one.labels, name
    pair = ("orders", "billing")
    for name, at in (("messages_in_total", key), ("messages_out_total", pair)):
        assert ours[f"rocketmq_{name}"].values[at] == theirs[f"rocketmq_{name}"].values[at] == COUNT
    for name, at in (("throughput_in_total", key), ("throughput_out_total", pair)):
        # Our records hold a checksum, and our broker's name is shorter or longer.
        mine, apaches = ours[f"rocketmq_{name}"].values[at], theirs[f"rocketmq_{name}"].values[at]
        assert abs(mine - apaches) / COUNT < 64, (name, mine, apaches)
