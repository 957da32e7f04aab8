"""Plain, TLS and PROXY connections on one port, over real loopback sockets, on asyncio's loop and on uvloop."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from aerobee.access.config import AccessConfig
from aerobee.errors import AerobeeError, ConfigError
from aerobee.net.channel import Channel
from aerobee.net.client import RemotingClient
from aerobee.net.config import ClientAuth, ServerTls, TlsConfig, TlsMode
from aerobee.net.greeter import Greeter
from aerobee.net.limits import ConnectionLimits
from aerobee.net.server import Server
from aerobee.net.tls import TlsTransport
from aerobee.protocol.command import Command, decode_frame, encode_command, request, response
from aerobee.runtime.clock import SystemClock
from aerobee.telemetry.logs import Logs
from aerobee.telemetry.stdlog import lead_to
from aerobee.testing.certificates import Certificate, make_certificate
from aerobee.testing.secrets import secret_for
from aerobee.testing.workload import eventually

ECHO, HUGE = 10, 16
V1 = b"PROXY TCP4 192.0.2.1 127.0.0.1 50000 10911\r\n"
V2_IPV6 = b"\r\n\r\n\x00\r\nQUIT\n\x21\x21\x00\x24" + bytes(15) + b"\x01" + bytes(15) + b"\x02" + b"\xc3\x50\x2a\x9f"
V2_LOCAL = b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"


def echo(channel: Channel, command: Command) -> Command:
    return response(command, body=command.body, ext={"peer": channel.remote_address, "host": channel.remote_host.hex()})


def huge(channel: Channel, command: Command) -> Command:
    return response(command, body=bytes(1 << 20))


Run = Callable[..., None]
Body = Callable[[Server, int], Awaitable[None]]


@pytest.fixture(scope="module")
def tls(certificate: Certificate) -> ServerTls:
    return TlsConfig(server_cert_path=str(certificate.cert), server_key_path=str(certificate.key)).accepting()


@pytest.fixture
def lines() -> list[str]:
    """What the server logs."""
    found: list[str] = []
    lead_to(Logs(SystemClock(), found.append))
    return found


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def serve(request: pytest.FixtureRequest) -> Run:
    def run(body: Body, tls: ServerTls | None = None, limits: ConnectionLimits | None = None) -> None:
        async def main() -> None:
            handlers = {ECHO: echo, HUGE: huge}
            server = Server("test", handlers, clock=SystemClock(), limits=limits, tls=tls)
            port = await server.listen("127.0.0.1", 0)
            try:
                async with asyncio.timeout(60):
                    await body(server, port)
            finally:
                await server.close()
            assert not server.channels

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main())

    return run


async def answer(reader: asyncio.StreamReader) -> Command:
    length = await reader.readexactly(4)
    return decode_frame(length + await reader.readexactly(int.from_bytes(length, "big")))


def asking(body: bytes = b"hi", opaque: int = 1) -> bytes:
    return encode_command(request(ECHO, body=body, opaque=opaque))


async def is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


async def ask(port: int, code: int, *, tls: ssl.SSLContext | None = None, body: bytes = b"hi") -> Command:
    client = RemotingClient(tls=tls)
    try:
        return await client.call(f"127.0.0.1:{port}", request(code, body=body, opaque=1), 30)
    finally:
        await client.close()


def test_a_plain_connection_is_its_channels_from_the_first_read_on(serve: Run) -> None:
    async def body(server: Server, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(asking(b"first"))
        assert (await answer(reader)).body == b"first"
        (channel,) = server.channels.values()
        transport = channel._transport
        assert transport is not None and transport.get_protocol() is channel
        writer.write(asking(b"second"))
        assert (await answer(reader)).body == b"second"
        writer.close()

    serve(body)


@pytest.mark.parametrize("header", [V1, V2_IPV6])
@pytest.mark.parametrize("trusted", ["10.0.0.0/8, ::1", "127.0.0.0/8", ""])
@pytest.mark.parametrize("has_users", [False, True])
def test_only_a_trusted_proxy_is_believed(
    serve: Run, lines: list[str], header: bytes, trusted: str, has_users: bool
) -> None:
    config = AccessConfig(authentication_enabled=has_users, proxy_protocol_trusted_addresses=trusted)
    believed = trusted.startswith("127") or (not trusted and not has_users)

    async def body(server: Server, port: int) -> None:
        server.believes_proxy = config.believes_proxy()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(header + asking())
        told = (await answer(reader)).ext["peer"]
        assert told.startswith("127.0.0.1:") is not believed
        writer.close()

    serve(body)
    assert any("proxyProtocolTrustedAddresses" in line for line in lines) is not believed


def test_what_is_no_address_is_no_trusted_proxy() -> None:
    with pytest.raises(ConfigError) as refused:
        AccessConfig(proxy_protocol_trusted_addresses="10.0.0.1, lb.example, 10.0.0.0/99")
    assert str(refused.value).count("proxyProtocolTrustedAddresses") == 2


def test_plain_and_tls_side_by_side_on_one_port(serve: Run, tls: ServerTls, certificate: Certificate) -> None:
    async def body(server: Server, port: int) -> None:
        context = certificate.client_context()
        sizes = [0, 1, 100, 20_000, 3_000_000]
        asked = [ask(port, ECHO, tls=one, body=bytes(size)) for one in (None, context) for size in sizes]
        answers = await asyncio.gather(*asked)
        assert [len(one.body or b"") for one in answers] == [*sizes, *sizes]

    serve(body, tls)


def test_many_large_answers_to_one_tls_client(serve: Run, tls: ServerTls, certificate: Certificate) -> None:
    """More than the socket holds: reading pauses and goes on."""

    async def body(server: Server, port: int) -> None:
        client = RemotingClient(tls=certificate.client_context())
        address = f"127.0.0.1:{port}"
        calls = [client.call(address, request(HUGE, opaque=client.next_opaque()), 30) for _ in range(32)]
        assert [len(one.body or b"") for one in await asyncio.gather(*calls)] == [1 << 20] * 32
        await client.close()

    serve(body, tls, ConnectionLimits(write_high_water_bytes=1 << 16))


@pytest.mark.parametrize(
    ("header", "peer", "host"),
    [
        (V1, "192.0.2.1:50000", "c00002010000c350"),
        (V2_IPV6, "[::1]:50000", "00000000000000000000000000000001" + "0000c350"),
        (V2_LOCAL, "127.0.0.1:", "7f000001"),
    ],
    ids=["v1", "v2", "v2-local"],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_a_proxy_tells_who_the_client_is(serve: Run, header: bytes, peer: str, host: str, step: int) -> None:
    async def body(server: Server, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        told = header + asking()
        writer.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(told), step):
            writer.write(told[start : start + step])
            await writer.drain()
            await asyncio.sleep(0)
        got = await answer(reader)
        assert got.body == b"hi"
        assert got.ext["peer"].startswith(peer) and got.ext["host"].startswith(host)
        writer.close()

    serve(body)


def test_tls_behind_a_proxy(serve: Run, tls: ServerTls, certificate: Certificate) -> None:
    async def body(server: Server, port: int) -> None:
        loop = asyncio.get_running_loop()
        raw = socket.create_connection(("127.0.0.1", port))
        raw.setblocking(False)
        await loop.sock_sendall(raw, V2_IPV6)
        reader, writer = await asyncio.open_connection(
            sock=raw, ssl=certificate.client_context(), server_hostname="127.0.0.1"
        )
        writer.write(asking() + asking(b"again", 2))
        first, second = await answer(reader), await answer(reader)
        assert (first.body, second.body) == (b"hi", b"again")
        assert first.ext["peer"] == "[::1]:50000"
        writer.close()

    serve(body, tls)


def test_a_goodbye_in_tls_is_answered_to_the_end(serve: Run, tls: ServerTls, certificate: Certificate) -> None:
    """Requests and the goodbye in one read: the answers leave first."""

    async def body(server: Server, port: int) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = certificate.client_context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            try:
                session.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(65536))
        session.write(asking())
        with pytest.raises(ssl.SSLWantReadError):
            session.unwrap()
        writer.write(outgoing.read())
        incoming.write(await reader.read())
        got = session.read(65536)
        assert decode_frame(got).body == b"hi"
        writer.close()

    serve(body, tls)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"PROXY TCP4 nowhere 127.0.0.1 1 2\r\n", "'nowhere' is not an IPv4 address"),
        (b"PROXY " + b"x" * 200, "no line end within 107 bytes"),
        (V2_LOCAL[:12] + b"\x41\x00\x00\x00", "version 4"),
        (V1 + b"GET / HTTP/1.1\r\n\r\n", "not the remoting protocol"),
        (b"GET / HTTP/1.1\r\n\r\n", "not the remoting protocol"),
        (b"\x16\x03\x01\x00\x09no hello!", "TLS: "),
        (V1 + b"\x16\x03\x01\x00\x09no hello!", "TLS: "),
    ],
    ids=["v1 address", "v1 length", "v2 version", "junk behind v1", "junk", "junk hello", "junk hello behind v1"],
)
def test_junk_closes_that_connection_and_is_said_once(
    serve: Run, tls: ServerTls, lines: list[str], sent: bytes, reason: str
) -> None:
    async def body(server: Server, port: int) -> None:
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            # An alert of TLS may come first.
            try:
                while await reader.read(1000):
                    pass
            except ConnectionResetError:
                pass
            writer.close()
        assert (await ask(port, ECHO)).body == b"hi"

    serve(body, tls)
    assert len([line for line in lines if reason in line]) == 1, lines


@pytest.mark.parametrize(
    ("sent", "what"),
    [
        (b"PROXY TCP4", "a PROXY header"),
        (V2_IPV6[:20], "a PROXY header"),
        (b"\x16", "a TLS handshake"),
        (V1 + b"\x16\x03\x01\x02\x00\x01", "a TLS handshake"),
    ],
)
def test_who_begins_and_does_not_finish_is_cut(
    serve: Run, tls: ServerTls, lines: list[str], sent: bytes, what: str
) -> None:
    async def body(server: Server, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert await is_closed(reader)
        writer.close()

    serve(body, tls, ConnectionLimits(greeting_s=0.1))
    assert len([line for line in lines if f"{what} was begun and not finished" in line]) == 1, lines


def test_a_finished_greeting_is_not_cut_later(serve: Run, tls: ServerTls, certificate: Certificate) -> None:
    async def body(server: Server, port: int) -> None:
        client = RemotingClient(tls=certificate.client_context())
        await client.call(f"127.0.0.1:{port}", request(ECHO, opaque=1), 30)
        (channel,) = server.channels.values()
        assert isinstance(channel._transport, TlsTransport)
        greeter = channel._transport._transport.get_protocol()
        assert isinstance(greeter, Greeter) and greeter._timer is not None
        assert greeter._timer.cancelled()
        await client.close()

    serve(body, tls)


@pytest.mark.parametrize("sent", [b"", b"PROXY TC", b"\x16\x03\x01", V1])
def test_who_leaves_early_leaves_nothing(serve: Run, tls: ServerTls, lines: list[str], sent: bytes) -> None:
    async def body(server: Server, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        writer.close()
        await writer.wait_closed()
        assert (await ask(port, ECHO)).body == b"hi"
        await eventually(lambda: not server.channels)

    serve(body, tls)
    assert not lines


@pytest.mark.parametrize(
    ("mode", "with_certificate", "with_tls", "reason"),
    [
        (TlsMode.permissive, False, True, "tls.server.certPath and tls.server.keyPath are not set"),
        (TlsMode.disabled, True, True, "tls.server.mode is disabled"),
        (TlsMode.enforcing, True, False, "tls.server.mode is enforcing"),
    ],
)
def test_what_the_mode_does_not_take_is_closed_and_said_once(
    serve: Run,
    tls: ServerTls,
    certificate: Certificate,
    lines: list[str],
    mode: TlsMode,
    with_certificate: bool,
    with_tls: bool,
    reason: str,
) -> None:
    context = certificate.client_context()

    async def body(server: Server, port: int) -> None:
        for _ in range(3):
            with pytest.raises(AerobeeError):
                await ask(port, ECHO, tls=context if with_tls else None)
        assert (await ask(port, ECHO, tls=None if with_tls else context)).body == b"hi"

    serve(body, ServerTls(mode, tls.context if with_certificate else None))
    assert len([line for line in lines if reason in line]) == 1, lines


def test_clients_certificates(serve: Run, certificate: Certificate, tmp_path: Path, lines: list[str]) -> None:
    """Needed: who shows one that is trusted is served, who shows another or none is not."""
    trusted, other = (
        make_certificate(tmp_path, "trusted", password=secret_for("key")),
        make_certificate(tmp_path, "other"),
    )
    config = TlsConfig(
        server_cert_path=str(certificate.cert),
        server_key_path=str(certificate.key),
        server_need_client_auth=ClientAuth.require,
        server_trust_cert_path=str(trusted.cert),
    )

    async def body(server: Server, port: int) -> None:
        for shown in (trusted, other, None):
            own = TlsConfig(
                enable=True,
                client_auth_server=True,
                client_trust_cert_path=str(certificate.cert),
                client_cert_path=str(shown.cert) if shown else "",
                client_key_path=str(shown.key) if shown else "",
                client_key_password=shown.password if shown else "",
            )
            asked = ask(port, ECHO, tls=own.connecting())
            if shown is trusted:
                assert (await asked).body == b"hi"
            else:
                with pytest.raises(AerobeeError):
                    await asked

    serve(body, config.accepting())
    assert len([line for line in lines if "TLS: " in line]) == 2, lines


def test_too_many_connections_are_refused_before_they_greet(serve: Run) -> None:
    async def body(server: Server, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(asking())
        await answer(reader)
        second, second_writer = await asyncio.open_connection("127.0.0.1", port)
        assert await is_closed(second)
        for one in (writer, second_writer):
            one.close()

    serve(body, None, ConnectionLimits(connections_max=1))
