"""Telling users which queues they got or lost."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

from aerobee.model.queue import MessageQueue
from aerobee.telemetry.stdlog import get_log

_log = get_log("client.share")

OnQueues = Callable[[list[MessageQueue]], Awaitable[None] | None]


async def tell(told: OnQueues | None, queues: list[MessageQueue]) -> None:
    """Call on_assigned or on_revoked; what it raises is logged and changes nothing."""
    if told is None or not queues:
        return
    try:
        result = told(queues)
        if inspect.isawaitable(result):
            await result
    except Exception as error:  # noqa: BLE001 - the user's code must not stop the share
        _log.error("on_assigned or on_revoked raised", exc_info=error)
