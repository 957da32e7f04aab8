"""How the gRPC service stops while its clients hold messages, and a broker takes its time."""

from __future__ import annotations

import asyncio
import time

import pytest

from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import decode_frame
from aerobee.proxy import service as serving
from aerobee.proxy.backend import ClusterBackend
from aerobee.proxy.delivered import Receipt
from aerobee.proxy.service import MessagingService
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.net import RealNet
from aerobee.testing.grpckit import consumer_settings


def test_a_stop_does_not_wait_for_a_broker_that_answers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client has its connection closed all the same. What it holds is not given back: the client goes on."""
    monkeypatch.setattr(serving, "STOP_S", 3.0)

    async def main() -> None:
        asked: list[int] = []
        is_asked, ended = asyncio.Event(), asyncio.Semaphore(0)

        async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while True:
                    size = await reader.readexactly(4)
                    frame = size + await reader.readexactly(int.from_bytes(size, "big"))
                    asked.append(decode_frame(frame).code)
                    is_asked.set()
            except asyncio.IncompleteReadError:
                ended.release()
            finally:
                writer.close()

        clock = SystemClock()
        servers = [await asyncio.start_server(broker, "127.0.0.1", 0) for _ in range(9)]
        backend = ClusterBackend(list, clock.monotonic, lambda peer: RealNet())
        service = MessagingService(backend, clock, lambda: "n")
        for number in range(3):
            client = service.clients.of(f"holds-{number}", ("127.0.0.1", 1), "JAVA")
            client.settings = consumer_settings("g", ["orders"])
            client.known_at = {f"127.0.0.1:{one.sockets[0].getsockname()[1]}" for one in servers}
            for offset in range(100):
                handle = Receipt(offset, clock.now_ms(), 60_000, 0, "0", "broker-a", number, offset)
                service.renewals.add(client, "orders", "g", handle)
        began_s = time.monotonic()
        await service.stop()
        took_s = time.monotonic() - began_s
        # Those that do not answer are asked whether they answer anything.
        assert is_asked.is_set() and set(asked) - {RequestCode.GET_TOPIC_CONFIG} == {RequestCode.UNREGISTER_CLIENT}
        # Each request that is not answered takes a second by itself.
        assert 3.0 <= took_s < 7.0
        for _ in range(3):
            await ended.acquire()
        assert len(service.clients) == 0
        await backend.close()
        for server in servers:
            server.close()
            await server.wait_closed()

    async def bounded() -> None:
        async with asyncio.timeout(20):
            await main()

    asyncio.run(bounded())


def test_a_stop_without_clients_is_at_once() -> None:
    async def main() -> None:
        clock = SystemClock()
        backend = ClusterBackend(list, clock.monotonic, lambda peer: RealNet())
        await MessagingService(backend, clock, lambda: "n").stop()
        await backend.close()

    asyncio.run(main())
