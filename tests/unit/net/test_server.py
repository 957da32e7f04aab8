"""The server's side of a connection: answers, refusals, junk and peers that stall, over real loopback sockets."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from aerobee.errors import InvalidArgumentError, RequestTimeoutError, TransportError
from aerobee.errors.codes import error_for
from aerobee.net.channel import Channel
from aerobee.net.client import RemotingClient
from aerobee.net.limits import ConnectionLimits
from aerobee.net.server import Server
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command, encode_command, request, response
from aerobee.runtime.clock import SystemClock

ECHO, FAIL, BUG, LATER, SILENT, HUGE = 10, 12, 13, 14, 15, 16


class Observed:
    def __init__(self) -> None:
        self.opened: list[Channel] = []
        self.closed: list[Channel] = []
        self.gone = asyncio.Event()

    def channel_opened(self, channel: Channel) -> None:
        self.opened.append(channel)

    def channel_closed(self, channel: Channel) -> None:
        self.closed.append(channel)
        self.gone.set()


def echo(channel: Channel, command: Command) -> Command:
    return response(command, body=command.body, ext={"peer": channel.remote_address})


def fail(channel: Channel, command: Command) -> Command:
    raise error_for(ResponseCode.TOPIC_NOT_EXIST, "no such topic", "")


def bug(channel: Channel, command: Command) -> Command:
    raise InvalidArgumentError("a value of ours")


def later(channel: Channel, command: Command) -> None:
    asyncio.get_running_loop().call_soon(channel.send, response(command, body=b"later"))


def silent(channel: Channel, command: Command) -> None:
    return None


def huge(channel: Channel, command: Command) -> Command:
    return response(command, body=bytes(1 << 20))


HANDLERS = {ECHO: echo, FAIL: fail, BUG: bug, LATER: later, SILENT: silent, HUGE: huge}
Body = Callable[[Server, Observed, str], Awaitable[None]]


def serve(body: Body, limits: ConnectionLimits | None = None) -> None:
    async def main() -> None:
        observed = Observed()
        server = Server("test", HANDLERS, clock=SystemClock(), observer=observed, limits=limits)
        port = await server.listen("127.0.0.1", 0)
        try:
            async with asyncio.timeout(20):
                await body(server, observed, f"127.0.0.1:{port}")
        finally:
            await server.close()

    asyncio.run(main())


async def ask(client: RemotingClient, address: str, code: int, body: bytes = b"") -> Command:
    return await client.call(address, request(code, body=body, opaque=client.next_opaque()))


def test_answers_now_and_later() -> None:
    async def body(server: Server, observed: Observed, address: str) -> None:
        client = RemotingClient()
        assert (await ask(client, address, ECHO, b"hi")).body == b"hi"
        assert (await ask(client, address, LATER)).body == b"later"
        await client.close()
        await observed.gone.wait()
        assert observed.closed == observed.opened

    serve(body)


@pytest.mark.parametrize(
    ("code", "answer", "text"),
    [
        (FAIL, ResponseCode.TOPIC_NOT_EXIST, "no such topic"),
        (BUG, ResponseCode.SYSTEM_ERROR, "a value of ours"),
        (9999, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 9999 not supported"),
    ],
)
def test_refusals_become_answers(code: int, answer: int, text: str) -> None:
    async def body(server: Server, observed: Observed, address: str) -> None:
        client = RemotingClient()
        got = await ask(client, address, code)
        assert got.code == answer
        assert text in (got.remark or "")
        assert (await ask(client, address, ECHO, b"still here")).body == b"still here"
        await client.close()

    serve(body)


def test_many_in_flight_on_one_connection_each_get_their_own_answer() -> None:
    async def body(server: Server, observed: Observed, address: str) -> None:
        client = RemotingClient()
        answers = await asyncio.gather(*(ask(client, address, ECHO, b"%d" % i) for i in range(500)))
        assert [int(a.body) for a in answers] == list(range(500))
        assert len(observed.opened) == 1
        await client.close()

    serve(body)


@pytest.mark.parametrize(
    "junk",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff" * 64,
        b"\x7f\xff\xff\xff" + b"\x00" * 60,
        b"\x00\x00\x00\x08\x02\x00\x00\x04abcd",
        b"\x00\x00\x00\x0c\x00\x00\x00\x08{nojson}",
        b"\x00\x00\x00\x03\x00\x00\x00\x00",
    ],
)
def test_junk_closes_that_connection_only(junk: bytes) -> None:
    async def body(server: Server, observed: Observed, address: str) -> None:
        client = RemotingClient()
        await ask(client, address, ECHO)
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(junk)
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        writer.close()
        assert (await ask(client, address, ECHO, b"fine")).body == b"fine"
        assert len(server.channels) == 1
        await client.close()

    serve(body)


def test_frames_that_arrive_byte_by_byte_are_answered() -> None:
    async def body(server: Server, observed: Observed, address: str) -> None:
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for byte in encode_command(request(ECHO, body=b"slow", opaque=7)):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        head = await reader.readexactly(4)
        answer = await reader.readexactly(int.from_bytes(head))
        assert answer.endswith(b"slow")
        writer.close()

    serve(body)


@pytest.mark.parametrize(
    "limits",
    [
        ConnectionLimits(write_stall_s=0.1, write_high_water_bytes=1 << 16),
        # Long before its silence would be too long: all peers together leave too much, and it leaves the most.
        ConnectionLimits(unread_bytes_max=100_000, write_high_water_bytes=1 << 16),
    ],
    ids=["silent for too long", "too much unread in all"],
)
def test_a_peer_that_does_not_read_is_cut_and_others_go_on(limits: ConnectionLimits) -> None:
    async def body(server: Server, observed: Observed, address: str) -> None:
        host, port = address.split(":")
        deaf = socket.create_connection((host, int(port)))
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        await asyncio.get_running_loop().sock_sendall(
            deaf, b"".join(encode_command(request(HUGE, opaque=i)) for i in range(16))
        )
        client = RemotingClient()
        assert (await ask(client, address, ECHO, b"fine")).body == b"fine"
        await asyncio.wait_for(observed.gone.wait(), 5)
        assert observed.closed[0].remote_address == "{}:{}".format(*deaf.getsockname())
        assert (await ask(client, address, ECHO, b"fine")).body == b"fine"
        deaf.close()
        await client.close()

    serve(body, limits)


def test_an_unfinished_frame_and_an_idle_peer_are_cut() -> None:
    limits = ConnectionLimits(frame_progress_s=0.1, idle_s=0.5)

    async def body(server: Server, observed: Observed, address: str) -> None:
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"\x00\x00\x01\x00\x00")
        idle_reader, idle_writer = await asyncio.open_connection(host, int(port))
        for one in (reader, idle_reader):
            try:
                assert await one.read() == b""
            except ConnectionResetError:
                pass
        writer.close()
        idle_writer.close()

    serve(body, limits)


def test_unfinished_frames_have_a_bound_together_and_the_oldest_goes() -> None:
    limits = ConnectionLimits(unfinished_bytes_max=400_000)

    async def body(server: Server, observed: Observed, address: str) -> None:
        host, port = address.split(":")
        slow_reader, slow_writer = await asyncio.open_connection(host, int(port))
        slow_writer.write(b"\x00\x0f\x00\x00\x00\x00\x00\x10" + b"x" * 300_000)
        await slow_writer.drain()
        client = RemotingClient()
        # By the second question the first connection's bytes have been read.
        for text in (b"y", b"z", b"y"):
            assert (await ask(client, address, ECHO, text * 390_000)).body == text * 390_000
        try:
            assert await slow_reader.read() == b""
        except ConnectionResetError:
            pass
        slow_writer.close()
        assert (await ask(client, address, ECHO, b"z" * 390_000)).body == b"z" * 390_000
        await client.close()

    serve(body, limits)


def test_a_peer_that_leaves_raises_nothing_in_the_loop() -> None:
    async def body(server: Server, observed: Observed, address: str) -> None:
        problems: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write_eof()
        assert await reader.read() == b""
        await observed.gone.wait()
        writer.close()
        assert problems == []

    serve(body)


def test_too_many_connections_are_refused() -> None:
    async def body(server: Server, observed: Observed, address: str) -> None:
        first, second = RemotingClient(), RemotingClient()
        await ask(first, address, ECHO)
        with pytest.raises(TransportError):
            await ask(second, address, ECHO)
        assert (await ask(first, address, ECHO, b"fine")).body == b"fine"
        await first.close()
        await second.close()

    serve(body, ConnectionLimits(connections_max=1))


def test_a_server_asks_its_client_and_gets_the_answer_or_the_reason() -> None:
    async def body(server: Server, observed: Observed, address: str) -> None:
        client = RemotingClient({40: lambda link, command: response(command, body=b"me")})
        await ask(client, address, ECHO)
        channel = observed.opened[0]
        got: list[Command | Exception] = []
        answered = asyncio.Event()

        def took(outcome: Command | Exception) -> None:
            got.append(outcome)
            answered.set()

        channel.request(request(40, opaque=1), took)
        await answered.wait()
        assert isinstance(got[0], Command)
        assert got[0].body == b"me"
        answered.clear()
        channel.request(request(41, opaque=2), took)
        await answered.wait()
        assert isinstance(got[1], Command)
        assert got[1].code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        await client.close()
        await observed.gone.wait()
        channel.request(request(40, opaque=3), took)
        assert isinstance(got[2], TransportError)

    serve(body)


def test_a_client_says_why_there_is_no_answer() -> None:
    async def body(server: Server, observed: Observed, address: str) -> None:
        client = RemotingClient(connect_timeout_s=30)
        await ask(client, address, ECHO)
        with pytest.raises(RequestTimeoutError, match=f"no answer within 0.05 s at {address}"):
            await client.call(address, request(SILENT, opaque=101), timeout_s=0.05)
        waiting = asyncio.ensure_future(client.call(address, request(SILENT, opaque=102), timeout_s=60))
        await ask(client, address, ECHO)
        observed.opened[0].abort()
        with pytest.raises(TransportError, match="was lost"):
            await waiting
        assert (await ask(client, address, ECHO, b"again")).body == b"again"
        with pytest.raises(TransportError, match="could not connect"):
            await client.call("127.0.0.1:1", request(ECHO, opaque=9))
        with pytest.raises(TransportError, match="is not host:port"):
            await client.call("nonsense", request(ECHO, opaque=10))
        await client.close()

    serve(body)
