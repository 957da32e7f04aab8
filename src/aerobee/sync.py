"""The synchronous clients: `from aerobee.sync import Producer`. They take the arguments of the asyncio clients."""

from __future__ import annotations

from aerobee.admin.blocking import Admin
from aerobee.client.sync import LitePullConsumer, Producer, PushConsumer, SimpleConsumer, Transaction

__all__ = ["Admin", "LitePullConsumer", "Producer", "PushConsumer", "SimpleConsumer", "Transaction"]
