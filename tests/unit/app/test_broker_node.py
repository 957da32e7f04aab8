"""The life of a broker: start, registration, graceful stop, failing starts, a full disk, far readers."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aerobee.app.broker import BrokerNode
from aerobee.errors import StoreError, TransportError
from aerobee.model.dialect import loads_object
from aerobee.model.route import TopicRouteData
from aerobee.net.channel import Channel
from aerobee.net.server import Server
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.route import GetRouteInfoRequestHeader
from aerobee.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from aerobee.runtime.clock import SystemClock
from aerobee.testing.workload import RawClient, eventually, send_header

Standing = Callable[[], Any]


def client_of(node: BrokerNode) -> RawClient:
    return RawClient(f"127.0.0.1:{node.port}")


@asynccontextmanager
async def serving(standing: Standing, **options: Any) -> AsyncIterator[tuple[Any, BrokerNode, RawClient]]:
    """What a broker stands on, the broker, started, and a client of it. Its end is the test's."""
    async with standing() as stand:
        node = stand.broker(**options)
        await node.start()
        client = client_of(node)
        try:
            yield stand, node, client
        finally:
            await client.close()


async def route_of(namesrv: str, topic: str) -> TopicRouteData | None:
    client = RawClient(namesrv)
    answer = await client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic))
    await client.close()
    return TopicRouteData.from_json(loads_object(answer.body)) if answer.code == ResponseCode.SUCCESS else None


async def read_all(client: RawClient, topic: str) -> list[str]:
    found: list[str] = []
    while True:
        _, _, more = await client.pull(topic, 0, len(found), hold_ms=0)
        if not more:
            return found
        found += [body for _, body in more]


def is_port_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_started_broker_is_registered_and_serves_and_a_stopped_one_is_neither(standing: Standing) -> None:
    async def main() -> None:
        async with serving(standing) as (stand, node, client):
            await client.create_topic("T", 1)
            assert (await client.send("T", 0, b"one")).code == ResponseCode.SUCCESS
            await eventually(lambda: route_of(stand.namesrv, "T"))
            await node.stop()
            assert await route_of(stand.namesrv, "T") is None
            assert is_port_free(node.port)
            assert not stand.disk.exists("/store/abort")

    asyncio.run(main())


def test_what_was_acknowledged_is_there_after_stop_and_start_and_after_death(standing: Standing) -> None:
    async def main() -> None:
        async with standing() as stand:
            sent = []
            for life, end in enumerate((BrokerNode.stop, BrokerNode.die, BrokerNode.stop)):
                node = stand.broker()
                await node.start()
                client = client_of(node)
                for number in range(10):
                    body = f"{life}-{number}"
                    assert (await client.send("T", 0, body.encode())).code == ResponseCode.SUCCESS
                    sent.append(body)
                assert await read_all(client, "T") == sent
                await client.close()
                await end(node)
                assert stand.disk.exists("/store/abort") == (end is BrokerNode.die)

    asyncio.run(main())


def test_a_stop_waits_for_syncs_and_answers_who_waits_for_them(standing: Standing) -> None:
    """Else a broker with SYNC_FLUSH that is stopped under load leaves `abort`, and recovers at its next start."""

    async def main() -> None:
        async with serving(standing, sync=True) as (stand, node, client):
            await client.create_topic("T", 1)
            stand.slow_disk(0.1)
            sends = [asyncio.ensure_future(client.send("T", 0, b"x")) for _ in range(5)]
            await eventually(lambda: node.state.flow.sends.count)
            assert node.state.store.is_busy
            await node.stop()
            answers = await asyncio.gather(*sends)
            assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 5
            assert not stand.disk.exists("/store/abort")

    asyncio.run(main())


