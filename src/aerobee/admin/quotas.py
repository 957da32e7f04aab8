"""Quotas of a cluster: what users, addresses and topics may send a second. They are a setting of each broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aerobee.admin.cluster import change_broker_settings, settings_of
from aerobee.admin.connection import AdminConnection
from aerobee.errors import BrokerError
from aerobee.model.quota import Quota, QuotaKind, parse_quotas, render_quotas

KEY = "quotas"


async def quotas_of(
    admin: AdminConnection, *, cluster: str | None = None, broker: str | None = None
) -> dict[str, tuple[Quota, ...]]:
    """Return the quotas of the chosen brokers, by broker name. Raise BrokerError for one of Apache's."""
    found = {}
    for one in await admin.masters(cluster=cluster, broker=broker):
        settings = await settings_of(admin, one)
        if KEY not in settings:
            raise BrokerError(f"broker {one.name} has no quotas: Apache RocketMQ knows none")
        found[one.name] = parse_quotas(settings[KEY])
    return found


async def set_quota(
    admin: AdminConnection, quota: Quota, *, cluster: str | None = None, broker: str | None = None
) -> tuple[str, ...]:
    """Set one quota on the chosen brokers, in place of one that its user, address or topic has. Return the brokers."""
    key = (quota.kind, quota.name)
    return await _change(
        admin, lambda before: [*(one for one in before if (one.kind, one.name) != key), quota], cluster, broker
    )


async def remove_quota(
    admin: AdminConnection, kind: QuotaKind, name: str, *, cluster: str | None = None, broker: str | None = None
) -> tuple[str, ...]:
    """Remove one quota from the chosen brokers. Return those that had it."""
    return await _change(
        admin, lambda before: [one for one in before if (one.kind, one.name) != (kind, name)], cluster, broker
    )


async def _change(
    admin: AdminConnection,
    change: Callable[[tuple[Quota, ...]], Iterable[Quota]],
    cluster: str | None,
    broker: str | None,
) -> tuple[str, ...]:
    changed = []
    for name, before in (await quotas_of(admin, cluster=cluster, broker=broker)).items():
        text = render_quotas(change(before))
        if text != render_quotas(before):
            await change_broker_settings(admin, {KEY: text}, cluster=cluster, broker=name)
            changed.append(name)
    return tuple(changed)
