"""The brokers of a cluster: their state and their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aerobee.admin.connection import AdminConnection, KnownBroker, from_each
from aerobee.admin.values import Value
from aerobee.config.properties import decode_text, render_properties
from aerobee.errors import AerobeeError, BrokerError, TransportError
from aerobee.model.dialect import loads_object
from aerobee.model.numbers import NumberError, int_or, parse_float
from aerobee.protocol.bodies.cluster import KVTable
from aerobee.protocol.codes import PrivateRequestCode, RequestCode, ResponseCode
from aerobee.protocol.headers.cluster import SOURCES_FIELD, UNSET_FIELD
from aerobee.protocol.headers.declarations import ForgetGroupRequestHeader


@dataclass(frozen=True, slots=True)
class BrokerStatus(Value):
    """The state of one broker."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    version: str
    in_tps: float
    out_tps: float
    in_today: int
    out_today: int
    earliest_timestamp: int
    disk_used_ratio: float
    is_active: bool
    # Why the broker did not answer.
    problem: str | None = None
    # Why it takes no messages: after a failed sync until it is restarted, while its disk is full, or while it is
    # drained.
    fenced: str | None = None
    full: str | None = None
    drained: str | None = None
    # Only Aerobee's brokers tell these: records of the log that cannot be used, failures of the broker's parts since
    # its start, and the parts that failed when they ran last.
    set_aside: int = 0
    part_failures: int = 0
    parts_failing: tuple[str, ...] = ()
    # Entries of state files that cannot be used. They are in `<file>.rejected`.
    entries_rejected: int = 0


async def cluster_status(admin: AdminConnection) -> tuple[BrokerStatus, ...]:
    """Return every broker that the name servers know. One that is away or does not answer is listed with the reason."""
    found = []
    for broker in await admin.known():
        if broker.away:
            found.append(unreached(broker, broker.away))
            continue
        try:
            found.append(status_of(broker, await runtime_info(admin, broker.address)))
        except TransportError as error:
            found.append(unreached(broker, error.message))
    return tuple(found)


async def forget_group(admin: AdminConnection, group: str) -> tuple[str, ...]:
    """Make the name servers forget a broker group that is gone for good. Return those that knew it.

    Readers of its topics then no longer wait for it. A group that is running is refused.
    """
    header = ForgetGroupRequestHeader(broker_name=group)
    told: list[str] = []
    unknown: BrokerError | None = None
    for address in admin.namesrvs:
        try:
            await admin.ask(address, PrivateRequestCode.FORGET_GROUP, header)
            told.append(address)
        except BrokerError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            unknown = error
    if not told and unknown is not None:
        unknown.hint = "Name servers know the groups that are running, and those that left. Check the name."
        raise unknown
    return tuple(told)


async def runtime_info(admin: AdminConnection, address: str) -> Mapping[str, str]:
    """Return everything a broker tells about itself, under Apache's keys."""
    return KVTable.decode((await admin.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)).body).table


def status_of(broker: KnownBroker, info: Mapping[str, str]) -> BrokerStatus:
    """Return the state of a broker from its runtime info."""
    return BrokerStatus(
        broker.cluster,
        broker.name,
        broker.broker_id,
        broker.address,
        info.get("brokerVersionDesc", ""),
        _rate(info.get("putTps", "")),
        _rate(info.get("getTransferredTps", "")),
        _number(info, "msgPutTotalTodayNow") - _number(info, "msgPutTotalTodayMorning"),
        _number(info, "msgGetTotalTodayNow") - _number(info, "msgGetTotalTodayMorning"),
        _number(info, "earliestMessageTimeStamp"),
        _rate(info.get("commitLogDiskRatio", "")),
        info.get("brokerActive", "").lower() == "true",
        fenced=info.get("storeFenced") or None,
        full=info.get("storeFull") or None,
        drained=info.get("sendsClosed") or None,
        set_aside=_number(info, "setAsideRecords"),
        part_failures=_number(info, "partFailures"),
        parts_failing=tuple(part for part in info.get("partsFailing", "").split(",") if part),
        entries_rejected=_number(info, "stateEntriesRejected"),
    )


