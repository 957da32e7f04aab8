"""Administrative questions of a driver to the cluster, from plain code or inside a running event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from aerobee.admin.connection import AdminConnection
from aerobee.admin.topics import list_topics
from aerobee.client.core import client_config
from aerobee.runtime.loopthread import LoopThread
from aerobee.runtime.process import environment

T = TypeVar("T")


def converse(namesrv: str, work: Callable[[AdminConnection], Awaitable[T]], *, timeout_s: float = 5.0) -> T:
    """Run one conversation on an event loop in its own thread, since a notebook's loop may run in this one."""

    config = client_config(namesrv, environment())

    async def run() -> T:
        credentials, tls = config.credentials, config.tls
        async with AdminConnection(namesrv, timeout_s=timeout_s, credentials=credentials, tls=tls) as admin:
            return await work(admin)

    thread = LoopThread("aerobee-driver")
    try:
        return thread.run(run())
    finally:
        thread.stop()


def topics(namesrv: str, *, timeout_s: float = 5.0) -> dict[str, str]:
    """Return every topic with its kind: normal, retry, dlq or system."""
    found = converse(namesrv, list_topics, timeout_s=timeout_s)
    return {one.topic: one.kind for one in found.topics}
