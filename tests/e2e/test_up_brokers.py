"""`aerobee up --brokers N`: several groups under one name server, one topic over all of them, one end for all."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from aerobee.app.keeping import next_pause
from aerobee.errors import AerobeeError
from aerobee.model.dialect import loads_object
from aerobee.model.route import TopicRouteData
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.route import GetRouteInfoRequestHeader
from aerobee.testing.commands import PATIENCE_S, aerobee, up
from aerobee.testing.workload import RawClient, eventually

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals as Unix has them")


def is_gone(pid: int) -> bool:
    """A child of a killed parent is somebody else's to bury: a zombie has ended, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def queues_of(namesrv: RawClient, topic: str) -> dict[str, int]:
    """Broker names and how many queues of the topic each has."""
    answer = await namesrv.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic))
    if answer.code:
        return {}
    route = TopicRouteData.from_json(loads_object(answer.body))
    return {one.broker_name: one.write_queue_nums for one in route.queue_datas}


def test_a_topic_made_by_a_send_spreads_over_all_groups_and_sigterm_stops_them(tmp_path: Path) -> None:
    async def spread(ready: dict[str, Any]) -> dict[str, int]:
        namesrv, broker = RawClient(ready["namesrv"]), RawClient(ready["brokers"][1]["address"])
        found: dict[str, int] = {}

        async def routed() -> bool:
            found.update(await queues_of(namesrv, "orders"))
            return len(found) == 2

        try:
            assert (await broker.send("orders", 0, b"first")).code == 0
            await eventually(routed, PATIENCE_S)
        finally:
            await namesrv.close()
            await broker.close()
        return found

    data = tmp_path / "data"
    with up("--brokers", "2", "--data", str(data)) as running:
        ready = running.ready
        assert [one["name"] for one in ready["brokers"]] == ["broker-a", "broker-b"]
        assert (ready["broker"], ready["broker_name"]) == (ready["brokers"][0]["address"], "broker-a")
        found = asyncio.run(spread(ready))
        assert sorted(found) == ["broker-a", "broker-b"]
        assert len(set(found.values())) == 1
        running.process.send_signal(signal.SIGTERM)
        assert running.end() == 0
        assert all(is_gone(pid) for pid in running.members)
    for name in ("broker-a", "broker-b"):
        assert (data / name / "commitlog").is_dir()
        assert not (data / name / "abort").exists(), "stopped as a whole, not killed"
    refused = aerobee("up", "--brokers", "2", "--data", str(data / "broker-b"))
    assert refused.returncode == 1
    assert "holds the store of a single broker" in refused.stderr


def test_nothing_is_left_when_the_parent_is_killed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with up("--brokers", "2", "--data", str(data)) as running:
        running.process.kill()
        running.process.wait(PATIENCE_S)
        asyncio.run(eventually(lambda: all(is_gone(pid) for pid in running.members), PATIENCE_S))
    assert not list(data.glob("*/abort")), "they stopped by themselves"


async def takes_sends(address: str) -> bool:
    broker = RawClient(address)
    try:
        return (await broker.send("orders", 0, b"again")).code == 0
    except (AerobeeError, OSError):
        return False
    finally:
        await broker.close()


def test_a_broker_that_dies_is_started_again_on_its_port() -> None:
    with up("--brokers", "2") as running:
        dead = running.ready["brokers"][0]
        os.kill(dead["pid"], signal.SIGKILL)
        asyncio.run(eventually(lambda: is_gone(dead["pid"]), PATIENCE_S))
        asyncio.run(eventually(lambda: takes_sends(dead["address"]), PATIENCE_S))
        code, _, said = running.stop()
        assert code == 0
        assert "a broker ended and is started again broker=broker-a exit_code=-9 in_s=1" in said
        assert all(is_gone(pid) for pid in running.members)
        assert not Path(running.ready["data"]).exists()


@pytest.mark.parametrize(
    ("last_s", "lived_s", "pause_s"),
    [(0, 0, 1), (1, 5, 2), (2, 0, 4), (16, 0, 30), (30, 59, 30), (30, 61, 1), (1, 1000, 1)],
)
def test_pauses_grow_while_a_broker_does_not_live_long(last_s: float, lived_s: float, pause_s: float) -> None:
    assert next_pause(last_s, lived_s) == pause_s
