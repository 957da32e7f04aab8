"""The locks on queues that ordered consumption needs. Brokers keep them.

RocketMQ: RebalanceImpl.lock, lockAll, unlock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from aerobee.client.consumer.processqueue import LOCK_LEASE_S
from aerobee.client.core import ClientCore
from aerobee.errors import AerobeeError
from aerobee.model.queue import MessageQueue
from aerobee.protocol.bodies.lock import LockBatchRequestBody, LockBatchResponseBody
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.lock import LockBatchMqRequestHeader, UnlockBatchMqRequestHeader
from aerobee.telemetry.stdlog import get_log

# Two renewals may fail before a lease ends. RocketMQ: RebalanceLockManager's 20 s, for locks of 60 s.
RENEW_S = 2.0
# While it is not known whether a broker still has the locks, nothing is handled.
DOUBT_RENEW_S = 0.25
_TIMEOUT_S = 1.0
_log = get_log("client.locks")


@dataclass(frozen=True, slots=True)
class Locking:
    """The answer of one broker. Where it did not answer, no queue is granted and none is refused."""

    queues: tuple[MessageQueue, ...]
    granted: frozenset[MessageQueue] = frozenset()
    refused: frozenset[MessageQueue] = frozenset()


class GroupQueueLocks:
    """The locks of one member of a group."""

    def __init__(self, core: ClientCore, group: str) -> None:
        self._core = core
        self._group = group

    async def acquire(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Get the locks of queues. Return those that brokers granted."""
        granted: set[MessageQueue] = set()
        await self.renew(queues, lambda answer: granted.update(answer.granted))
        return granted

    async def renew(self, queues: Iterable[MessageQueue], answered: Callable[[Locking], None]) -> None:
        """Get or renew the locks of queues. Call `answered` for each broker as soon as it has answered or failed: the
        leases of its queues must not wait for a broker that hangs."""
        by_address = self._by_master(queues)

        async def one(address: str, of: list[MessageQueue]) -> None:
            answered(await self._lock_at(address, of))

        await asyncio.gather(*(one(address, of) for address, of in by_address.items()))
        asked = {queue for of in by_address.values() for queue in of}
        without_master = tuple(queue for queue in queues if queue not in asked)
        if without_master:
            answered(Locking(without_master))

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Release the locks of queues. A broker that does not answer lets them expire."""
        by_address = self._by_master(queues)
        await asyncio.gather(*(self._unlock_at(address, of) for address, of in by_address.items()))

    def _by_master(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        result: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            address = self._core.routes.master(self._core.routes.broker_of(queue))
            if address is not None:
                result.setdefault(address, []).append(queue)
        return result

    def _body(self, queues: list[MessageQueue]) -> bytes:
        return LockBatchRequestBody(self._group, self._core.client_id, mq_set=tuple(queues)).encode()

    async def _lock_at(self, address: str, queues: list[MessageQueue]) -> Locking:
        header = LockBatchMqRequestHeader(lease_ms=round(LOCK_LEASE_S * 1000))
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await self._core.known_to(address)
                answer = await self._core.ask(address, RequestCode.LOCK_BATCH_MQ, header, self._body(queues))
            locked = LockBatchResponseBody.decode(answer.body).lock_ok_mq_set
        except (AerobeeError, TimeoutError) as error:
            reason = str(error) or f"no answer within {_TIMEOUT_S:g} s"
            _log.warning(
                "a broker did not answer the request for locks", broker=address, queues=len(queues), reason=reason
            )
            for topic in dict.fromkeys(queue.topic for queue in queues):
                self._core.refresh_soon(topic)
            return Locking(tuple(queues))
        granted = frozenset(queues).intersection(locked)
        return Locking(tuple(queues), granted, frozenset(queues) - granted)

    async def _unlock_at(self, address: str, queues: list[MessageQueue]) -> None:
        try:
            await self._core.ask(
                address,
                RequestCode.UNLOCK_BATCH_MQ,
                UnlockBatchMqRequestHeader(),
                self._body(queues),
                timeout_s=_TIMEOUT_S,
            )
        except AerobeeError as error:
            _log.warning(
                "a broker did not answer the release of locks, which will expire", broker=address, reason=str(error)
            )
