"""Bugs of replication that the simulation of replicas must find. Each is a small patch that a test takes back.

The numbers are those of the study of failover. Those that need a broker (26, 29 and 30) belong to the simulation of the
cluster. From 33 on they are our own, most of them holes that seeds found in the product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from aerobee.coordination.group import GroupCoordinator
from aerobee.coordination.values import RevisionCompactedError
from aerobee.errors import StoreError, WithheldError
from aerobee.replication import identity, link, ownlog, progress, roles, transfer
from aerobee.replication.coordinator import Outcome
from aerobee.replication.epochs import Epochs
from aerobee.replication.frames import Data, Refuse, encode_ack
from aerobee.replication.link import MasterLink
from aerobee.replication.ownlog import OwnLog
from aerobee.replication.progress import Follower, Progress
from aerobee.replication.pursuit import Pursuit
from aerobee.replication.replica import Replica
from aerobee.replication.roles import ReplicaMachine
from aerobee.replication.values import Epoch, GroupState
from aerobee.store.commitlog import CommitLog
from aerobee.store.messagestore import MessageStore
from aerobee.store.queues import ConsumeQueues
from aerobee.testing.simulation.replicas.coordination import LossyKeyStore

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


def _members(patch: Patch, choose: Callable[[Progress], set[tuple[int, str]]]) -> None:
    def count(self: Progress) -> None:
        self._members = tuple(sorted(one for one in choose(self) if one[0] != self.own))

    patch.setattr(Progress, "_count_members", count)


def n01_added_member_not_waited_for(patch: Patch) -> None:
    """Acknowledge without the member that was proposed and is not known to be refused."""
    _members(patch, lambda self: set(self.state.in_sync.items()))


def n02_shrink_before_it_is_stored(patch: Patch) -> None:
    """Count the proposed set as soon as it is proposed."""
    _members(patch, lambda self: set((self.proposed or self.state).in_sync.items()))


def n03_lost_answer_taken_as_done(patch: Patch) -> None:
    """Take a change of the set whose answer was lost for stored."""
    answered = ReplicaMachine.answered

    def taken(self: ReplicaMachine, outcome: Outcome, now_s: float) -> None:
        answered(self, outcome, now_s)
        if outcome is Outcome.UNKNOWN and self._proposal is not None and self.progress is not None:
            new, self._proposal = self._proposal.new, None
            self.progress.known(new, None)

    patch.setattr(ReplicaMachine, "answered", taken)


def n04_swap_without_the_revision(patch: Patch) -> None:
    """Store a state whatever is stored."""
    txn = LossyKeyStore.txn

    async def blind(self: LossyKeyStore, wanted: Any) -> Any:
        kept = tuple(one for one in wanted.compares if not one.key.endswith(b"/state"))
        return await txn(self, replace(wanted, compares=kept))

    patch.setattr(LossyKeyStore, "txn", blind)


def n05_elected_from_outside_the_set(patch: Patch) -> None:
    """Let any replica stand."""
    patch.setattr(ReplicaMachine, "_may_be_elected", lambda self, view: True)


def n06_election_ignores_the_incarnation(patch: Patch) -> None:
    """Let a replica stand whose id is in the set, under another incarnation."""
    patch.setattr(ReplicaMachine, "_may_be_elected", lambda self, view: self.id in view.state.in_sync)


def n07_wiped_disk_keeps_its_incarnation(patch: Patch) -> None:
    """Derive the incarnation from the machine, so that an empty disk has the old one."""

    def of_machine(found: identity.Identity, entropy: Any) -> identity.Identity:
        return replace(found, incarnation=found.boot_id.rpartition("-")[0].ljust(32, "0"), suspect=False)

    patch.setattr(identity, "renewed", of_machine)
    patch.setattr(ownlog, "renewed", of_machine)


def n08_ack_before_the_sync(patch: Patch) -> None:
    """Call everything stored that is written, also with SYNC_FLUSH."""
    patch.setattr(OwnLog, "stored", property(lambda self: self.end))


def n09_ack_of_an_older_epoch(patch: Patch) -> None:
    """Keep the connection to an old master, and acknowledge what it sends, when a newer epoch was seen."""

    def follow(self: Pursuit, target: Any) -> None:
        self._target = target
        if target is not None:
            self._changed.set()

    def take_data(self: MasterLink, data: Data, taking: transfer.FollowerTransfer) -> None:
        log = self._linker.own_log()
        self._stamp = data.stamp
        try:
            if data.offset != (log.end or data.offset):
                self.close()
                return
            new = data.epoch if data.body and data.epoch > log.epochs.last else None
            confirmed = min(data.confirmed, data.offset + len(data.body))
            log.take(data.offset, transfer.Taken(data.body, new, confirmed, data.sealed))
        except (StoreError, OSError) as error:
            self._fail(error)
            return
        self._write(encode_ack(taking.ack(log.end, log.stored, self._stamp)))

    patch.setattr(Pursuit, "follow", follow)
    patch.setattr(MasterLink, "_take_data", take_data)


def n10_epoch_seen_not_durable(patch: Patch) -> None:
    """Forget the epochs that were seen when the process ends, and what was written in them under whom."""
    save = OwnLog._save

    def forgetting(self: OwnLog, known: identity.Identity, epochs: Epochs) -> None:
        save(self, replace(known, epoch=0), epochs)
        self.identity = replace(self.identity, epoch=known.epoch)

    patch.setattr(OwnLog, "_save", forgetting)


def n11_epoch_with_equal_start_dropped(patch: Patch) -> None:
    """Learn an epoch before its first byte, and drop one that begins where the last one began, as RocketMQ 5.5.0."""
    append = Epochs.append
    take = MasterLink._take_data

    def learning(self: MasterLink, data: Data, taking: transfer.FollowerTransfer) -> None:
        log = self._linker.own_log()
        if not data.body and data.epoch > log.epochs.last and data.offset == log.end:
            log.epochs.append(data.epoch, log.end)
        take(self, data, taking)

    patch.setattr(MasterLink, "_take_data", learning)

    def dropping(self: Epochs, number: int, start: int) -> None:
        if not self._entries or self._entries[-1].start != start:
            append(self, number, start)

    patch.setattr(Epochs, "append", dropping)


def n12_frame_labelled_with_the_next_epoch(patch: Patch) -> None:
    """Label a frame with the epoch of what follows it."""
    at = Epochs.at

    def ahead(self: Epochs, offset: int, log_end: int) -> tuple[int, int]:
        number, end = at(self, offset, log_end)
        return (at(self, end, log_end)[0] if end < log_end else number), end

    patch.setattr(Epochs, "at", ahead)


def n13_cut_below_confirmed(patch: Patch) -> None:
    """Copy the whole log anew at each connection."""
    patch.setattr(transfer, "agreement", lambda epochs, start, end, master, first, last: start if end else first)
    patch.setattr(link, "parting_point", lambda epochs, start, end, confirmed, welcome: start if end else welcome.start)


def n14_cut_not_durable(patch: Patch) -> None:
    """Cut the log in memory only: the tail is there again after the next start."""

    def forget(self: MessageStore, point: int) -> None:
        self.waiters.fail(WithheldError("the log was cut"), beyond=point)
        self.log.end = point
        self.flusher.truncated(point)
        self.dispatcher.restart(min(self.dispatcher.position, point))
        self._numbered_to = self.dispatcher.position
        for sink in self.sinks:
            sink.truncate(point)

    patch.setattr(MessageStore, "truncate", forget)
    patch.setattr(CommitLog, "repair", lambda self: None)


def n15_epochs_not_cut_with_the_log(patch: Patch) -> None:
    """Keep the epochs of records that were cut away."""

    def cut(self: OwnLog, point: int) -> None:
        if point < self.end:
            self.store.truncate(point)

    patch.setattr(OwnLog, "cut", cut)


def n16_confirmed_jumps_on_promotion(patch: Patch) -> None:
    """Call the whole log confirmed at an election."""
    promote = Replica._promote

    def jump(self: Replica, state: GroupState) -> None:
        self._own.confirm(self._own.end)
        promote(self, state)

    patch.setattr(Replica, "_promote", jump)


def n17_readers_see_unconfirmed(patch: Patch) -> None:
    """Show everything that this machine has stored."""
    stored = Replica._stored

    def show(self: Replica, local: int) -> int:
        stored(self, local)
        return local

    patch.setattr(Replica, "_stored", show)


def n18_numbers_of_a_cut_tail_stay(patch: Patch) -> None:
    """Go on numbering behind messages that were cut away."""
    truncate = ConsumeQueues.truncate

    def keep(self: ConsumeQueues, physical_offset: int) -> None:
        before = {queue: queue.assign_next for queue in self}
        truncate(self, physical_offset)
        for queue, assigned in before.items():
            queue.assign_next = assigned

    patch.setattr(ConsumeQueues, "truncate", keep)


def _best(self: Progress, among: list[Follower]) -> int:
    stored = sorted((one.stored for one in among), reverse=True)
    if not self.is_enough or len(stored) < len(self._members):
        return self.confirmed
    low = min([self.stored, *stored[: len(self._members)]])
    self.confirmed = max(self.confirmed, low)
    return self.confirmed


def n19_a_replica_counted_twice(patch: Patch) -> None:
    """Count connections in place of replicas."""
    begin = Progress.begin
    connections: dict[int, list[Follower]] = {}

    def count(self: Progress, follower: Follower, now_s: float) -> None:
        begin(self, follower, now_s)
        connections.setdefault(id(self), []).append(follower)

    patch.setattr(Progress, "begin", count)
    patch.setattr(Progress, "confirm", lambda self: _best(self, connections.get(id(self), [])))


def n20_ack_beyond_the_end_believed(patch: Patch) -> None:
    """Let a follower keep a longer log, and believe that it holds what the master writes."""
    patch.setattr(link, "parting_point", lambda epochs, start, end, confirmed, welcome: end or welcome.start)
    patch.setattr(OwnLog, "cut", lambda self, point: None)
    patch.setattr("aerobee.replication.feed.why_not_begun", lambda begin, hello, log: None)
    acked = Progress.acked

    def believe(self: Progress, number: int, written: int, stored: int, echoed_s: float | None, now_s: float) -> str:
        end, self.end = self.end, 1 << 60
        try:
            return acked(self, number, written, stored, echoed_s, now_s)
        finally:
            self.end = end

    patch.setattr(Progress, "acked", believe)


def n21_lease_from_the_answer(patch: Patch) -> None:
    """Count the lease from the moment at which the answer came."""
    kept = ReplicaMachine.kept
    now: list[float] = [0.0]
    moment = Replica.now

    def noting(self: Replica) -> float:
        now[0] = moment(self)
        return now[0]

    patch.setattr(Replica, "now", noting)
    patch.setattr(ReplicaMachine, "kept", lambda self, sent_s, ttl_s: kept(self, now[0] + 0.5, ttl_s))


def n22_wall_clock_in_the_deadline(patch: Patch) -> None:
    """Measure leases and promises by the wall clock."""
    patch.setattr(Replica, "now", lambda self: self._clock.now_ms() / 1000)
    patch.setattr(Replica, "has_authority", lambda self: self.machine.has_authority(self.now()))


def n23_deadline_checked_by_a_timer(patch: Patch) -> None:
    """Look at the deadline at each tick only."""
    step = Replica._step
    found: dict[int, bool] = {}

    def look(self: Replica) -> None:
        step(self)
        found[id(self)] = self.machine.has_authority(self.now())

    patch.setattr(Replica, "_step", look)
    patch.setattr(Replica, "has_authority", lambda self: found.get(id(self), False) and self.machine.is_leading)


def n24_unknown_result_tried_as_new(patch: Patch) -> None:
    """Forget a change whose answer was lost, and propose what seems right now."""

    def anew(self: ReplicaMachine, now_s: float) -> list[Any]:
        if self._is_asking or now_s < self._ask_again_s:
            return []
        self._proposal = None
        if self.progress is not None:
            self.progress.known(self.state, None)
        return []

    patch.setattr(ReplicaMachine, "_ask_again", anew)


def n25_gap_of_a_watch_ignored(patch: Patch) -> None:
    """Go on watching behind a gap, and never read."""
    watch = GroupCoordinator._watch

    async def once(self: GroupCoordinator) -> None:
        self._show(*await self._read())
        self._watching = self._tasks.start(self._watch(), name="watch")

    async def on(self: GroupCoordinator) -> None:
        read = self._read
        while True:
            try:
                await self._store.watch(self._all, self._revision + 1, self._saw)
            except RevisionCompactedError:
                self._revision = (await read())[0]
            except Exception:  # noqa: BLE001 - the bug: whatever it was
                self._revision += 1
                continue

    assert watch is not on
    patch.setattr(GroupCoordinator, "_poll", once)
    patch.setattr(GroupCoordinator, "_watch", on)


def n27_evicted_follower_still_counts(patch: Patch) -> None:
    """Count as many followers as the set has, whoever they are."""
    patch.setattr(Progress, "confirm", lambda self: _best(self, list(self.followers.values())))


def n28_learner_counted(patch: Patch) -> None:
    """Let a learner enter the set."""
    may_enter = Progress._may_enter

    def learners_too(self: Progress, follower: Follower, now_s: float) -> bool:
        follower.learner = False
        return may_enter(self, follower, now_s)

    patch.setattr(Progress, "_may_enter", learners_too)


def n31_stale_frame_after_a_reconnect(patch: Patch) -> None:
    """Apply the last frame of a connection again after the next one began."""
    take = MasterLink._take_data
    welcomed = MasterLink._welcomed
    last: dict[int, Data] = {}

    def remember(self: MasterLink, data: Data, taking: transfer.FollowerTransfer) -> None:
        take(self, data, taking)
        if data.body:
            last[id(self._linker)] = data

    def again(self: MasterLink, words: Any) -> None:
        welcomed(self, words)
        stale, log = last.pop(id(self._linker), None), self._linker.own_log()
        if stale is not None and self._transfer is not None and log.end >= stale.offset:
            log.store.append_raw(log.end, stale.body)

    patch.setattr(MasterLink, "_take_data", remember)
    patch.setattr(MasterLink, "_welcomed", again)


def n32_below_min_keeps_confirming(patch: Patch) -> None:
    """Confirm what was appended before the set fell below its least size."""
    confirm = Progress.confirm

    def going_on(self: Progress) -> int:
        state, self.state = self.state, replace(self.state, min_in_sync=1)
        try:
            return confirm(self)
        finally:
            self.state = state

    patch.setattr(Progress, "confirm", going_on)


def n33_leads_the_epoch_of_an_earlier_life(patch: Patch) -> None:
    """Let a process that starts anew as master go on in its old epoch."""

    def elected(self: ReplicaMachine, state: GroupState) -> bool:
        return state.master == self.id and state.in_sync.get(self.id) == self.incarnation

    def append(self: Epochs, number: int, start: int) -> None:
        if number > self.last:
            kept = [one for one in self._entries if one.start < start]
            self._entries = (*kept, Epoch(number=number, start=start))

    patch.setattr(ReplicaMachine, "_is_elected", elected)
    patch.setattr(Epochs, "append", append)


def n34_ack_without_a_handshake(patch: Patch) -> None:
    """Count what the set published before the election as acknowledged in the new epoch."""
    promoted = ReplicaMachine.promoted

    def early(self: ReplicaMachine, start: int, end: int, confirmed: int, stored: int, now_s: float) -> None:
        promoted(self, start, end, confirmed, stored, now_s)
        assert self.progress is not None and self.view is not None
        for number, incarnation in self.state.in_sync.items():
            live = self.view.live.get(number)
            if live is not None and number != self.id:
                told = min(live.log_end, end)
                follower = Follower(number, incarnation, False, written=told, stored=told, connected=False)
                follower.lost_s = now_s
                self.progress.followers[number] = follower

    patch.setattr(ReplicaMachine, "promoted", early)


def n35_eligible_for_ever(patch: Patch) -> None:
    """Keep who left the set eligible when the set is large enough again."""
    with_set = progress.with_set

    def keeping(state: GroupState, in_sync: Any, dropped: Any) -> GroupState:
        new = with_set(state, in_sync, dropped)
        eligible = {n: one for n, one in {**state.eligible, **dropped}.items() if n not in in_sync}
        return replace(new, eligible=eligible)

    patch.setattr(progress, "with_set", keeping)
    patch.setattr(roles, "with_set", keeping)


def n36_promise_ignored(patch: Patch) -> None:
    """Stand as soon as the master's lease has ended, whatever was promised."""
    patch.setattr(ReplicaMachine, "acknowledged", lambda self, now_s: None)