def unreached(broker: KnownBroker, reason: str) -> BrokerStatus:
    """Return the state of a broker that does not answer."""
    return BrokerStatus(
        broker.cluster, broker.name, broker.broker_id, broker.address, "", 0.0, 0.0, 0, 0, 0, 0.0, False, reason
    )


def _rate(text: str) -> float:
    """Return the first of several rates, which is that of the last 10 s."""
    words = text.split()
    try:
        return parse_float(words[0]) if words else 0.0
    except NumberError:
        return 0.0


def _number(info: Mapping[str, str], key: str) -> int:
    return int_or(info.get(key), 0)


async def broker_settings(
    admin: AdminConnection, *, cluster: str | None = None, broker: str | None = None
) -> dict[str, dict[str, str]]:
    """Return every setting of the chosen brokers, by broker name."""
    masters = await admin.masters(cluster=cluster, broker=broker)

    said, problems = await from_each(masters, lambda one: settings_of(admin, one))
    if problems:
        raise TransportError("; ".join(problems))
    return {one.name: settings for one, settings in said}


async def settings_of(admin: AdminConnection, broker: KnownBroker) -> dict[str, str]:
    """Return every setting of one broker."""
    answer = await admin.ask(broker.address, RequestCode.GET_BROKER_CONFIG)
    return dict(line.split("=", 1) for line in decode_text(answer.body).splitlines() if "=" in line)


async def setting_sources(
    admin: AdminConnection, *, cluster: str | None = None, broker: str | None = None
) -> dict[str, dict[str, str]]:
    """Return where each setting of the chosen brokers comes from, by broker name: the name of a file, `environment`,
    `--set`, `wire` (changed while the broker ran) or `default`.

    Apache's brokers do not tell: for theirs every source is `unknown`.
    """
    found = {}
    for one in await admin.masters(cluster=cluster, broker=broker):
        answer = await admin.ask(one.address, RequestCode.GET_BROKER_CONFIG, ext={SOURCES_FIELD: "1"})
        keys = [line.split("=", 1)[0] for line in decode_text(answer.body).splitlines() if "=" in line]
        told = answer.ext.get(SOURCES_FIELD)
        known = {} if told is None else loads_object(told.encode())
        missing = "unknown" if told is None else "default"
        found[one.name] = {key: str(known.get(key, missing)) for key in keys}
    return found


async def change_broker_settings(
    admin: AdminConnection,
    values: Mapping[str, str],
    *,
    unset: Sequence[str] = (),
    cluster: str | None = None,
    broker: str | None = None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Change settings of the chosen brokers while they run, and take changes of `unset` back. Return the brokers'
    names and their warnings.

    The changes hold after a restart, too.
    """
    masters = await admin.masters(cluster=cluster, broker=broker)
    body = render_properties(values).encode() if values else b""
    ext = {UNSET_FIELD: ";".join(unset)} if unset else {}
    changed: list[str] = []
    warnings = []
    for one in masters:
        try:
            answer = await admin.ask(one.address, RequestCode.UPDATE_BROKER_CONFIG, body=body, ext=ext)
        except AerobeeError as error:
            if changed:
                error.message += f" (the change holds on {', '.join(changed)} already)"
            raise
        changed.append(one.name)
        if answer.remark:
            warnings.append(f"broker {one.name}: {answer.remark}")
    return tuple(changed), tuple(warnings)


async def ping(admin: AdminConnection) -> tuple[BrokerStatus, ...]:
    """Return the brokers that answer. Raise TransportError if no name server or no broker answers."""
    status = await cluster_status(admin)
    living = tuple(one for one in status if one.problem is None)
    if not living:
        if not status:
            raise TransportError("the name server answers, but no broker has registered")
        reasons = "; ".join(f"{one.broker} at {one.address or 'no address'}: {one.problem}" for one in status)
        raise TransportError(f"the name server answers, but no broker does: {reasons}")
    return living
