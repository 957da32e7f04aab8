"""Replicas copy the log by TLS where it is enforced, and only from and to those that know the group's secret."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from aerobee import Producer
from aerobee.app.authority import init_authority
from aerobee.errors import AerobeeError, ConfigError
from aerobee.net.client import RemotingClient
from aerobee.net.config import ClientAuth, ServerTls, TlsConfig, TlsMode
from aerobee.net.server import Server
from aerobee.protocol.command import request, response
from aerobee.replication.frames import MAGIC
from aerobee.replication.port import HaPort
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.net import RealNet
from aerobee.runtime.tls import FileNames, server_context
from aerobee.testing.cluster import LocalCluster


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls") / "ca"
    init_authority(str(directory), ["127.0.0.1"], [], SystemClock().now_ms())
    return directory


@pytest.fixture
def enforcing(made: Path) -> Iterator[LocalCluster]:
    settings = {
        "tls.server.mode": "enforcing", "tls.enable": "true", "tls.client.authServer": "true",
        "tls.server.certPath": str(made / "server.pem"), "tls.server.keyPath": str(made / "server.key"),
        "tls.client.trustCertPath": str(made / "ca.pem"),
    }  # fmt: skip
    with LocalCluster(replicas=3, settings=settings) as cluster:
        yield cluster


def test_a_group_replicates_and_fails_over_by_tls(enforcing: LocalCluster, made: Path) -> None:
    context = ssl.create_default_context(cafile=str(made / "ca.pem"))

    async def send(count: int) -> None:
        async with Producer(enforcing.namesrv, tls=context, timeout=20) as producer:
            for number in range(count):
                await producer.send("orders", bytes(100_000 if number == 3 else 10))

    enforcing.create_topic("orders", 1)
    asyncio.run(send(20))
    enforcing.kill(0, enforcing.master(0))
    enforcing.master(0)
    asyncio.run(send(20))
    assert len(enforcing.messages("orders")) == 40


class Line(asyncio.Protocol):
    """What came on a connection, and whether it was closed."""

    def __init__(self) -> None:
        self.data = b""
        self.lost = asyncio.Event()
        # Set with as many bytes as the tests send, or at the end.
        self.enough = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.data += data
        if len(self.data) >= 40_004:
            self.enough.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self.enough.set()


class Echo(asyncio.Protocol):
    """A protocol behind the port that sends back what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


def tls_of(made: Path, mode: TlsMode) -> ServerTls:
    names = FileNames.of("server")
    identity = (str(made / "server.pem"), str(made / "server.key"), "")
    return ServerTls(mode, server_context(identity, trust_path="", client_certificate=ssl.CERT_NONE, names=names))


@pytest.mark.parametrize(
    ("mode", "by_tls", "served"),
    [
        (TlsMode.permissive, True, True),
        (TlsMode.permissive, False, True),
        (TlsMode.enforcing, True, True),
        (TlsMode.enforcing, False, False),
        (TlsMode.disabled, True, False),
        (TlsMode.disabled, False, True),
    ],
)
def test_the_port_takes_what_its_mode_allows(made: Path, mode: TlsMode, by_tls: bool, served: bool) -> None:
    async def main() -> bytes:
        port = HaPort(RealNet(), "127.0.0.1", 0, ours=Echo, tls=lambda: tls_of(made, mode))
        await port.start()
        context = ssl.create_default_context(cafile=str(made / "ca.pem")) if by_tls else None
        try:
            async with asyncio.timeout(30):
                transport, line = await RealNet().connect("127.0.0.1", port.port, Line, tls=context)
                # Half of the first bytes, then the rest with more than one record of TLS.
                transport.write(MAGIC[:2])
                await asyncio.sleep(0)
                transport.write(MAGIC[2:] + bytes(40_000))
                await line.enough.wait()
                transport.abort()
                return line.data
        except OSError:
            return b""
        finally:
            await port.close()

    assert len(asyncio.run(main())) == (40_004 if served else 0)


