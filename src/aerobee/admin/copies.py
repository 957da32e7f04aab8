"""Masters and slaves as RocketMQ's HA protocol has them: who copies from whom, and how far; and the epochs of a log.

Replicated groups (`replicas.py`) elect their masters. Here the roles are settings, so nothing can be switched.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aerobee.admin.connection import AdminConnection, KnownBroker
from aerobee.admin.migration import replication_of
from aerobee.admin.values import Value
from aerobee.errors import AerobeeError, BrokerError, TransportError
from aerobee.model.dialect import DialectError, loads_object
from aerobee.model.fields import int_of
from aerobee.model.route import MASTER_ID
from aerobee.protocol.codes import RequestCode


@dataclass(frozen=True, slots=True)
class SlaveView(Value):
    """A connection of a slave, as its master sees it."""

    address: str
    in_sync: bool
    acknowledged: int
    lag_bytes: int
    bytes_s: int


@dataclass(frozen=True, slots=True)
class CopyView(Value):
    """One broker of a group. The id of a master is 0."""

    broker_id: int
    address: str
    # master, slave, or away if it does not answer.
    role: str
    log_end: int
    # Of a slave: the master that it copies from, and when it last read from it.
    copies_from: str = ""
    last_read_ms: int = 0
    is_connected: bool = True
    problem: str = ""


@dataclass(frozen=True, slots=True)
class GroupCopies(Value):
    """A broker group with fixed roles."""

    cluster: str
    group: str
    brokers: tuple[CopyView, ...]
    # What the master sees of its slaves.
    slaves: tuple[SlaveView, ...]

    @property
    def has_master(self) -> bool:
        return any(one.role == "master" for one in self.brokers)

    @property
    def wanted_slaves(self) -> int:
        """The number of slaves that the name servers know."""
        return sum(one.broker_id != MASTER_ID for one in self.brokers)

    @property
    def largest_lag(self) -> int | None:
        return max((one.lag_bytes for one in self.slaves), default=None)


@dataclass(frozen=True, slots=True)
class LogEpoch(Value):
    """The part of a log that was written under one master."""

    epoch: int
    start: int
    end: int


async def copied_groups(admin: AdminConnection, group: str | None = None) -> tuple[GroupCopies, ...]:
    """Return the master and the slaves of every broker group, or of one of them, also of those without a slave."""
    brokers = [one for one in await admin.brokers() if group in (None, one.name)]
    told = await asyncio.gather(*(_copy(admin, one) for one in brokers))
    found: dict[tuple[str, str], list[tuple[CopyView, tuple[SlaveView, ...]]]] = {}
    for broker, one in zip(brokers, told, strict=True):
        found.setdefault((broker.cluster, broker.name), []).append(one)
    return tuple(
        GroupCopies(
            cluster,
            name,
            tuple(sorted((one for one, _ in views), key=lambda one: one.broker_id)),
            tuple(slave for _, slaves in views for slave in slaves),
        )
        for (cluster, name), views in sorted(found.items())
    )


async def _copy(admin: AdminConnection, broker: KnownBroker) -> tuple[CopyView, tuple[SlaveView, ...]]:
    try:
        info = await replication_of(admin, broker.address)
    except TransportError as error:
        return CopyView(broker.broker_id, broker.address, "away", 0, problem=error.message), ()
    except BrokerError as error:
        role = "master" if broker.broker_id == MASTER_ID else "slave"
        return CopyView(broker.broker_id, broker.address, role, 0, problem=error.message), ()
    if info.master:
        slaves = tuple(
            SlaveView(one.addr or "", one.in_sync, one.slave_ack_offset, one.diff, one.transferred_byte_in_second)
            for one in info.ha_connection_info
        )
        return CopyView(broker.broker_id, broker.address, "master", info.master_commit_log_max_offset), slaves
    link = info.ha_client_runtime_info
    view = CopyView(
        broker.broker_id, broker.address, "slave", link.max_offset, copies_from=link.master_addr or "",
        last_read_ms=link.last_read_timestamp, is_connected=link.activated,
    )  # fmt: skip
    return view, ()


async def epochs_at(admin: AdminConnection, address: str) -> tuple[LogEpoch, ...]:
    """Return the epochs of a replica's log, the oldest first. The last one is still being written."""
    answer = await admin.ask(address, RequestCode.GET_BROKER_EPOCH_CACHE)
    try:
        rows = loads_object(answer.body).get("epochList", ())
        if not isinstance(rows, list):
            raise DialectError("epochList is no list")
        return tuple(
            LogEpoch(int_of(one, "epoch"), int_of(one, "startOffset"), int_of(one, "endOffset"))
            for one in rows
            if isinstance(one, dict)
        )
    except (DialectError, ValueError) as error:
        raise AerobeeError(f"the answer of {address} is not understood: {error}") from None
