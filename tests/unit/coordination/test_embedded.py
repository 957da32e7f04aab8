"""The embedded coordination store: its bounds, what it refuses, and what is left after crashes and disk errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from aerobee.coordination.embedded import EmbeddedCoordination, EmbeddedLimits
from aerobee.coordination.endpoints import EtcdSettings, parse_endpoints
from aerobee.coordination.etcd import EtcdClient
from aerobee.coordination.http import encode_request
from aerobee.coordination.values import PutKey, ReadKeys, Txn, WatchBatch
from aerobee.errors import ConfigError, CoordinationError, StoreError
from aerobee.runtime.tasks import LoopTimers
from aerobee.testing.clock import VirtualClock
from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.loop import VirtualLoop, run_virtual
from aerobee.testing.net import SimNet
from aerobee.testing.workload import eventually

PATH = "/data/coordination"
ALL = ReadKeys(key=b"\0", end=b"\0")
SMALL = EmbeddedLimits(connections_max=4, body_bytes_max=10_000, unread_bytes_max=50_000)


class Peer(asyncio.Protocol):
    """A client that sends what it likes."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_lost = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


class Kit:
    """A server on a simulated disk and network."""

    def __init__(self, loop: VirtualLoop, disk: RecordingDisk | None = None) -> None:
        self.loop = loop
        self.net = SimNet(loop).host("10.0.0.9")
        self.clock = VirtualClock(loop.time)
        self.disk = disk or RecordingDisk(existing=["/data"])
        self.disk.complete_by(LoopTimers(loop), lambda: 0.003)
        self.server = EmbeddedCoordination(self.net, self.disk, PATH, self.clock, SeededEntropy(2), limits=SMALL)

    async def start(self) -> None:
        await self.server.start()

    def client(self) -> EtcdClient:
        return EtcdClient(EtcdSettings(endpoints=parse_endpoints(self.server.address)), self.net, self.clock)

    async def peer(self) -> Peer:
        endpoint = parse_endpoints(self.server.address)[0]
        _, peer = await self.net.connect("127.0.0.1", endpoint.port, Peer)
        return peer


def run(test: Callable[[Kit], Awaitable[None]]) -> None:
    async def main(loop: VirtualLoop) -> None:
        kit = Kit(loop)
        await kit.start()
        await test(kit)
        await kit.server.stop()

    run_virtual(main)


def put(key: bytes, value: bytes = b"v") -> Txn:
    return Txn(success=(PutKey(key=key, value=value),))


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.9", "::", "example.org", ""])
def test_nothing_listens_beyond_loopback_unless_told(host: str) -> None:
    async def main(loop: VirtualLoop) -> None:
        with pytest.raises(ConfigError, match="no authentication"):
            await Kit(loop).server.start(host)

    run_virtual(main)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v3/kv/deleterange", b"{}"),
        ("/", b"{}"),
        ("/v3/auth/authenticate", b'{"name":"a","password":"b"}'),
        ("/v3/kv/range", b'{"key":"YQ==","limit":"1"}'),
        ("/v3/kv/range", b'{"key":"?"}'),
        ("/v3/kv/range", b"[]"),
        ("/v3/kv/range", b"{"),
        ("/v3/kv/range", b""),
        ("/v3/kv/range", b"[" * 5000),
        ("/v3/kv/txn", b'{"success":[{}]}'),
        ("/v3/kv/txn", b'{"compare":[{"key":"YQ==","target":"NONE"}]}'),
        ("/v3/kv/put", b'{"key":"YQ==","lease":"9"}'),
        ("/v3/kv/put", b'{"key":"YQ==","lease":"' + b"9" * 5000 + b'"}'),
        ("/v3/kv/compaction", b'{"revision":"99"}'),
        ("/v3/lease/grant", b'{"TTL":"-1"}'),
        ("/v3/lease/grant", b'{"TTL":"99999999999999999999"}'),
        ("/v3/lease/revoke", b'{"ID":"1"}'),
        ("/v3/watch", b"{}"),
        ("/v3/watch", b'{"progress_request":{}}'),
    ],
)
def test_what_it_does_not_know_is_refused_and_the_connection_goes_on(path: str, body: bytes) -> None:
    async def test(kit: Kit) -> None:
        peer = await kit.peer()
        peer.transport.write(encode_request(path, "h", body) + encode_request("/v3/maintenance/status", "h", b"{}"))
        await eventually(lambda: b"3.6.16" in peer.data, 5)
        assert peer.data.startswith(b"HTTP/1.1 4")
        assert kit.server.model.read(ALL) == ()

    run(test)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 20_000,
        b"POST / HTTP/1.1\r\nContent-Length: 10001\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        encode_request("/v3/watch", "h", b'{"create_request":{"key":"YQ=="}}') + b"more",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhalf",  # and never the rest
    ],
)
def test_a_connection_that_makes_no_sense_is_closed(data: bytes) -> None:
    async def test(kit: Kit) -> None:
        peer = await kit.peer()
        peer.transport.write(data)
        await eventually(lambda: peer.is_lost, 15)
        await kit.client().txn(put(b"k"))

    run(test)


