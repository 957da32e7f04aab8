"""`aerobee up --brokers N`: a name server in this process, and N broker groups in processes of their own.

All processes end together. A signal to this process stops all of them. If one broker ends by itself, the others are
stopped. If this process is killed, the brokers read the end of their standard input and stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aerobee.app.identity import joined, reachable_from_here
from aerobee.app.namesrv import NamesrvNode
from aerobee.app.process import disk_of_this_loop
from aerobee.app.servers import BROKER_CLASSES
from aerobee.app.up import UP_DEFAULTS, UpOptions, listening
from aerobee.broker.config import BrokerConfig
from aerobee.config.loader import Loaded, load, override_source
from aerobee.config.setting import render
from aerobee.errors import AerobeeError
from aerobee.namesrv.config import NamesrvConfig
from aerobee.net.config import TlsConfig
from aerobee.runtime.children import Child, start_python
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.disk import RealDisk
from aerobee.runtime.logfile import LogFile
from aerobee.runtime.machine import home_path, is_empty_directory, make_temporary_directory, remove_tree
from aerobee.runtime.shortage import descriptor_limit
from aerobee.telemetry.stdlog import get_log

# Each broker also uses the port two below its own, and later the one above it for replicas.
PORT_STEP = 20
BROKER_PORT = 10_911
# This is longer than a broker waits for its own disk.
_STOP_PATIENCE_S = 30.0
_NAMES = "abcdefghijklmnopqrstuvwxyz"

_log = get_log("up")


class BrokersError(AerobeeError):
    """The broker groups cannot be started."""


@dataclass(frozen=True, slots=True)
class Group:
    """One running broker group."""

    name: str
    address: str
    data: str
    pid: int


@dataclass(frozen=True, slots=True)
class GroupsReady:
    """What was started. `broker` and `broker_name` are those of the first group, as without --brokers."""

    namesrv: str
    broker: str
    broker_name: str
    cluster: str
    data: str
    temporary: bool
    ready_ms: int
    brokers: tuple[Group, ...]

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """Return the address and a description of each broker."""
        return tuple((group.address, f"{group.name} of {self.cluster}, process {group.pid}") for group in self.brokers)


async def up_brokers(options: UpOptions, count: int, ready: Callable[[GroupsReady], None], stop: asyncio.Event) -> int:
    """Start, call `ready`, serve until `stop` is set, and return the exit code."""
    return await _Groups(options, count, ready).run(stop)


class _Groups:
    """One run of `aerobee up --brokers`."""

    def __init__(self, options: UpOptions, count: int, ready: Callable[[GroupsReady], None]) -> None:
        self._options = options
        self._names = [f"broker-{letter}" for letter in _NAMES[:count]]
        self._ready = ready
        self._clock = SystemClock()
        self._started_s = self._clock.monotonic()
        self._children: list[Child] = []

    async def run(self, stop: asyncio.Event) -> int:
        # A wrong setting is reported once here, not by every child.
        loaded = load(BROKER_CLASSES, override_source(self._options.settings))
        options = self._options
        temporary = options.data is None
        data = make_temporary_directory("aerobee-") if options.data is None else home_path(options.data)
        if not is_empty_directory(f"{data}/commitlog"):
            raise BrokersError(
                f"{data} holds the store of a single broker", hint="Name another directory, or omit --brokers."
            )
        disk = disk_of_this_loop()
        try:
            return await self._serve(loaded, data, temporary, disk, stop)
        finally:
            disk.close()
            if temporary:
                remove_tree(data)

    async def _serve(self, loaded: Loaded, data: str, temporary: bool, disk: RealDisk, stop: asyncio.Event) -> int:
        host, port = self._options.host, self._options.namesrv_port
        settings = NamesrvConfig(listen_port=port, kv_config_path=f"{data}/namesrv/kvConfig.json")
        tls = loaded.get(TlsConfig).among_own()
        namesrv = NamesrvNode(settings, disk, self._clock, host=host, tls=tls, descriptors=descriptor_limit())
        await listening(namesrv.start(), "name server", host, port, "--namesrv-port 0")
        try:
            address = joined(reachable_from_here(host), namesrv.port)
            try:
                groups = await self._start(address, data, tls, stop)
                if groups is None:
                    return 0
                elapsed_ms = int((self._clock.monotonic() - self._started_s) * 1000)
                first, cluster = groups[0], loaded.get(BrokerConfig).cluster_name
                self._ready(
                    GroupsReady(address, first.address, first.name, cluster, data, temporary, elapsed_ms, groups)
                )
                return await self._until_one_ends(stop)
            finally:
                await asyncio.gather(*(child.stop(_STOP_PATIENCE_S) for child in self._children))
        finally:
            await namesrv.stop()

    async def _start(self, namesrv: str, data: str, tls: TlsConfig, stop: asyncio.Event) -> tuple[Group, ...] | None:
        """Start all groups at once. Return None if a stop was asked for before they were ready."""
        for number, name in enumerate(self._names):
            words = [*self._settings(number, name, namesrv, data), f"tls.enable={render(tls.enable)}"]
            own = self._options.log_file
            log = LogFile("") if own is None else own.beside(name)
            where = [log.path, str(log.size_mib), str(log.kept), self._options.host]
            self._children.append(await start_python("aerobee.app.member", [*where, *words]))
        stopped = asyncio.ensure_future(stop.wait())
        lines = asyncio.ensure_future(asyncio.gather(*(child.line() for child in self._children)))
        either: list[asyncio.Future[Any]] = [stopped, lines]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not lines.done():
            lines.cancel()
            return None
        addresses = [line.decode().strip() for line in lines.result()]
        missing = [name for name, address in zip(self._names, addresses, strict=True) if not address]
        if missing and stop.is_set():
            return None
        if missing:
            raise BrokersError(f"{' and '.join(missing)} did not start: see the messages above")
        return tuple(
            Group(name, address, f"{data}/{name}", child.pid)
            for name, address, child in zip(self._names, addresses, self._children, strict=True)
        )

    def _settings(self, number: int, name: str, namesrv: str, data: str) -> list[str]:
        """Return the defaults of `up`, the settings of the command line, then this group's own. The last one wins."""
        options = self._options
        first = BROKER_PORT if options.broker_port is None else options.broker_port
        own = {
            "brokerName": name,
            "storePathRootDir": f"{data}/{name}",
            "listenPort": str(first + PORT_STEP * number if first else 0),
            "namesrvAddr": namesrv,
        }
        if options.advertise:
            own["brokerIP1"] = options.advertise
        defaults = [f"{key}={value}" for key, value in UP_DEFAULTS.items()]
        return [*defaults, *options.settings, *(f"{key}={value}" for key, value in own.items())]

    async def _until_one_ends(self, stop: asyncio.Event) -> int:
        """Wait for a stop and return 0, or until a broker ends by itself and return 1."""
        stopped = asyncio.ensure_future(stop.wait())
        ended = [asyncio.ensure_future(child.ended()) for child in self._children]
        either: list[asyncio.Future[Any]] = [stopped, *ended]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        codes = [one.result() if one.done() else None for one in ended]
        for one in either:
            one.cancel()
        await asyncio.gather(*either, return_exceptions=True)
        if stop.is_set():
            return 0
        for name, code in zip(self._names, codes, strict=True):
            if code is not None:
                _log.error("a broker ended; all others are stopped", broker=name, exit_code=code)
        return 1
