"""Synchronous clients: `from aerobee.sync import Producer`. Same names and arguments as the asyncio ones."""

from __future__ import annotations

from aerobee.client.sync.consumers import LitePullConsumer, PushConsumer
from aerobee.client.sync.producer import Producer, Transaction

__all__ = ["LitePullConsumer", "Producer", "PushConsumer", "Transaction"]
