"""`python -m aerobee.demo`: start a cluster of processes, run the demo and print the table of its results.

The exit code is 1 where anything is lost or counted wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from aerobee.demo.picture import draw
from aerobee.demo.screen import Screen
from aerobee.demo.shop import CONSUMERS, GROUP
from aerobee.demo.sparkside import SparkSide
from aerobee.demo.story import DemoRun
from aerobee.errors import AerobeeError
from aerobee.runtime.machine import make_temporary_directory, remove_tree
from aerobee.runtime.signals import on_stop, terminate_interrupts
from aerobee.testing.processes import ProcessCluster

ORDERS = 100_000
REPLICAS = 3
# An order is acknowledged when every replica in sync has it, and at least two are.
_GROUP = {"brokerRole": "SYNC_MASTER", "totalReplicas": str(REPLICAS), "minInSyncReplicas": "2"}
# The picture needs some batches of Spark, but no tiny ones.
_BATCHES = 6
_BATCH_MIN = 5_000
_TRY = """\
{} Try it yourself, each in its own terminal:
  .venv/bin/aerobee up --dashboard   # pages to look at: http://127.0.0.1:8088/
  .venv/bin/aerobee produce -t orders --tag PAID -m "hello"
  {}
"""
_TRY_SPARK = '.venv/bin/aerobee sql "select tags, count(*) from orders group by tags"'
_TRY_PLAIN = ".venv/bin/aerobee consume -t orders -g billing"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m aerobee.demo", description=__doc__)
    parser.add_argument("--orders", type=int, default=ORDERS, help="the number of orders (default %(default)s)")
    parser.add_argument("--picture", type=Path, metavar="FILE.png", help="draw a picture of the run into this file")
    parser.add_argument("--no-spark", dest="with_spark", action="store_false", help="run without Spark")
    given = parser.parse_args(arguments)
    if given.orders < 100:
        parser.error("--orders is at least 100")
    directory = make_temporary_directory("aerobee-demo-")
    try:
        with terminate_interrupts():
            return asyncio.run(_interruptible(_demo(given, Path(directory))))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.stderr.write("interrupted; the cluster is stopped and its files are removed\n")
        return 130
    except (AerobeeError, TimeoutError, RuntimeError) as error:
        sys.stderr.write(f"error: {error or 'no other replica took over in time'}\n")
        return 1
    finally:
        remove_tree(directory)


async def _interruptible(work: Coroutine[Any, Any, int]) -> int:
    """Run the work; a signal to stop cancels it where it waits. An exception in a signal handler could hit any line."""
    task = asyncio.ensure_future(work)
    restore = on_stop(asyncio.get_running_loop(), task.cancel)
    try:
        return await task
    finally:
        restore()


async def _demo(given: argparse.Namespace, directory: Path) -> int:
    screen = Screen(given.orders)
    screen.say("A name server and a broker group of three replicas, each its own process, in a temporary directory.")
    async with AsyncExitStack() as stack:
        async with screen.waiting("still starting"):
            cluster = await stack.enter_async_context(ProcessCluster(directory, settings=_GROUP, replicas=REPLICAS))
        servers = ", ".join(broker.address for broker in cluster.brokers)
        leader = await cluster.master() + 1
        screen.tell(f"up: name server {cluster.namesrv.address}; replicas {servers}; replica {leader} is the master")
        screen.tell(f"sending {given.orders:,} orders; {CONSUMERS} consumers of the group {GROUP!r} share the queues")
        spark = None
        if given.with_spark:
            spark = SparkSide(directory / "spark", max(given.orders // _BATCHES, _BATCH_MIN), screen.tell)
            await stack.enter_async_context(spark)
            await spark.start(cluster.namesrv.address)
        with screen:
            outcome = await DemoRun(cluster, given.orders, screen.tell, screen.show, spark).run()
        if given.picture is not None:
            async with screen.waiting("drawing the picture"):
                drawn = await asyncio.to_thread(draw, outcome.timeline, given.picture, directory)
    screen.result(outcome)
    screen.say()
    if given.picture is not None:
        screen.say(drawn)
    if not outcome.sound:
        screen.say("LOST, NOT ACKNOWLEDGED OR COUNTED WRONG: this is a bug, please report it.")
        return 1
    gone = "Everything else is gone again:" if given.picture is not None else "Everything above is gone again:"
    try_last = _TRY_PLAIN if outcome.aggregates is None else _TRY_SPARK
    screen.say(_TRY.format(f"{gone} no process, no file.", try_last).rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
