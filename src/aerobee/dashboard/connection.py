"""The connection of one page: each broker gets one deadline for the whole page, not one for each request."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Final

from aerobee.admin.connection import AdminConnection
from aerobee.client.core import Credentials, signer
from aerobee.errors import RequestTimeoutError, TransportError
from aerobee.net.client import RemotingClient
from aerobee.protocol.command import Command
from aerobee.protocol.headers.base import Header

# How long a page waits for one broker, once, unless the broker is known to be silent. A change waits longer.
PAGE_S: Final = 2.0
CHANGE_S: Final = 15.0


class PageConnection(AdminConnection):
    """Requests of one page. A broker that failed once, or that is known to be silent, is not waited for again."""

    def __init__(
        self,
        namesrv: str,
        client: RemotingClient,
        *,
        credentials: Credentials | None,
        limit_s: float,
        silent: Mapping[str, str],
    ) -> None:
        super().__init__(namesrv, timeout_s=limit_s, credentials=credentials, client=client)
        self._failed: dict[str, str] = dict(silent)

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        ext: Mapping[str, str] | None = None,
    ) -> Command:
        """Return the answer of a server, or raise its refusal."""
        if address in self._failed:
            raise TransportError(self._failed[address], broker=address)
        try:
            async with asyncio.timeout(self.timeout_s):
                return await super().ask(address, code, header, body, ext=ext)
        except TransportError as error:
            self._failed[address] = error.message
            error.broker = error.broker or address
            raise
        except TimeoutError as error:
            # A connection that is still being made has a longer time of its own.
            self._failed[address] = f"no answer within {self.timeout_s:g} s"
            raise RequestTimeoutError(self._failed[address], broker=address) from error


def remoting_client(credentials: Credentials | None, tls: ssl.SSLContext | None) -> RemotingClient:
    """Return the connections of one user, which all pages of the user share."""
    sign = None if credentials is None else signer(credentials)
    return RemotingClient(sign=sign, connect_timeout_s=CHANGE_S, tls=tls)
