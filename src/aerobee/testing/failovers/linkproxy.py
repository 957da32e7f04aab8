"""A proxy of TCP connections that can go silent: what is sent is held, and nothing is closed.

This is how a network cut looks from both sides. Bytes that were held go on when the link is mended.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools

from aerobee.runtime.tasks import Tasks

_CHUNK = 65_536


class LinkProxy:
    """Ports of one machine's links, which are cut and mended together."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._ways: list[tuple[tuple[str, int], tuple[str, int]]] = []
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks = Tasks(lambda name, error: None)

    def forward(self, listen: tuple[str, int], target: tuple[str, int]) -> None:
        """Pass connections to one address on to another, from `listen` on."""
        self._ways.append((listen, target))

    async def listen(self) -> None:
        """Accept connections: the process behind this link runs."""
        for place, target in self._ways:
            accepted = functools.partial(self._accepted, target)
            self._servers.append(await asyncio.start_server(accepted, *place))

    def refuse(self) -> None:
        """Refuse and reset connections, as the system does for a process that is gone."""
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accepted(
        self, target: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await self._open.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection(*target)
        except OSError:
            writer.transport.abort()
            return
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            self._writers.add(sink)
            self._tasks.start(self._pump(source, sink), name="pump")

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(_CHUNK):
                await self._open.wait()
                sink.write(data)
                await sink.drain()
        await self._open.wait()
        self._writers.discard(sink)
        sink.transport.abort()

    def cut(self) -> None:
        """Let nothing pass in either direction."""
        self._open.clear()

    def mend(self) -> None:
        self._open.set()

    async def close(self) -> None:
        self.mend()
        self.refuse()
        await self._tasks.close()
