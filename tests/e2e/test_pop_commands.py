"""The commands for groups that pop, as an operator types them."""

from __future__ import annotations

import asyncio
import json

import aerobee
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.commands import aerobee as run_command


async def _hold(cluster: LocalCluster) -> None:
    async with aerobee.Producer(cluster.namesrv) as producer:
        for number in range(5):
            await producer.send("orders", b"%d" % number, sharding_key="one")
    async with aerobee.SimpleConsumer(
        cluster.namesrv, group="billing", subscribe={"orders": "*"}, consume_from="first"
    ) as consumer:
        messages: list[aerobee.PoppedMessage] = []
        while len(messages) < 5:
            messages += await consumer.receive(invisible=120.0, wait=5.0)
        await consumer.ack_all(messages[:2])


def test_mode_lag_and_tail() -> None:
    with LocalCluster() as cluster:
        cluster.create_topic("orders")
        asyncio.run(_hold(cluster))
        server = ["-n", cluster.namesrv]
        done = run_command("tail", *server, "-t", "orders", "--in-flight", "-g", "billing", "--json")
        found = json.loads(done.stdout)
        assert found["in_flight"] == 3
        (queue,) = [one for one in found["queues"] if one["in_flight"]]
        first = queue["messages"][0]
        assert first["visible_timestamp"] - first["pop_timestamp"] == 120_000
        assert "comes back" in run_command("tail", *server, "-t", "orders", "--in-flight").stdout
        lag = json.loads(run_command("group", "lag", *server, "-g", "billing", "-t", "orders", "--json").stdout)
        assert sum(one["in_flight"] for one in lag["queues"]) == 3
        assert lag["lag"] == 0
        said = run_command("group", "update", *server, "-g", "billing", "-t", "orders", "--mode", "pop", "--yes").stdout
        assert "group billing pops topic orders" in said
        plan = run_command(
            "group", "update", *server, "-g", "billing", "-t", "orders", "--mode", "pull", "--dry-run", "--json"
        )
        assert json.loads(plan.stdout)["mode"] == "pull"
