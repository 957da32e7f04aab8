"""Administrative questions of a driver to the cluster, from plain code or inside a running event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from aerobee.admin.connection import AdminConnection
from aerobee.admin.topics import list_topics
from aerobee.client.core import tls_of
from aerobee.runtime.loopthread import LoopThread
from aerobee.runtime.process import environment

T = TypeVar("T")


def converse(namesrv: str, work: Callable[[AdminConnection], Awaitable[T]], *, timeout_s: float = 5.0) -> T:
    """Run one conversation on an event loop in its own thread, since a notebook's loop may run in this one."""

    tls = tls_of({}, environment())

    async def run() -> T:
        context = tls.context() if tls is not None else None
        async with AdminConnection(namesrv, timeout_s=timeout_s, tls=context) as admin:
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
