"""A broker that was the master passes on what clients with an old route ask, within bounds and for a minute."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aerobee.broker.forwarding import FORWARD_S, FORWARDED, HOLD_S, IN_FLIGHT_MAX, Forwarder
from aerobee.broker.roles import REJECTED, Tables, leader_tables
from aerobee.model.topic import TopicConfig
from aerobee.net.channel import Channel
from aerobee.net.client import RemotingClient
from aerobee.net.server import Server
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.runtime.tasks import Tasks
from aerobee.testing.brokerkit import BrokerKit
from aerobee.testing.clock import VirtualClock
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.loop import VirtualLoop, run_virtual
from aerobee.testing.net import SimNet
from aerobee.testing.sendkit import send
from aerobee.testing.workload import RawClient

OLD, NEW, HUNG = "10.0.1.1:10911", "10.0.1.2:10911", "10.0.1.3:10911"
OFF = "10.0.1.4:10911"


def run(
    main: Callable[[Forwarder, RawClient, BrokerKit], Awaitable[None]], leads: Callable[[], bool] = lambda: True
) -> None:
    """Run a test with an old master that forwards, a client of it, and the new master, which may not lead yet.

    A third broker says nothing to the first send that it gets, and the host of a fourth one is switched off.
    """
    unheard = [True]

    def on_send(channel: Channel, command: Command) -> Command | None:
        return None if unheard and unheard.pop() else response(command)

    async def body(loop: VirtualLoop) -> None:
        net, clock = SimNet(loop, seed=1), VirtualClock(loop.time)
        net.power_off("10.0.1.4")
        new = BrokerKit(RecordingDisk(seed=1), clock)
        new.state.catalog.put_topic(TopicConfig("T", 1, 1))
        old = BrokerKit(RecordingDisk(seed=1), clock, authority=lambda: False, following=True)
        links = RemotingClient(net=net.host("10.0.1.1"))
        async with Tasks() as tasks:
            forwarder = Forwarder(links, clock, tasks)
            tables = forwarder.served(old.broker.served())
            served = leader_tables(Tables(new.broker.handlers, new.broker.fast), leads)
            servers = []
            for kit, host, handlers, fast in (
                (old, "10.0.1.1", tables.handlers, tables.fast),
                (new, "10.0.1.2", served.handlers, served.fast),
                (None, "10.0.1.3", {RequestCode.SEND_MESSAGE_V2: on_send}, {}),
            ):
                observer = kit.broker.effects if kit else None
                server = Server(host, handlers, clock=clock, fast=fast, observer=observer, net=net.host(host))
                await server.listen(host, 10911)
                servers.append(server)
            tasks.start(ticking(new), name="tick")
            client = RawClient(OLD, net.host("10.0.2.1"))
            await main(forwarder, client, new)
            await client.close()
            await links.close()
            for server in servers:
                await server.close()

    run_virtual(body)


async def ticking(kit: BrokerKit) -> None:
    while True:
        kit.tick()
        await asyncio.sleep(0.05)


def test_sends_and_pulls_reach_the_new_master_for_a_minute() -> None:
    async def main(forwarder: Forwarder, client: RawClient, new: BrokerKit) -> None:
        assert (await client.send("T", 0, b"early")).remark == REJECTED
        forwarder.begin()
        forwarder.aim(NEW)
        await asyncio.sleep(0.1)
        answer = await client.send("T", 0, b"one")
        assert (answer.code, answer.ext["queueOffset"]) == (ResponseCode.SUCCESS, "0")
        assert await client.pull("T", 0, 0) == (ResponseCode.SUCCESS, 1, [(0, "one")])
        # A pull is held by the new master, and others pass it meanwhile.
        held = asyncio.ensure_future(client.pull("T", 0, 1, hold_ms=15_000))
        await asyncio.sleep(5)
        assert not held.done()
        await client.send("T", 0, b"two")
        assert (await held)[2] == [(1, "two")]
        await asyncio.sleep(FORWARD_S)
        assert (await client.send("T", 0, b"late")).remark == REJECTED
        assert forwarder.forwarded == 4

    run(main)


def test_what_was_passed_on_once_is_not_passed_on_again() -> None:
    async def main(forwarder: Forwarder, client: RawClient, new: BrokerKit) -> None:
        forwarder.begin()
        forwarder.aim(NEW)
        await asyncio.sleep(0.1)
        command = send()
        command.ext[FORWARDED] = "1"
        answer = await client.remoting.call(OLD, command)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, REJECTED)

    run(main)


def test_without_a_master_and_with_too_much_in_flight_requests_are_refused() -> None:
    async def main(forwarder: Forwarder, client: RawClient, new: BrokerKit) -> None:
        forwarder.begin()
        assert (await client.send("T", 0, b"nobody")).remark == REJECTED
        forwarder.aim("10.0.1.9:10911")
        assert (await client.send("T", 0, b"nobody there")).remark == REJECTED
        forwarder.aim(NEW)
        await asyncio.sleep(5)
        assert (await client.send("T", 0, b"connects")).code == ResponseCode.SUCCESS
        await asyncio.sleep(0.1)
        held = [asyncio.ensure_future(client.pull("T", 0, 1, hold_ms=15_000)) for _ in range(IN_FLIGHT_MAX)]
        await asyncio.sleep(1)
        assert (await client.send("T", 0, b"too many")).remark == REJECTED
        for pull in held:
            pull.cancel()
        forwarder.end()

    run(main)


def test_requests_wait_in_their_order_for_a_master_that_does_not_lead_yet() -> None:
    leading: list[bool] = []

    async def main(forwarder: Forwarder, client: RawClient, new: BrokerKit) -> None:
        forwarder.begin()
        sends = [asyncio.ensure_future(client.send("T", 0, b"%d" % number)) for number in range(50)]
        pull = asyncio.ensure_future(client.pull("T", 0, 0, hold_ms=15_000))
        await asyncio.sleep(0.3)  # there is no master
        forwarder.aim(NEW)
        await asyncio.sleep(0.3)  # it does not lead
        assert not any(one.done() for one in (*sends, pull))
        leading.append(True)
        answers = [await one for one in sends]
        assert [answer.ext.get("queueOffset") for answer in answers] == [str(number) for number in range(50)]
        assert (await pull)[2][0] == (0, "0")

    run(main, lambda: bool(leading))


def test_nobody_waits_longer_than_two_seconds() -> None:
    async def main(forwarder: Forwarder, client: RawClient, new: BrokerKit) -> None:
        forwarder.begin()
        forwarder.aim(NEW)
        began_s = asyncio.get_running_loop().time()
        sends = [client.send("T", 0, b"one"), client.send("T", 0, b"two")]
        assert [one.remark for one in await asyncio.gather(*sends)] == [REJECTED] * 2
        assert HOLD_S <= asyncio.get_running_loop().time() - began_s < HOLD_S + 0.5

    run(main, lambda: False)


async def pass_by(forwarder: Forwarder, client: RawClient, master: str) -> asyncio.Future[Command]:
    """Send to a master that gives no answer, and half a second later to the next one, which must answer at once. Return
    the first send, which waits."""
    loop = asyncio.get_running_loop()
    forwarder.begin()
    forwarder.aim(master)
    first = asyncio.ensure_future(client.send("T", 0, b"first"))
    await asyncio.sleep(0.5)
    forwarder.aim(NEW)
    began_s = loop.time()
    assert (await client.send("T", 0, b"second")).code == ResponseCode.SUCCESS
    assert loop.time() - began_s < 0.2
    return first


def test_a_silent_master_does_not_hold_up_the_next_one() -> None:
    """A send that one master does not answer is under way when the group chooses another one."""

    async def main(forwarder: Forwarder, client: RawClient, new: BrokerKit) -> None:
        first = await pass_by(forwarder, client, HUNG)
        assert not first.done()
        assert (await first).remark == REJECTED

    run(main)


def test_a_master_whose_host_is_off_does_not_hold_up_the_next_one() -> None:
    """A connection to a host that is off takes seconds to fail."""

    async def main(forwarder: Forwarder, client: RawClient, new: BrokerKit) -> None:
        first = await pass_by(forwarder, client, OFF)
        assert (await first).code == ResponseCode.SUCCESS

    run(main)


def test_a_send_without_an_answer_holds_up_the_next_one_for_two_seconds() -> None:
    async def main(forwarder: Forwarder, client: RawClient, new: BrokerKit) -> None:
        loop = asyncio.get_running_loop()
        forwarder.begin()
        forwarder.aim(HUNG)
        began_s = loop.time()
        first = asyncio.ensure_future(client.send("T", 0, b"first"))
        await asyncio.sleep(1)
        assert (await client.send("T", 0, b"second")).code == ResponseCode.SUCCESS
        assert HOLD_S <= loop.time() - began_s < HOLD_S + 0.5
        assert (await first).remark == REJECTED

    run(main)


def test_what_waits_when_the_broker_stops_starts_nothing() -> None:
    async def body(loop: VirtualLoop) -> None:
        net, clock, tasks = SimNet(loop, seed=1), VirtualClock(loop.time), Tasks()
        broken: list[object] = []
        loop.set_exception_handler(lambda _, context: broken.append(context))
        forwarder = Forwarder(RemotingClient(net=net.host("10.0.1.1")), clock, tasks)
        old = BrokerKit(RecordingDisk(seed=1), clock, authority=lambda: False, following=True)
        tables = forwarder.served(old.broker.served())
        server = Server("10.0.1.1", tables.handlers, clock=clock, fast=tables.fast, net=net.host("10.0.1.1"))
        await server.listen("10.0.1.1", 10911)
        forwarder.begin()
        client = RawClient(OLD, net.host("10.0.2.1"))
        waiting = asyncio.ensure_future(client.send("T", 0, b"one"))
        await asyncio.sleep(0.1)
        await tasks.close()
        forwarder.aim(NEW)
        assert (await waiting).remark == REJECTED
        assert broken == []
        await client.close()
        await server.close()

    run_virtual(body)
