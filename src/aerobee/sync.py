"""Synchronous clients: `from aerobee.sync import Producer`. Same names and arguments as the asyncio ones."""

from __future__ import annotations

from aerobee.client.sync import Producer, Transaction
from aerobee.client.syncconsumers import LitePullConsumer, PushConsumer

__all__ = ["LitePullConsumer", "Producer", "PushConsumer", "Transaction"]
