"""What every coordination store promises: the model in memory, the embedded server on a simulated network and on real
sockets, and a real etcd (`make etcd`; without it those tests are skipped)."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar, cast

import pytest

from aerobee.coordination.config import CoordinationConfig
from aerobee.coordination.embedded import EmbeddedCoordination
from aerobee.coordination.endpoints import EtcdSettings, parse_endpoints
from aerobee.coordination.etcd import EtcdClient
from aerobee.coordination.group import GroupCoordinator
from aerobee.coordination.model import KeyModel, ModelLimits
from aerobee.coordination.values import (
    CompareRelation,
    CompareTarget,
    CoordinationDeniedError,
    CoordinationFullError,
    CoordinationRefusedError,
    DeleteKeys,
    KeyCompare,
    KeyStore,
    LeaseMissingError,
    PutKey,
    ReadKeys,
    RevisionCompactedError,
    Txn,
    WatchBatch,
)
from aerobee.errors import AerobeeError, CoordinationError
from aerobee.replication.coordinator import Outcome
from aerobee.replication.values import GroupState, GroupView, LiveReplica
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.disk import RealDisk
from aerobee.runtime.entropy import SystemEntropy
from aerobee.runtime.net import RealNet
from aerobee.runtime.seams import Listener, Net
from aerobee.runtime.tasks import LoopTimers
from aerobee.testing.apache import free_ports
from aerobee.testing.certificates import Certificate
from aerobee.testing.clock import VirtualClock
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.etcd import EtcdServer, etcd_unavailable
from aerobee.testing.keystore import SimCoordination, SimKeyStore
from aerobee.testing.loop import VirtualLoop, run_virtual
from aerobee.testing.net import SimNet
from aerobee.testing.secrets import secret_for
from aerobee.testing.workload import eventually

ALL = ReadKeys(key=b"\0", end=b"\0")
ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)


class DeafNet:
    """A network whose bytes towards this side are lost while `is_deaf`."""

    def __init__(self, net: Net) -> None:
        self._net = net
        self.is_deaf = False

    async def listen(
        self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol], **more: object
    ) -> Listener:
        raise NotImplementedError

    async def connect(
        self, host: str, port: int, factory: Callable[[], ProtocolT], *, tls: object = None
    ) -> tuple[asyncio.Transport, ProtocolT]:
        made: list[ProtocolT] = []

        def build() -> asyncio.Protocol:
            made.append(factory())
            return _DeafProtocol(self, made[0])

        transport, _ = await self._net.connect(host, port, build, tls=tls)  # type: ignore[arg-type]
        return transport, made[0]


class _DeafProtocol(asyncio.Protocol):
    def __init__(self, net: DeafNet, inner: asyncio.Protocol) -> None:
        self._net = net
        self._inner = inner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._net.is_deaf:
            self._inner.data_received(data)


class Place(ABC):
    """A store with its faults."""

    # How long a lease may outlive its time.
    lease_slack_s = 2.0

    def __init__(self) -> None:
        self._open: list[KeyStore] = []

    def client(self) -> KeyStore:
        client = self.new_client()
        self._open.append(client)
        return client

    @abstractmethod
    def new_client(self) -> KeyStore: ...
    @abstractmethod
    def lose_answers(self, client: KeyStore, are_lost: bool) -> None: ...
    @abstractmethod
    async def compact(self, revision: int) -> None: ...
    @abstractmethod
    async def restart(self, *, empty: bool = False) -> None: ...
    @abstractmethod
    async def stop(self) -> None: ...
    @abstractmethod
    async def fill(self) -> None:
        """Make the store so full that it takes no more."""

    async def close(self) -> None:
        for client in self._open:
            await client.close()
        await self.stop()


class ModelPlace(Place):
    lease_slack_s = 0.1

    def __init__(self) -> None:
        super().__init__()
        self.store = SimCoordination(SeededEntropy(1), KeyModel(limits=ModelLimits(bytes_max=100_000)))

    def new_client(self) -> KeyStore:
        return self.store.client("client")

    def lose_answers(self, client: KeyStore, are_lost: bool) -> None:
        cast(SimKeyStore, client).reach.answers_lost = are_lost

    async def compact(self, revision: int) -> None:
        self.store.model.compact(revision)
        self.store.moved()

    async def restart(self, *, empty: bool = False) -> None:
        self.store.stop()
        await asyncio.sleep(0.01)
        self.store.start(empty=empty)

    async def stop(self) -> None:
        self.store.stop()

    async def fill(self) -> None:
        await _fill(self.client())


class SocketPlace(Place):
    """A store behind sockets."""

    def __init__(self) -> None:
        super().__init__()
        self._nets: dict[KeyStore, DeafNet] = {}

    @property
    @abstractmethod
    def address(self) -> str: ...

    def connected(self, net: Net, clock: SystemClock | VirtualClock) -> KeyStore:
        deaf = DeafNet(net)
        client = EtcdClient(EtcdSettings(endpoints=parse_endpoints(self.address)), deaf, clock)
        self._nets[client] = deaf
        return client

    def lose_answers(self, client: KeyStore, are_lost: bool) -> None:
        self._nets[client].is_deaf = are_lost

    async def compact(self, revision: int) -> None:
        client = self.new_client()
        await cast(EtcdClient, client)._ask("/v3/kv/compaction", b'{"revision":"%d","physical":true}' % revision)
        await client.close()


class EmbeddedPlace(SocketPlace):
    def __init__(self, net: Net, disk: RecordingDisk | RealDisk, path: str, clock: SystemClock | VirtualClock) -> None:
        super().__init__()
        self._net, self._disk, self._path, self._clock = net, disk, path, clock
        self._port = 0
        self._server: EmbeddedCoordination

    async def start(self) -> None:
        self._server = EmbeddedCoordination(self._net, self._disk, self._path, self._clock, SystemEntropy())
        await self._server.start(port=self._port)
        self._port = parse_endpoints(self._server.address)[0].port

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def new_client(self) -> KeyStore:
        return self.connected(self._net, self._clock)

    async def restart(self, *, empty: bool = False) -> None:
        await self.stop()
        if empty:
            self._disk.unlink(self._path)
            self._disk.unlink(self._path + ".bak")
        await self.start()

    async def stop(self) -> None:
        await self._server.stop()

    async def fill(self) -> None:
        self._server.model._limits = ModelLimits(bytes_max=100_000)
        await _fill(self.client())


class EtcdPlace(SocketPlace):
    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.server = EtcdServer(directory, ["--quota-backend-bytes=4194304"])
        self.server.start()

    @property
    def address(self) -> str:
        return self.server.address

    def new_client(self) -> KeyStore:
        return self.connected(RealNet(), SystemClock())

    async def restart(self, *, empty: bool = False) -> None:
        self.server.restart(empty=empty)

    async def stop(self) -> None:
        self.server.kill()

    async def fill(self) -> None:
        await _fill(self.client())


async def _fill(client: KeyStore) -> None:
    with pytest.raises(CoordinationFullError):
        for number in range(200):
            await client.txn(Txn(success=(PutKey(key=b"fill/%d" % number, value=bytes(50_000)),)))


Test = Callable[[Place], Awaitable[None]]
Run = Callable[[Test], None]


@pytest.fixture(
    params=["model", "embedded on virtual time", "embedded", pytest.param("etcd", marks=pytest.mark.timeout(120))]
)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    kind = str(request.param)
    if kind == "etcd" and (reason := etcd_unavailable()):
        pytest.skip(reason)

    async def within(place: Place, test: Test) -> None:
        try:
            async with asyncio.timeout(90):
                await test(place)
        finally:
            await place.close()

    async def virtual(loop: VirtualLoop, test: Test) -> None:
        if kind == "model":
            await within(ModelPlace(), test)
            return
        disk = RecordingDisk(existing=["/data"])
        disk.complete_by(LoopTimers(loop), lambda: 0.003)
        place = EmbeddedPlace(SimNet(loop).host("10.0.0.9"), disk, "/data/coordination", VirtualClock(loop.time))
        await place.start()
        await within(place, test)

    async def real(test: Test) -> None:
        if kind == "etcd":
            await within(EtcdPlace(tmp_path), test)
            return
        loop = asyncio.get_running_loop()
        disk = RealDisk(loop.call_soon_threadsafe)
        place = EmbeddedPlace(RealNet(), disk, str(tmp_path / "coordination"), SystemClock())
        await place.start()
        try:
            await within(place, test)
        finally:
            disk.close()

    def runner(test: Test) -> None:
        if kind in ("model", "embedded on virtual time"):
            run_virtual(lambda loop: virtual(loop, test))
        else:
            asyncio.run(real(test))

    return runner


async def put(client: KeyStore, key: bytes, value: bytes = b"v", lease: int = 0) -> int:
    return (await client.txn(Txn(success=(PutKey(key=key, value=value, lease=lease),)))).revision


async def keys(client: KeyStore) -> list[bytes]:
    return [kv.key for kv in (await client.read(ALL))[1]]


def watching(
    client: KeyStore, start_revision: int, wanted: ReadKeys = ALL
) -> tuple[list[WatchBatch], asyncio.Task[None]]:
    seen: list[WatchBatch] = []
    return seen, asyncio.ensure_future(client.watch(wanted, start_revision, seen.append))


def events(batches: list[WatchBatch]) -> list[tuple[bytes, bool]]:
    return [(event.key.key, event.is_deletion) for batch in batches for event in batch.events]


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def test_revisions_and_ranges(run: Run) -> None:
    async def test(place: Place) -> None:
        client = place.client()
        base, found = await client.read(ALL)
        assert found == ()
        assert await put(client, b"a/1", b"\x00\xff") == base + 1
        assert await put(client, b"a/2") == base + 2
        assert await put(client, b"b") == base + 3
        assert await put(client, b"a/1", b"") == base + 4
        revision, found = await client.read(ReadKeys(key=b"a/", end=b"a0"))
        assert revision == base + 4
        shown = [(kv.key, kv.value, kv.create_revision - base, kv.mod_revision - base, kv.version) for kv in found]
        assert shown == [(b"a/1", b"", 1, 4, 2), (b"a/2", b"v", 2, 2, 1)]
        deleted = await client.txn(Txn(success=(DeleteKeys(key=b"a/", end=b"a0"), DeleteKeys(key=b"none"))))
        assert deleted.revision == base + 5
        assert (await client.txn(Txn(success=(DeleteKeys(key=b"none"),)))).revision == base + 5
        assert await keys(client) == [b"b"]

    run(test)


def test_comparisons(run: Run) -> None:
    async def test(place: Place) -> None:
        client = place.client()
        await put(client, b"k", b"one")
        at = await put(client, b"k", b"two")
        cases: list[tuple[bytes, CompareTarget, CompareRelation, int | bytes, bool]] = [
            (b"k", CompareTarget.MOD, CompareRelation.EQUAL, at, True),
            (b"k", CompareTarget.MOD, CompareRelation.EQUAL, at - 1, False),
            (b"k", CompareTarget.MOD, CompareRelation.LESS, at + 1, True),
            (b"k", CompareTarget.CREATE, CompareRelation.GREATER, 1, True),
            (b"k", CompareTarget.VERSION, CompareRelation.NOT_EQUAL, 2, False),
            (b"k", CompareTarget.VALUE, CompareRelation.EQUAL, b"two", True),
            (b"k", CompareTarget.VALUE, CompareRelation.GREATER, b"one", True),
            (b"k", CompareTarget.LEASE, CompareRelation.EQUAL, 0, True),
            (b"none", CompareTarget.MOD, CompareRelation.EQUAL, 0, True),
            (b"none", CompareTarget.VERSION, CompareRelation.GREATER, 0, False),
            (b"none", CompareTarget.VALUE, CompareRelation.EQUAL, b"", False),
            (b"none", CompareTarget.VALUE, CompareRelation.NOT_EQUAL, b"x", False),
        ]
        for key, target, relation, operand, holds in cases:
            compare = KeyCompare(key=key, target=target, relation=relation, operand=operand)
            result = await client.txn(Txn(compares=(compare,), failure=(ReadKeys(key=b"k"),)))
            assert result.succeeded is holds, (target, relation, operand)
            assert [kv.value for found in result.reads for kv in found] == ([] if holds else [b"two"])

    run(test)


def test_of_many_who_compare_and_swap_one_wins_each_time(run: Run) -> None:
    async def test(place: Place) -> None:
        clients = [place.client() for _ in range(4)]

        async def count_up(client: KeyStore) -> int:
            won = 0
            while won < 5:
                _, found = await client.read(ReadKeys(key=b"n"))
                at, number = (found[0].mod_revision, int(found[0].value)) if found else (0, 0)
                swap = Txn(
                    compares=(KeyCompare(key=b"n", operand=at),),
                    success=(PutKey(key=b"n", value=b"%d" % (number + 1)),),
                )
                won += (await client.txn(swap)).succeeded
            return won

        await asyncio.gather(*(count_up(client) for client in clients))
        _, found = await clients[0].read(ReadKeys(key=b"n"))
        assert (found[0].value, found[0].version) == (b"20", 20)

    run(test)


def test_refused_transactions_change_nothing(run: Run) -> None:
    async def test(place: Place) -> None:
        client = place.client()
        before, _ = await client.read(ALL)
        twice = PutKey(key=b"k", value=b"")
        refused = [
            Txn(success=(twice, twice)),
            Txn(success=(twice, DeleteKeys(key=b"a", end=b"z"))),
            Txn(success=(PutKey(key=b"", value=b"x"),)),
            Txn(success=(PutKey(key=b"a", value=b""), PutKey(key=b"k", value=b"", lease=12345))),
            Txn(success=tuple(PutKey(key=b"%d" % number, value=b"") for number in range(200))),
        ]
        for txn in refused:
            with pytest.raises(CoordinationRefusedError):
                await client.txn(txn)
        with pytest.raises(LeaseMissingError):
            await put(client, b"k", lease=12345)
        assert await client.read(ALL) == (before, ())

    run(test)


def test_a_lost_answer_may_hide_a_change(run: Run) -> None:
    async def test(place: Place) -> None:
        client, other = place.client(), place.client()
        await put(client, b"warm")
        place.lose_answers(client, True)
        with pytest.raises(CoordinationError):
            await put(client, b"hidden")
        assert b"hidden" in await keys(other)
        place.lose_answers(client, False)
        assert b"hidden" in await keys(client)

    run(test)


def test_leases_have_a_floor_and_end_with_their_keys(run: Run) -> None:
    async def test(place: Place) -> None:
        client = place.client()
        loop = asyncio.get_running_loop()
        lease, ttl_s = await client.grant(1)
        assert ttl_s == 2
        await put(client, b"live", lease=lease)
        await put(client, b"stays")
        batches, task = watching(place.client(), 1)
        for _ in range(3):
            await asyncio.sleep(1)
            kept_at = loop.time()
            assert await client.keep_alive(lease) == 2
        assert await keys(client) == [b"live", b"stays"]
        await eventually(lambda: (b"live", True) in events(batches), 20)
        assert loop.time() - kept_at >= ttl_s
        assert loop.time() - kept_at <= ttl_s + place.lease_slack_s
        assert await client.keep_alive(lease) == 0
        assert await keys(client) == [b"stays"]
        with pytest.raises(LeaseMissingError):
            await client.revoke(lease)
        await end(task)

    run(test)


def test_a_revoked_lease_takes_its_keys_and_a_new_put_leaves_it(run: Run) -> None:
    async def test(place: Place) -> None:
        client = place.client()
        old, new = (await client.grant(60))[0], (await client.grant(60))[0]
        assert old != new
        for key in (b"a", b"b", b"moved"):
            await put(client, key, lease=old)
        await put(client, b"moved", lease=new)
        await client.revoke(old)
        assert await keys(client) == [b"moved"]
        await put(client, b"moved")
        await client.revoke(new)
        assert await keys(client) == [b"moved"]

    run(test)


def test_a_watch_tells_every_change_once_and_in_order(run: Run) -> None:
    async def test(place: Place) -> None:
        client = place.client()
        start = await put(client, b"g/old")
        await put(client, b"g/old", b"2")
        batches, task = watching(place.client(), start, ReadKeys(key=b"g/", end=b"g0"))
        await eventually(lambda: len(events(batches)) == 2, 20)
        for number in range(20):
            await put(client, b"g/%02d" % number)
        await put(client, b"other")
        await client.txn(Txn(success=(PutKey(key=b"g/a", value=b""), PutKey(key=b"g/b", value=b""))))
        await client.txn(Txn(success=(DeleteKeys(key=b"g/a", end=b"g/z"),)))
        expected = [(b"g/old", False)] * 2 + [(b"g/%02d" % number, False) for number in range(20)]
        expected += [(b"g/a", False), (b"g/b", False)]
        await eventually(lambda: len(events(batches)) >= len(expected) + 3, 20)
        assert events(batches)[: len(expected)] == expected
        assert sorted(events(batches)[len(expected) :]) == [(b"g/a", True), (b"g/b", True), (b"g/old", True)]
        revisions = [event.key.mod_revision for batch in batches for event in batch.events]
        assert revisions == sorted(revisions)
        assert all(batch.revision >= max(e.key.mod_revision for e in batch.events) for batch in batches)
        await end(task)

    run(test)


def test_a_watch_from_a_compacted_revision_is_told(run: Run) -> None:
    async def test(place: Place) -> None:
        client = place.client()
        first = await put(client, b"k", b"0")
        for number in range(5):
            last = await put(client, b"k", b"%d" % number)
        await place.compact(last)
        _, task = watching(client, first)
        with pytest.raises(RevisionCompactedError):
            async with asyncio.timeout(20):
                await task
        batches, task = watching(client, last + 1)
        await put(client, b"k", b"new")
        await eventually(lambda: events(batches) == [(b"k", False)], 20)
        await end(task)

    run(test)


def test_what_was_answered_survives_a_restart(run: Run) -> None:
    async def test(place: Place) -> None:
        client = place.client()
        lease, _ = await client.grant(60)
        await put(client, b"live", lease=lease)
        await put(client, b"k", b"1")
        await put(client, b"k", b"2")
        before = await client.read(ALL)
        _, task = watching(client, before[0] + 1)
        await asyncio.sleep(0.3)
        await place.restart()
        with pytest.raises(AerobeeError):
            async with asyncio.timeout(20):
                await task  # its connection is gone
        await eventually(lambda: _answers(client), 20)
        assert await client.read(ALL) == before
        assert await client.keep_alive(lease) == 60
        assert await put(client, b"k", b"3") == before[0] + 1
        await client.revoke(lease)
        assert await keys(client) == [b"k"]

    run(test)


async def _answers(client: KeyStore) -> bool:
    try:
        await client.read(ALL)
    except CoordinationError:
        return False
    return True


def test_a_store_that_is_away_is_an_error_within_seconds(run: Run) -> None:
    async def test(place: Place) -> None:
        client = place.client()
        await put(client, b"k")
        await place.stop()
        began = asyncio.get_running_loop().time()
        for ask in (client.read(ALL), client.keep_alive(1), client.grant(4), put(client, b"k")):
            with pytest.raises(CoordinationError):
                await ask
        with pytest.raises(CoordinationError):
            await client.watch(ALL, 1, print)
        assert asyncio.get_running_loop().time() - began < 8

    run(test)


def test_a_full_store_is_read_and_takes_nothing(run: Run) -> None:
    async def test(place: Place) -> None:
        client = place.client()
        lease, _ = await client.grant(60)
        await put(client, b"k", lease=lease)
        await place.fill()
        with pytest.raises(CoordinationFullError):
            await put(client, b"large", bytes(50_000))
        # Everything at once can be more than an answer may hold: etcd notices a moment later that it is full.
        assert [kv.key for kv in (await client.read(ReadKeys(key=b"k")))[1]] == [b"k"]
        assert await client.keep_alive(lease) == 60

    run(test)


def test_a_group_goes_on_over_faults_and_refuses_an_emptied_store(run: Run) -> None:
    async def test(place: Place) -> None:
        clock = VirtualClock(asyncio.get_running_loop().time)
        one, two = (GroupCoordinator(place.client(), "c", "g", clock) for _ in range(2))
        views: list[GroupView] = []
        one.watch(views.append)
        assert await two.replace(GroupState(), GroupState(epoch=1, master=2)) is Outcome.DONE
        assert await one.replace(GroupState(), GroupState(epoch=1, master=1)) is Outcome.REFUSED
        live = LiveReplica(id=2, incarnation="b" * 32, epoch=1, log_end=0)
        assert await two.keep(live) == 4.0
        await eventually(lambda: bool(views) and views[-1].live == {2: live} and views[-1].state.master == 2, 20)
        await place.restart()
        await eventually(lambda: _kept(two, live), 20)
        state = (await two.view()).state
        assert await two.replace(state, GroupState(epoch=2, master=2)) is Outcome.DONE
        await eventually(lambda: views[-1].state.epoch == 2 and 2 in views[-1].live, 20)
        await two.let_go()
        await eventually(lambda: not views[-1].live, 20)
        await place.restart(empty=True)
        await eventually(lambda: _went_back(one), 20)
        assert views[-1].state.epoch == 2
        await one.close()
        await two.close()

    run(test)


async def _kept(coordinator: GroupCoordinator, live: LiveReplica) -> bool:
    try:
        return await coordinator.keep(live) == 4.0
    except CoordinationError:
        return False


async def _went_back(coordinator: GroupCoordinator) -> bool:
    try:
        await coordinator.view()
    except CoordinationError as error:
        return "went back" in str(error)
    return False


@pytest.mark.skipif(etcd_unavailable() is not None, reason=str(etcd_unavailable()))
def test_a_stopped_etcd_delays_nobody_for_more_than_a_second(tmp_path: Path) -> None:
    async def main() -> None:
        with EtcdServer(tmp_path / "one") as stopped, EtcdServer(tmp_path / "two") as running:
            endpoints = parse_endpoints(f"{stopped.address};{running.address}")
            client = EtcdClient(EtcdSettings(endpoints=endpoints), RealNet(), SystemClock())
            await put(client, b"k", b"first")
            stopped.signal(signal.SIGSTOP)
            with pytest.raises(CoordinationError, match="within 1 s"):
                await put(client, b"k", b"second")
            assert await keys(client) == []  # the other one answers now
            stopped.signal(signal.SIGCONT)
            await client.close()

    asyncio.run(main())


@pytest.mark.skipif(etcd_unavailable() is not None, reason=str(etcd_unavailable()))
def test_etcd_over_tls_with_a_password(tmp_path: Path, certificate: Certificate) -> None:
    port = free_ports(1)
    url = f"https://127.0.0.1:{port}"
    options = [f"--listen-client-urls={url}", f"--advertise-client-urls={url}", f"--cert-file={certificate.cert}"]
    options += [f"--key-file={certificate.key}", "--auth-token-ttl=2"]
    server = EtcdServer(tmp_path, options)
    server.port, server.address = port, f"127.0.0.1:{port}"

    def client(**credentials: str) -> EtcdClient:
        config = CoordinationConfig(addr=url, trust_cert_path=str(certificate.cert), **credentials)
        reached = config.reached()
        assert reached is not None
        return EtcdClient(reached, RealNet(), SystemClock())

    async def main() -> None:
        root = client()
        await root._ask("/v3/auth/user/add", json.dumps({"name": "root", "password": secret_for("root")}).encode())
        await root._ask("/v3/auth/role/add", b'{"name":"root"}')
        await root._ask("/v3/auth/user/grant", b'{"user":"root","role":"root"}')
        await root._ask("/v3/auth/enable", b"{}")
        for refused in (root, client(user="root", password="wrong")):
            with pytest.raises(CoordinationDeniedError):
                await refused.read(ALL)
            with pytest.raises(AerobeeError, match=r"user name is empty|authentication failed"):
                await refused.watch(ALL, 1, print)
            await refused.close()
        allowed = client(user="root", password=secret_for("root"))
        await put(allowed, b"k")
        batches, task = watching(allowed, 1)
        lease, _ = await allowed.grant(60)
        assert await allowed.keep_alive(lease) == 60
        await eventually(lambda: events(batches) == [(b"k", False)], 20)
        await asyncio.sleep(4)  # the token expires
        await put(allowed, b"k")
        await end(task)
        await allowed.close()
        plain = EtcdClient(EtcdSettings(endpoints=parse_endpoints(server.address)), RealNet(), SystemClock())
        with pytest.raises(CoordinationError):
            await plain.read(ALL)
        untrusted = CoordinationConfig(addr=url).reached()
        assert untrusted is not None
        with pytest.raises(CoordinationError, match="not trusted"):
            await EtcdClient(untrusted, RealNet(), SystemClock()).read(ALL)

    with server:
        asyncio.run(main())


@pytest.mark.skipif(etcd_unavailable() is not None, reason=str(etcd_unavailable()))
def test_a_user_needs_access_to_our_prefix_only(tmp_path: Path) -> None:
    async def main(address: str) -> None:
        endpoints = parse_endpoints(address)
        root = EtcdClient(EtcdSettings(endpoints=endpoints), RealNet(), SystemClock())
        start, stop = (base64.b64encode(key).decode() for key in (b"/aerobee/", b"/aerobee0"))
        access = f'{{"permType":"READWRITE","key":"{start}","range_end":"{stop}"}}'
        for path, body in (
            ("user/add", json.dumps({"name": "root", "password": secret_for("root")})),
            ("role/add", '{"name":"root"}'),
            ("user/grant", '{"user":"root","role":"root"}'),
            ("user/add", json.dumps({"name": "aerobee", "password": secret_for("aerobee")})),
            ("role/add", '{"name":"replicas"}'),
            ("role/grant", f'{{"name":"replicas","perm":{access}}}'),
            ("user/grant", '{"user":"aerobee","role":"replicas"}'),
            ("enable", "{}"),
        ):
            await root._ask(f"/v3/auth/{path}", body.encode())
        await root.close()
        clock = SystemClock()
        settings = EtcdSettings(endpoints=endpoints, user="aerobee", password=secret_for("aerobee"))
        client = EtcdClient(settings, RealNet(), clock)
        group = GroupCoordinator(client, "c", "g", clock)
        live = LiveReplica(id=1, incarnation="a" * 32, epoch=0, log_end=0)
        views: list[GroupView] = []
        group.watch(views.append)
        assert await group.keep(live) == 4.0
        await eventually(lambda: bool(views) and 1 in views[-1].live, 20)
        await group.let_go()
        await eventually(lambda: not views[-1].live, 20)
        with pytest.raises(CoordinationDeniedError):
            await client.read(ReadKeys(key=b"/other"))
        await group.close()

    with EtcdServer(tmp_path) as server:
        asyncio.run(main(server.address))
