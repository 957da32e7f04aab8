"""Certificates that change while a server runs. The files are checked once a second and read again when they have
stopped changing.

New connections then use the new certificate; open connections stay as they are. If the new files do not fit
together, the old ones stay in use and the log says why. RocketMQ: FileWatchService and its listener in
BrokerController.initialize, which wait until both certificate and key have changed. Here the two must load together,
whichever of them changed.
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
    """A set of files, and what to do when they have changed. It must be created before the files are read for the
    first time."""

    def __init__(self, paths: Sequence[str], renew: Callable[[], None]) -> None:
        self._paths = [path for path in paths if path]
        self._renew = renew
        self._read = self._seen = stamps(self._paths)

    def look(self) -> None:
        """Check the files. Read a change only if the next check finds nothing newer, because the files may be half
        written."""
        found, before = stamps(self._paths), self._seen
        self._seen = found
        if found == self._read or found != before:
            return
        old, self._read = self._read, found
        try:
            self._renew()
        except ConfigError as error:
            if is_passing(error.__cause__):
                self._read = old  # a shortage says nothing about the files: they are read at the next check
                return
            _log.warning("the new TLS files cannot be used, the old ones stay in use", reason=error.message)
        else:
            _log.info("TLS files changed and were read again", files=", ".join(self._paths))


class TlsRenewal:
    """The TLS files of one server. It must be created before the server's ports and client, so that no change is
    missed."""

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self._ports = Renewal(config.server_files(), self._renew_ports)
        self._own = Renewal(config.client_files(), self._renew_own)
        self._server: Server
        self._client: RemotingClient

    def follow(self, server: Server, client: RemotingClient) -> None:
        """Update this server and this client when the files change."""
        self._server, self._client = server, client
        server.on_sweep = self.look

    def look(self) -> None:
        """Check the files. The sweep of the server's ports calls this once a second."""
        if self._server.tls.context is not None:
            self._ports.look()
        if self._client.tls is not None:
            self._own.look()

    def _renew_ports(self) -> None:
        # The context is a new one. Loading a pair that does not fit into the old context would change half of it, and
        # certificates that were trusted once would stay trusted.
        self._server.tls = self._config.accepting()

    def _renew_own(self) -> None:
        self._client.tls = self._config.connecting()
