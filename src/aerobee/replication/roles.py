"""What role a replica has, when it stands for election, and which changes of the group's state it proposes.

A machine: events in, effects out, time is an argument. It learns what is stored only from views. A proposal whose
answer was lost is made again with the same revision, until a view shows another one: then the first can no longer be
stored, or is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from aerobee.replication.coordinator import Outcome
from aerobee.replication.progress import Progress, ProgressLimits, changed_state, with_set
from aerobee.replication.values import GroupState, GroupView, ReplicaMember, ReplicaRole

# The second best candidate waits this long for the best, the third twice as long.
_RANK_S: Final = 0.15
# A replica waits this long before it founds a group, so that one with messages comes first.
_FOUND_S: Final = 0.3
_AGAIN_S: Final = 0.1
# A pause between two ticks that is longer than this shows that the process did not run.
_SLEPT_S: Final = 1.0
# A follower that is alive is heard of twice in this time.
_ALIVE_S: Final = 1.0
_NEVER: Final = -1e18
_FAILED: Final = "failed: "


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSettings:
    """What the machine needs of the settings."""

    min_in_sync: int = 1
    learner: bool = False
    sync_flush: bool = False
    lease_margin_s: float = 0.5
    promise_s: float = 1.5
    switch_max_s: float = 0.5
    limits: ProgressLimits = field(default_factory=ProgressLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Propose:
    """Store a new state in place of the one that was seen, then read a view."""

    seen: GroupState
    new: GroupState
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Promote:
    """Begin an epoch: make it durable, accept followers, then call `promoted` with the log's end."""

    state: GroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """Let the broker serve as master: the log of the earlier epochs is confirmed and dispatched."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """Follow this master, or wait where there is none. Whoever led before leads no more."""

    epoch: int
    master: ReplicaMember | None
    was_leading: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """Stop the process: the replica cannot go on."""

    reason: str


Effect = Propose | Promote | Lead | Follow | Halt


class ReplicaMachine:
    """One replica's decisions."""

    def __init__(
        self,
        settings: RoleSettings,
        *,
        number: int,
        incarnation: str,
        epoch: int,
        has_log: bool,
        now_s: float,
        start: str = "",
    ) -> None:
        self.settings = settings
        self._start = start
        self.id = number
        self.incarnation = incarnation
        self.role = ReplicaRole.WAITING
        # The highest epoch that was seen. The driver makes it durable before anything of it is acknowledged.
        self.epoch = epoch
        self.view: GroupView | None = None
        # Set while this replica leads or is about to.
        self.progress: Progress | None = None
        self.halted = ""
        self.elections = 0
        self.set_changes = 0
        self._has_log = has_log
        self._began_s = now_s
        self._ticked_s = now_s
        # The epoch that stood when the process began. In that one it may have proposed changes of the set in an earlier
        # life, which can still arrive. So it leads only an epoch that began later.
        self._first_epoch: int | None = None
        self._following: tuple[int, int | None] | None = None
        self._proposal: Propose | None = None
        self._is_asking = False
        self._ask_again_s = _NEVER
        self._deadline_s = _NEVER
        self._promised_s = _NEVER
        self._dead_epoch = -1
        self._stand_s: float | None = None
        self._target = 0
        self._promoting = 0
        self._switch: tuple[int, float] | None = None
        self._leaving = ""

    # ---- what others ask

    @property
    def state(self) -> GroupState:
        return GroupState() if self.view is None else self.view.state

    @property
    def is_leading(self) -> bool:
        return self.progress is not None

    @property
    def is_standing(self) -> bool:
        """Tell whether an election of this replica may be stored any moment: then it promises nothing."""
        return self._proposal is not None and not self.is_leading

    @property
    def is_switching(self) -> bool:
        return self._switch is not None

    @property
    def proposed(self) -> GroupState | None:
        return None if self._proposal is None else self._proposal.new

    @property
    def lease_deadline_s(self) -> float:
        return self._deadline_s

    def has_authority(self, now_s: float) -> bool:
        """Tell whether this replica leads and no other can have been elected."""
        progress = self.progress
        if progress is None or self._leaving:
            return False
        if self._proposal is not None and self._proposal.new.master != self.id:
            return False  # it hands over or resigns, and does not know yet whether that is stored
        return now_s < self._deadline_s or now_s < progress.echo_deadline_s()

    def confirm(self, now_s: float) -> int | None:
        """Return how far the log is confirmed, None where this replica does not lead."""
        progress = self.progress
        if progress is None:
            return None
        return progress.confirm() if self.has_authority(now_s) else progress.confirmed

    def refusal(self, now_s: float) -> str:
        """Return why messages are refused, or "". The words for too few replicas are RocketMQ's."""
        if self.role is not ReplicaRole.LEADER or self.progress is None:
            return "this replica is not the master"
        if self._switch is not None or self._leaving:
            return "the master changes"
        if not self.has_authority(now_s):
            return "this replica may not be the master any more"
        return "" if self.progress.is_enough else NOT_ENOUGH

    # ---- what the coordinator says

    def viewed(self, view: GroupView, now_s: float) -> list[Effect]:
        """Take a view. An older one than the last is left out."""
        if self.halted or (self.view is not None and view.revision < self.view.revision):
            return []
        state = view.state
        if state.epoch < self.epoch:
            return self.halt(
                f"the coordination store knows epoch {state.epoch} of the group, and this replica has seen epoch"
                f" {self.epoch}: the store was emptied or restored from a backup. Restore its content"
            )
        if self._first_epoch is None:
            self._first_epoch = state.epoch
            if self._has_log and self.epoch == 0 and state.revision and not self._is_recorded(state):
                return self.halt(
                    "the directory holds messages of a broker that was never in this group. Start the replica with an"
                    " empty directory, or found the group with this one"
                )
        own = view.members.get(self.id)
        if own is not None and own.start != self._start and own.start:
            return self.halt(
                f"another process (at {own.address}) has taken the place of replica {self.id}, on a copy of its"
                " directory. Stop it, and start it with an empty directory"
            )
        self.view = view
        self.epoch = state.epoch
        if self._proposal is not None and state.revision != self._proposal.seen.revision:
            self._proposal = None
            self._switch = None
        return self._take_role(view, now_s)

    def _is_recorded(self, state: GroupState) -> bool:
        return self.incarnation in (state.in_sync.get(self.id), state.eligible.get(self.id))

    def _take_role(self, view: GroupView, now_s: float) -> list[Effect]:
        state = view.state
        if self._is_elected(state):
            if self.progress is not None and self.progress.state.epoch == state.epoch:
                self.set_changes += self.progress.state.in_sync != state.in_sync
                self.progress.known(state, self.proposed)
                return []
            if self.role is ReplicaRole.PROMOTING and self._promoting == state.epoch:
                return []
            self._promoting = state.epoch
            self.progress = None
            self.elections += 1
            self._following = None
            self._switch = None
            self.role = ReplicaRole.PROMOTING
            return [Promote(state=state)]
        master = None if state.master in (None, self.id) else state.master
        member = None if master is None else view.members.get(master)
        following = (state.epoch, None if member is None else member.id)
        if following == self._following and self.role in (ReplicaRole.WAITING, ReplicaRole.FOLLOWER):
            return []
        was_leading = self.role in (ReplicaRole.PROMOTING, ReplicaRole.LEADER)
        self._step_down(following)
        why = "the group has no master" if member is None else f"replica {member.id} leads epoch {state.epoch}"
        return [Follow(epoch=state.epoch, master=member, was_leading=was_leading, why=why)]

    def _is_elected(self, state: GroupState) -> bool:
        assert self._first_epoch is not None
        return (
            state.master == self.id
            and state.in_sync.get(self.id) == self.incarnation
            and state.epoch > self._first_epoch
            and (self.progress is not None or not self._leaving)
        )

    def _step_down(self, following: tuple[int, int | None] | None) -> None:
        self.progress = None
        self._switch = None
        self._following = following
        self._stand_s = None
        has_master = following is not None and following[1] is not None
        self.role = ReplicaRole.FOLLOWER if has_master else ReplicaRole.WAITING

    def answered(self, outcome: Outcome, now_s: float) -> None:
        """Note that a proposal was answered, or not. A view tells what came of it."""
        self._is_asking = False
        self._ask_again_s = now_s + (_AGAIN_S if outcome is Outcome.UNKNOWN else 0.0)

    def kept(self, sent_s: float, ttl_s: float) -> None:
        """Note that the lease was kept. Its time counts from the moment at which the call was made."""
        self._deadline_s = max(self._deadline_s, sent_s + ttl_s - self.settings.lease_margin_s)

    # ---- what this replica does

    def promoted(self, start: int, end: int, confirmed: int, stored: int, now_s: float) -> None:
        """Note that the epoch has begun: it is durable, and the log up to `end` is older."""
        self.progress = Progress(
            own=self.id,
            state=self.state,
            start=start,
            end=end,
            confirmed=confirmed,
            stored=stored,
            began_s=now_s,
            limits=self.settings.limits,
            proposed=self.proposed,
        )
        self._target = end

    def acknowledged(self, now_s: float) -> None:
        """Note that an acknowledgement leaves: it promises not to stand for a while."""
        self._promised_s = now_s

    def master_died(self, epoch: int) -> None:
        """Note that the machine of this epoch's master refuses connections: its process is dead."""
        self._dead_epoch = max(self._dead_epoch, epoch)

    def master_lives(self) -> None:
        """Note that the master has answered."""
        self._dead_epoch = -1

    def is_promoted(self, dispatched: int) -> bool:
        """Tell whether everything that the log held at the election is confirmed and dispatched."""
        progress = self.progress
        return progress is not None and min(progress.confirmed, dispatched) >= self._target

    # ---- time

    def tick(self, now_s: float, dispatched: int) -> list[Effect]:
        """Do what is due."""
        if self.halted or self.view is None:
            return []
        gap_s, self._ticked_s = now_s - self._ticked_s, now_s
        if self.progress is not None and gap_s > _SLEPT_S:
            self.progress.slept(gap_s)
        if self._proposal is not None:
            return self._ask_again(now_s)
        if self.progress is None:
            return self._stand_if_due(now_s)
        if self._leaving:
            return self._propose(self._resigned(now_s), self._leaving)
        effects: list[Effect] = []
        if self.role is ReplicaRole.PROMOTING and self.is_promoted(dispatched) and self.has_authority(now_s):
            self.role = ReplicaRole.LEADER
            effects.append(Lead(epoch=self.epoch))
        return effects + (self._hand_over(now_s) if self._switch is not None else self._alter(now_s))

    def _ask_again(self, now_s: float) -> list[Effect]:
        if self._is_asking or now_s < self._ask_again_s:
            return []
        self._is_asking = True
        assert self._proposal is not None
        return [self._proposal]

    def _propose(self, new: GroupState, why: str) -> list[Effect]:
        proposal = Propose(seen=self.state, new=new, why=why)
        self._proposal, self._is_asking = proposal, True
        if self.progress is not None:
            self.progress.known(self.state, new)
        return [proposal]

    # ---- the master's changes

    def _alter(self, now_s: float) -> list[Effect]:
        progress, state, view = self.progress, self.state, self.view
        assert progress is not None and view is not None
        # An old master that handed over and ended would otherwise hold up the new one until it counts as silent.
        gone = [number for number, one in state.in_sync.items() if not is_live(view, number, one)]
        change = progress.due(now_s, gone)
        wanted = replace(state, min_in_sync=self.settings.min_in_sync)
        if change is not None:
            progress.evicted(change, now_s)
            return self._propose(changed_state(wanted, change), change.why)
        if wanted != state:
            why = f"the least size of the set becomes {wanted.min_in_sync}"
            return self._propose(with_set(wanted, state.in_sync, {}), why)
        return []

    def switch_to(self, target: int, now_s: float) -> str:
        """Begin to hand over to another member. Return why that cannot be done, or ""."""
        progress = self.progress
        if progress is None or self.role is not ReplicaRole.LEADER:
            return "this replica is not the master"
        follower = progress.followers.get(target)
        if target == self.id:
            return f"replica {target} is the master already"
        if follower is None or not follower.connected or self.state.in_sync.get(target) != follower.incarnation:
            return f"replica {target} is not in the in-sync set {sorted(self.state.in_sync)}"
        if self._switch is None:
            self._switch = (target, now_s + self.settings.switch_max_s)
        return "" if self._switch[0] == target else f"the role goes to replica {self._switch[0]} already"

    def _hand_over(self, now_s: float) -> list[Effect]:
        progress, switch = self.progress, self._switch
        assert progress is not None and switch is not None
        target, until_s = switch
        follower = progress.followers.get(target)
        if follower is None or not follower.connected or target not in self.state.in_sync or now_s > until_s:
            self._switch = None
            return []
        if min(follower.stored, progress.confirmed) < progress.end:
            return []
        new = replace(self.state, epoch=self.epoch + 1, master=target, revision=0, forced="")
        return self._propose(new, f"replica {target} takes over")

    def best_successor(self, heard_s: float = _NEVER) -> int | None:
        """Return the member to hand over to that was heard of since then, None where there is none."""
        if self.progress is None:
            return None
        level = [
            follower
            for follower in self.progress.followers.values()
            if follower.connected
            and follower.heard_s >= heard_s
            and self.state.in_sync.get(follower.id) == follower.incarnation
        ]
        return min(level, key=lambda one: (-one.stored, one.id)).id if level else None

    def leave(self, why: str, *, failed: bool = False) -> list[Effect]:
        """Stop leading at once, because the process ends or the store has failed. The resignation is proposed next."""
        if self._leaving:
            return []
        self._leaving = (_FAILED if failed else "") + why
        self._switch = None
        return []

    @property
    def has_left(self) -> bool:
        """Tell whether nobody counts on this replica as master any more, as far as it knows."""
        return self.progress is None

    def _resigned(self, now_s: float) -> GroupState:
        """Return the state without a master. A replica that has failed leaves the set too, if another can lead.

        A connection may seem to be there while its other end is dead, and then this replica is the last member.
        """
        state = self.state
        in_sync = dict(state.in_sync)
        dropped: dict[int, str] = {}
        if self._leaving.startswith(_FAILED) and self.best_successor(now_s - _ALIVE_S) is not None:
            own = in_sync.pop(self.id, None)
            if own is not None and self.settings.sync_flush:
                dropped[self.id] = own  # it holds everything that was acknowledged
        return replace(with_set(state, in_sync, dropped), master=None)

    def halt(self, reason: str) -> list[Effect]:
        """Stop for good, with words for the operator."""
        if self.halted:
            return []
        was_leading = self.role in (ReplicaRole.PROMOTING, ReplicaRole.LEADER)
        self.halted = reason
        self._step_down(None)
        effects: list[Effect] = [Halt(reason=reason)]
        if was_leading:
            effects.insert(0, Follow(epoch=self.epoch, master=None, was_leading=True, why=reason))
        return effects

    # ---- election

    def _stand_if_due(self, now_s: float) -> list[Effect]:
        why = self._why_stand(now_s)
        if not why or self.role is ReplicaRole.PROMOTING:
            self._stand_s = None
            return []
        if self._stand_s is None:
            pause_s = _FOUND_S if not self.state.revision else 0.0
            self._stand_s = max(now_s, self._began_s + pause_s) + self._rank() * _RANK_S
        if now_s < self._stand_s:
            return []
        self._stand_s = None
        return self._propose(self._elected_state(), why)

    def _why_stand(self, now_s: float) -> str:
        view = self.view
        assert view is not None
        state, settings = view.state, self.settings
        if settings.learner or self._leaving or self.id == 0:
            return ""
        if not state.revision:
            return "" if self.epoch else "the group is founded"
        if not self._may_be_elected(view):
            return ""
        if state.master in (None, self.id):
            return "the group has no master"  # a process that starts anew as master stands again
        if self._dead_epoch == state.epoch:
            return f"the process of master {state.master} is dead"
        if is_live(view, state.master, state.in_sync.get(state.master, "")):
            return ""
        if now_s < max(self._promised_s, self._began_s) + settings.promise_s:
            return ""
        return f"the lease of master {state.master} has ended"

    def _may_be_elected(self, view: GroupView) -> bool:
        state = view.state
        if state.in_sync.get(self.id) == self.incarnation:
            return True
        if len(state.in_sync) >= state.min_in_sync or state.eligible.get(self.id) != self.incarnation:
            return False
        return not any(is_live(view, number, one) for number, one in state.in_sync.items() if not self._is_dead(number))

    def _is_dead(self, number: int) -> bool:
        return number == self.state.master and self._dead_epoch == self.state.epoch

    def _rank(self) -> int:
        """Return how many candidates come before this one."""
        view = self.view
        assert view is not None
        state = view.state
        among: Mapping[int, str] = state.in_sync
        if state.in_sync.get(self.id) != self.incarnation:
            among = state.eligible
        if not state.revision:
            among = {number: one.incarnation for number, one in view.live.items()}
        order: list[tuple[int, int, int]] = []
        for number, incarnation in among.items():
            member, live = view.members.get(number), view.live.get(number)
            is_here = live is not None and live.incarnation == incarnation and not self._is_dead(number)
            if member is None or member.learner or (not is_here and number != self.id):
                continue
            order.append((-(live.log_end if live is not None else 0), member.priority, number))
        return sum(one[2] != self.id for one in order if one < self._own_order(order))

    def _own_order(self, order: list[tuple[int, int, int]]) -> tuple[int, int, int]:
        return next((one for one in order if one[2] == self.id), (0, 0, self.id))

    def _elected_state(self) -> GroupState:
        """Return the state in which this replica leads the next epoch, with the live members of the set."""
        view = self.view
        assert view is not None
        state = view.state
        kept = {
            number: one
            for number, one in state.in_sync.items()
            if number == self.id or (is_live(view, number, one) and not self._is_dead(number))
        }
        kept[self.id] = self.incarnation
        dropped = {number: one for number, one in state.in_sync.items() if number not in kept}
        base = replace(state, min_in_sync=self.settings.min_in_sync if not state.revision else state.min_in_sync)
        new = with_set(base, kept, dropped)
        return replace(new, epoch=state.epoch + 1, master=self.id, forced="")


NOT_ENOUGH: Final = "in-sync replicas not enough"


def is_live(view: GroupView, number: int, incarnation: str) -> bool:
    """Tell whether a replica's lease is alive under this incarnation."""
    live = view.live.get(number)
    return live is not None and live.incarnation == incarnation
