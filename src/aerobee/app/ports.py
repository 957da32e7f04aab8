"""The two ports of a broker: its own, and the fast port two below it, which clients use as their VIP channel.

Requests that wait or read much are served on the first port only, so that sends, heartbeats and offsets do not wait
behind pulls. RocketMQ: BrokerController.initializeRemotingServer, registerProcessor.
"""

from __future__ import annotations

import errno
from typing import Final

from aerobee.app.process import CannotListenError
from aerobee.net.server import Server
from aerobee.protocol.codes import RequestCode
from aerobee.telemetry.stdlog import get_log

FAST_PORT_DISTANCE: Final = 2

# Apache's fast server has no processor for these codes. It answers REQUEST_CODE_NOT_SUPPORTED.
NOT_ON_FAST_PORT: Final = frozenset(
    (
        RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.PEEK_MESSAGE, RequestCode.POP_MESSAGE,
        RequestCode.POP_LITE_MESSAGE, RequestCode.NOTIFICATION, RequestCode.POLLING_INFO,
    )
)  # fmt: skip

# The system hands out one free port at a time. The port two below it is nearly always free, too.
_TRIES = 32
_log = get_log("broker")


async def bind_ports(server: Server, host: str, port: int) -> tuple[int, int | None]:
    """Bind both ports, a free pair if `port` is 0, without serving them yet. Return their numbers.

    Raise OSError if `port` cannot be used, and CannotListenError if the fast port cannot.
    """
    if port == 0:
        return await _free_pair(server, host)
    await server.bind(host, port)
    fast = port - FAST_PORT_DISTANCE
    if fast <= 0:
        _log.warning("there is no fast port: no port is two below this one", port=port)
        return port, None
    try:
        return port, await server.bind_beside(host, fast, NOT_ON_FAST_PORT)
    except OSError as error:
        hint = f"Stop the process that uses it, or give the broker another port: the fast port is two below {port}."
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
    _log.warning("there is no fast port: no pair of free ports was found", port=port)
    return port, None
