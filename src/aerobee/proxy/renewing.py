"""Renews the messages of push consumers at their brokers, and gives back what clients leave behind.

Each time the broker is looked up by its name: the master of a group may have changed since the message was received.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aerobee.errors import AerobeeError
from aerobee.protocol.v2.enums import Code
from aerobee.proxy import receiving
from aerobee.proxy.backend import Backend, route_or_refuse
from aerobee.proxy.clients import GrpcClient
from aerobee.proxy.delivered import Receipt
from aerobee.proxy.renewal import Renewals, Renewed
from aerobee.proxy.status import RefusedCallError
from aerobee.telemetry.stdlog import get_log

# So many messages of one broker are renewed at the same time.
_AT_ONCE: Final = 64
_ASK_S: Final = 3.0
# What a client leaves behind is visible again after this time.
_LEFT_MS: Final = 1_000

_log = get_log("grpc")


class _Asker:
    """Stands for the caller where the front itself asks."""

    def __init__(self, client: GrpcClient) -> None:
        self.client = client

    def timeout_s(self) -> float:
        return _ASK_S


async def _hide(backend: Backend, one: Renewed, hidden_ms: int, *, suspend: bool = False) -> Receipt:
    """Hide a message for so long from now on; return its handle afterwards."""
    route = await route_or_refuse(backend, one.topic)
    address = route.addresses.get(one.handle.broker)
    if address is None:
        raise RefusedCallError(Code.INVALID_RECEIPT_HANDLE, f"broker {one.handle.broker} is away")
    asker: Any = _Asker(one.client)
    return await receiving.change(asker, address, one.topic, one.group, one.handle, hidden_ms, suspend=suspend)


async def renew_at(backend: Backend, renewals: Renewals, broker: str) -> None:
    """Renew what is due at a broker, some at a time: it serves others in between. End early where it answers nothing:
    the rest waits for the next look."""
    while found := renewals.due(broker, _AT_ONCE):
        done = await asyncio.gather(*(_renew(backend, renewals, one) for one in found))
        if not any(done):
            return


async def _renew(backend: Backend, renewals: Renewals, one: Renewed) -> bool:
    handle = None
    try:
        handle = await _hide(backend, one, one.hidden_ms)
    except (AerobeeError, TimeoutError) as error:
        _log.debug("a message could not be renewed", broker=one.handle.broker, reason=str(error))
    finally:
        renewals.renewed(one, handle)
    return handle is not None


async def give_back(backend: Backend, renewals: Renewals, client: GrpcClient) -> None:
    """Give back what a client that has gone was handling. What cannot be given back comes when its time is over."""
    by_broker: dict[str, list[Renewed]] = {}
    for one in renewals.of(client):
        by_broker.setdefault(one.handle.broker, []).append(one)
    await asyncio.gather(*(_give_back_at(backend, held) for held in by_broker.values()))


async def _give_back_at(backend: Backend, held: list[Renewed]) -> None:
    for one in held:
        try:
            await _hide(backend, one, _LEFT_MS, suspend=True)
        except RefusedCallError:
            continue
        except (AerobeeError, TimeoutError) as error:
            _log.debug("the messages of a client come back when their time is over", reason=str(error))
            return
