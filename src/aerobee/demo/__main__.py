"""`python -m aerobee.demo`: start a cluster of processes, run the story, print the table; 1 where anything is lost."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from aerobee.demo.screen import Screen
from aerobee.demo.shop import CONSUMERS, GROUP
from aerobee.demo.story import Story
from aerobee.errors import AerobeeError
from aerobee.runtime.machine import make_temporary_directory, remove_tree
from aerobee.runtime.signals import on_stop, terminate_interrupts
from aerobee.testing.processes import ProcessCluster

ORDERS = 100_000
_TRY = """\
Everything above is gone again: no process, no file. Try it yourself, each in its own terminal:
  .venv/bin/aerobee up
  .venv/bin/aerobee consume -t orders -g billing
  .venv/bin/aerobee produce -t orders -m "hello"
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m aerobee.demo", description=__doc__)
    parser.add_argument("--orders", type=int, default=ORDERS, help="how many (default %(default)s)")
    orders = parser.parse_args(arguments).orders
    if orders < 100:
        parser.error("--orders is at least 100")
    directory = make_temporary_directory("aerobee-demo-")
    try:
        with terminate_interrupts():
            return asyncio.run(_interruptible(_demo(orders, Path(directory))))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.stderr.write("interrupted; the cluster is stopped and its files are removed\n")
        return 130
    except (AerobeeError, TimeoutError, RuntimeError) as error:
        sys.stderr.write(f"error: {error or 'the killed broker group did not come back in time'}\n")
        return 1
    finally:
        remove_tree(directory)


async def _interruptible(work: Coroutine[Any, Any, int]) -> int:
    """A stop cancels the work where it waits: an exception out of a signal handler may hit any line, also one between
    making a coroutine and running it."""
    task = asyncio.ensure_future(work)
    restore = on_stop(asyncio.get_running_loop(), task.cancel)
    try:
        return await task
    finally:
        restore()


async def _demo(orders: int, directory: Path) -> int:
    screen = Screen(orders)
    screen.say("A name server and two broker groups, each its own process, on free ports, in a temporary directory.")
    async with AsyncExitStack() as stack:
        async with screen.waiting("still starting"):
            cluster = await stack.enter_async_context(ProcessCluster(directory, brokers=2))
        servers = (f"{cluster.broker_name(i)} {broker.address}" for i, broker in enumerate(cluster.brokers))
        screen.tell(f"up: name server {cluster.namesrv.address}, {', '.join(servers)}")
        screen.tell(f"sending {orders:,} orders; {CONSUMERS} consumers of the group {GROUP!r} share the queues")
        with screen:
            outcome = await Story(cluster, orders, screen.tell, screen.show).run()
    screen.result(outcome)
    screen.say()
    screen.say(_TRY.rstrip() if outcome.totals.sound else "LOST OR NOT ACKNOWLEDGED: this is a bug, please report it.")
    return 0 if outcome.totals.sound else 1


if __name__ == "__main__":
    sys.exit(main())
