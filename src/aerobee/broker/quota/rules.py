"""Buckets that fill with time: what somebody who has a quota may send now. Time is an argument."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aerobee.model.quota import EVERY, Quota, QuotaKind

# The longest that a frame waits for its turn. Then it is refused.
PAUSE_MAX_S: Final = 1.0
# Users, addresses and topics that are remembered because of a `*`. The oldest are forgotten with their debt.
BUCKETS_MAX: Final = 20_000
_NAME_MAX: Final = 255


class Bucket:
    """What somebody may still send now: a second's worth at most, and what was taken too much as a debt."""

    __slots__ = ("_at_s", "_bytes", "_messages", "_quota")

    def __init__(self, quota: Quota, now_s: float) -> None:
        self._quota = quota
        self._bytes = float(quota.bytes_s)
        self._messages = float(quota.messages_s)
        self._at_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Return how long to wait before something may be taken; 0 if it may be taken now."""
        self._fill(now_s)
        waits = [0.0]
        if self._quota.bytes_s and self._bytes < 0:
            waits.append(-self._bytes / self._quota.bytes_s)
        if self._quota.messages_s and self._messages < 0:
            waits.append(-self._messages / self._quota.messages_s)
        return max(waits)

    def take(self, size: int, messages: int) -> None:
        """Take it, also where that makes a debt: a message is never too large for a quota."""
        self._bytes -= size
        self._messages -= messages

    def _fill(self, now_s: float) -> None:
        passed_s, self._at_s = max(0.0, now_s - self._at_s), now_s
        quota = self._quota
        self._bytes = min(quota.bytes_s, self._bytes + passed_s * quota.bytes_s)
        self._messages = min(quota.messages_s, self._messages + passed_s * quota.messages_s)


class Buckets:
    """The buckets of everybody who has a quota."""

    def __init__(self, quotas: Iterable[Quota]) -> None:
        self._quotas = {(one.kind, one.name): one for one in quotas}
        self.kinds = {one.kind for one in self._quotas.values()}
        self._buckets: dict[tuple[QuotaKind, str], Bucket] = {}

    def of(self, kind: QuotaKind, name: str, now_s: float) -> Bucket | None:
        """Return the bucket of a user, address or topic; None where it has no quota."""
        if len(name) > _NAME_MAX:
            return None  # no topic has such a name, and 20,000 of them would fill memory
        bucket = self._buckets.get((kind, name))
        if bucket is None:
            quota = self._quotas.get((kind, name)) or self._quotas.get((kind, EVERY))
            if quota is None:
                return None
            if len(self._buckets) >= BUCKETS_MAX:
                del self._buckets[next(iter(self._buckets))]
            bucket = self._buckets[kind, name] = Bucket(quota, now_s)
        return bucket
