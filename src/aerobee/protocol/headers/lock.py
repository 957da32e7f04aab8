"""Headers of requests that lock queues for ordered consumption. The queues are in the body."""

from __future__ import annotations

from aerobee.protocol.headers.base import RpcRequestHeader


class LockBatchMqRequestHeader(RpcRequestHeader, kw_only=True):
    """LOCK_BATCH_MQ."""


class UnlockBatchMqRequestHeader(RpcRequestHeader, kw_only=True):
    """UNLOCK_BATCH_MQ."""
