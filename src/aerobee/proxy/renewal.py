"""Messages of push consumers, whose invisible time the front renews while they are handled.

A client keeps the handle that it was given; what it has become since is looked up here.
RocketMQ: ReceiptHandleProcessor, RenewStrategyPolicy.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aerobee.proxy.delivered import Receipt

if TYPE_CHECKING:
    from aerobee.proxy.clients import GrpcClient

# Handles that end within this time are renewed, for a minute first and longer each time.
_AHEAD_MS: Final = 20_000
_STEPS_MS: Final = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
_TRIES: Final = 3
# After so long nobody works on the message any more.
_GIVEN_UP_MS: Final = 3 * 3_600_000
_KEPT_MAX: Final = 1_000_000
# A renewal that failed is tried again after this time.
_AGAIN_MS: Final = 2_000


@dataclass(slots=True, eq=False)
class Renewed:
    """One message that is being handled."""

    client: GrpcClient
    topic: str
    group: str
    address: str
    handle: Receipt
    began_ms: int
    times: int = 0
    failures: int = 0
    # What the client's handle is found by.
    key: object = field(default=None)


class Renewals:
    """All messages whose time is renewed, by the handle that their client has.

    Those of each broker wait in the order of their times, so that a look at what is due costs nothing for the others.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._held: dict[object, Renewed] = {}
        # The same messages by client.
        self._of: dict[GrpcClient, dict[Renewed, None]] = {}
        # By broker: (when it is due, number, message). One that is not held any more is passed over when it is met.
        self._due: dict[str, list[tuple[int, int, Renewed]]] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._held)

    @staticmethod
    def _key(topic: str, group: str, handle: Receipt) -> object:
        return (topic, group, *handle.key())

    def add(self, client: GrpcClient, topic: str, group: str, address: str, handle: Receipt) -> None:
        """Renew the time of a message from now on."""
        if len(self._held) < _KEPT_MAX:
            key = self._key(topic, group, handle)
            self._drop(key)
            one = Renewed(client, topic, group, address, handle, self._now_ms(), key=key)
            self._held[key] = one
            self._of.setdefault(client, {})[one] = None
            self._wait(one, handle.ends_ms - _AHEAD_MS)

    def _wait(self, one: Renewed, due_ms: int) -> None:
        self._number += 1
        heapq.heappush(self._due.setdefault(one.address, []), (due_ms, self._number, one))

    def _drop(self, key: object) -> Renewed | None:
        one = self._held.pop(key, None)
        if one is not None:
            of_client = self._of[one.client]
            del of_client[one]
            if not of_client:
                del self._of[one.client]
        return one

    def take(self, topic: str, group: str, handle: Receipt) -> Receipt:
        """Return what a client's handle is now. It is not renewed any more."""
        found = self._drop(self._key(topic, group, handle))
        return handle if found is None else found.handle

    def brokers_due(self) -> list[str]:
        """Return the addresses of the brokers of which something is due."""
        now_ms = self._now_ms()
        return [address for address, waiting in self._due.items() if waiting and waiting[0][0] <= now_ms]

    def due(self, address: str, most: int) -> list[tuple[Renewed, int]]:
        """Return what has to be renewed now at a broker, each with the time that it gets, and at most so many. Tell
        `renewed` what became of each."""
        now_ms, found = self._now_ms(), list[tuple[Renewed, int]]()
        waiting = self._due.get(address, [])
        while waiting and waiting[0][0] <= now_ms and len(found) < most:
            one = heapq.heappop(waiting)[2]
            if self._held.get(one.key) is not one:
                continue
            if now_ms - one.began_ms > _GIVEN_UP_MS or one.failures >= _TRIES:
                self._drop(one.key)
            else:
                found.append((one, _STEPS_MS[min(one.times, len(_STEPS_MS) - 1)]))
        if not waiting:
            self._due.pop(address, None)
        return found

    def renewed(self, one: Renewed, handle: Receipt | None) -> None:
        """Take the handle that a message has now; None: it could not be renewed."""
        if handle is None:
            one.failures += 1
        else:
            one.handle = handle
            one.times += 1
            one.failures = 0
        if self._held.get(one.key) is one:
            self._wait(one, self._now_ms() + _AGAIN_MS if handle is None else one.handle.ends_ms - _AHEAD_MS)

    def of(self, client: GrpcClient) -> list[Renewed]:
        """Remove and return what a client that has gone leaves behind."""
        found = list(self._of.get(client, ()))
        for one in found:
            self._drop(one.key)
        return found
