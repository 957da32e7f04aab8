"""Headers of locking queues for ordered consumption (the queues are in the body)."""

from __future__ import annotations

from aerobee.protocol.headers.base import RpcRequestHeader


class LockBatchMqRequestHeader(RpcRequestHeader, kw_only=True):
    """LOCK_BATCH_MQ."""


class UnlockBatchMqRequestHeader(RpcRequestHeader, kw_only=True):
    """UNLOCK_BATCH_MQ."""
