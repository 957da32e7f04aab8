"""What is confirmed, who enters the set and who leaves it."""

from __future__ import annotations

from aerobee.replication.progress import Follower, Progress, SetChange, changed_state
from aerobee.replication.values import GroupState

A, B, C = "a" * 32, "b" * 32, "c" * 32


def progress(in_sync: dict[int, str], *, least: int = 1, end: int = 100, confirmed: int = 50) -> Progress:
    state = GroupState(epoch=3, master=1, in_sync=in_sync, min_in_sync=least, revision=9)
    return Progress(own=1, state=state, start=60, end=end, confirmed=confirmed, stored=end, began_s=0.0)


def connect(found: Progress, number: int, incarnation: str, stored: int, now_s: float = 0.0, **more: bool) -> Follower:
    follower = Follower(number, incarnation, more.get("learner", False), written=stored, stored=stored)
    found.begin(follower, now_s)
    return follower


def test_every_member_must_have_a_record() -> None:
    found = progress({1: A, 2: B, 3: C})
    connect(found, 2, B, 90)
    assert found.confirm() == 50  # replica 3 has not said anything in this epoch
    connect(found, 3, C, 70)
    assert found.confirm() == 70
    found.acked(3, 100, 100, None, 1.0)
    assert found.confirm() == 90


def test_a_member_of_another_incarnation_does_not_count() -> None:
    found = progress({1: A, 2: B})
    connect(found, 2, C, 100)
    assert found.confirm() == 50


def test_a_proposed_member_counts_at_once_and_an_evicted_one_until_that_is_stored() -> None:
    found = progress({1: A, 2: B})
    connect(found, 2, B, 100)
    state = found.state
    found.known(state, changed_state(state, SetChange(add={3: C}, evict={2: B}, why="")))
    assert found.confirm() == 50
    connect(found, 3, C, 80)
    assert found.confirm() == 80
    found.followers[2].stored = 70
    assert found.confirm() == 80


def test_a_set_below_its_least_size_confirms_nothing() -> None:
    found = progress({1: A}, least=2)
    assert found.confirm() == 50
    assert not found.is_enough


def test_confirmed_never_goes_back() -> None:
    found = progress({1: A, 2: B}, confirmed=95)
    connect(found, 2, B, 70)
    assert found.confirm() == 95


def test_an_ack_beyond_the_end_is_not_believed() -> None:
    found = progress({1: A, 2: B})
    connect(found, 2, B, 90)
    assert "ends at 100" in found.acked(2, 101, 101, None, 1.0)
    assert "after 90" in found.acked(2, 89, 89, None, 1.0)
    assert found.confirm() == 90


def test_a_follower_enters_when_it_is_level_and_holds_what_is_confirmed() -> None:
    found = progress({1: A})
    connect(found, 2, B, 59)
    assert found.due(0.1) is None  # it lacks the start of the epoch
    found.acked(2, 100, 100, None, 0.2)
    change = found.due(0.3)
    assert change is not None and change.add == {2: B} and not change.evict


def test_a_learner_never_enters() -> None:
    found = progress({1: A})
    connect(found, 2, B, 100, learner=True)
    assert found.due(0.1) is None


def test_who_is_silent_slow_or_gone_leaves() -> None:
    found = progress({1: A, 2: B, 3: C})
    connect(found, 2, B, 100, 1.0)
    assert found.due(1.9) is None
    change = found.due(2.1)
    assert change is not None and change.evict == {3: C} and "not connected" in change.why
    connect(found, 3, C, 80, 2.2)
    found.acked(2, 100, 100, None, 4.0)
    found.acked(3, 80, 80, None, 4.0)
    change = found.due(4.3)
    assert change is not None and change.evict == {3: C} and "no progress" in change.why
    found.lost(2, 4.4, "leaving: it stops")
    change = found.due(4.5)
    assert change is not None and 2 in change.evict


def test_nobody_is_late_while_this_process_slept() -> None:
    found = progress({1: A, 2: B})
    connect(found, 2, B, 100, 1.0)
    found.slept(60.0)
    assert found.due(62.0) is None


def test_who_was_slow_waits_before_it_returns() -> None:
    found = progress({1: A, 2: B})
    connect(found, 2, B, 80, 0.0)
    found.acked(2, 80, 80, None, 2.2)
    change = found.due(2.3)
    assert change is not None
    found.evicted(change, 2.3)
    found.known(changed_state(found.state, change), None)
    for tenth in range(23, 120):
        found.acked(2, 100, 100, None, tenth / 10)
    assert found.due(11.9) is None
    for tenth in range(120, 125):
        found.acked(2, 100, 100, None, tenth / 10)
    again = found.due(12.5)
    assert again is not None and again.add == {2: B}


def test_who_leaves_a_small_set_stays_eligible_until_it_has_its_size_again() -> None:
    state = GroupState(epoch=3, master=1, in_sync={1: A, 2: B}, min_in_sync=2, revision=9)
    small = changed_state(state, SetChange(add={}, evict={2: B}, why=""))
    assert (dict(small.in_sync), dict(small.eligible)) == ({1: A}, {2: B})
    full = changed_state(small, SetChange(add={3: C}, evict={}, why=""))
    assert (dict(full.in_sync), dict(full.eligible)) == ({1: A, 3: C}, {})


def test_a_failed_member_is_not_eligible() -> None:
    state = GroupState(epoch=3, master=1, in_sync={1: A, 2: B}, min_in_sync=2, revision=9)
    small = changed_state(state, SetChange(add={}, evict={2: B}, why="", failed=frozenset({2})))
    assert not small.eligible


def test_echoes_promise_only_with_every_member_and_a_full_set() -> None:
    found = progress({1: A, 2: B, 3: C})
    connect(found, 2, B, 100)
    found.acked(2, 100, 100, 10.0, 10.1)
    assert found.echo_deadline_s() < 0
    connect(found, 3, C, 100)
    found.acked(3, 100, 100, 9.0, 10.1)
    assert found.echo_deadline_s() == 9.0 + 1.3
    assert progress({1: A}).echo_deadline_s() < 0
    assert progress({1: A}, least=2).echo_deadline_s() < 0
