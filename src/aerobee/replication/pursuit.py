"""A follower's pursuit of its master: connect, connect again, and notice when the master's process is dead."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, Protocol

from aerobee.model.numbers import parse_int
from aerobee.replication.frames import Hello
from aerobee.replication.link import SILENT_MAX_S, Linker, MasterLink
from aerobee.replication.values import ReplicaMember
from aerobee.runtime.seams import Net
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

_CONNECT_MAX_S: Final = 1.0
_RECONNECT_S: Final = (0.05, 0.5)
_log = get_log("replication")


class Pursuer(Linker, Protocol):
    """The replica, as its pursuit sees it."""

    def hello(self) -> Hello: ...
    def can_follow(self) -> bool:
        """Tell whether the log may be touched now."""

    def master_died(self, epoch: int) -> None: ...


class Pursuit:
    """Keeps one connection to the master that it was told last."""

    def __init__(
        self,
        net: Net,
        pursuer: Pursuer,
        warn: RateLimitedLog,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        """Follow nobody yet. `tls` returns the context of now for connections to masters, None for plain ones."""
        self._net = net
        self._tls = tls
        self._pursuer = pursuer
        self._warn = warn
        self._target: tuple[int, ReplicaMember] | None = None
        self._changed = asyncio.Event()
        self._link: MasterLink | None = None
        self._has_left = False

    def follow(self, target: tuple[int, ReplicaMember] | None) -> None:
        """Follow the master of an epoch from now on, or nobody. The connection to another ends at once."""
        self._target = target
        if self._link is not None:
            self._link.close()
            self._link = None
        self._changed.set()

    def go_on(self) -> None:
        """Look again whether the log may be touched."""
        self._changed.set()

    def leave(self, reason: str, words: str) -> None:
        """Tell the master why this replica goes, and follow nobody any more."""
        self._has_left = True
        self._target = None
        if self._link is not None:
            self._link.say_goodbye(reason, words)
            self._link = None
        self._changed.set()

    def ack_soon(self) -> None:
        if self._link is not None:
            self._link.ack_soon()

    async def run(self) -> None:
        pause_s = _RECONNECT_S[0]
        while not self._has_left:
            self._changed.clear()
            target = self._target
            if target is None or not self._pursuer.can_follow():
                await self._changed.wait()
                pause_s = _RECONNECT_S[0]
                continue
            link = await self._connect(*target)
            if link is not None:
                await self._watch_over(link)
                if link.refused:
                    self._warn.warning("refused", "the master refuses this replica", reason=link.refused)
                else:
                    pause_s = _RECONNECT_S[0]
            if self._target is target and not await self._is_changed_within(pause_s):
                pause_s = min(pause_s * 2, _RECONNECT_S[1])

    async def _is_changed_within(self, pause_s: float) -> bool:
        try:
            async with asyncio.timeout(pause_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _connect(self, epoch: int, master: ReplicaMember) -> MasterLink | None:
        host, _, port = master.ha_address.rpartition(":")
        target = self._target
        try:
            async with asyncio.timeout(_CONNECT_MAX_S):
                _, link = await self._net.connect(
                    host.strip("[]"), parse_int(port, 0, 65535),
                    lambda: MasterLink(self._pursuer, epoch, self._pursuer.hello()), tls=self._tls(),
                )  # fmt: skip
        except ConnectionRefusedError:
            await self._look_for_death(epoch, master)
            return None
        except (OSError, TimeoutError) as error:
            self._warn.warning("connect", "the master cannot be reached", address=master.ha_address, reason=str(error))
            return None
        if self._target is not target or not self._pursuer.can_follow():
            link.close()
            return None
        self._link = link
        return link

    async def _look_for_death(self, epoch: int, master: ReplicaMember) -> None:
        """Ask the main port too: a machine that refuses both has no such process."""
        host, _, port = master.address.rpartition(":")
        try:
            async with asyncio.timeout(_CONNECT_MAX_S):
                transport, _ = await self._net.connect(host.strip("[]"), parse_int(port, 0, 65535), asyncio.Protocol)
            transport.abort()
        except ConnectionRefusedError:
            self._pursuer.master_died(epoch)
        except (OSError, TimeoutError):
            return

    async def _watch_over(self, link: MasterLink) -> None:
        """Wait until the connection ends, and end it when the master says nothing any more."""
        while not link.ended.is_set():
            try:
                async with asyncio.timeout(SILENT_MAX_S / 2):
                    await link.ended.wait()
            except TimeoutError:
                if self._pursuer.now() - link.heard_s > SILENT_MAX_S:
                    _log.warning("the master is silent, the connection is closed")
                    link.close()
        if self._link is link:
            self._link = None
