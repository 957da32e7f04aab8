"""The list of epochs, and the place where two logs part."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.replication.epochs import ENTRIES_MAX, Epochs
from aerobee.replication.values import Epoch


def epochs(*pairs: tuple[int, int]) -> Epochs:
    return Epochs(Epoch(number=number, start=start) for number, start in pairs)


def pairs(of: Epochs) -> list[tuple[int, int]]:
    return [(one.number, one.start) for one in of.entries]


def test_an_epoch_without_records_goes_when_the_next_begins() -> None:
    found = epochs((1, 0), (2, 100))
    found.append(3, 100)
    assert pairs(found) == [(1, 0), (3, 100)]


def test_an_older_epoch_cannot_follow() -> None:
    with pytest.raises(ValueError, match="cannot follow"):
        epochs((1, 0), (4, 100)).append(4, 200)


@pytest.mark.parametrize("wrong", [[(1, 0), (1, 5)], [(2, 0), (1, 5)], [(1, 5), (2, 5)], [(1, 5), (2, 4)]])
def test_a_list_that_does_not_increase_is_refused(wrong: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="follows"):
        epochs(*wrong)


def test_a_cut_forgets_what_begins_at_or_behind_it() -> None:
    found = epochs((1, 0), (2, 100), (3, 200))
    found.cut(100)
    assert pairs(found) == [(1, 0)]


def test_expired_epochs_are_dropped_but_not_the_one_that_holds_the_first_record() -> None:
    found = epochs((1, 0), (2, 100), (3, 200))
    found.drop_below(150)
    assert pairs(found) == [(2, 100), (3, 200)]


def test_the_list_is_bounded() -> None:
    found = Epochs()
    for number in range(1, ENTRIES_MAX + 11):
        found.append(number, number * 10)
    assert len(found.entries) == ENTRIES_MAX
    assert found.last == ENTRIES_MAX + 10


def test_the_epoch_of_a_record_ends_where_the_next_begins() -> None:
    found = epochs((1, 0), (3, 100))
    assert found.at(99, 500) == (1, 100)
    assert found.at(100, 500) == (3, 500)


def test_two_masters_that_began_at_the_same_place_do_not_agree() -> None:
    """Epoch 2 and epoch 3 both begin at 100: equal starts are no match, as they are for RocketMQ."""
    assert epochs((1, 0), (2, 100)).parting(200, epochs((1, 0), (3, 100)), 300) == 100


def test_logs_without_a_common_epoch_agree_nowhere() -> None:
    assert epochs((2, 0)).parting(50, epochs((1, 0)), 80) is None


_STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.booleans(), st.lists(st.integers(1, 40), max_size=3)), min_size=1, max_size=12
)


@given(_STEPS)
def test_after_the_cut_a_follower_holds_a_prefix_of_its_master(steps: list[tuple[int, bool, list[int]]]) -> None:
    """Masters take turns, write, and copy to some. Whoever follows cuts first, and then agrees byte for byte."""
    logs: list[list[int]] = [[], [], []]
    lists = [Epochs(), Epochs(), Epochs()]
    for number, (master, copies, writes) in enumerate(steps, start=1):
        lists[master].append(number, len(logs[master]))
        for size in writes:
            logs[master] += [number] * size
        for follower in range(3):
            if follower != master and (copies or follower == (master + 1) % 3):
                _follow(logs, lists, follower, master, upto=len(logs[master]) if copies else None)
                assert logs[follower] == logs[master][: len(logs[follower])]


def _follow(logs: list[list[int]], lists: list[Epochs], follower: int, master: int, upto: int | None) -> None:
    own, theirs = logs[follower], logs[master]
    point = lists[follower].parting(len(own), lists[master], len(theirs)) if own else 0
    point = point or 0
    del own[point:]
    lists[follower].cut(point)
    for offset in range(point, len(theirs) if upto is not None else point):
        number = lists[master].at(offset, len(theirs))[0]
        if number > lists[follower].last:
            lists[follower].append(number, offset)
        own.append(theirs[offset])
