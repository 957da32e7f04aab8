"""Messages of push consumers, whose invisible time the front renews while they are handled.

A client keeps the handle that it was given; what it has become since is looked up here.
RocketMQ: ReceiptHandleProcessor, RenewStrategyPolicy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(slots=True)
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


class Renewals:
    """All messages whose time is renewed, by the handle that their client has."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._held: dict[object, Renewed] = {}

    def __len__(self) -> int:
        return len(self._held)

    @staticmethod
    def _key(topic: str, group: str, handle: Receipt) -> object:
        return (topic, group, *handle.key())

    def add(self, client: GrpcClient, topic: str, group: str, address: str, handle: Receipt) -> None:
        """Renew the time of a message from now on."""
        if len(self._held) < _KEPT_MAX:
            one = Renewed(client, topic, group, address, handle, self._now_ms())
            self._held[self._key(topic, group, handle)] = one

    def take(self, topic: str, group: str, handle: Receipt) -> Receipt:
        """Return what a client's handle is now. It is not renewed any more."""
        found = self._held.pop(self._key(topic, group, handle), None)
        return handle if found is None else found.handle

    def due(self) -> list[tuple[Renewed, int]]:
        """Return what has to be renewed now, each with the time that it gets."""
        now_ms = self._now_ms()
        found = []
        for key, one in list(self._held.items()):
            if now_ms - one.began_ms > _GIVEN_UP_MS or one.failures >= _TRIES:
                del self._held[key]
            elif one.handle.ends_ms - now_ms < _AHEAD_MS:
                found.append((one, _STEPS_MS[min(one.times, len(_STEPS_MS) - 1)]))
        return found

    def of(self, client: GrpcClient) -> list[Renewed]:
        """Remove and return what a client that has gone leaves behind."""
        found = [(key, one) for key, one in self._held.items() if one.client is client]
        for key, _ in found:
            del self._held[key]
        return [one for _, one in found]
