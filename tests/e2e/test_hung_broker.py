"""A broker that hangs (SIGSTOP): its connections stay open, and nothing is answered."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

import aerobee
from aerobee.testing.commands import command
from aerobee.testing.processes import ProcessCluster

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals as Unix has them")


def test_no_send_fails_while_one_of_two_brokers_hangs(tmp_path: Path) -> None:
    """By the defaults: two retries within three seconds."""

    async def work() -> None:
        async with ProcessCluster(tmp_path, brokers=2) as cluster:
            namesrv = cluster.namesrv.address
            async with aerobee.Producer(namesrv) as producer:
                loop = asyncio.get_running_loop()
                warm = {(await producer.send("orders", b"warm")).broker for _ in range(8)}
                assert warm == {"broker-a", "broker-b"}
                cluster.pause(0)
                try:
                    began_s = loop.time()
                    receipts = [await producer.send("orders", b"%d" % i) for i in range(40)]
                    # One try waits for its share of the time; then the broker is left out.
                    assert loop.time() - began_s < 2.9
                    receipts += await asyncio.gather(*(producer.send("orders", b"%d" % i) for i in range(40)))
                    assert {receipt.broker for receipt in receipts} == {"broker-b"}
                    # A producer that meets it with many sends at once: half of them wait for it.
                    async with aerobee.Producer(namesrv, group="other") as other:
                        receipts = await asyncio.gather(*(other.send("orders", b"%d" % i) for i in range(40)))
                    assert {receipt.broker for receipt in receipts} == {"broker-b"}
                finally:
                    cluster.resume(0)

    asyncio.run(asyncio.wait_for(work(), 100))


def test_a_tail_goes_on_while_one_of_two_brokers_hangs(tmp_path: Path) -> None:
    """It names the silent broker, follows the other one, and then prints what both got meanwhile."""

    async def work() -> None:
        async with ProcessCluster(tmp_path, brokers=2) as cluster:
            namesrv = cluster.namesrv.address
            async with aerobee.Producer(namesrv) as producer:
                assert {(await producer.send("orders", b"old")).broker for _ in range(8)} == {"broker-a", "broker-b"}

                async def tail(*words: str) -> asyncio.subprocess.Process:
                    line = command("tail", "-n", namesrv, "-t", "orders", *words)
                    return await asyncio.create_subprocess_exec(*line, stdout=PIPE, stderr=PIPE)

                cluster.pause(0)
                try:
                    ended = await tail("--until-end")
                    told, complained = await ended.communicate()
                    assert (ended.returncode, told.count(b" old")) == (3, 4), complained
                    assert b"broker-a" in complained and b"broker-b" not in complained
                    following = await tail("--last", "0", "--count", "2")
                    assert following.stdout is not None and following.stderr is not None
                    assert b"what broker-a holds is missing until it answers" in await following.stderr.readline()
                    await producer.send("orders", b"meanwhile")
                    assert b" meanwhile" in await following.stdout.readline()
                finally:
                    cluster.resume(0)
                assert b"broker-a answers again" in await following.stderr.readline()
                await producer.send("orders", b"afterwards")
                assert b" afterwards" in await following.stdout.readline()
                assert await following.wait() == 0

    asyncio.run(asyncio.wait_for(work(), 100))
