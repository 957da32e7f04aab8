"""What the handlers of a name server share: settings, tables and time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.kvconfig import KVConfig
from aerobee.namesrv.routes import RouteTable
from aerobee.net.turns import Sliced, Slices
from aerobee.protocol.bodies.base import Body
from aerobee.protocol.command import Command, response
from aerobee.runtime.seams import Clock, Disk


class Peer(Protocol):
    """The connection of a request."""

    @property
    def id(self) -> int: ...
    @property
    def remote_address(self) -> str: ...
    def close(self) -> None: ...


Handler = Callable[[Peer, Command], Command | Sliced | None]


def encoded(command: Command, body: Body, ext: Mapping[str, str] | None = None) -> Sliced:
    """Return an answer whose body is encoded in slices."""

    def slices() -> Slices:
        return response(command, body=(yield from body.encode_slices()), ext=ext)

    return Sliced(slices())


class NamesrvState:
    """The memory of one name server. Name servers share nothing: each holds every route."""

    def __init__(self, config: NamesrvConfig, clock: Clock, disk: Disk) -> None:
        self.disk = disk
        self.routes = RouteTable(config)
        self.kv = KVConfig(disk, config.kv_config_path)
        self._clock = clock
        self._config = config
        self.started_ms = self.now_ms()

    @property
    def config(self) -> NamesrvConfig:
        return self._config

    @config.setter
    def config(self, config: NamesrvConfig) -> None:
        self._config = self.routes.config = config

    @property
    def clock(self) -> Clock:
        return self._clock

    def now_ms(self) -> int:
        """Return the monotonic time, so that a change of the wall clock does not expire every broker."""
        return int(self._clock.monotonic() * 1000)
