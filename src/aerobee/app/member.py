"""One broker of `aerobee up --brokers`: it runs as long as its parent process, which is `app.brokers`.

python -m aerobee.app.member LOG_FILE LOG_MIB LOG_FILES HOST CONF KEY=VALUE...

An empty LOG_FILE means standard error, an empty CONF no file of settings. The parent has judged whether the broker may
listen there.
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
from aerobee.model.numbers import parse_int
from aerobee.runtime.logfile import LogFile
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
    path, mib, files, host, conf, *settings = sys.argv[1:]
    log = LogFile(path, parse_int(mib), parse_int(files)) if path else None
    # The parent has judged where the ports may be reached from.
    options = ServerOptions(host=host, config_file=conf or None, settings=tuple(settings), insecure=True)
    try:
        loaded = load_settings(BROKER_CLASSES, options)
        serve = functools.partial(_serve, loaded, options)
        return process.run(serve, log_level="WARN" if log is None else "INFO", log_file=log, with_parent=True)
    except AerobeeError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
