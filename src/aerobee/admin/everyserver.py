"""Requests that concern every server of a cluster: name servers and brokers, each of which keeps users of its own.

The servers do not know each other's users. So a change goes to each of them, and each one's answer is told.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from aerobee.admin.cluster import runtime_info
from aerobee.admin.connection import AdminConnection, KnownBroker
from aerobee.admin.values import Value
from aerobee.errors import BrokerError, InvalidArgumentError, TransportError
from aerobee.model.route import MASTER_ID
from aerobee.protocol.codes import ResponseCode

T = TypeVar("T")
NAMESRV = "name server"
_COPIES = "it takes over what its master has, within seconds"


class ServerOutcome(enum.Enum):
    """What became of a change at one server."""

    done = "done"
    refused = "refused"
    unreachable = "unreachable"
    # A server without users of its own, such as Apache's name server.
    unsupported = "unsupported"
    # A replica of ours: it takes over what its master has, within seconds.
    follows = "follows"


@dataclass(frozen=True, slots=True)
class OneServer(Value):
    """A server of the cluster. `role` is `name server` or the name of a broker."""

    role: str
    address: str
    # Whether it copies users and rights from its master, as Aerobee's slaves do and Apache's do not.
    follows: bool = False


@dataclass(frozen=True, slots=True)
class ServerAnswer(Value):
    """What one server answered to a change."""

    server: OneServer
    outcome: str
    words: str = ""


@dataclass(frozen=True, slots=True)
class Changed(Value):
    """What all servers answered to a change."""

    answers: tuple[ServerAnswer, ...]

    def having(self, outcome: ServerOutcome) -> tuple[ServerAnswer, ...]:
        """Return the answers of one kind."""
        return tuple(one for one in self.answers if one.outcome == outcome.value)

    @property
    def is_complete(self) -> bool:
        """Tell whether every server that keeps users did it, and there was one."""
        return bool(self.having(ServerOutcome.done)) and not (
            self.having(ServerOutcome.refused) or self.having(ServerOutcome.unreachable)
        )


async def servers_of(
    admin: AdminConnection, *, cluster: str | None = None, server: str | None = None
) -> tuple[OneServer, ...]:
    """Return the name servers and every broker, slaves too; or those of one cluster; or one, by name or address.

    Raise InvalidArgumentError where there is none.
    """
    if server is not None and ":" in server:
        # By address it need not be known to anybody: a name server, a broker of another cluster.
        role = NAMESRV if server in admin.namesrvs else server
        return (OneServer(role, server),)
    brokers = [one for one in await admin.brokers() if cluster in (None, one.cluster) and server in (None, one.name)]
    if not brokers and (cluster is not None or server is not None):
        what = f"broker {server}" if server is not None else f"cluster {cluster}"
        raise InvalidArgumentError(f"there is no {what}", hint="`aerobee cluster` lists them.")
    names = [] if server is not None else [OneServer(NAMESRV, address) for address in admin.namesrvs]
    follow = await asyncio.gather(*(_follows(admin, one) for one in brokers))
    return (*names, *(OneServer(one.name, one.address, own) for one, own in zip(brokers, follow, strict=True)))


async def _follows(admin: AdminConnection, broker: KnownBroker) -> bool:
    """Tell whether a broker is a slave of ours. Only our brokers count the records that they set aside."""
    if broker.broker_id == MASTER_ID:
        return False
    try:
        return "setAsideRecords" in await runtime_info(admin, broker.address)
    except (BrokerError, TransportError):
        return False


async def change_each(servers: Sequence[OneServer], change: Callable[[str], Awaitable[object]]) -> Changed:
    """Send a change to every server and return what each of them answered.

    Replicas come after their masters: what they copy meanwhile is then the new state. They are told the change all the
    same, because one of them may lead before it has copied anything.
    """
    first = [one for one in servers if not one.follows]
    answers = await asyncio.gather(*(_answer(one, change) for one in first))
    rest = await asyncio.gather(*(_answer(one, change) for one in servers if one.follows))
    by_server = {one.server: one for one in (*answers, *rest)}
    return Changed(tuple(by_server[one] for one in servers))


async def _answer(server: OneServer, change: Callable[[str], Awaitable[object]]) -> ServerAnswer:
    try:
        await change(server.address)
    except BrokerError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return ServerAnswer(server, ServerOutcome.unsupported.value, "it keeps no users")
        if server.follows:  # it may have copied the change already
            return ServerAnswer(server, ServerOutcome.follows.value, _COPIES)
        return ServerAnswer(server, ServerOutcome.refused.value, error.message)
    except TransportError as error:
        if server.follows:
            return ServerAnswer(server, ServerOutcome.follows.value, _COPIES)
        return ServerAnswer(server, ServerOutcome.unreachable.value, error.message)
    return ServerAnswer(server, ServerOutcome.done.value)


async def ask_each(
    servers: Sequence[OneServer], ask: Callable[[str], Awaitable[T]]
) -> tuple[list[tuple[OneServer, T]], tuple[str, ...]]:
    """Return what each server answers, and a sentence for each that cannot be reached. Raise a refusal.

    Servers that keep no users are left out.
    """
    outcomes = await asyncio.gather(*(ask(one.address) for one in servers), return_exceptions=True)
    found: list[tuple[OneServer, T]] = []
    problems: list[str] = []
    for server, outcome in zip(servers, outcomes, strict=True):
        if isinstance(outcome, TransportError):
            problems.append(f"{server.role} at {server.address} cannot be reached: {outcome.message}")
        elif isinstance(outcome, BrokerError) and outcome.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            continue
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            found.append((server, outcome))
    if not found:
        if problems:
            raise TransportError("; ".join(problems))
        raise InvalidArgumentError(
            "no server of this cluster keeps users", hint="Apache's brokers do from 5.3 on, with authenticationEnabled."
        )
    return found, tuple(problems)
