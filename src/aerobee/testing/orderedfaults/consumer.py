"""An ordered consumer in a process of its own, which writes down when each handler begins and ends.

    python -m aerobee.testing.orderedfaults.consumer NAMESRV GROUP TOPIC FILE

Each line of the file is `b KEY NUMBER SECONDS` or `e KEY NUMBER SECONDS`, in the time of the machine's monotonic clock.
Lines are written at once, so that a kill -9 loses none.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from aerobee.app import process
from aerobee.client.consumer import PushConsumer
from aerobee.model.message import Message
from aerobee.runtime.clock import SystemClock


def main(arguments: Sequence[str]) -> int:
    namesrv, group, topic, file = arguments
    return process.run(lambda stop: _consume(namesrv, group, topic, Path(file), stop), with_parent=True)


async def _consume(namesrv: str, group: str, topic: str, path: Path, stop: asyncio.Event) -> int:
    clock = SystemClock()
    consumer = PushConsumer(
        namesrv, group=group, consume_from="first", persist_interval=1.0, suspend=0.1, heartbeat_interval_ms=5_000
    )
    with path.open("ab", buffering=0) as file:

        @consumer.listener(topic, ordered=True)
        async def handle(message: Message) -> None:
            words = message.body
            file.write(b"b %s %.6f\n" % (words, clock.monotonic()))
            await asyncio.sleep(0)
            file.write(b"e %s %.6f\n" % (words, clock.monotonic()))

        async with consumer:
            await stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
