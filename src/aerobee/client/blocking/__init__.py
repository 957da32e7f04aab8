"""The blocking client: requests over one socket a server, for programs without an event loop, such as Spark's tasks."""

from __future__ import annotations

from aerobee.client.blocking.client import BlockingClient
from aerobee.client.blocking.connection import CONNECTIONS, BlockingConnection, Call

__all__ = ["CONNECTIONS", "BlockingClient", "BlockingConnection", "Call"]
