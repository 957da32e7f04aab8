"""One broker group of `aerobee up --brokers`: a broker that lives as long as its parent. Started by `app.brokers`.

python -m aerobee.app.member HOST KEY=VALUE...
"""

from __future__ import annotations

import asyncio
import functools
import sys

from aerobee.app import process
from aerobee.app.broker import BrokerNode
from aerobee.app.servers import BROKER_CLASSES, ServerOptions, load_settings, serve_broker
from aerobee.app.spread import TopicSpread
from aerobee.config.loader import Loaded
from aerobee.errors import AerobeeError
from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.stdlog import get_log

_log = get_log("member")


async def _serve(loaded: Loaded, options: ServerOptions, stop: asyncio.Event) -> int:
    async with Tasks(_failed) as tasks:

        def started(node: BrokerNode) -> None:
            TopicSpread(node, tasks)

        return await serve_broker(loaded, options, _ready, stop, started=started)


def _ready(address: str) -> None:
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()


def _failed(name: str, error: BaseException) -> None:
    _log.error("task failed", task=name, exc_info=error)


def main() -> int:
    host, *settings = sys.argv[1:]
    options = ServerOptions(host=host, settings=tuple(settings))
    try:
        loaded = load_settings(BROKER_CLASSES, options)
        return process.run(functools.partial(_serve, loaded, options), log_level="WARN", with_parent=True)
    except AerobeeError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
