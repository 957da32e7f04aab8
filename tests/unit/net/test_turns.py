"""Work in slices: others are served in between, what a connection sent behind waits, and what is gone is let go."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aerobee.errors import InvalidArgumentError
from aerobee.net.channel import Channel
from aerobee.net.client import RemotingClient
from aerobee.net.server import Server
from aerobee.net.turns import Sliced, Slices
from aerobee.protocol.bodysizes import DEFAULT_MAX
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command, request, response
from aerobee.runtime.clock import SystemClock
from aerobee.testing.workload import eventually

LONG, WHOLE, ECHO, FAIL, BIG = 131, 132, 133, 134, 135


class Work:
    """Handlers whose work goes on until it is let end."""

    def __init__(self) -> None:
        self.can_end = False
        self.slices = 0
        self.ended: list[str] = []

    def long(self, channel: Channel, command: Command) -> Sliced:
        return Sliced(self._work(command, "long"))

    def whole(self, channel: Channel, command: Command) -> Sliced:
        return Sliced(self._work(command, "whole"), whole=True)

    def _work(self, command: Command, name: str) -> Slices:
        try:
            while not self.can_end:
                self.slices += 1
                yield
            self.ended.append(name)
            return response(command, body=command.body)
        except GeneratorExit:
            self.ended.append(f"{name} let go")
            raise

    def echo(self, channel: Channel, command: Command) -> Command:
        return response(command, body=command.body)

    def fail(self, channel: Channel, command: Command) -> Sliced:
        def slices() -> Slices:
            yield
            raise InvalidArgumentError("no", code=ResponseCode.TOPIC_NOT_EXIST)

        return Sliced(slices())

    def big(self, channel: Channel, command: Command) -> Command:
        return response(command, body=bytes(17 << 20))


Test = Callable[[Work, str, Server], Awaitable[None]]


def serve(test: Test) -> None:
    async def main() -> None:
        work = Work()
        table = {LONG: work.long, WHOLE: work.whole, ECHO: work.echo, FAIL: work.fail, BIG: work.big}
        server = Server("test", table, clock=SystemClock())
        port = await server.listen("127.0.0.1", 0)
        try:
            async with asyncio.timeout(30):
                await test(work, f"127.0.0.1:{port}", server)
        finally:
            work.can_end = True
            await server.close()

    asyncio.run(main())


async def ask(client: RemotingClient, address: str, code: int, body: bytes = b"") -> Command:
    return await client.call(address, request(code, body=body, opaque=client.next_opaque()))


def test_others_are_served_and_what_is_behind_waits() -> None:
    async def test(work: Work, address: str, server: Server) -> None:
        one, other = RemotingClient(), RemotingClient()
        long = asyncio.create_task(ask(one, address, LONG, b"first"))
        await eventually(lambda: work.slices)
        behind = asyncio.create_task(ask(one, address, ECHO, b"second"))
        assert (await ask(other, address, ECHO, b"other")).body == b"other"
        assert not long.done() and not behind.done()
        work.can_end = True
        assert (await long).body == b"first"
        assert (await behind).body == b"second"
        assert work.ended == ["long"]
        await one.close()
        await other.close()

    serve(test)


@pytest.mark.parametrize(("code", "ended"), [(LONG, "long let go"), (WHOLE, "whole")])
def test_work_of_a_connection_that_is_gone(code: int, ended: str) -> None:
    async def test(work: Work, address: str, server: Server) -> None:
        client = RemotingClient()
        asked = asyncio.create_task(ask(client, address, code))
        await eventually(lambda: work.slices)
        # Cut by the server: nothing is read of it meanwhile, so a peer's own goodbye is heard afterwards.
        for channel in list(server.channels.values()):
            channel.abort()
        if code == WHOLE:
            seen = work.slices
            await eventually(lambda: work.slices > seen + 10)
            work.can_end = True
        await eventually(lambda: work.ended)
        assert work.ended == [ended]
        asked.cancel()
        await client.close()

    serve(test)


def test_a_failure_in_a_later_slice_is_answered() -> None:
    async def test(work: Work, address: str, server: Server) -> None:
        client = RemotingClient()
        answer = await ask(client, address, FAIL)
        assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, "no")
        assert (await ask(client, address, ECHO, b"still here")).body == b"still here"
        await client.close()

    serve(test)


def test_an_answer_larger_than_a_frame_and_a_body_larger_than_its_code_may_have() -> None:
    async def test(work: Work, address: str, server: Server) -> None:
        client = RemotingClient()
        answer = await ask(client, address, BIG)
        assert (answer.code, answer.body) == (ResponseCode.SYSTEM_ERROR, b"")
        assert "Ask for less at a time" in (answer.remark or "")
        answer = await ask(client, address, ECHO, bytes(DEFAULT_MAX + 1))
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert str(DEFAULT_MAX) in (answer.remark or "")
        assert (await ask(client, address, ECHO, bytes(DEFAULT_MAX))).code == 0
        await client.close()

    serve(test)
