"""Transcripts of the machine that decides about roles: views and ticks in, effects out."""

from __future__ import annotations

from dataclasses import replace

from aerobee.replication.coordinator import Outcome
from aerobee.replication.progress import Follower
from aerobee.replication.roles import (
    Effect,
    Follow,
    Halt,
    Lead,
    Promote,
    Propose,
    ReplicaMachine,
    RoleSettings,
)
from aerobee.replication.values import GroupState, GroupView, LiveReplica, ReplicaMember, ReplicaRole

INCARNATIONS = {1: "a" * 32, 2: "b" * 32, 3: "c" * 32}


def machine(number: int = 1, *, least: int = 1, epoch: int = 0, has_log: bool = False, **more: bool) -> ReplicaMachine:
    settings = RoleSettings(min_in_sync=least, learner=more.get("learner", False))
    return ReplicaMachine(
        settings, number=number, incarnation=INCARNATIONS[number], epoch=epoch, has_log=has_log, now_s=0.0
    )


def view(
    state: GroupState, revision: int, live: tuple[int, ...] = (1, 2, 3), ends: dict[int, int] | None = None
) -> GroupView:
    members = {
        number: ReplicaMember(id=number, incarnation=one, address=f"h{number}:1", ha_address=f"h{number}:2")
        for number, one in INCARNATIONS.items()
    }
    alive = {
        number: LiveReplica(
            id=number, incarnation=INCARNATIONS[number], epoch=state.epoch, log_end=(ends or {}).get(number, 0)
        )
        for number in live
    }
    return GroupView(state=state, members=members, live=alive, revision=revision)


def state(
    master: int | None, *members: int, epoch: int = 1, least: int = 1, revision: int = 10, **more: tuple[int, ...]
) -> GroupState:
    return GroupState(
        epoch=epoch,
        master=master,
        in_sync={number: INCARNATIONS[number] for number in members},
        eligible={number: INCARNATIONS[number] for number in more.get("eligible", ())},
        min_in_sync=least,
        revision=revision,
    )


def proposal(effects: list[Effect]) -> Propose:
    assert len(effects) == 1 and isinstance(effects[0], Propose), effects
    return effects[0]


def leader(*members: int, least: int = 1) -> ReplicaMachine:
    """Return replica 1 as master of epoch 2, with a log up to 100 that is confirmed."""
    found = machine(least=least)
    found.viewed(view(state(None, *members, least=least), 10), 0.0)
    found.viewed(view(state(1, *members, epoch=2, least=least, revision=11), 11), 0.1)
    found.promoted(100, 100, 100, 100, 0.1)
    found.kept(0.1, 4.0)
    assert found.tick(0.2, 100)[0] == Lead(epoch=2)
    return found


def connect(found: ReplicaMachine, number: int, stored: int, now_s: float) -> None:
    assert found.progress is not None
    found.progress.begin(Follower(number, INCARNATIONS[number], False, written=stored, stored=stored), now_s)


# ---- founding and electing


def test_the_replica_with_messages_founds_the_group() -> None:
    empty = GroupState()
    ends = {1: 0, 2: 500}
    first, second = machine(1), machine(2, has_log=True)
    for one in (first, second):
        one.viewed(view(empty, 5, (1, 2), ends), 0.0)
        assert one.tick(0.2, 0) == []
    assert first.tick(0.31, 0) == []
    assert proposal(second.tick(0.31, 0)).new.master == 2
    assert first.tick(0.4, 0) == []
    assert proposal(first.tick(0.46, 0)).new.master == 1


def test_an_elected_replica_leads_when_its_log_is_confirmed_and_dispatched() -> None:
    found = machine()
    follow = found.viewed(view(state(None, 1, 2), 10), 0.0)
    assert isinstance(follow[0], Follow) and follow[0].master is None
    new = proposal(found.tick(0.1, 0)).new
    assert (new.epoch, new.master, sorted(new.in_sync)) == (2, 1, [1, 2])
    assert found.viewed(view(replace(new, revision=11), 11), 0.2) == [Promote(state=replace(new, revision=11))]
    found.promoted(100, 100, 60, 100, 0.2)
    found.kept(0.2, 4.0)
    assert found.role is ReplicaRole.PROMOTING
    assert found.confirm(0.3) == 60
    assert found.tick(0.3, 60) == []
    connect(found, 2, 100, 0.4)
    assert found.confirm(0.4) == 100
    assert found.tick(0.5, 60) == []
    assert found.tick(0.6, 100) == [Lead(epoch=2)]
    assert found.refusal(0.7) == ""


def test_only_members_under_their_incarnation_stand() -> None:
    for found in (machine(3), machine(1, learner=True)):
        found.viewed(view(state(None, 1, 2), 10), 0.0)
        assert found.tick(9.0, 0) == []
    other = machine(1)
    stale = replace(state(None, 1, 2), in_sync={1: "d" * 32, 2: INCARNATIONS[2]})
    other.viewed(view(stale, 10), 0.0)
    assert other.tick(9.0, 0) == []


