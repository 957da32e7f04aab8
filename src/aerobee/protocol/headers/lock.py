"""Headers of requests that lock queues for ordered consumption. The queues are in the body."""

from __future__ import annotations

from msgspec import field

from aerobee.model.sysproperties import PRIVATE_PREFIX
from aerobee.protocol.headers.base import Int32, RpcRequestHeader


class LockBatchMqRequestHeader(RpcRequestHeader, kw_only=True):
    """LOCK_BATCH_MQ. `lease_ms` is Aerobee's own field (docs/formats/private.md)."""

    lease_ms: Int32 | None = field(default=None, name=f"{PRIVATE_PREFIX}LEASE_MS")


class UnlockBatchMqRequestHeader(RpcRequestHeader, kw_only=True):
    """UNLOCK_BATCH_MQ."""
