"""A coordination store in memory for simulations: the model of `aerobee.coordination` without sockets.

`SimCoordination` is the store. Each `client(name)` is what one process sees of it, and can be cut off, both ways or one
way: then its requests do not arrive, or their answers are lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from aerobee.coordination.model import KeyModel
from aerobee.coordination.values import KeyValue, ReadKeys, RevisionCompactedError, Txn, TxnResult, WatchSink
from aerobee.errors import CoordinationError
from aerobee.testing.entropy import SeededEntropy

T = TypeVar("T")

_TIMEOUT_S = 1.0


@dataclass
class Reach:
    """How well one client reaches the store. It may be changed at any time."""

    #: Requests do not arrive.
    requests_lost: bool = False
    #: Requests are carried out, and their answers and events are lost.
    answers_lost: bool = False
    #: The chance that one answer is lost.
    answer_lost: float = 0.0
    delay_s: tuple[float, float] = (0.0005, 0.002)


class SimCoordination:
    """A coordination store on the running loop's time. `is_down` stops it; leases go on when it is back, as in etcd."""

    def __init__(self, entropy: SeededEntropy, model: KeyModel | None = None) -> None:
        self.model = model or KeyModel()
        self.entropy = entropy
        self.is_down = False
        self._moved = asyncio.Event()

    def client(self, name: str) -> SimKeyStore:
        """Return the store as one process sees it."""
        return SimKeyStore(self, name)

    def stop(self) -> None:
        """Answer nobody."""
        self.is_down = True
        self.moved()

    def start(self, *, empty: bool = False) -> None:
        """Answer again. Leases have their whole time, as after a restart. `empty`: everything was lost."""
        now = asyncio.get_running_loop().time()
        self.model = KeyModel() if empty else KeyModel.load(self.model.save(), now)
        self.is_down = False
        self.moved()

    def apply(self, change: Callable[[KeyModel, float], T]) -> T:
        """Let leases end that are over, carry out a change, and wake the watches."""
        now, before = asyncio.get_running_loop().time(), (self.model.revision, self.model.next_end())
        self.model.expire(now)
        try:
            return change(self.model, now)
        finally:
            if before != (self.model.revision, self.model.next_end()):
                self.moved()

    def moved(self) -> None:
        """Wake the watches."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def wait_moved(self) -> None:
        """Wait until something may have changed, or until the next lease ends."""
        moved, ends_at = self._moved, self.model.next_end()
        now = asyncio.get_running_loop().time()
        delay_s = None if ends_at is None or self.is_down else max(0.0, ends_at - now)
        try:
            async with asyncio.timeout(delay_s):
                await moved.wait()
        except TimeoutError:
            if self.model.expire(asyncio.get_running_loop().time()):
                self.moved()


@dataclass
class SimKeyStore:
    """The store as one process sees it."""

    place: SimCoordination
    name: str
    reach: Reach = field(default_factory=Reach)

    async def read(self, wanted: ReadKeys) -> tuple[int, tuple[KeyValue, ...]]:
        return await self._ask(lambda model, _: (model.revision, model.read(wanted)))

    async def txn(self, txn: Txn) -> TxnResult:
        return await self._ask(lambda model, _: model.txn(txn))

    async def grant(self, ttl_s: int) -> tuple[int, int]:
        return await self._ask(lambda model, now: model.grant(ttl_s, now))

    async def keep_alive(self, lease: int) -> int:
        return await self._ask(lambda model, now: model.keep_alive(lease, now))

    async def revoke(self, lease: int) -> None:
        await self._ask(lambda model, _: model.revoke(lease))

    async def watch(self, wanted: ReadKeys, start_revision: int, sink: WatchSink) -> None:
        while True:
            if self.place.is_down:
                raise CoordinationError(f"{self.name}: the coordination store closed the connection")
            if not self.reach.answers_lost and not self.reach.requests_lost:
                batch = self.place.model.since(wanted, start_revision)
                if batch.events:
                    await self._travel()
                    start_revision = batch.revision + 1
                    sink(batch)
                    continue
            elif start_revision < self.place.model.compacted:
                raise RevisionCompactedError("mvcc: required revision has been compacted")
            await self.place.wait_moved()

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    async def _ask(self, change: Callable[[KeyModel, float], T]) -> T:
        await self._travel()
        if self.place.is_down:
            raise CoordinationError(f"{self.name}: the coordination store refuses connections")
        if self.reach.requests_lost:
            await self._silence()
        try:
            result = self.place.apply(change)
        finally:
            if self.reach.answers_lost or self.place.entropy.chance(self.reach.answer_lost):
                await self._silence()
            await self._travel()
        return result

    async def _travel(self) -> None:
        await asyncio.sleep(self.place.entropy.between(*self.reach.delay_s))

    async def _silence(self) -> None:
        await asyncio.sleep(_TIMEOUT_S)
        raise CoordinationError(f"{self.name}: the coordination store did not answer within {_TIMEOUT_S} s")