def test_an_eligible_replica_stands_when_no_member_of_a_small_set_is_alive() -> None:
    found = machine(3)
    found.viewed(view(state(None, 2, least=2, eligible=(3,)), 10, (2, 3)), 0.0)
    assert found.tick(9.0, 0) == []
    found.viewed(view(state(None, 2, least=2, eligible=(3,)), 12, (3,)), 9.1)
    new = proposal(found.tick(9.2, 0)).new
    assert (sorted(new.in_sync), sorted(new.eligible)) == ([3], [2])
    full = machine(3)
    full.viewed(view(state(None, 1, 2, least=2, eligible=(3,)), 12, (3,)), 0.0)
    assert full.tick(9.0, 0) == []


def test_a_follower_waits_for_its_promise_unless_the_process_is_dead() -> None:
    found = machine(2)
    found.viewed(view(state(1, 1, 2, 3), 10), 0.0)
    found.acknowledged(5.0)
    found.viewed(view(state(1, 1, 2, 3), 12, (2, 3)), 5.1)
    assert found.tick(6.4, 0) == []
    assert proposal(found.tick(6.6, 0)).new.master == 2
    dead = machine(2)
    dead.viewed(view(state(1, 1, 2, 3), 10), 0.0)
    dead.acknowledged(5.0)
    dead.master_died(1)
    new = proposal(dead.tick(5.1, 0)).new
    assert sorted(new.in_sync) == [2, 3]


def test_the_longest_log_stands_first() -> None:
    found = machine(3)
    found.viewed(view(state(None, 2, 3), 10, ends={2: 900, 3: 100}), 0.0)
    assert found.tick(0.1, 0) == []
    assert found.tick(0.2, 0) == []
    assert proposal(found.tick(0.26, 0)).new.master == 3


def test_a_process_that_starts_as_master_stands_again() -> None:
    """A change of the set from its earlier life may still arrive, so it never goes on in the same epoch."""
    found = machine(1, epoch=4)
    follow = found.viewed(view(state(1, 1, 2, epoch=4), 10), 0.0)
    assert isinstance(follow[0], Follow)
    assert found.viewed(view(state(1, 1, epoch=4, revision=14), 14), 0.05) == []
    assert not found.is_leading
    assert proposal(found.tick(0.1, 0)).new.epoch == 5


# ---- proposals without an answer


def test_a_proposal_without_an_answer_is_made_again_as_it_was() -> None:
    found = leader(1, 2)
    assert found.tick(1.1, 100) == found.tick(2.0, 100) == []
    first = proposal(found.tick(2.5, 100))
    assert sorted(first.new.in_sync) == [1]
    assert found.tick(2.6, 100) == []
    found.answered(Outcome.UNKNOWN, 3.6)
    assert found.tick(3.65, 100) == []
    assert found.tick(3.75, 100) == [first]
    assert found.progress is not None and found.progress.proposed == first.new
    found.answered(Outcome.REFUSED, 3.8)
    found.viewed(view(replace(first.new, revision=15), 15), 3.9)
    assert found.proposed is None and found.progress.proposed is None


def test_an_older_view_is_left_out() -> None:
    found = leader(1, 2)
    assert found.viewed(view(state(2, 2, epoch=1), 9), 0.5) == []
    assert found.is_leading


def test_another_master_ends_the_lead() -> None:
    found = leader(1, 2)
    effects = found.viewed(view(state(2, 2, 3, epoch=3, revision=20), 20), 1.0)
    assert isinstance(effects[0], Follow) and effects[0].was_leading
    assert effects[0].master is not None and effects[0].master.id == 2
    assert not found.has_authority(1.0)
    assert found.refusal(1.0) == "this replica is not the master"


# ---- authority


def test_a_lease_counts_from_the_moment_it_was_asked_for() -> None:
    found = leader(1)
    found.kept(10.0, 4.0)
    assert found.has_authority(13.4)
    assert not found.has_authority(13.6)
    assert "may not be the master" in found.refusal(13.6)


def test_echoes_stand_in_for_a_lost_lease() -> None:
    found = leader(1, 2)
    connect(found, 2, 100, 0.3)
    assert found.progress is not None
    found.progress.acked(2, 100, 100, 20.0, 20.1)
    assert found.has_authority(21.2)
    assert not found.has_authority(21.4)


def test_without_authority_nothing_more_is_confirmed() -> None:
    found = leader(1)
    assert found.progress is not None
    found.progress.stored = found.progress.end = 200
    assert found.confirm(1.0) == 200
    found.progress.stored = found.progress.end = 300
    assert found.confirm(50.0) == 200


