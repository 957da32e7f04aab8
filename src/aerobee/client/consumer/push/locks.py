"""The locks on queues that ordered consumption needs. Brokers keep them.

RocketMQ: RebalanceImpl.lock, lockAll, unlock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from aerobee.client.core import ClientCore
from aerobee.errors import AerobeeError
from aerobee.model.queue import MessageQueue
from aerobee.protocol.bodies.lock import LockBatchRequestBody, LockBatchResponseBody
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.lock import LockBatchMqRequestHeader, UnlockBatchMqRequestHeader
from aerobee.telemetry.stdlog import get_log

RENEW_S = 20.0
_TIMEOUT_S = 1.0
_log = get_log("client.locks")


@dataclass(slots=True)
class Locking:
    """The answers of brokers. The broker of a queue in neither set did not answer."""

    granted: set[MessageQueue] = field(default_factory=set)
    refused: set[MessageQueue] = field(default_factory=set)


class GroupQueueLocks:
    """The locks of one member of a group."""

    def __init__(self, core: ClientCore, group: str) -> None:
        self._core = core
        self._group = group

    async def acquire(self, queues: Iterable[MessageQueue]) -> Locking:
        """Get or renew the locks of queues."""
        result = Locking()
        by_address = self._by_master(queues)
        await asyncio.gather(*(self._lock_at(address, of, result) for address, of in by_address.items()))
        return result

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

    async def _lock_at(self, address: str, queues: list[MessageQueue], result: Locking) -> None:
        try:
            await self._core.known_to(address)
            answer = await self._core.ask(
                address,
                RequestCode.LOCK_BATCH_MQ,
                LockBatchMqRequestHeader(),
                self._body(queues),
                timeout_s=_TIMEOUT_S,
            )
            granted = set(LockBatchResponseBody.decode(answer.body).lock_ok_mq_set)
        except AerobeeError as error:
            _log.warning(
                "a broker did not answer the request for locks", broker=address, queues=len(queues), reason=str(error)
            )
            return
        result.granted |= granted & set(queues)
        result.refused |= set(queues) - granted

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