def n39_lone_master_without_a_lease(patch: Patch) -> None:
    """Let a master alone in its set act without a lease."""
    has_authority = ReplicaMachine.has_authority

    def always(self: ReplicaMachine, now_s: float) -> bool:
        return has_authority(self, now_s) or (self.progress is not None and not self._leaving)

    patch.setattr(ReplicaMachine, "has_authority", always)


def n40_acks_after_the_failure_of_the_store(patch: Patch) -> None:
    """Let a master whose store is fenced stay master."""
    patch.setattr(Replica, "_look_for_fence", lambda self: None)


def n41_no_check_where_the_logs_part(patch: Patch) -> None:
    """Go on at the own end, as RocketMQ's classic slaves do."""
    patch.setattr(link, "parting_point", lambda epochs, start, end, confirmed, welcome: end or welcome.start)
    patch.setattr("aerobee.replication.feed.why_not_begun", lambda begin, hello, log: None)

    def refuse(hello: Any, log: Any, view: Any) -> Refuse | None:
        return None if hello.end <= log.end else Refuse(reason="wrong")

    patch.setattr("aerobee.replication.feed.why_refused", refuse)


PLANTED: dict[str, Plant] = {
    name: plant for name, plant in list(globals().items()) if name[0] == "n" and name[1:3].isdigit()
}
# The seed that finds it, as far as is known. `test_replica_planted.py` tries it first.
FOUND_AT: dict[str, int] = {
    "n01_added_member_not_waited_for": 18,
    "n02_shrink_before_it_is_stored": 3,
    "n03_lost_answer_taken_as_done": 14,
    "n04_swap_without_the_revision": 3,
    "n05_elected_from_outside_the_set": 0,
    "n06_election_ignores_the_incarnation": 0,
    "n07_wiped_disk_keeps_its_incarnation": 0,
    "n08_ack_before_the_sync": 3,
    "n09_ack_of_an_older_epoch": 132,
    "n10_epoch_seen_not_durable": 0,
    "n11_epoch_with_equal_start_dropped": 0,
    "n12_frame_labelled_with_the_next_epoch": 83,
    "n13_cut_below_confirmed": 13,
    "n14_cut_not_durable": 69,
    "n15_epochs_not_cut_with_the_log": 32,
    "n16_confirmed_jumps_on_promotion": 10,
    "n17_readers_see_unconfirmed": 0,
    "n18_numbers_of_a_cut_tail_stay": 256,
    "n19_a_replica_counted_twice": 1,
    "n20_ack_beyond_the_end_believed": 9,
    "n21_lease_from_the_answer": 72,
    "n22_wall_clock_in_the_deadline": 54,
    "n23_deadline_checked_by_a_timer": 19,
    "n24_unknown_result_tried_as_new": 318,
    "n25_gap_of_a_watch_ignored": 17,
    "n27_evicted_follower_still_counts": 1,
    "n28_learner_counted": 2,
    "n31_stale_frame_after_a_reconnect": 3,
    "n32_below_min_keeps_confirming": 5,
    "n33_leads_the_epoch_of_an_earlier_life": 7,
    "n34_ack_without_a_handshake": 541,
    "n35_eligible_for_ever": 15,
    "n36_promise_ignored": 2,
    "n39_lone_master_without_a_lease": 19,
    "n40_acks_after_the_failure_of_the_store": 77,
    "n41_no_check_where_the_logs_part": 9,
}
