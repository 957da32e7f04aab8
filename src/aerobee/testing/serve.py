"""One server as a process of its own, for tests that kill, stop and flood real processes.

    python -m aerobee.testing.serve broker namesrvAddr=127.0.0.1:9876 storePathRootDir=data ...
    python -m aerobee.testing.serve namesrv listenPort=0

Prints `ready PORT` once it serves. SIGTERM stops it cleanly, and it exits with 0. Log lines go to stderr.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

import uvloop

from aerobee.app.broker import BrokerNode
from aerobee.app.namesrv import NamesrvNode
from aerobee.broker.config import BrokerConfig
from aerobee.config.loader import load, override_source
from aerobee.namesrv.config import NamesrvConfig
from aerobee.net.config import TlsConfig
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.disk import RealDisk
from aerobee.runtime.entropy import SystemEntropy
from aerobee.store.config import StoreConfig
from aerobee.telemetry.logs import Logs
from aerobee.telemetry.stdlog import lead_to
from aerobee.testing.cluster import void

HOST = "127.0.0.1"


class Node(Protocol):
    """A server of either kind."""

    port: int

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


def main(arguments: Sequence[str]) -> int:
    kind, settings = arguments[0], arguments[1:]
    clock = SystemClock()
    lead_to(Logs(clock, _log))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(kind, settings, clock))


async def _serve(kind: str, settings: Sequence[str], clock: SystemClock) -> int:
    loop = asyncio.get_running_loop()
    disk = RealDisk(lambda call: void(loop.call_soon_threadsafe(call)))
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    node = _namesrv(settings, disk, clock) if kind == "namesrv" else _broker(settings, disk, clock, stop)
    await node.start()
    sys.stdout.write(f"ready {node.port}\n")
    sys.stdout.flush()
    await stop.wait()
    await node.stop()
    disk.close()
    return 0


def _namesrv(settings: Sequence[str], disk: RealDisk, clock: SystemClock) -> Node:
    loaded = load((NamesrvConfig, TlsConfig), override_source(settings))
    return NamesrvNode(loaded.get(NamesrvConfig), disk, clock, host=HOST, tls=loaded.get(TlsConfig))


def _broker(settings: Sequence[str], disk: RealDisk, clock: SystemClock, stop: asyncio.Event) -> Node:
    loaded = load((BrokerConfig, StoreConfig, TlsConfig), override_source(settings))
    entropy = SystemEntropy()
    return BrokerNode(
        loaded.get(BrokerConfig),
        loaded.get(StoreConfig),
        disk,
        clock,
        entropy,
        host=HOST,
        unique_id=_unique_ids(entropy),
        tls=loaded.get(TlsConfig),
    )


def _unique_ids(entropy: SystemEntropy) -> Callable[[], str]:
    return lambda: entropy.token(16).hex().upper()


def _log(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
