"""Leases that are renewed while a program works on their messages. RocketMQ: ReceiptHandleProcessor."""

from __future__ import annotations

import asyncio
from typing import Final

from aerobee.client.consumer.popping import MessageLease, Popper
from aerobee.client.core import ClientCore
from aerobee.errors import AerobeeError
from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.stdlog import get_log

# A lease is renewed when so much of its time is left.
_LEFT: Final = 0.34
_LOOK_S: Final = 0.5

_log = get_log("client.pop")


class LeaseKeeper:
    """The leases of one consumer that are renewed."""

    def __init__(self, core: ClientCore, popper: Popper, tasks: Tasks, max_s: float) -> None:
        """Renew each lease for `max_s` seconds at most."""
        self._core = core
        self._popper = popper
        self._tasks = tasks
        self._max_s = max_s
        self._kept: dict[int, tuple[MessageLease, float, float]] = {}
        self._runs = False

    def keep(self, lease: MessageLease, invisible_s: float) -> None:
        """Renew a lease until it is acknowledged or let go."""
        self._kept[id(lease)] = lease, invisible_s, self._core.clock.monotonic() + self._max_s
        if not self._runs:
            self._runs = True
            self._tasks.start(self._run(), name="renew leases")

    def let_go(self, lease: MessageLease) -> None:
        """Renew a lease no more."""
        self._kept.pop(id(lease), None)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            now_s = self._core.clock.monotonic()
            due: list[tuple[MessageLease, float]] = []
            for key, (lease, invisible_s, until_s) in list(self._kept.items()):
                if lease.acked or now_s >= until_s or lease.until_s <= now_s:
                    del self._kept[key]
                elif lease.until_s - now_s < max(invisible_s * _LEFT, 2 * _LOOK_S):
                    due.append((lease, invisible_s))
            if due:
                await asyncio.gather(*(self._renew(lease, invisible_s) for lease, invisible_s in due))

    async def _renew(self, lease: MessageLease, invisible_s: float) -> None:
        try:
            await self._popper.change(lease, invisible_s)
        except AerobeeError as error:
            _log.warning("a message's time could not be renewed; it is tried again", reason=str(error))
