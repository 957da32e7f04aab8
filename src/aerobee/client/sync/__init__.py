"""The synchronous clients: the asyncio ones on a thread of their own."""

from __future__ import annotations

from aerobee.client.sync.client import SyncClient
from aerobee.client.sync.consumers import LitePullConsumer, PushConsumer
from aerobee.client.sync.producer import Producer, Transaction
from aerobee.client.sync.simple import SimpleConsumer

__all__ = [
    "LitePullConsumer",
    "Producer",
    "PushConsumer",
    "SimpleConsumer",
    "SyncClient",
    "Transaction",
]
