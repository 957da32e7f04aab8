"""Queue locks: which client of a group may consume a queue in order. A lock lives for its lease after the last
renewal: 60 s, or the time that the client asked for.

It owns who holds which queue, by group. Time is monotonic seconds, so a step of the wall clock can neither
free a lock early nor give one queue to two clients. Nothing is released on disconnect: the client still handles
messages until its own clock says that the lease has ended.

RocketMQ: RebalanceLockManager.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

LOCK_LIFE_S = 60.0
# The shortest lease that a client may ask for. Aerobee's own clients ask for 6 s.
LEASE_MIN_S = 1.0
# Locks of all groups. Beyond this no lock is given until some have expired.
LOCKS_MAX = 200_000

Queue = TypeVar("Queue", bound=Hashable)


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed_s: float
    life_s: float


class GroupLocks(Generic[Queue]):
    """Locks by group and queue (any hashable queue value, as a rule `model.queue.MessageQueue`)."""

    def __init__(self, life_s: float = LOCK_LIFE_S) -> None:
        self.life_s = life_s
        self._groups: dict[str, dict[Queue, _Lock]] = {}
        self._count = 0
        self._cleaned_s = 0.0
        # Changes whenever a lock comes, goes or gets another holder or lease; not when it is renewed.
        self.version = 0

    def all(self) -> Iterator[tuple[str, Queue, str, float]]:
        """Yield group, queue, holder and lease of every lock, expired ones too."""
        for group, locks in self._groups.items():
            for queue, lock in locks.items():
                yield group, queue, lock.client_id, lock.life_s

    def restore(self, group: str, queue: Queue, client_id: str, life_s: float, now_s: float) -> None:
        """Take up a lock that another broker gave: it may have been renewed just now."""
        locks = self._groups.setdefault(group, {})
        self._count += queue not in locks
        locks[queue] = _Lock(client_id, now_s, min(max(life_s, LEASE_MIN_S), self.life_s))
        self.version += 1

    def lock(
        self, group: str, queues: Iterable[Queue], client_id: str, now_s: float, lease_s: float | None = None
    ) -> list[Queue]:
        """Lock what is free, expired or already this client's, for `lease_s` or the usual life. Return the queues that
        the client now holds, in the order asked.

        RocketMQ: RebalanceLockManager.tryLockBatch (LOCK_BATCH_MQ answers exactly this set).
        """
        held: list[Queue] = []
        life_s = self.life_s if lease_s is None else min(max(lease_s, LEASE_MIN_S), self.life_s)
        if self._count >= LOCKS_MAX and now_s - self._cleaned_s >= 1.0:
            self.expire(now_s)
        locks = self._groups.setdefault(group, {})
        for queue in dict.fromkeys(queues):
            lock = locks.get(queue)
            if lock is None:
                if self._count >= LOCKS_MAX:
                    continue
                locks[queue] = _Lock(client_id, now_s, life_s)
                self._count += 1
                self.version += 1
            elif lock.client_id == client_id or self._expired(lock, now_s):
                self.version += lock.client_id != client_id or lock.life_s != life_s
                lock.client_id = client_id
                lock.renewed_s, lock.life_s = now_s, life_s
            else:
                continue
            held.append(queue)
        if not locks:
            del self._groups[group]
        return held

    def renew(self, client_ids: Collection[str], before_s: float, now_s: float) -> None:
        """Let the locks that these clients held at `before_s` count from now."""
        for locks in self._groups.values():
            for lock in locks.values():
                if lock.client_id in client_ids and not self._expired(lock, before_s):
                    lock.renewed_s = now_s

    def unlock(self, group: str, queues: Iterable[Queue], client_id: str) -> list[Queue]:
        """Release those this client holds, no others. RocketMQ: RebalanceLockManager.unlockBatch."""
        locks = self._groups.get(group)
        if locks is None:
            return []
        released = [q for q in dict.fromkeys(queues) if q in locks and locks[q].client_id == client_id]
        for queue in released:
            del locks[queue]
        self._count -= len(released)
        self.version += len(released)
        if not locks:
            del self._groups[group]
        return released

    def holder(self, group: str, queue: Queue, now_s: float) -> str | None:
        """Return the client that holds the queue now."""
        lock = self._groups.get(group, {}).get(queue)
        return None if lock is None or self._expired(lock, now_s) else lock.client_id

    def all_expired(self, group: str, now_s: float) -> bool:
        """Tell whether nobody of the group holds any queue. If someone does, the group consumes in order.

        RocketMQ: RebalanceLockManager.isLockAllExpired (a retry of an ordered group goes straight to the
        DLQ).
        """
        return all(self._expired(lock, now_s) for lock in self._groups.get(group, {}).values())

    def expire(self, now_s: float) -> int:
        """Forget expired locks, so that memory follows the living; how many. Changes no answer."""
        dropped = 0
        self._cleaned_s = now_s
        for group in list(self._groups):
            locks = self._groups[group]
            dead = [queue for queue, lock in locks.items() if self._expired(lock, now_s)]
            for queue in dead:
                del locks[queue]
            dropped += len(dead)
            self._count -= len(dead)
            self.version += len(dead)
            if not locks:
                del self._groups[group]
        return dropped

    def remove_group(self, group: str) -> None:
        """Forget the locks of a group that was deleted."""
        self._count -= len(self._groups.pop(group, {}))
        self.version += 1

    @staticmethod
    def _expired(lock: _Lock, now_s: float) -> bool:
        return now_s - lock.renewed_s > lock.life_s
