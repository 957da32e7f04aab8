"""A server in a process of its own, for tests and the demo, which kill, stop and flood it.

    python -m aerobee.testing.serve broker namesrvAddr=127.0.0.1:9876 storePathRootDir=data ...
    python -m aerobee.testing.serve failing-broker ...      # its disk breaks at SIGUSR1
    python -m aerobee.testing.serve namesrv listenPort=0
    python -m aerobee.testing.serve coordination file=data/coordination listenPort=0

The process prints `ready HOST:PORT` once it serves. SIGTERM stops it cleanly with exit code 0, and so does the end of
its standard input, which is a pipe of its parent. Log lines go to stderr.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence

from aerobee.app import process
from aerobee.app.process import disk_of_this_loop
from aerobee.app.servers import BROKER_CLASSES, NAMESRV_CLASSES, ServerOptions, serve_broker, serve_namesrv
from aerobee.config.loader import Loaded, load, override_source
from aerobee.coordination.embedded import EmbeddedCoordination
from aerobee.model.numbers import parse_int
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.entropy import SystemEntropy
from aerobee.runtime.net import RealNet
from aerobee.testing.failovers.failingdisk import failing_disk_of_this_loop


def main(arguments: Sequence[str]) -> int:
    kind, settings = arguments[0], arguments[1:]
    if kind == "coordination":
        given = dict(one.split("=", 1) for one in settings)
        return process.run(lambda stop: _coordinate(given, stop), with_parent=True)
    classes, serve = (NAMESRV_CLASSES, serve_namesrv) if kind == "namesrv" else (BROKER_CLASSES, serve_broker)
    # Settings do not come from the environment, only from the arguments.
    loaded = load(classes, override_source(settings))
    if kind == "failing-broker":
        return process.run(lambda stop: _serve_failing(loaded, stop), with_parent=True)
    return process.run(lambda stop: serve(loaded, ServerOptions(), _ready, stop), with_parent=True)


async def _serve_failing(loaded: Loaded, stop: asyncio.Event) -> int:
    return await serve_broker(loaded, ServerOptions(), _ready, stop, make_disk=failing_disk_of_this_loop)


async def _coordinate(given: Mapping[str, str], stop: asyncio.Event) -> int:
    """Serve the embedded coordination store."""
    disk = disk_of_this_loop()
    store = EmbeddedCoordination(RealNet(), disk, given["file"], SystemClock(), SystemEntropy())
    await store.start(port=parse_int(given["listenPort"], 0, 65535))
    _ready(store.address)
    await stop.wait()
    await store.stop()
    disk.close()
    return 0


def _ready(address: str) -> None:
    sys.stdout.write(f"ready {address}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
