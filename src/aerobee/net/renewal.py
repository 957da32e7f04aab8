"""Certificates that change while a server runs: files are looked at once a second and read again once they rest.

New connections then meet the new certificate, open ones stay as they are. Files that do not fit together leave in use
what was there, and the log says why. RocketMQ: FileWatchService and its listener in BrokerController.initialize, which
waits until certificate and key have both changed; here the two must load together, whichever changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aerobee.errors import ConfigError
from aerobee.net.client import RemotingClient
from aerobee.net.config import TlsConfig
from aerobee.net.server import Server
from aerobee.runtime.shortage import is_passing
from aerobee.runtime.tls import stamps
from aerobee.telemetry.stdlog import get_log

_log = get_log("net.tls")


class Renewal:
    """Some files, and what is to be done when they changed. Made before they are read for the first time."""

    def __init__(self, paths: Sequence[str], renew: Callable[[], None]) -> None:
        self._paths = [path for path in paths if path]
        self._renew = renew
        self._read = self._seen = stamps(self._paths)

    def look(self) -> None:
        """A change is read when the look after it finds nothing newer: before, it may be half written."""
        found, before = stamps(self._paths), self._seen
        self._seen = found
        if found == self._read or found != before:
            return
        old, self._read = self._read, found
        try:
            self._renew()
        except ConfigError as error:
            if is_passing(error.__cause__):
                self._read = old  # a shortage says nothing about the files: they are read at the next look
                return
            _log.warning("new TLS files do not do, so those read before stay in use", reason=error.message)
        else:
            _log.info("TLS files changed and were read again", files=", ".join(self._paths))


class TlsRenewal:
    """The TLS files of one server. Made before its ports and its client, so that no change is missed."""

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self._ports = Renewal(config.server_files(), self._renew_ports)
        self._own = Renewal(config.client_files(), self._renew_own)
        self._server: Server
        self._client: RemotingClient

    def follow(self, server: Server, client: RemotingClient) -> None:
        """From now on both go by the files as they are."""
        self._server, self._client = server, client
        server.on_sweep = self.look

    def look(self) -> None:
        """Once a second, from the sweep of the server's ports."""
        if self._server.tls.context is not None:
            self._ports.look()
        if self._client.tls is not None:
            self._own.look()

    def _renew_ports(self) -> None:
        # A whole new context: a pair that does not fit would leave half of itself in the old one, and no certificate
        # that was trusted once would ever be dropped.
        self._server.tls = self._config.accepting()

    def _renew_own(self) -> None:
        self._client.tls = self._config.connecting()
