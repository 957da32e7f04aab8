"""How far the members of a group are, as their master counts it: what is confirmed, and who is in the set.

A machine: time is an argument. The rules are those of `docs/replication.md`:
- A record is confirmed when every member of S has stored it. S is the master, the stored set, and the set that was
  proposed and is not known to be refused.
- A set smaller than the least size confirms nothing more.
- A member's acknowledgement counts from its handshake in this epoch on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from aerobee.replication.values import GroupState

# A follower that was taken out because it was slow comes back after this time, doubled with each eviction lately.
_PENALTY_S: Final = 5.0
_PENALTY_MAX_S: Final = 300.0
_EVICTIONS_KEPT_S: Final = 600.0
# A follower is added when it was level with the master's end this short a time ago.
_LEVEL_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressLimits:
    """When a member counts as gone or slow, and how long an echo gives authority."""

    silent_max_s: float = 2.0
    lag_max_s: float = 5.0
    echo_s: float = 1.3


@dataclass(slots=True)
class Follower:
    """What the master knows of one follower, from its handshake in this epoch on."""

    id: int
    incarnation: str
    learner: bool
    address: str = ""
    written: int = 0
    stored: int = 0
    # The newest stamp that it has echoed, in seconds of the master's clock.
    echoed_s: float = -1e18
    heard_s: float = 0.0
    progress_s: float = 0.0
    # When the mark was set and where the log ended then. Storing up to there shows that it was level at that time.
    mark_s: float = 0.0
    mark_end: int = 0
    level_s: float = -1e18
    connected: bool = True
    lost_s: float = 0.0
    # Why it must leave the set at once, empty if it need not.
    leaving: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetChange:
    """A change of the set that is due."""

    add: Mapping[int, str]
    evict: Mapping[int, str]
    why: str
    # Those of the evicted whose log is in doubt: they are never eligible.
    failed: frozenset[int] = frozenset()


@dataclass(slots=True)
class Progress:
    """The progress of one epoch, from the election of this master on."""

    own: int
    state: GroupState
    # Where the epoch begins, and where the log ends.
    start: int
    end: int
    confirmed: int
    began_s: float
    limits: ProgressLimits = field(default_factory=ProgressLimits)
    # What this machine has stored at its own level.
    stored: int = 0
    followers: dict[int, Follower] = field(default_factory=dict)
    proposed: GroupState | None = None
    _evicted: dict[int, list[float]] = field(default_factory=dict)
    _members: tuple[tuple[int, str], ...] = ()

    def __post_init__(self) -> None:
        self._count_members()

    # ---- who counts

    def known(self, state: GroupState, proposed: GroupState | None) -> None:
        """Take the stored state, and the one that was proposed on top of it and may be stored or not."""
        self.state, self.proposed = state, proposed
        self._count_members()

    def _count_members(self) -> None:
        members = set(self.state.in_sync.items())
        if self.proposed is not None:
            members |= set(self.proposed.in_sync.items())
        self._members = tuple(sorted(one for one in members if one[0] != self.own))

    @property
    def is_enough(self) -> bool:
        """Tell whether the stored set has its least size."""
        return len(self.state.in_sync) >= self.state.min_in_sync

    def confirm(self) -> int:
        """Return how far the log is confirmed now. It never goes back."""
        if not self.is_enough:
            return self.confirmed
        low = self.stored
        for number, incarnation in self._members:
            follower = self.followers.get(number)
            if follower is None or follower.incarnation != incarnation:
                return self.confirmed
            low = min(low, follower.stored)
        self.confirmed = max(self.confirmed, low)
        return self.confirmed

    def echo_deadline_s(self) -> float:
        """Return until when no member of S stands for election, by what their echoes promise.

        A master alone has no such promise. A set below its least size has none either: whoever is eligible may stand.
        """
        if not self._members or not self.is_enough or self.state.eligible:
            return -1e18
        echoes: list[float] = []
        for number, incarnation in self._members:
            follower = self.followers.get(number)
            if follower is None or follower.incarnation != incarnation:
                return -1e18
            echoes.append(follower.echoed_s)
        return min(echoes) + self.limits.echo_s

    # ---- what followers say

    def begin(self, follower: Follower, now_s: float) -> None:
        """Note a handshake: the follower's log agrees with ours up to what it has written."""
        follower.heard_s = follower.progress_s = follower.mark_s = now_s
        follower.mark_end = self.end
        if follower.stored >= self.end:
            follower.level_s = now_s
        self.followers[follower.id] = follower

    def acked(self, number: int, written: int, stored: int, echoed_s: float | None, now_s: float) -> str:
        """Note an acknowledgement. Return why it cannot be true, or ""."""
        follower = self.followers[number]
        if written > self.end:
            return f"it acknowledges {written}, and the log ends at {self.end}"
        if stored < follower.stored or written < follower.written:
            return f"it acknowledges {stored} of {written} after {follower.stored} of {follower.written}"
        follower.heard_s = now_s
        if stored > follower.stored or stored >= self.end:
            follower.progress_s = now_s
        follower.written, follower.stored = written, stored
        if echoed_s is not None:
            follower.echoed_s = max(follower.echoed_s, echoed_s)
        if stored >= follower.mark_end:
            follower.level_s = max(follower.level_s, follower.mark_s)
            follower.mark_s, follower.mark_end = now_s, self.end
        return ""

    def lost(self, number: int, now_s: float, leaving: str = "") -> None:
        """Note that a follower's connection ended. What it has stored it keeps."""
        follower = self.followers.get(number)
        if follower is not None and follower.connected:
            follower.connected, follower.lost_s, follower.leaving = False, now_s, leaving

    def slept(self, for_s: float) -> None:
        """Note that this process did not run for a while: nobody else was late meanwhile."""
        self.began_s += for_s
        for follower in self.followers.values():
            follower.heard_s += for_s
            follower.progress_s += for_s
            follower.mark_s += for_s
            follower.level_s += for_s
            follower.lost_s += for_s

    # ---- who is in the set

    def due(self, now_s: float, gone: Collection[int] = ()) -> SetChange | None:
        """Return the change of the set that is due, or None. `gone` are members without a lease."""
        evict: dict[int, str] = {}
        failed: set[int] = set()
        words: list[str] = []
        for number, incarnation in self.state.in_sync.items():
            why = "" if number == self.own else self._why_out(number, incarnation, now_s, number in gone)
            if why:
                evict[number] = incarnation
                words.append(f"replica {number} leaves: {why}")
                if self._is_failed(number, incarnation):
                    failed.add(number)
        add: dict[int, str] = {}
        for follower in self.followers.values():
            if follower.id not in self.state.in_sync and self._may_enter(follower, now_s):
                add[follower.id] = follower.incarnation
                words.append(f"replica {follower.id} enters: it is level")
        if not evict and not add:
            return None
        return SetChange(add=add, evict=evict, why="; ".join(words), failed=frozenset(failed))

    def _is_failed(self, number: int, incarnation: str) -> bool:
        follower = self.followers.get(number)
        return follower is not None and (follower.incarnation != incarnation or follower.leaving.startswith("failed"))

    def _why_out(self, number: int, incarnation: str, now_s: float, is_gone: bool) -> str:
        limits = self.limits
        follower = self.followers.get(number)
        if follower is None or (is_gone and not follower.connected):
            words = "its lease has ended, and it is not connected" if is_gone else "it has not connected"
            return words if is_gone or now_s - self.began_s > limits.silent_max_s else ""
        if follower.incarnation != incarnation:
            return "it came back with another incarnation"
        if follower.leaving:
            return follower.leaving
        if not follower.connected:
            return "its connection ended" if now_s - follower.lost_s > limits.silent_max_s else ""
        if now_s - follower.heard_s > limits.silent_max_s:
            return "it is silent"
        if follower.stored < self.end:
            if now_s - follower.progress_s > limits.silent_max_s:
                return "it makes no progress"
            if now_s - max(follower.level_s, self.began_s) > limits.lag_max_s:
                return "it lags behind"
        return ""

    def evicted(self, change: SetChange, now_s: float) -> None:
        """Remember who was slow, so that it does not come and go."""
        for number in change.evict:
            follower = self.followers.get(number)
            if follower is not None and follower.connected and not follower.leaving:
                lately = [at_s for at_s in self._evicted.get(number, ()) if now_s - at_s < _EVICTIONS_KEPT_S]
                self._evicted[number] = [*lately, now_s]

    def _may_enter(self, follower: Follower, now_s: float) -> bool:
        if follower.learner or not follower.connected or follower.leaving:
            return False
        if follower.stored < max(self.confirmed, self.start) or now_s - follower.level_s > _LEVEL_S:
            return False
        if now_s - follower.heard_s > _LEVEL_S:
            return False
        lately = [at_s for at_s in self._evicted.get(follower.id, ()) if now_s - at_s < _EVICTIONS_KEPT_S]
        if not lately:
            return True
        penalty_s: float = min(_PENALTY_S * 2 ** min(len(lately), 10), _PENALTY_MAX_S)
        return now_s - lately[-1] > penalty_s


def changed_state(state: GroupState, change: SetChange) -> GroupState:
    """Return the state with a change of its set, and the eligible members that follow from it."""
    in_sync = {number: one for number, one in state.in_sync.items() if number not in change.evict} | dict(change.add)
    evicted = {number: one for number, one in change.evict.items() if number not in change.failed}
    return with_set(state, in_sync, evicted)


def with_set(state: GroupState, in_sync: Mapping[int, str], dropped: Mapping[int, str]) -> GroupState:
    """Return the state with another set.

    While the set is below its least size nothing is confirmed, so whoever left it then holds everything confirmed: it
    stays eligible. The change that brings the set back to its least size forgets them.
    """
    eligible: dict[int, str] = {}
    if len(in_sync) < state.min_in_sync:
        eligible = {number: one for number, one in {**state.eligible, **dropped}.items() if number not in in_sync}
    return GroupState(
        epoch=state.epoch,
        master=state.master,
        in_sync=dict(sorted(in_sync.items())),
        eligible=dict(sorted(eligible.items())),
        min_in_sync=state.min_in_sync,
        forced=state.forced,
    )
