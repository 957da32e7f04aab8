"""Heartbeats to one broker from a process of its own, so that their times depend on the broker and not on the test.

    python -m aerobee.testing.watch 127.0.0.1:10911

It sends one every 20 ms until SIGTERM, then prints the seconds that each took, one a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

from aerobee.model.numbers import parse_float
from aerobee.testing.workload import RawClient

_INTERVAL_S = 0.02


async def main(address: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    client = RawClient(address)
    taken = [await client.heartbeat("watcher", "watchers", timeout_s=60)]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not stop.is_set():
        taken.append(await client.heartbeat("watcher", "watchers", timeout_s=60))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_INTERVAL_S):
                await stop.wait()
    await client.close()
    sys.stdout.write("".join(f"{seconds:.6f}\n" for seconds in taken))


class Watch:
    """The process as the test sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, address: str) -> Watch:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "aerobee.testing.watch", address, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        return cls(process)

    async def stop(self) -> list[float]:
        """Stop the process; return the seconds that each heartbeat took."""
        self._process.terminate()
        out, _ = await self._process.communicate()
        return [parse_float(line) for line in out.split()]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
