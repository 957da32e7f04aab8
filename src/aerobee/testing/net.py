"""A network in memory: hosts, byte streams between asyncio.Protocols, and everything that goes wrong with them.

Streams behave as TCP: bytes arrive in order, once, in chunks of any size. A connection can be lost, but no byte
inside one. A cut holds what is on its way until it is healed, as retransmission would; it can be one-way. A host
that loses power says nothing, so its peers stay half open until they write to it and it is back to refuse them. A
host whose process is killed has its connections reset.

`SimNet.host("10.0.0.1")` is the Net of one host. "127.0.0.1" and "localhost" name the host itself; "0.0.0.0" and ""
bind all its addresses.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from aerobee.runtime.seams import Listener
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.stream import Signal, SimTransport

if TYPE_CHECKING:
    import ssl

ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)
Factory = Callable[[], asyncio.BaseProtocol]
Address = tuple[str, int]

_SELF = ("127.0.0.1", "localhost", "::1")
_ANY = ("", "0.0.0.0", "::")
_FIRST_PORT = 32768
_PORTS = 28232


@dataclass
class Weather:
    """What happens by chance, drawn from the seed. It may be changed at any time."""

    delay_s: tuple[float, float] = (0.0005, 0.002)
    #: Bytes arrive at most this many at a time (1: byte by byte); None: as written.
    chunk_bytes_max: int | None = None
    #: The chance that a connection attempt is refused.
    refuse: float = 0.0
    #: The chance, for each write, that its connection is reset instead.
    reset: float = 0.0
    #: The chance that a connection attempt arrives twice: the second carries the client's first bytes again,
    # and ends.
    duplicate: float = 0.0


class SimListener:
    """A bound port of a simulated host."""

    def __init__(self, net: SimNet, host: str, port: int, factory: Factory, is_serving: bool) -> None:
        self._net = net
        self._host = host
        self._port = port
        self.factory = factory
        self.is_serving = is_serving
        # Accepted protocols are called in the context of their server, as those of a real socket are.
        self.context = contextvars.copy_context()

    @property
    def host(self) -> str:
        return self._host

    @property
    def port(self) -> int:
        return self._port

    async def start(self) -> None:
        self.is_serving = True

    def close(self) -> None:
        self._net.unbind(self)

    async def wait_closed(self) -> None:
        """Return at once: a simulated port is free as soon as it is closed."""


class SimNet:
    """All hosts and the links between them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, seed: int = 0, weather: Weather | None = None) -> None:
        self.loop = loop
        self.weather = weather or Weather()
        self.entropy = SeededEntropy(seed)
        self._listeners: dict[tuple[str, int], SimListener] = {}
        self._transports: dict[SimTransport, None] = {}
        self._cuts: dict[tuple[str, str], None] = {}
        self._down: dict[str, None] = {}
        # Hosts whose process is stopped, and the connections that it will find lost.
        self._stopped: dict[str, list[Callable[[], None]]] = {}
        self._healed = asyncio.Event()
        self._next_port = _FIRST_PORT
        # What travels belongs to the network and to no process: killing one leaves these timers alone.
        self.context = contextvars.copy_context()
        # Called with (from, to, payload) for everything that arrives.
        self.on_arrival: Callable[[Address, Address, bytes | Signal], None] | None = None

    def host(self, address: str) -> SimHost:
        return SimHost(self, address)

    # --- what goes wrong, by explicit call

    def cut(self, source: str, target: str) -> None:
        """Stop what goes from `source` to `target`. The other way stays open."""
        self._cuts[source, target] = None

    def heal(self, source: str, target: str) -> None:
        """End this cut. What it held goes on."""
        self._cuts.pop((source, target), None)
        self._resume()

    def partition(self, ours: Iterable[str], theirs: Iterable[str]) -> None:
        """Cut both ways between two groups."""
        others = list(theirs)
        for host in ours:
            for other in others:
                self.cut(host, other)
                self.cut(other, host)

    def isolate(self, host: str, others: Iterable[str]) -> None:
        self.partition([host], [other for other in others if other != host])

    def heal_all(self) -> None:
        self._cuts.clear()
        self._resume()

    def is_cut(self, source: str, target: str) -> bool:
        if (source, target) in self._cuts or source in self._down or target in self._down:
            return True
        return target in self._stopped

    def stop(self, host: str) -> None:
        """Let nothing reach a host whose process is stopped (SIGSTOP). What it has written still leaves."""
        self._stopped.setdefault(host, [])

    def go_on(self, host: str) -> None:
        """Bring everything that came meanwhile to a host whose process runs again."""
        for lose in self._stopped.pop(host, ()):
            lose()
        self._resume()

    def when_running(self, host: str, callback: Callable[[], None]) -> None:
        """Call back now, or when the host's process is no longer stopped."""
        if host in self._stopped:
            self._stopped[host].append(callback)
        else:
            callback()

    def reset(self, host: str, other: str) -> int:
        """Reset every connection between two hosts, tell both ends, and return how many there were."""
        hit = [end for end in self._ends_of(host) if end.remote[0] == other]
        for end in hit:
            end.break_both()
        return len(hit)

    def power_off(self, host: str) -> None:
        """Switch a host off. Its protocols hear nothing any more, and its peers are half open."""
        self._down[host] = None
        self._stopped.pop(host, None)
        for end in self._ends_of(host):
            end.vanish()
        self._unbind_host(host)

    def power_on(self, host: str) -> None:
        """Switch a host on again. It has no connections: what peers still send to the old ones is answered by a
        reset."""
        self._down.pop(host, None)
        self._resume()

    def kill(self, host: str) -> None:
        """End the process of a host. Its protocols hear nothing any more, and its peers are reset."""
        self._stopped.pop(host, None)
        for end in self._ends_of(host):
            end.vanish()
            end.send_reset()
        self._unbind_host(host)

    def connections(self) -> list[tuple[tuple[str, int], tuple[str, int]]]:
        """Return (local, remote) of every open end."""
        return [(end.local, end.remote) for end in self._transports if not end.is_lost]

    # --- what hosts and streams ask

    def bind(self, address: str, host: str, port: int, factory: Factory, start: bool) -> SimListener:
        if host not in _SELF and host not in _ANY and host != address:
            raise _os_error(errno.EADDRNOTAVAIL)
        if port == 0:
            port = self._free_port(address)
        if (address, port) in self._listeners:
            raise _os_error(errno.EADDRINUSE)
        listener = self._listeners[address, port] = SimListener(self, host or "0.0.0.0", port, factory, start)
        return listener

    def unbind(self, listener: SimListener) -> None:
        for key in [key for key, bound in self._listeners.items() if bound is listener]:
            del self._listeners[key]

    async def dial(
        self, source: str, host: str, port: int, factory: Callable[[], ProtocolT]
    ) -> tuple[asyncio.Transport, ProtocolT]:
        target = source if host in _SELF else host
        await asyncio.sleep(self.delay())
        await self._wait_open(source, target)
        listener = self._listeners.get((target, port))
        if listener is None or not listener.is_serving or self.entropy.chance(self.weather.refuse):
            await asyncio.sleep(self.delay())
            raise _os_error(errno.ECONNREFUSED)
        near, far = (source, self._free_port(source)), (target, port)
        client = SimTransport(self, near, far)
        server = SimTransport(self, far, near)
        client.join(server)
        self._transports[client] = None
        self._accept(listener, server)
        if self.entropy.chance(self.weather.duplicate):
            self._duplicate(listener, client)
        try:
            await asyncio.sleep(self.delay())
            await self._wait_open(target, source)
        except asyncio.CancelledError:
            client.abort()
            raise
        if client.is_closing():
            raise _os_error(errno.ECONNRESET)
        protocol = factory()
        client.set_protocol(protocol)
        protocol.connection_made(client)
        client.start()
        return client, protocol

    def delay(self) -> float:
        return self.entropy.between(*self.weather.delay_s)

    def forget(self, end: SimTransport) -> None:
        self._transports.pop(end, None)

    def _accept(self, listener: SimListener, server: SimTransport) -> None:
        self._transports[server] = None
        listener.context.run(server.accept, listener.factory)

    def _duplicate(self, listener: SimListener, client: SimTransport) -> None:
        """Make a second server end that gets what the client writes first. Its answers go nowhere."""
        ghost = SimTransport(self, (client.local[0], self._free_port(client.local[0])), client.remote)
        twin = SimTransport(self, client.remote, ghost.local)
        ghost.join(twin)
        client.shadow = ghost
        self._accept(listener, twin)

    async def _wait_open(self, source: str, target: str) -> None:
        while self.is_cut(source, target):
            await self._healed.wait()

    def _resume(self) -> None:
        # Waiters check again, and wait for the next Event if their own link is still cut.
        self._healed.set()
        self._healed = asyncio.Event()
        for end in list(self._transports):
            end.resume_sending()

    def _ends_of(self, host: str) -> list[SimTransport]:
        return [end for end in self._transports if end.local[0] == host and not end.is_lost]

    def _unbind_host(self, host: str) -> None:
        for key in [key for key in self._listeners if key[0] == host]:
            del self._listeners[key]

    def _free_port(self, address: str) -> int:
        """Return an ephemeral port. They are used in turn, as long as connections are fewer than the range."""
        while True:
            self._next_port = _FIRST_PORT + (self._next_port + 1 - _FIRST_PORT) % _PORTS
            if (address, self._next_port) not in self._listeners:
                return self._next_port


class SimHost:
    """The Net of one host. TLS is not simulated: asking for it raises ValueError."""

    def __init__(self, net: SimNet, address: str) -> None:
        self.net = net
        self.address = address

    async def listen(
        self,
        host: str,
        port: int,
        protocol_factory: Factory,
        *,
        tls: ssl.SSLContext | None = None,
        start: bool = True,
    ) -> Listener:
        _require_plain(tls)
        return self.net.bind(self.address, host, port, protocol_factory, start)

    async def connect(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], ProtocolT],
        *,
        tls: ssl.SSLContext | None = None,
    ) -> tuple[asyncio.Transport, ProtocolT]:
        _require_plain(tls)
        return await self.net.dial(self.address, host, port, protocol_factory)


def _require_plain(tls: ssl.SSLContext | None) -> None:
    if tls is not None:
        raise ValueError("the simulated network carries no TLS")


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
