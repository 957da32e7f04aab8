"""Consume offsets: commit, ask, reset, clone, clean."""

import pytest

from aerobee.broker.offsets.rules import Committed, ConsumerOffsets
from aerobee.broker.refusal import Refusal
from aerobee.protocol.codes import ResponseCode


def never() -> bool:
    raise AssertionError("must not be asked")


def test_commits_are_kept_also_backwards_with_a_word() -> None:
    offsets = ConsumerOffsets({})
    assert offsets.query("g", "t", 0) == -1
    assert offsets.commit("g", "t", 0, 10) == Committed(True)
    assert offsets.commit("g", "t", 0, 12) == Committed(True)
    assert offsets.commit("g", "t", 0, 5) == Committed(True, went_back_from=12)
    assert offsets.commit("g", "t", 1, 7) == Committed(True)
    assert offsets.of("g", "t") == {0: 5, 1: 7}
    assert offsets.table == {"t@g": {0: 5, 1: 7}}


@pytest.mark.parametrize(
    ("min_offset", "in_memory", "set_zero", "answer"),
    [
        (0, True, None, 0),
        (0, True, True, 0),
        (-1, True, None, 0),
        (0, True, False, None),
        (0, False, None, None),
        (5, True, None, None),
    ],
)
def test_a_group_that_never_committed(
    min_offset: int, in_memory: bool, set_zero: bool | None, answer: int | None
) -> None:
    found = ConsumerOffsets({}).answer_query(
        "g", "t", 0, set_zero_if_not_found=set_zero, min_offset=min_offset, first_in_memory=lambda: in_memory
    )
    if answer is None:
        assert isinstance(found, Refusal) and found.code == ResponseCode.QUERY_NOT_FOUND
    else:
        assert found == answer


def test_a_group_that_committed_is_told_so_whatever_the_queue_holds() -> None:
    offsets = ConsumerOffsets({"t@g": {0: 3}})
    found = offsets.answer_query("g", "t", 0, set_zero_if_not_found=False, min_offset=9, first_in_memory=never)
    assert found == 3


def test_a_reset_holds_until_the_client_fetches_it() -> None:
    offsets = ConsumerOffsets({"t@g": {0: 100}})
    assert offsets.reset("g", "t", 0, 40)
    assert offsets.query("g", "t", 0) == 40
    assert offsets.commit("g", "t", 0, 101) == Committed(False), "its old position is not taken"
    assert offsets.commit("g", "t", 1, 7) == Committed(True), "other queues go on"
    assert offsets.take_reset("g", "t", 0) == 40
    assert offsets.take_reset("g", "t", 0) is None
    assert offsets.commit("g", "t", 0, 41) == Committed(True)
    assert offsets.of("g", "t") == {0: 41, 1: 7}


def test_a_reset_of_a_group_nobody_knows_and_nonsense() -> None:
    offsets = ConsumerOffsets({})
    assert offsets.reset("g", "t", 3, 0)
    assert offsets.of("g", "t") == {3: 0}
    for topic, queue, offset in (("", 0, 0), ("t", -1, 0), ("t", 0, -1)):
        assert not offsets.reset("g", topic, queue, offset)


def test_without_server_side_reset_commits_win() -> None:
    offsets = ConsumerOffsets({}, server_side_reset=False)
    offsets.reset("g", "t", 0, 40)
    assert offsets.commit("g", "t", 0, 101).stored
    assert offsets.query("g", "t", 0) == 101


def test_how_far_a_group_has_pulled() -> None:
    offsets = ConsumerOffsets({"t@g": {0: 5}})
    assert offsets.pulled("g", "t", 0) == 5
    offsets.note_pulled("g", "t", 0, 37)
    assert offsets.pulled("g", "t", 0) == 37
    assert offsets.query("g", "t", 0) == 5


def test_who_reads_what() -> None:
    offsets = ConsumerOffsets({"t@g": {0: 5}, "u@g": {0: 1}, "t@h": {0: 2}, "odd": {0: 1}, "a@b@c": {0: 1}})
    assert offsets.topics_of("g") == ["t", "u"]
    assert offsets.groups_of("t") == ["g", "h"]


def test_cloning_copies() -> None:
    offsets = ConsumerOffsets({"t@g": {0: 5}})
    assert offsets.clone("g", "h", "t")
    offsets.commit("g", "t", 0, 9)
    assert offsets.of("h", "t") == {0: 5}
    assert not offsets.clone("nobody", "h", "t")


def test_the_lowest_of_all_groups_leaves_out_the_excluded_and_the_long_deleted() -> None:
    offsets = ConsumerOffsets({"t@g": {0: 5, 1: 50}, "t@h": {0: 9, 1: 40}, "t@old": {0: 1}, "u@g": {0: 0}})
    assert offsets.min_of_all_groups("t", lambda queue: 4) == {0: 5, 1: 40}
    assert offsets.min_of_all_groups("t", lambda queue: 4, {"g"}) == {0: 9, 1: 40}
    assert "t@g" in offsets.table, "asking deletes nothing"


def test_deleting_a_group_or_a_topic_takes_every_table_along() -> None:
    offsets = ConsumerOffsets({"t@g": {0: 5}, "t@gg": {0: 1}, "u@g": {0: 2}})
    offsets.note_pulled("g", "t", 0, 9)
    offsets.reset("g", "u", 0, 1)
    assert offsets.remove_group("g") == ["t", "u"]
    assert offsets.table == {"t@gg": {0: 1}}
    assert offsets.pulled("g", "t", 0) == -1 and offsets.query("g", "u", 0) == -1
    offsets.note_pulled("gg", "t", 0, 9)
    assert offsets.remove_topic("t") == ["gg"]
    assert offsets.pulled("gg", "t", 0) == -1