def test_connections_are_bounded() -> None:
    async def test(kit: Kit) -> None:
        peers = [await kit.peer() for _ in range(6)]
        await eventually(lambda: sum(peer.is_lost for peer in peers) == 2, 5)
        for peer in peers:
            peer.transport.abort()
        await asyncio.sleep(1)
        await kit.client().txn(put(b"k"))

    run(test)


def test_a_watch_that_does_not_read_is_closed() -> None:
    async def test(kit: Kit) -> None:
        peer = await kit.peer()
        peer.transport.write(encode_request("/v3/watch", "h", b'{"create_request":{"key":"AA==","range_end":"AA=="}}'))
        await asyncio.sleep(0.1)
        peer.transport.pause_reading()
        client = kit.client()
        for number in range(400):
            await client.txn(put(b"k%d" % number, bytes(5000)))
        peer.transport.resume_reading()
        await eventually(lambda: peer.is_lost, 5)

    run(test)


def test_answers_wait_for_the_disk_and_keep_alives_do_not() -> None:
    async def test(kit: Kit) -> None:
        client = kit.client()
        lease, _ = await client.grant(4)
        seen: list[WatchBatch] = []
        watch = asyncio.ensure_future(kit.client().watch(ALL, 1, seen.append))
        await asyncio.sleep(0.1)
        kit.disk.complete_queued()
        writing = asyncio.ensure_future(client.txn(put(b"k")))
        reading = asyncio.ensure_future(kit.client().read(ALL))
        await asyncio.sleep(0.5)
        assert await client.keep_alive(lease) == 4
        assert not writing.done() and not reading.done() and not seen
        kit.disk.run_pending()
        await writing
        assert [kv.key for kv in (await reading)[1]] == [b"k"]
        await eventually(lambda: bool(seen), 5)
        watch.cancel()

    run(test)


def test_a_disk_error_ends_all_answers() -> None:
    async def test(kit: Kit) -> None:
        client = kit.client()
        await client.txn(put(b"k"))
        kit.disk.fail(1, "sync", times=None)
        for _ in range(3):
            with pytest.raises(CoordinationError):
                await client.txn(put(b"lost"))
            with pytest.raises(CoordinationError):
                await client.read(ALL)
        assert kit.server.failure is not None

    run(test)


@pytest.mark.parametrize("mode", list(CrashMode))
def test_what_was_answered_survives_a_power_cut(mode: CrashMode) -> None:
    async def main(loop: VirtualLoop) -> None:
        for cut_at in range(1, 40, 3):
            kit = Kit(loop)
            await kit.start()
            client = kit.client()
            answered = 0

            async def write(client: EtcdClient = client) -> None:
                nonlocal answered
                for number in range(100):
                    await client.txn(put(b"k", b"%d" % number))
                    answered = number

            writing = asyncio.ensure_future(write())
            await asyncio.sleep(cut_at * 0.0037)
            disk = kit.disk.crash(mode, seed=cut_at)
            least = answered
            writing.cancel()
            await kit.server.stop()
            again = Kit(loop, disk)
            await again.start()
            _, found = await again.client().read(ALL)
            assert (int(found[0].value) if found else 0) >= least, (mode, cut_at)
            await again.server.stop()

    run_virtual(main)


def test_a_damaged_file_stops_the_start() -> None:
    async def main(loop: VirtualLoop) -> None:
        disk = RecordingDisk(existing=["/data"])
        disk.put(PATH, b"{}")
        with pytest.raises(StoreError, match="restore"):
            await Kit(loop, disk).start()

    run_virtual(main)


def test_leases_outlive_a_time_in_which_the_process_did_not_run() -> None:
    async def main(loop: VirtualLoop) -> None:
        clock = VirtualClock()
        kit = Kit(loop)
        kit.server = EmbeddedCoordination(kit.net, kit.disk, PATH, clock, SeededEntropy(2))
        await kit.start()
        client = kit.client()
        lease, _ = await client.grant(4)
        clock.advance(60)  # SIGSTOP: the loop's own time stands still meanwhile
        await asyncio.sleep(0.6)
        assert await client.keep_alive(lease) == 4
        clock.advance(1)
        await asyncio.sleep(0.6)
        clock.advance(1)
        await asyncio.sleep(0.6)
        assert await client.keep_alive(lease) == 4
        await kit.server.stop()

    run_virtual(main)
