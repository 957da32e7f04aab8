"""h2spec, the conformance test of HTTP/2 servers, against our machine on a real socket."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from aerobee.protocol import grpc
from aerobee.protocol.grpc import GrpcConnection

BINARY = Path(__file__).parents[2] / ".build" / "h2spec" / "h2spec"


class Peer(asyncio.Protocol):
    """A server that answers each call with its last message."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.machine = GrpcConnection()

    def data_received(self, data: bytes) -> None:
        for event in self.machine.receive(data, asyncio.get_running_loop().time()):
            if event.ended and event.kind in (grpc.MESSAGE, grpc.HAS_ENDED):
                self.machine.answer(event.call, event.message)
        self.transport.write(self.machine.http.output())
        if self.machine.http.error is not None:
            self.transport.close()


@pytest.mark.skipif(not BINARY.exists(), reason="h2spec is not built: make h2spec (needs Go)")
def test_h2spec_passes() -> None:
    async def main() -> str:
        server = await asyncio.get_running_loop().create_server(Peer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            str(BINARY), "-h", "127.0.0.1", "-p", str(port), "--strict", "-o", "5", stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "NO_COLOR": "1"},
        )  # fmt: skip
        said, _ = await process.communicate()
        server.close()
        return said.decode()

    said = asyncio.run(main())
    found = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", said)
    assert found is not None, said
    print(found[0])
    assert found.groups() == ("146", "146", "0", "0"), said[said.find("Failures") :]
