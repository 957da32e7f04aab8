"""Brings the users and rights of the master to a broker that follows it: every 5 s, as the inner user.

They are not in the log: a log that is copied or archived must not hold secrets. RocketMQ does not copy them at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aerobee.access.copying import UserReader
from aerobee.access.files import AccessFiles
from aerobee.errors import AerobeeError
from aerobee.net.client import RemotingClient
from aerobee.runtime.seams import Clock
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

INTERVAL_S: Final = 5.0
_log = get_log("broker.slave")


class UserSync:
    """Copies users and rights from the broker that `master` names; an empty text means that there is none."""

    def __init__(self, files: AccessFiles, client: RemotingClient, clock: Clock, master: Callable[[], str]) -> None:
        self._files = files
        self._reader = UserReader(client)
        self._master = master
        self._warn = RateLimitedLog(_log, clock)
        # How many times everything was copied.
        self.rounds = 0

    async def run(self) -> None:
        """Copy until cancelled."""
        while True:
            await self.once()
            await asyncio.sleep(INTERVAL_S)

    async def once(self) -> bool:
        """Copy everything now. Return whether that was possible."""
        address = self._master()
        if not address:
            return False
        try:
            tables = await self._reader.read(address)
            await self._files.change(lambda _: tables)
        except (AerobeeError, OSError, ValueError) as error:
            self._warn.warning(
                address, "users and rights cannot be copied from the master now", master=address, reason=str(error)
            )
            return False
        self.rounds += 1
        return True
