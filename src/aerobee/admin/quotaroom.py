"""The room of `aerobee.Admin` for quotas."""

from __future__ import annotations

from aerobee.admin import quotas
from aerobee.admin.connection import AdminConnection
from aerobee.errors import InvalidArgumentError
from aerobee.model.quota import Quota, QuotaKind


class QuotaRoom:
    """What users, addresses and topics may send a second. `who` is user:NAME, address:HOST or topic:NAME."""

    def __init__(self, connection: AdminConnection) -> None:
        self._admin = connection

    async def list(self, *, cluster: str | None = None, broker: str | None = None) -> dict[str, tuple[Quota, ...]]:
        """Return the quotas of the chosen brokers, by broker name."""
        return await quotas.quotas_of(self._admin, cluster=cluster, broker=broker)

    async def set(
        self,
        who: str,
        *,
        bytes_s: int = 0,
        messages_s: int = 0,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> tuple[str, ...]:
        """Set one quota; 0 stands for any rate. Return the brokers that changed."""
        if bytes_s <= 0 and messages_s <= 0:
            raise InvalidArgumentError("a quota needs bytes_s or messages_s")
        kind, name = _who(who)
        quota = Quota(kind, name, bytes_s, messages_s)
        return await quotas.set_quota(self._admin, quota, cluster=cluster, broker=broker)

    async def remove(self, who: str, *, cluster: str | None = None, broker: str | None = None) -> tuple[str, ...]:
        """Remove one quota. Return the brokers that had it."""
        kind, name = _who(who)
        return await quotas.remove_quota(self._admin, kind, name, cluster=cluster, broker=broker)


def _who(text: str) -> tuple[QuotaKind, str]:
    word, _, name = text.partition(":")
    if word not in QuotaKind.__members__ or not name:
        raise InvalidArgumentError(f"{text!r} is none of {', '.join(f'{kind}:NAME' for kind in QuotaKind.__members__)}")
    return QuotaKind[word], name