def test_a_stop_does_not_wait_forever_for_a_disk_that_hangs(
    standing: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.app.broker._SETTLE_S", 0.2)

    async def main() -> None:
        async with serving(standing, sync=True) as (stand, node, client):
            await client.create_topic("T", 1)
            stand.disk.complete_queued()
            send = asyncio.ensure_future(client.send("T", 0, b"x"))
            await eventually(lambda: node.state.flow.sends.count)
            async with asyncio.timeout(60):
                await node.stop()
            # Not known to be safe: no SUCCESS.
            try:
                assert (await send).code != ResponseCode.SUCCESS
            except TransportError:
                pass
            assert stand.disk.exists("/store/abort")

    asyncio.run(main())


def test_held_pulls_are_answered_by_a_stop(standing: Standing) -> None:
    async def main() -> None:
        async with serving(standing) as (_, node, client):
            await client.create_topic("T", 1)
            pull = asyncio.ensure_future(client.pull("T", 0, 0, hold_ms=15_000))
            await eventually(lambda: len(node.state.polls))
            await node.stop()
            code, _, found = await pull
            assert (code, found) == (ResponseCode.PULL_NOT_FOUND, [])

    asyncio.run(main())


def test_a_start_that_fails_leaves_nothing_open(standing: Standing) -> None:
    async def main() -> None:
        async with standing() as stand:
            first = stand.broker()
            await first.start()
            second = stand.broker(name="broker-b")
            with pytest.raises(StoreError):  # its directory is in use
                await second.start()
            assert is_port_free(second.port)
            client = client_of(first)
            assert (await client.send("T", 0, b"x")).code == ResponseCode.SUCCESS
            await client.close()
            await first.stop()
            third = stand.broker()
            await third.start()
            await third.stop()

    asyncio.run(main())


def test_a_broker_without_a_name_server_starts_and_registers_when_one_comes(standing: Standing) -> None:
    async def main() -> None:
        async with standing() as stand:
            node = stand.broker()
            namesrv, stand.namesrv = stand.namesrv, "127.0.0.1:1"
            lonely = stand.broker(name="lonely", root="/store/lonely")
            await lonely.start()
            assert lonely.registrar.registered == set()
            await node.start()
            assert node.registrar.registered == {namesrv}
            await lonely.stop()
            await node.stop()

    asyncio.run(main())


def dead_letter(offset: int) -> ConsumerSendMsgBackRequestHeader:
    return ConsumerSendMsgBackRequestHeader(offset=offset, group="G", delay_level=-1)


def test_a_dead_letter_that_is_seen_has_its_route(standing: Standing) -> None:
    """Apache's broker registers the topic before it stores the message and answers."""

    async def main() -> None:
        async with serving(standing) as (stand, node, client):
            assert (await client.send("T", 0, b"hopeless")).code == ResponseCode.SUCCESS
            answer = await client.call(RequestCode.CONSUMER_SEND_MSG_BACK, dead_letter(0))
            assert answer.code == ResponseCode.SUCCESS
            assert await route_of(stand.namesrv, "%DLQ%G") is not None
            assert await read_all(client, "%DLQ%G") == ["hopeless"]
            await node.stop()

    asyncio.run(main())


@pytest.mark.parametrize("end", ["answered", "late", "stopped"])
def test_a_name_server_that_does_not_answer_holds_a_dead_letter_up_for_a_while_only(
    standing: Standing, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("aerobee.broker.topics.registrar._TELL_S", 0.2 if end == "late" else 60.0)

    async def main() -> None:
        held: list[tuple[Channel, Command]] = []

        def register(channel: Channel, command: Command) -> Command | None:
            if b"%DLQ%G" not in command.body:
                return response(command)
            held.append((channel, command))
            return None

        codes = {RequestCode.REGISTER_BROKER: register, RequestCode.UNREGISTER_BROKER: lambda _, asked: response(asked)}
        silent = Server("silent", codes, clock=SystemClock())
        async with standing() as stand:
            stand.namesrv = f"127.0.0.1:{await silent.listen('127.0.0.1', 0)}"
            node = stand.broker()
            await node.start()
            client = client_of(node)
            assert (await client.send("T", 0, b"hopeless")).code == ResponseCode.SUCCESS
            sent_back = asyncio.ensure_future(client.call(RequestCode.CONSUMER_SEND_MSG_BACK, dead_letter(0)))
            await eventually(lambda: held)
            if end != "late":
                assert node.state.store.max_offset(b"%DLQ%G", 0) == 0 and not sent_back.done()
            if end == "answered":
                for channel, command in held:
                    channel.send(response(command))
            elif end == "stopped":
                await node.stop()
            assert (await sent_back).code == ResponseCode.SUCCESS
            await client.close()
            if end != "stopped":
                assert node.state.store.max_offset(b"%DLQ%G", 0) == 1
                await node.stop()
        await silent.close()

    asyncio.run(main())


def test_a_full_disk_refuses_sends_serves_readers_and_takes_sends_again_without_a_restart(standing: Standing) -> None:
    async def main() -> None:
        async with serving(standing) as (stand, node, client):
            sent = 0
            assert (await client.send("T", 0, b"0")).code == ResponseCode.SUCCESS
            stand.disk.free_bytes = 0
            body = bytes(200_000)
            while True:
                sent += 1
                answer = await client.send("T", 0, body)
                if answer.code != ResponseCode.SUCCESS:
                    break
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "disk" in (answer.remark or "")
            assert await client.max_offset("T", 0) == sent
            assert len(await read_all(client, "T")) == sent
            assert (await client.send("T", 0, body)).code == ResponseCode.SERVICE_NOT_AVAILABLE
            stand.disk.free_bytes = 64 << 20

            async def is_taken() -> bool:
                return (await client.send("T", 0, body)).code == ResponseCode.SUCCESS

            await eventually(is_taken, 30)
            assert len(await read_all(client, "T")) == sent + 1
            await node.stop()
            assert not stand.disk.exists("/store/abort")

    asyncio.run(main())


def test_a_reader_far_behind_reads_everything_while_a_producer_writes(standing: Standing) -> None:
    async def main() -> None:
        async with standing() as stand:
            node = stand.broker()
            await node.start()
            # Only the last 64 KiB are read from the mapping; the rest through the reader thread.
            node.state.store.reads.hot_bytes = 64 << 10
            writer, reader = client_of(node), client_of(node)
            sent = [f"{number:05d}" + "x" * 2_000 for number in range(1_500)]
            for body in sent[:1_000]:
                assert (await writer.send("T", 0, body.encode())).code == ResponseCode.SUCCESS
            stand.slow_disk(0.002)

            async def write() -> None:
                for body in sent[1_000:]:
                    assert (await writer.send("T", 0, body.encode())).code == ResponseCode.SUCCESS

            writing = asyncio.ensure_future(write())
            found: list[str] = []
            while len(found) < len(sent):
                _, _, more = await reader.pull("T", 0, len(found), count=32)
                assert [offset for offset, _ in more] == list(range(len(found), len(found) + len(more)))
                found += [body for _, body in more]
            await writing
            assert found == sent
            assert node.state.store.counters.cold_reads > 10
            stand.disk.complete_inline()
            await writer.close()
            await reader.close()
            await node.stop()

    asyncio.run(main())


def test_a_start_stopped_by_a_broken_table_lets_go_of_the_directory(standing: Standing) -> None:
    async def main() -> None:
        async with standing() as stand:
            stand.disk.make_dirs("/store/config")
            file = stand.disk.open("/store/config/topics.json", create=True)
            file.write(0, b"{broken")
            file.close()
            node = stand.broker()
            with pytest.raises(StoreError):
                await node.start()
            assert is_port_free(node.port)
            stand.disk.unlink("/store/config/topics.json")
            again = stand.broker()
            await again.start()
            await again.stop()

    asyncio.run(main())


def test_a_shortage_of_descriptors_refuses_what_it_must_and_ends_by_itself(standing: Standing) -> None:
    """All that keeps files is at work meanwhile: new topics, offsets, timers, a new segment."""

    async def main() -> None:
        async with serving(standing) as (stand, node, client):
            for topic in ("T", "U"):
                assert (await client.send(topic, 0, b"first")).code == ResponseCode.SUCCESS
            opens = stand.disk.fail(1, "open", errno=errno.EMFILE, times=None)
            stand.disk.fail(1, "sync_dir", errno=errno.EMFILE, times=None)
            answers = []
            for number in range(40):
                answers.append((await client.send("T", 0, bytes(200_000))).code)
                timed = send_header(f"new-{number}", 0, f"TIMER_DELAY_MS\x01{number}\x02")
                await client.call(RequestCode.SEND_MESSAGE_V2, timed, b"x")
                await asyncio.sleep(0.05)
            assert set(answers) == {ResponseCode.SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE}  # no new segment
            assert opens.hits > 10
            assert not node.failed.is_set()
            assert node.state.store.fenced is None
            stand.disk.heal()

            async def is_taken() -> bool:
                return (await client.send("T", 0, b"last")).code == ResponseCode.SUCCESS

            await eventually(is_taken, 10)
            assert len(await read_all(client, "T")) == answers.count(ResponseCode.SUCCESS) + 2
            await node.stop()
            assert not node.failed.is_set()
            assert not stand.disk.exists("/store/abort")

    asyncio.run(main())


def test_a_part_that_fails_at_every_tick_ends_nothing(standing: Standing) -> None:
    async def main() -> None:
        async with serving(standing) as (_, node, client):
            tries: list[float] = []

            def broken(now_s: float, now_ms: int) -> None:
                tries.append(now_s)
                raise KeyError("a fault of ours")

            # Before all others: each of them comes after its failure.
            supervisor = node.broker.supervisor
            supervisor.add("broken", broken)
            supervisor.parts.insert(0, supervisor.parts.pop())
            await eventually(lambda: len(tries) > 2)
            await client.create_topic("T", 1)  # answered once the catalog's tick has saved it
            assert (await client.send("T", 0, b"one")).code == ResponseCode.SUCCESS
            assert await read_all(client, "T") == ["one"]
            assert not node.failed.is_set()
            told = {"partFailures": str(len(tries)), "partsFailing": "broken"}
            assert supervisor.told() == told
            await node.stop()

    asyncio.run(main())
