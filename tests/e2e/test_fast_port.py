"""Sends over the VIP channel: the port two below a broker's own, as a user's client takes it."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

import pytest

import aerobee
from aerobee.testing.cluster import LocalCluster

COUNT = 200
PATIENCE_S = 60


async def send_and_consume(cluster: LocalCluster) -> None:
    found: set[bytes] = set()
    whole = asyncio.Event()

    consumer = aerobee.PushConsumer(cluster.namesrv, group="billing", consume_from="first", vip_channel=True)

    @consumer.listener("orders")
    async def take(message: aerobee.Message) -> None:
        found.add(message.body)
        if len(found) == 2 * COUNT:
            whole.set()

    async with consumer, aerobee.Producer(cluster.namesrv, vip_channel=True, timeout=30) as producer:
        await asyncio.gather(*(producer.send("orders", b"%d" % n) for n in range(COUNT)))
        own, fast = cluster.connections(0)
        assert own > 0
        assert fast > 0
        await asyncio.to_thread(cluster.kill, 0)
        await asyncio.to_thread(cluster.restart, 0)
        await asyncio.gather(*(producer.send("orders", b"%d" % n) for n in range(COUNT, 2 * COUNT)))
        await asyncio.wait_for(whole.wait(), PATIENCE_S)
    assert found == {b"%d" % n for n in range(2 * COUNT)}


def test_sends_over_the_vip_channel_go_on_after_a_kill() -> None:
    with LocalCluster() as cluster:
        cluster.create_topic("orders", 4)
        asyncio.run(send_and_consume(cluster))
        assert cluster.broker_fast_address(0).rpartition(":")[2] == str(
            int(cluster.broker_address(0).rpartition(":")[2]) - 2
        )


@pytest.mark.skipif(sys.platform == "win32", reason="a taken port can be taken again there")
def test_a_taken_fast_port_stops_up_in_words() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        fast = taken.getsockname()[1]
        command = [sys.executable, "-m", "aerobee", "up", "--namesrv-port", "0", "--broker-port", str(fast + 2)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"port {fast} of 127.0.0.1 is in use (fast port of the broker on {fast + 2})" in done.stderr
    assert "Traceback" not in done.stderr