# ---- the set


def test_below_the_least_size_sends_are_refused_in_rocketmq_s_words() -> None:
    found = leader(1, 2, least=2)
    connect(found, 2, 100, 0.3)
    assert found.refusal(0.4) == ""
    found.viewed(view(state(1, 1, epoch=2, least=2, revision=30), 30), 1.0)
    assert found.refusal(1.1) == "in-sync replicas not enough"


def test_the_least_size_of_the_settings_is_stored() -> None:
    found = leader(1, 2)
    found.settings = replace(found.settings, min_in_sync=2)
    connect(found, 2, 100, 0.3)
    assert proposal(found.tick(0.4, 100)).new.min_in_sync == 2


# ---- leaving


def test_a_switchover_waits_until_the_target_has_everything() -> None:
    found = leader(1, 2)
    connect(found, 2, 60, 0.3)
    assert found.progress is not None
    found.progress.end = found.progress.stored = 120
    assert found.switch_to(2, 1.0) == ""
    assert found.refusal(1.0) == "the master changes"
    assert found.tick(1.1, 100) == []
    found.progress.acked(2, 120, 120, None, 1.2)
    found.confirm(1.2)
    new = proposal(found.tick(1.2, 120)).new
    assert (new.epoch, new.master, sorted(new.in_sync)) == (3, 2, [1, 2])
    assert not found.has_authority(1.3)
    effects = found.viewed(view(replace(new, revision=21), 21), 1.4)
    assert isinstance(effects[0], Follow)


def test_a_member_without_a_lease_and_a_connection_leaves_at_once() -> None:
    """It handed over and ended, or it died: the master would wait for its acknowledgements."""
    found = leader(1, 2, 3)
    connect(found, 2, 100, 0.3)
    assert found.tick(0.4, 100) == []
    found.viewed(view(state(1, 1, 2, 3, epoch=2, revision=11), 12, live=(1,)), 0.5)
    new = proposal(found.tick(0.6, 100)).new
    assert (new.epoch, new.master, sorted(new.in_sync)) == (2, 1, [1, 2]), (
        "who is connected may have lost its lease only"
    )


def test_a_switchover_that_takes_too_long_is_given_up() -> None:
    found = leader(1, 2)
    connect(found, 2, 60, 0.3)
    assert found.switch_to(2, 1.0) == ""
    assert found.tick(1.6, 100) == []
    assert found.refusal(1.7) == ""
    assert "not in the in-sync set" in found.switch_to(3, 1.8)


def test_a_failed_master_resigns_and_leaves_the_set_to_another() -> None:
    found = leader(1, 2)
    connect(found, 2, 100, 0.3)
    found.leave("the disk failed", failed=True)
    assert not found.has_authority(0.4)
    new = proposal(found.tick(0.4, 100)).new
    assert (new.epoch, new.master, sorted(new.in_sync)) == (2, None, [2])


def test_a_failed_master_stays_in_the_set_when_the_other_was_not_heard_of() -> None:
    """The disk of the other is lost, and a cut in the network hides that its connection has ended."""
    found = leader(1, 2)
    connect(found, 2, 100, 0.3)
    assert found.tick(0.9, 100) == []
    found.leave("the disk failed", failed=True)
    new = proposal(found.tick(1.4, 100)).new
    assert (new.epoch, new.master, sorted(new.in_sync)) == (2, None, [1, 2])


def test_a_failed_master_that_is_alone_stays_in_the_set() -> None:
    found = leader(1)
    found.leave("the disk failed", failed=True)
    assert sorted(proposal(found.tick(0.4, 100)).new.in_sync) == [1]


# ---- what cannot be


def test_an_emptied_coordination_store_stops_the_replica() -> None:
    found = machine(1, epoch=7)
    effects = found.viewed(view(GroupState(), 3), 0.0)
    assert isinstance(effects[0], Halt) and "emptied or restored" in effects[0].reason
    assert found.tick(9.0, 0) == []


def test_a_directory_with_foreign_messages_does_not_join() -> None:
    found = machine(3, has_log=True)
    effects = found.viewed(view(state(1, 1, 2), 10), 0.0)
    assert isinstance(effects[0], Halt) and "never in this group" in effects[0].reason


def test_a_process_whose_place_was_taken_stops_before_it_does_anything_else() -> None:
    """It runs on a directory that was copied. Two masters of one epoch would each acknowledge what the other lacks."""
    found = leader(1, 2)
    seen = view(state(1, 1, 2, epoch=2, revision=11), 12)
    taken = replace(seen.members[1], start="of another process", address="h9:1")
    effects = found.viewed(replace(seen, members={**seen.members, 1: taken}), 0.3)
    assert isinstance(effects[-1], Halt) and "another process (at h9:1) has taken" in effects[-1].reason
    assert found.halted and not found.has_authority(0.3)
