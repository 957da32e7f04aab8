"""What consumers by POP saw of a group of replicas, and what of it breaks a promise. Pure: times are arguments.

A *lease* is one delivery of a message to a consumer. Times are virtual milliseconds of the Unix epoch, which is what
the wall clocks of all machines show, but for jumps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from aerobee.client.consumer import PoppedMessage

_ROUNDING_MS: Final = 2.0


@dataclass(slots=True)
class SeenLease:
    """One delivery."""

    group: str
    body: str
    # Topic and queue that were read, and the offset there.
    place: tuple[str, int]
    offset: int
    pop_ms: float
    # Before which nobody else may get the message, as far as its consumer knows.
    until_ms: float
    attempt: int
    # When its consumer asked for the acknowledgement, and when the answer came; -1 before.
    ack_asked_ms: float = -1.0
    acked_ms: float = -1.0
    # A change of its time was answered: it is in the log, and so is the take.
    is_changed: bool = False


@dataclass(slots=True)
class PopBook:
    """All leases of a run, and the masters that it had."""

    leases: dict[tuple[str, str], list[SeenLease]] = field(default_factory=dict)
    # When a replica began to lead.
    leads_ms: list[float] = field(default_factory=list)
    # (group, body) of which an acknowledgement was answered.
    done: set[tuple[str, str]] = field(default_factory=set)
    changes: int = 0
    # What was wrong at once.
    problems: list[str] = field(default_factory=list)

    def came(self, group: str, message: PoppedMessage) -> SeenLease:
        """Note a delivery."""
        lease = message.lease
        assert lease is not None
        seen = SeenLease(
            group, message.body.decode(), (lease.topic, lease.queue_id), lease.offset, lease.pop_time,
            lease.pop_time + lease.invisible_ms, message.delivery_attempt,
        )  # fmt: skip
        self.leases.setdefault((group, seen.body), []).append(seen)
        return seen

    def acked(self, seen: SeenLease, at_ms: float) -> None:
        """Note the answer to an acknowledgement."""
        seen.acked_ms = at_ms
        self.done.add((seen.group, seen.body))

    def is_over(self, group: str, body: str) -> bool:
        """Tell whether a message is acknowledged, or may be: the answer to its last delivery's was lost."""
        leases = self.leases.get((group, body))
        return (group, body) in self.done or (leases is not None and leases[-1].ack_asked_ms >= 0)

    @property
    def delivered(self) -> int:
        return sum(map(len, self.leases.values()))

    def problems_of(self, spread_ms: float, *, sync_master: bool, ordered_group: str) -> list[str]:
        """Return every broken promise. `spread_ms` is by how much clocks were moved in all."""
        found = list(self.problems)
        tolerance_ms = spread_ms + _ROUNDING_MS
        for leases in self.leases.values():
            in_turn = sorted(leases, key=lambda one: one.pop_ms)
            for number, lease in enumerate(in_turn):
                later = in_turn[number + 1 :]
                found += self._again(lease, later, tolerance_ms, sync_master)
                found += self._early(lease, later, tolerance_ms, sync_master)
                if later and sync_master and not spread_ms and lease.group != ordered_group:
                    found += self._tries(lease, later[0])
        return found

    def _led_between(self, start_ms: float, end_ms: float, spread_ms: float) -> bool:
        return any(start_ms - spread_ms <= at_ms <= end_ms + spread_ms for at_ms in self.leads_ms)

    def _again(self, lease: SeenLease, later: Sequence[SeenLease], tolerance_ms: float, sure: bool) -> Iterator[str]:
        """Tell deliveries after an acknowledgement that was answered while the message was held."""
        if lease.acked_ms < 0 or lease.acked_ms + tolerance_ms > lease.until_ms:
            return
        if any(one.pop_ms <= lease.acked_ms + tolerance_ms for one in later):
            # A take that was lost with its master: somebody else held the message by then.
            return
        for one in later:
            if sure or not self._led_between(lease.acked_ms, one.pop_ms, tolerance_ms):
                yield (
                    f"{lease.body} was acknowledged by {lease.group} at {lease.acked_ms:.0f} with an answer, and came "
                    f"again at {one.pop_ms:.0f} from {one.place[0]} at {one.offset}"
                )

    def _early(self, lease: SeenLease, later: Sequence[SeenLease], tolerance_ms: float, sure: bool) -> Iterator[str]:
        if lease.acked_ms >= 0:
            return
        for one in later:
            if one.pop_ms + tolerance_ms >= lease.until_ms:
                continue
            is_lost = self._led_between(lease.pop_ms, one.pop_ms, tolerance_ms) and not (sure and lease.is_changed)
            if not is_lost:
                yield (
                    f"{lease.body} of {lease.group} was held until {lease.until_ms:.0f}, and came again at "
                    f"{one.pop_ms:.0f} from {one.place[0]} at {one.offset}"
                )

    def _tries(self, lease: SeenLease, following: SeenLease) -> Iterator[str]:
        is_led = self._led_between(lease.pop_ms, following.pop_ms, _ROUNDING_MS)
        if following.attempt < lease.attempt + (0 if is_led else 1):
            yield f"{lease.body} of {lease.group} came for try {lease.attempt}, then for try {following.attempt}"
