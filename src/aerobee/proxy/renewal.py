"""Messages of push consumers, whose invisible time the front renews while they are handled.

A client keeps the handle that it was given; what it has become since is looked up here. Times are those of this
process: the clock of a broker may show another time. RocketMQ: ReceiptHandleProcessor, RenewStrategyPolicy.
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
# After so long nobody works on the message any more.
_GIVEN_UP_MS: Final = 3 * 3_600_000
_KEPT_MAX: Final = 1_000_000
# A renewal that failed is tried again after this time, until the message is visible again.
_AGAIN_MS: Final = 2_000


@dataclass(slots=True, eq=False)
class Renewed:
    """One message that is being handled."""

    client: GrpcClient
    topic: str
    group: str
    handle: Receipt
    began_ms: int
    # When it becomes visible again.
    ends_ms: int
    times: int = 0
    # Whether its client has asked for something else: it is not renewed any more.
    is_paused: bool = False
    # When it was renewed last, and for how long.
    asked_ms: int = 0
    hidden_ms: int = 0
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

    def add(self, client: GrpcClient, topic: str, group: str, handle: Receipt) -> None:
        """Renew the time of a message from now on."""
        if len(self._held) < _KEPT_MAX:
            key, now_ms = self._key(topic, group, handle), self._now_ms()
            self._drop(key)
            one = Renewed(client, topic, group, handle, now_ms, now_ms + handle.invisible_ms, key=key)
            self._held[key] = one
            self._of.setdefault(client, {})[one] = None
            self._wait(one, one.ends_ms - _AHEAD_MS)

    def _wait(self, one: Renewed, due_ms: int) -> None:
        self._number += 1
        heapq.heappush(self._due.setdefault(one.handle.broker, []), (due_ms, self._number, one))

    def _drop(self, key: object) -> Renewed | None:
        one = self._held.pop(key, None)
        if one is not None:
            of_client = self._of[one.client]
            del of_client[one]
            if not of_client:
                del self._of[one.client]
        return one

    def take(self, topic: str, group: str, handle: Receipt) -> Receipt:
        """Return what a client's handle is now, and forget it."""
        found = self._drop(self._key(topic, group, handle))
        return handle if found is None else found.handle

    def pause(self, topic: str, group: str, handle: Receipt) -> Receipt:
        """Return what a client's handle is now. It is not renewed any more, and found until it ends or is taken: where
        the broker does not answer, the client asks again, with the handle that it has."""
        found = self._held.get(self._key(topic, group, handle))
        if found is None:
            return handle
        found.is_paused = True
        return found.handle

    def brokers_due(self) -> list[str]:
        """Return the names of the brokers of which something is due."""
        now_ms = self._now_ms()
        return [broker for broker, waiting in self._due.items() if waiting and waiting[0][0] <= now_ms]

    def due(self, broker: str, most: int) -> list[Renewed]:
        """Return what has to be renewed now at a broker, at most so many, each for its `hidden_ms`. Tell `renewed` what
        became of each."""
        now_ms, found = self._now_ms(), list[Renewed]()
        waiting = self._due.get(broker, [])
        while waiting and waiting[0][0] <= now_ms and len(found) < most:
            one = heapq.heappop(waiting)[2]
            if self._held.get(one.key) is not one:
                continue
            if one.ends_ms <= now_ms or now_ms - one.began_ms > _GIVEN_UP_MS:
                self._drop(one.key)
            elif one.is_paused:
                self._wait(one, one.ends_ms)
            else:
                one.asked_ms, one.hidden_ms = now_ms, _STEPS_MS[min(one.times, len(_STEPS_MS) - 1)]
                found.append(one)
        if not waiting:
            self._due.pop(broker, None)
        return found

    def renewed(self, one: Renewed, handle: Receipt | None) -> None:
        """Take the handle that a message has now; None: it could not be renewed."""
        if self._held.get(one.key) is not one:
            return
        if handle is None:
            self._wait(one, self._now_ms() + _AGAIN_MS)
        elif handle.pop_time == one.handle.pop_time and handle.invisible_ms <= one.hidden_ms:
            # A broker of Aerobee tells of a message that is held when it becomes visible, seen from the pop. Nobody
            # holds this one any more: it was acknowledged at another front, or its group was reset.
            self._drop(one.key)
        else:
            one.handle = handle
            one.times += 1
            one.ends_ms = one.asked_ms + one.hidden_ms
            self._wait(one, one.ends_ms - _AHEAD_MS)

    def of(self, client: GrpcClient) -> list[Renewed]:
        """Remove and return what a client that has gone leaves behind."""
        found = list(self._of.get(client, ()))
        for one in found:
            self._drop(one.key)
        return found