def test_a_handshake_that_never_ends_and_one_that_is_none_are_closed(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.replication.port.FIRST_BYTES_S", 0.2)

    async def main() -> None:
        port = HaPort(RealNet(), "127.0.0.1", 0, ours=Echo, tls=lambda: tls_of(made, TlsMode.enforcing))
        await port.start()
        try:
            async with asyncio.timeout(30):
                for first in (b"\x16\x03\x01\x00\x05hello", b"\x16"):
                    transport, line = await RealNet().connect("127.0.0.1", port.port, Line)
                    transport.write(first)
                    await line.lost.wait()
        finally:
            await port.close()

    asyncio.run(main())


# -- mutual TLS and host names, with the certificates that `aerobee tls init` makes


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another authority, whose server certificate is for another host."""
    directory = tmp_path_factory.mktemp("tls") / "other"
    init_authority(str(directory), ["mq.example.org"], ["replica"], SystemClock().now_ms())
    return directory


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls") / "mutual"
    init_authority(str(directory), ["127.0.0.1"], ["replica"], SystemClock().now_ms())
    return directory


def accepting(served: Path, trusted: Path) -> ServerTls:
    """Return the TLS of a port that wants certificates of an authority."""
    return TlsConfig(
        server_mode=TlsMode.enforcing, server_cert_path=str(served / "server.pem"),
        server_key_path=str(served / "server.key"), server_need_client_auth=ClientAuth.require,
        server_trust_cert_path=str(trusted / "ca.pem"),
    ).accepting()  # fmt: skip


def connecting(trusted: Path, shown: Path | None, *, verify_host: bool = True) -> ssl.SSLContext:
    """Return how a server connects: whom it trusts, and which certificate it shows."""
    files = {} if shown is None else {
        "client_cert_path": str(shown / "replica.pem"), "client_key_path": str(shown / "replica.key"),
    }  # fmt: skip
    found = TlsConfig(
        enable=True, client_auth_server=True, client_verify_host=verify_host,
        client_trust_cert_path=str(trusted / "ca.pem"), **files,
    ).connecting()  # fmt: skip
    assert found is not None
    return found


async def echoed_by_replica(server: ServerTls, client: ssl.SSLContext) -> bool:
    port = HaPort(RealNet(), "127.0.0.1", 0, ours=Echo, tls=lambda: server)
    await port.start()
    try:
        transport, line = await RealNet().connect("127.0.0.1", port.port, Line, tls=client)
        transport.write(MAGIC + bytes(40_000))
        await line.enough.wait()
        transport.abort()
        return len(line.data) == 40_004
    finally:
        await port.close()


async def asked_by_remoting(server: ServerTls, client: ssl.SSLContext) -> bool:
    """Ask as a broker asks its name server, or a replica another one."""
    served = Server("names", {1: lambda channel, command: response(command)}, clock=SystemClock(), tls=server)
    port = await served.bind("127.0.0.1", 0)
    await served.serve()
    asking = RemotingClient(tls=client)
    try:
        return (await asking.call(f"127.0.0.1:{port}", request(1, opaque=1), 20)).code == 0
    finally:
        await asking.close()
        await served.close()


@pytest.mark.parametrize("way", [echoed_by_replica, asked_by_remoting])
def test_servers_know_each_other_by_certificates(
    mutual: Path, other: Path, way: Callable[[ServerTls, ssl.SSLContext], Awaitable[bool]]
) -> None:
    server, foreign = accepting(mutual, mutual), accepting(other, mutual)

    def served(by: ServerTls, client: ssl.SSLContext) -> bool:
        async def main() -> bool:
            async with asyncio.timeout(30):
                try:
                    return await way(by, client)
                except (OSError, AerobeeError):
                    return False

        return asyncio.run(main())

    assert served(server, connecting(mutual, mutual))
    assert not served(server, connecting(mutual, None)), "no certificate"
    assert not served(server, connecting(mutual, other)), "a certificate of another authority"
    assert not served(server, connecting(other, mutual)), "a server of another authority"
    assert not served(foreign, connecting(other, mutual)), "the certificate is for another host"
    assert served(foreign, connecting(other, mutual, verify_host=False)), "names are not checked unless told"


def test_a_host_is_verified_only_with_its_certificate() -> None:
    with pytest.raises(ConfigError, match=r"verifyHost needs tls\.client\.authServer"):
        TlsConfig(client_verify_host=True)
