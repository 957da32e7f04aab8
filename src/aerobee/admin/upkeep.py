"""The upkeep of a cluster: values of the name servers, cleaning, probes, and closing brokers to writers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aerobee.admin.cluster import change_broker_settings, runtime_info, settings_of
from aerobee.admin.connection import AdminConnection, KnownBroker
from aerobee.admin.values import Value
from aerobee.client.producer import Producer
from aerobee.config.properties import decode_text, parse_properties, render_properties
from aerobee.errors import AerobeeError, BrokerError, InvalidArgumentError, TransportError
from aerobee.errors.codes import QueryNotFoundError
from aerobee.model.numbers import NumberError, int_or, parse_float
from aerobee.model.topic import PERM_WRITE
from aerobee.protocol.bodies.cluster import KVTable
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.kv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from aerobee.runtime.bases import Clock

# What `clean` can remove, and the request that does it.
CLEANABLE: Final = {
    "queues": RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    "log": RequestCode.DELETE_EXPIRED_COMMITLOG,
    "topics": RequestCode.CLEAN_UNUSED_TOPIC,
}
PERMISSION: Final = "brokerPermission"
READ_ONLY: Final = 4
READ_WRITE: Final = 6
_LOOK_S: Final = 1.0


# -- values of the name servers


async def kv_get(admin: AdminConnection, namespace: str, key: str) -> str | None:
    """Return a value, or None where no name server has it."""
    try:
        answer = await admin.ask_namesrv(
            RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader(namespace=namespace, key=key)
        )
    except QueryNotFoundError:
        return None
    return decode_header(GetKVConfigResponseHeader, answer).value


async def kv_list(admin: AdminConnection, namespace: str) -> dict[str, str]:
    """Return all values of a namespace."""
    try:
        header = GetKVListByNamespaceRequestHeader(namespace=namespace)
        answer = await admin.ask_namesrv(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
    except QueryNotFoundError:
        return {}
    return dict(sorted(KVTable.decode(answer.body).table.items()))


async def kv_put(admin: AdminConnection, namespace: str, key: str, value: str) -> None:
    """Set a value at every name server."""
    header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
    await admin.ask_namesrvs(RequestCode.PUT_KV_CONFIG, header)


async def kv_delete(admin: AdminConnection, namespace: str, key: str) -> None:
    """Remove a value from every name server."""
    header = DeleteKVConfigRequestHeader(namespace=namespace, key=key)
    await admin.ask_namesrvs(RequestCode.DELETE_KV_CONFIG, header)


# -- settings of the name servers


async def namesrv_settings(admin: AdminConnection) -> dict[str, dict[str, str]]:
    """Return every setting of every name server, by address."""
    found = {}
    for address in admin.namesrvs:
        answer = await admin.ask(address, RequestCode.GET_NAMESRV_CONFIG)
        found[address] = parse_properties(decode_text(answer.body))
    return found


async def change_namesrv_settings(admin: AdminConnection, values: Mapping[str, str]) -> tuple[str, ...]:
    """Change settings of every name server. Return their addresses."""
    await admin.ask_namesrvs(RequestCode.UPDATE_NAMESRV_CONFIG, body=render_properties(values).encode())
    return tuple(admin.namesrvs)


# -- cleaning


async def clean(
    admin: AdminConnection, what: str, *, cluster: str | None = None, broker: str | None = None
) -> tuple[str, ...]:
    """Remove expired queues, expired segments of the log, or the queues of topics that are gone. Return the brokers."""
    code = CLEANABLE.get(what)
    if code is None:
        raise InvalidArgumentError(f"{what!r} is none of {', '.join(CLEANABLE)}")
    masters = await admin.masters(cluster=cluster, broker=broker)
    for one in masters:
        await admin.ask(one.address, code)
    return tuple(one.name for one in masters)


# -- probes


@dataclass(frozen=True, slots=True)
class Probe(Value):
    """The times of sends to one broker in milliseconds. `problem` is the reason of the last failure."""

    cluster: str
    broker: str
    sent: int
    failed: int
    mean_ms: float
    worst_ms: float
    problem: str | None = None


async def probe(
    admin: AdminConnection,
    clock: Clock,
    *,
    count: int = 10,
    size: int = 128,
    cluster: str | None = None,
    broker: str | None = None,
) -> tuple[Probe, ...]:
    """Send small messages to the topic that every broker has under its own name, and measure them."""
    found = []
    async with Producer(admin.namesrvs, group="TOOLS_PRODUCER", retries=0, **admin.client_options) as producer:
        for one in await admin.masters(cluster=cluster, broker=broker):
            found.append(await _probe(producer, clock, one, count, b"p" * size))
    return tuple(found)


async def _probe(producer: Producer, clock: Clock, broker: KnownBroker, count: int, body: bytes) -> Probe:
    times, problem = [], None
    for _ in range(count):
        start_s = clock.monotonic()
        try:
            await producer.send(broker.name, body)
            times.append((clock.monotonic() - start_s) * 1000)
        except AerobeeError as error:
            problem = error.message
    mean = sum(times) / len(times) if times else 0.0
    worst = max(times, default=0.0)
    failed = count - len(times)
    return Probe(broker.cluster, broker.name, len(times), failed, round(mean, 3), round(worst, 3), problem)


# -- closing a broker to writers


async def drain(admin: AdminConnection, broker: str, *, reads_only: bool = True) -> str:
    """Let a broker take no messages, or take them again with `reads_only=False`. Return its name.

    The broker tells the name servers at once. Clients look for routes every 30 s, and are refused until then: they send
    elsewhere. RocketMQ: brokerPermission. wipeWritePerm changes a name server's memory only.
    """
    if reads_only:
        changed, _ = await change_broker_settings(admin, {PERMISSION: str(READ_ONLY)}, broker=broker)
        return changed[0]
    (master,) = await admin.masters(broker=broker)
    # What was changed over the wire is taken back. Apache's broker knows no such request, and a file may forbid sends.
    with contextlib.suppress(BrokerError):
        await change_broker_settings(admin, {}, unset=[PERMISSION], broker=broker)
    if not int_or((await settings_of(admin, master)).get(PERMISSION), 0) & PERM_WRITE:
        await change_broker_settings(admin, {PERMISSION: str(READ_WRITE)}, broker=broker)
    return master.name


async def wait_until_quiet(admin: AdminConnection, broker: str, clock: Clock, quiet_s: float, limit_s: float) -> float:
    """Wait until a broker has taken no message for `quiet_s`. Return the seconds it took. Raise TransportError."""
    (master,) = await admin.masters(broker=broker)
    start_s = last_s = clock.monotonic()
    total = ""
    while True:
        now_s = clock.monotonic()
        info = await runtime_info(admin, master.address)
        if info.get("msgPutTotalTodayNow", "") != total:
            total, last_s = info.get("msgPutTotalTodayNow", ""), now_s
        if now_s - last_s >= quiet_s:
            return now_s - start_s
        if now_s - start_s > limit_s:
            raise TransportError(
                f"broker {broker} still takes {_rate(info):.1f} messages a second after {limit_s:.0f} s",
                hint="Its own topics and those of other tools count too. Look for clients with old routes.",
            )
        await asyncio.sleep(_LOOK_S)


def _rate(info: Mapping[str, str]) -> float:
    try:
        return parse_float(info.get("putTps", "0").split(" ")[0])
    except NumberError:
        return 0.0
