"""Child processes that end with their parent. Each child holds the reading end of a pipe whose other end only the
parent has.

When the parent ends, in whatever way (by kill -9 too), the system closes its end and the child reads the end of its
standard input. No signal is needed, so a Ctrl-C that reaches parent and children alike is not counted twice.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from typing import IO


class Child:
    """One running child: the lines of its standard output, and the pipe that keeps it running."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def line(self) -> bytes:
        """Return the next line that the child prints, or an empty text if it has ended."""
        assert self._process.stdout is not None
        return await self._process.stdout.readline()

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal. A child that has ended ignores it."""
        if self.is_running:
            self._process.send_signal(number)

    async def kill(self) -> int:
        """Kill the child, wait until it is gone, and return its exit code."""
        if self.is_running:
            self._process.kill()
        return await self._process.wait()

    async def ended(self) -> int:
        """Wait until the child has ended and return its exit code. Its output is read and dropped."""
        assert self._process.stdout is not None
        while await self._process.stdout.read(65_536):
            pass
        return await self._process.wait()

    async def stop(self, patience_s: float) -> int:
        """Let the child end by itself, and kill it if it does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(patience_s):
                return await self.ended()
        except TimeoutError:
            return await self.kill()


async def start_python(module: str, words: Sequence[str], errors: IO[bytes] | None = None) -> Child:
    """Run a module with this interpreter. Its stderr goes to `errors`, or to that of this process."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", module, *words)
    return Child(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=errors))


async def input_ended() -> None:
    """Wait until standard input ends, which means that the parent has ended."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        while await reader.read(1024):
            pass
    finally:
        transport.close()
