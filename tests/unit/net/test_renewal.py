"""Certificates changed under a running server: taken up whole, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from aerobee.net.client import RemotingClient
from aerobee.net.config import ClientAuth, TlsConfig
from aerobee.net.renewal import TlsRenewal
from aerobee.net.server import Server
from aerobee.runtime.clock import SystemClock
from aerobee.telemetry.logs import Logs
from aerobee.telemetry.stdlog import lead_to
from aerobee.testing.certificates import Certificate, make_certificate, unavailable

Body = Callable[[TlsRenewal, Server, int], Awaitable[None]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Certificate]:
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("made")
    return {name: make_certificate(directory, name) for name in ("old", "new")}


@pytest.fixture
def live(made: dict[str, Certificate], tmp_path: Path) -> Certificate:
    """The files a server reads: at first those of `old`."""
    shutil.copy(made["old"].cert, tmp_path / "live.pem")
    shutil.copy(made["old"].key, tmp_path / "live.key")
    return Certificate(tmp_path / "live.pem", tmp_path / "live.key")


@pytest.fixture
def lines() -> list[str]:
    found: list[str] = []
    lead_to(Logs(SystemClock(), found.append))
    return found


def serve(config: TlsConfig, body: Body) -> None:
    async def main() -> None:
        renewal, client = TlsRenewal(config), RemotingClient(tls=config.connecting())
        server = Server("test", {}, clock=SystemClock(), tls=config.accepting())
        renewal.follow(server, client)
        port = await server.listen("127.0.0.1", 0)
        server.on_sweep = None  # the test looks itself
        try:
            async with asyncio.timeout(60):
                await body(renewal, server, port)
        finally:
            await server.close()
            await client.close()

    asyncio.run(main())


async def shakes_hands(port: int, context: ssl.SSLContext) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except ssl.SSLError:
        return False
    writer.close()
    return True


def settle(renewal: TlsRenewal) -> None:
    """Two looks: the change, and that it rests."""
    renewal.look()
    renewal.look()


def test_a_new_pair_is_shown_to_new_connections(
    made: dict[str, Certificate], live: Certificate, lines: list[str]
) -> None:
    async def body(renewal: TlsRenewal, server: Server, port: int) -> None:
        old, new = made["old"].client_context(), made["new"].client_context()
        _, kept = await asyncio.open_connection("127.0.0.1", port, ssl=old)
        settle(renewal)
        assert lines == []
        shutil.copy(made["new"].cert, live.cert)
        renewal.look()
        assert await shakes_hands(port, old), "may be half written"
        shutil.copy(made["new"].key, live.key)
        renewal.look()
        assert await shakes_hands(port, old), "changed again"
        renewal.look()
        assert (await shakes_hands(port, new), await shakes_hands(port, old)) == (True, False)
        assert not kept.is_closing() and len(server.channels) >= 1
        settle(renewal)
        assert len([line for line in lines if "read again" in line]) == 1, lines
        kept.close()

    serve(TlsConfig(server_cert_path=str(live.cert), server_key_path=str(live.key)), body)


def test_what_does_not_fit_leaves_the_old_pair_in_use_and_is_said_once(
    made: dict[str, Certificate], live: Certificate, lines: list[str]
) -> None:
    async def body(renewal: TlsRenewal, server: Server, port: int) -> None:
        old, new = made["old"].client_context(), made["new"].client_context()
        shutil.copy(made["new"].cert, live.cert)
        settle(renewal)
        settle(renewal)
        assert await shakes_hands(port, old)
        assert len([line for line in lines if "stay in use" in line and "belong together" in line]) == 1, lines
        live.key.unlink()
        settle(renewal)
        assert await shakes_hands(port, old)
        assert f"tls.server.keyPath={live.key}: No such file" in lines[-1]
        shutil.copy(made["new"].key, live.key)
        settle(renewal)
        assert await shakes_hands(port, new)

    serve(TlsConfig(server_cert_path=str(live.cert), server_key_path=str(live.key)), body)


def test_a_new_trust_file_counts_alone_and_own_connections_follow_theirs(
    made: dict[str, Certificate], live: Certificate, tmp_path: Path
) -> None:
    trust = tmp_path / "trust.pem"
    shutil.copy(made["old"].cert, trust)
    config = TlsConfig(
        server_cert_path=str(live.cert),
        server_key_path=str(live.key),
        server_need_client_auth=ClientAuth.require,
        server_trust_cert_path=str(trust),
        enable=True,
        client_auth_server=True,
        client_trust_cert_path=str(trust),
    )

    async def body(renewal: TlsRenewal, server: Server, port: int) -> None:
        assert server.tls.context is not None
        before = renewal._client.tls
        shutil.copy(made["new"].cert, trust)
        settle(renewal)
        assert [dict(one)["subject"] for one in server.tls.context.get_ca_certs()] == [((("commonName", "new"),),)]
        assert renewal._client.tls is not before and renewal._client.tls is not None
        assert [dict(one)["subject"] for one in renewal._client.tls.get_ca_certs()] == [((("commonName", "new"),),)]

    serve(config, body)


def test_files_that_no_descriptor_was_left_for_are_read_at_the_next_look(
    made: dict[str, Certificate], live: Certificate
) -> None:
    async def body(renewal: TlsRenewal, server: Server, port: int) -> None:
        new = made["new"].client_context()
        assert not await shakes_hands(port, new)
        for source, target in ((made["new"].cert, live.cert), (made["new"].key, live.key)):
            shutil.copy(source, target)
        renewal.look()
        taken = []
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[0], 512), limits[1]))
        try:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
            before = server.tls
            renewal.look()
            assert server.tls is before
        finally:
            for fd in taken:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        renewal.look()
        assert await shakes_hands(port, new)

    serve(TlsConfig(server_cert_path=str(live.cert), server_key_path=str(live.key)), body)
