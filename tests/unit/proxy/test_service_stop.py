"""How the gRPC service stops while its clients hold messages of a broker that takes its time."""

from __future__ import annotations

import asyncio
import time

import pytest

from aerobee.app.grpcfront import route_of
from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import decode_frame
from aerobee.proxy import service as serving
from aerobee.proxy.backend import ClusterBackend
from aerobee.proxy.delivered import Receipt
from aerobee.proxy.service import MessagingService
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.net import RealNet


def test_a_stop_does_not_wait_for_every_message_that_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker answers nothing, so no message is given back. Each client has its connection closed all the same."""
    monkeypatch.setattr(serving, "STOP_S", 0.2)

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
        server = await asyncio.start_server(broker, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        backend = ClusterBackend(
            list, clock.monotonic, lambda peer: RealNet(),
            own_route=lambda topic: route_of(TopicConfig(topic), "c", "broker-a", address),
        )  # fmt: skip
        service = MessagingService(backend, clock, lambda: "n")
        for number in range(3):
            client = service.clients.of(f"holds-{number}", ("127.0.0.1", 1), "JAVA")
            for offset in range(100):
                handle = Receipt(offset, clock.now_ms(), 60_000, 0, "0", "broker-a", number, offset)
                service.renewals.add(client, "orders", "g", handle)
        began_s = time.monotonic()
        await service.stop()
        took_s = time.monotonic() - began_s
        assert is_asked.is_set() and set(asked) == {RequestCode.CHANGE_MESSAGE_INVISIBLETIME}
        # One request that is not answered takes 3 seconds by itself.
        assert 0.2 <= took_s < 2.5
        for _ in range(3):
            await ended.acquire()
        assert len(service.renewals) == 0 and len(service.clients) == 0
        await backend.close()
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
