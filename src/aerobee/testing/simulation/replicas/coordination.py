"""A simulated coordination store: the model behind a network that loses, delays and repeats what it carries.

A request travels on timers of the network, so it arrives also after its sender died. One that finds the way cut is
sent again, as TCP does, and may be carried out long after its sender gave up.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from aerobee.coordination.model import KeyModel
from aerobee.coordination.records import GroupKeys, decode_state
from aerobee.coordination.values import (
    CoordinationRefusedError,
    KeyValue,
    ReadKeys,
    Txn,
    TxnResult,
    WatchSink,
)
from aerobee.errors import CoordinationError
from aerobee.replication.values import GroupState
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.simulation.world import World

T = TypeVar("T")

ADDRESS: Final = "10.0.0.1"
_REQUEST_S: Final = 1.0
# How long a request that finds its way cut is sent again.
_RETRANSMIT_S: Final = 4.0
_EXPIRY_S: Final = 0.5
Told = Callable[[GroupState, GroupState], None]


class CoordinationServer:
    """The model, and what its clients share."""

    def __init__(self, world: World, cluster: str, group: str) -> None:
        self.world = world
        self.model = KeyModel()
        self.is_up = True
        # The chance that an answer is lost.
        self.lost_answers = 0.0
        # Raised to end all watches.
        self.generation = 0
        self.changed = asyncio.Event()
        # Changes on their way, by the address of their sender, which may be dead by now.
        self.under_way: Counter[str] = Counter()
        self.draw: SeededEntropy = world.entropy.fork()
        self._keys = GroupKeys(cluster, group)
        self.state = GroupState()
        # Told the state before and after each change.
        self.on_change: Told | None = None

    def client(self, address: str) -> LossyKeyStore:
        return LossyKeyStore(self, address)

    async def expire(self) -> None:
        """End leases, as etcd does twice a second."""
        while True:
            await asyncio.sleep(_EXPIRY_S)
            if self.is_up and self.model.expire(self.world.loop.time()):
                self.noticed()

    def noticed(self) -> None:
        """Tell the watches, and the judge if the state changed."""
        event, self.changed = self.changed, asyncio.Event()
        event.set()
        found = self.model.read(ReadKeys(key=self._keys.state))
        if found and found[0].mod_revision != self.state.revision:
            before, self.state = self.state, decode_state(found[0].key, found[0].value, found[0].mod_revision)
            self.world.trace.note("state", before, self.state)
            if self.on_change is not None:
                self.on_change(before, self.state)

    def break_watches(self) -> None:
        self.generation += 1
        self.noticed()

    def empty(self) -> None:
        """Lose everything, as a new data directory does."""
        self.model = KeyModel()
        self.state = GroupState()
        self.on_change = None

    def compact(self) -> None:
        if self.model.revision > self.model.compacted:
            self.model.compact(self.model.revision)


class LossyKeyStore:
    """One client's KeyStore."""

    def __init__(self, server: CoordinationServer, address: str) -> None:
        self._server = server
        self._address = address

    async def read(self, wanted: ReadKeys) -> tuple[int, tuple[KeyValue, ...]]:
        model = self._server.model
        return await self._call(lambda: (model.revision, model.read(wanted)))

    async def txn(self, txn: Txn) -> TxnResult:
        return await self._call(lambda: self._server.model.txn(txn), is_change=True)

    async def grant(self, ttl_s: int) -> tuple[int, int]:
        server = self._server
        return await self._call(lambda: server.model.grant(ttl_s, server.world.loop.time()))

    async def keep_alive(self, lease: int) -> int:
        server = self._server
        return await self._call(lambda: server.model.keep_alive(lease, server.world.loop.time()))

    async def revoke(self, lease: int) -> None:
        await self._call(lambda: self._server.model.revoke(lease))

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    async def watch(self, wanted: ReadKeys, start_revision: int, sink: WatchSink) -> None:
        server, revision = self._server, start_revision
        generation = server.generation
        while True:
            if server.generation != generation:
                raise CoordinationError("the watch was broken")
            if not server.is_up or self._is_cut():
                await asyncio.sleep(0.1)
                continue
            batch = server.model.since(wanted, revision)
            if batch.revision >= revision:
                await asyncio.sleep(server.world.net.delay())
                if self._is_cut():
                    continue
                sink(batch)
                revision = batch.revision + 1
                continue
            await server.changed.wait()

    def _is_cut(self) -> bool:
        net = self._server.world.net
        return net.is_cut(self._address, ADDRESS) or net.is_cut(ADDRESS, self._address)

    async def _call(self, work: Callable[[], T], *, is_change: bool = False) -> T:
        answer: asyncio.Future[T] = self._server.world.loop.create_future()
        _Request(self._server, self._address, work, answer, is_change=is_change).send()
        try:
            async with asyncio.timeout(_REQUEST_S):
                return await answer
        except TimeoutError:
            raise CoordinationError("the coordination store did not answer in time") from None


class _Request(Generic[T]):
    """A request on its way, and its answer. It belongs to the network: its sender may die meanwhile."""

    def __init__(
        self,
        server: CoordinationServer,
        address: str,
        work: Callable[[], T],
        answer: asyncio.Future[T],
        *,
        is_change: bool,
    ) -> None:
        self._server = server
        self._address = address
        self._work = work
        self._answer = answer
        self._is_under_way = is_change
        server.under_way[address] += is_change
        self._until_s = server.world.loop.time() + _RETRANSMIT_S

    def send(self) -> None:
        self._later(self._server.world.net.delay(), self._arrive)

    def _later(self, delay_s: float, step: Callable[[], None]) -> None:
        world = self._server.world
        if world.loop.time() < self._until_s:
            world.loop.call_later(delay_s, step, context=world.net.context)
        else:
            self._ends()

    def _ends(self) -> None:
        """Note that the request changes nothing any more."""
        self._server.under_way[self._address] -= self._is_under_way
        self._is_under_way = False

    def _again(self, step: Callable[[], None]) -> None:
        self._later(self._server.draw.between(0.05, 0.6), step)

    def _arrive(self) -> None:
        server = self._server
        if not server.is_up or server.world.net.is_cut(self._address, ADDRESS):
            self._again(self._arrive)
            return
        self._ends()
        try:
            result = self._work()
        except CoordinationRefusedError as error:
            refusal = error
            self._send_back(lambda: self._answer.set_exception(refusal))
        else:
            server.noticed()
            self._send_back(lambda: self._answer.set_result(result))

    def _send_back(self, tell: Callable[[], None]) -> None:
        def deliver() -> None:
            if self._server.world.net.is_cut(ADDRESS, self._address):
                self._again(deliver)
            elif not self._answer.done():
                tell()

        if not self._server.draw.chance(self._server.lost_answers):
            self._later(self._server.world.net.delay(), deliver)
