"""The two ports of a broker: its own, and the fast one two below, where clients' VIP channel leads.

RocketMQ: BrokerController.initializeRemotingServer, registerProcessor. Whatever may be held or read in bulk stays
with the first port, so that sends, heartbeats and offsets pass pulls by.
"""

from __future__ import annotations

import errno
from typing import Final

from aerobee.app.process import CannotListenError
from aerobee.net.server import Server
from aerobee.protocol.codes import RequestCode
from aerobee.telemetry.stdlog import get_log

FAST_PORT_DISTANCE: Final = 2

# What Apache's fast server has no processor for: it answers REQUEST_CODE_NOT_SUPPORTED.
NOT_ON_FAST_PORT: Final = frozenset(
    (
        RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.PEEK_MESSAGE, RequestCode.POP_MESSAGE,
        RequestCode.POP_LITE_MESSAGE, RequestCode.NOTIFICATION, RequestCode.POLLING_INFO,
    )
)  # fmt: skip

# Free ports come one by one; that two below is nearly always free too.
_TRIES = 32
_log = get_log("broker")


async def bind_ports(server: Server, host: str, port: int) -> tuple[int, int | None]:
    """Take both, without serving them yet; where 0 is asked, a free pair.

    Raises OSError where `port` is not to be had, CannotListenError where the fast one is not.
    """
    if port == 0:
        return await _free_pair(server, host)
    await server.bind(host, port)
    fast = port - FAST_PORT_DISTANCE
    if fast <= 0:
        _log.warning("no fast port: none is two below", port=port)
        return port, None
    try:
        return port, await server.bind_beside(host, fast, NOT_ON_FAST_PORT)
    except OSError as error:
        hint = f"Stop whoever serves it, or give the broker another port than {port}: its fast port is two below."
        raise CannotListenError(f"fast port of the broker on {port}", host, fast, error, hint) from error


async def _free_pair(server: Server, host: str) -> tuple[int, int | None]:
    for _ in range(_TRIES):
        port = await server.bind(host, 0)
        try:
            return port, await server.bind_beside(host, port - FAST_PORT_DISTANCE, NOT_ON_FAST_PORT)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            server.unbind()
    port = await server.bind(host, 0)
    _log.warning("no fast port: no free pair was found", port=port)
    return port, None
