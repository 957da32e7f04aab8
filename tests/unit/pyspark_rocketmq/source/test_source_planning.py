"""What a batch reads: every offset once, within limits; what is gone is said."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.model.queue import MessageQueue
from pyspark_rocketmq.source.planning import (
    Bounds,
    Limits,
    QueueRange,
    next_end,
    partitions_of,
    prorated,
    ranges_between,
)

A, B, C = (MessageQueue("t", "b", number) for number in range(3))
queues = st.builds(MessageQueue, st.sampled_from("tu"), st.sampled_from("bc"), st.integers(0, 3))
bounds = st.builds(lambda first, count: Bounds(first, first + count), st.integers(0, 1000), st.integers(0, 5000))
visible_queues = st.dictionaries(queues, bounds, max_size=6)


@settings(deadline=None)
@given(st.dictionaries(queues, st.integers(0, 10_000), min_size=1), st.integers(1, 20_000))
def test_shares_add_up_to_the_limit_and_none_is_above_its_own(counts: dict[MessageQueue, int], limit: int) -> None:
    shares = prorated(counts, limit)
    assert sum(shares.values()) == min(limit, sum(counts.values()))
    total = sum(counts.values())
    for queue, share in shares.items():
        assert 0 <= share <= counts[queue]
        if total > limit:
            assert abs(share - counts[queue] * limit / total) < 1


@settings(deadline=None)
@given(visible_queues, st.integers(100, 2000))
def test_a_stream_reads_every_message_once_in_bounded_steps(visible: dict[MessageQueue, Bounds], rows_max: int) -> None:
    at: dict[MessageQueue, int] = {}
    read: dict[MessageQueue, list[tuple[int, int]]] = {}
    total = sum(one.end - one.first for one in visible.values())
    for _ in range(-(-total // rows_max)):
        step = next_end(at, visible, Limits(rows_max))
        assert not step.losses
        ranges, losses = ranges_between(at, step.end, visible)
        assert not losses
        assert 1 <= sum(one.count for one in ranges) <= rows_max
        for one in ranges:
            read.setdefault(one.queue, []).append((one.start, one.end))
        at = dict(step.end)
    assert next_end(at, visible, Limits(rows_max)).end == at, "nothing is left, and the text stays the same"
    for queue, one in visible.items():
        pieces = read.get(queue, [])
        assert sum(end - start for start, end in pieces) == one.end - one.first
        assert [start for start, _ in pieces[1:]] == [end for _, end in pieces[:-1]]


def test_new_vanished_and_shrunk_queues() -> None:
    start = {A: 10, B: 7}
    step = next_end(start, {A: Bounds(0, 15), C: Bounds(3, 9)}, Limits())
    assert step.end == {A: 15, B: 7, C: 9}, "B keeps its number, C starts at its first message"
    assert ranges_between(start, step.end, {A: Bounds(0, 15), C: Bounds(3, 9)})[0] == [
        QueueRange(A, 10, 15),
        QueueRange(C, 3, 9),
    ]
    assert next_end(start, {A: Bounds(0, 10), C: Bounds(0, 0)}, Limits()).end == start, "an empty queue is no news"


def test_deleted_data_is_told_and_passed_over() -> None:
    step = next_end({A: 10}, {A: Bounds(50, 60)}, Limits(5))
    assert step.end == {A: 55}
    assert "begins at 50: messages from 10 on were deleted" in step.losses[0]
    ranges, losses = ranges_between({A: 10}, {A: 55}, {A: Bounds(52, 60)})
    assert ranges == [QueueRange(A, 52, 55)]
    assert len(losses) == 1


def test_a_queue_made_anew_goes_on_at_its_first_message() -> None:
    step = next_end({A: 100}, {A: Bounds(0, 5)}, Limits())
    assert "ends at 5, before 100" in step.losses[0]
    assert step.end == {A: 0}
    assert ranges_between({A: 100}, step.end, {A: Bounds(0, 5)}) == ([], []), "a start beyond its end is empty"
    assert next_end(step.end, {A: Bounds(0, 5)}, Limits()).end == {A: 5}


def test_a_queue_that_must_be_read_and_is_not_there() -> None:
    ranges, losses = ranges_between({A: 1, B: 0}, {A: 5, B: 9}, {B: Bounds(0, 6)})
    assert ranges == [QueueRange(B, 0, 6)]
    assert "does not exist: messages 1 to 4" in losses[0]
    assert "ends at 6: messages up to 8 are gone" in losses[1]


def test_bytes_bound_rows_by_what_messages_weigh() -> None:
    visible = {A: Bounds(0, 1000), B: Bounds(0, 1000)}
    end = next_end({}, visible, Limits(None, 100_000, {A: 100.0, B: 900.0})).end
    assert 180 <= sum(end.values()) <= 200
    assert sum(next_end({}, visible, Limits(None, 10, {A: 100.0, B: 900.0})).end.values()) == 1, "at least one"
    assert sum(next_end({}, visible, Limits(50, 100_000, {A: 1.0, B: 1.0})).end.values()) == 50, "both count"


ranges_lists = st.lists(
    st.builds(
        lambda queue, start, count: QueueRange(queue, start, start + count),
        queues,
        st.integers(0, 99),
        st.integers(0, 90_000),
    ),
    max_size=8,
    unique_by=lambda one: one.queue,
)


@settings(deadline=None)
@given(ranges_lists, st.none() | st.integers(1, 40), st.none() | st.integers(1_000, 30_000))
def test_partitions_hold_every_offset_once(
    ranges: list[QueueRange], partitions_min: int | None, records_max: int | None
) -> None:
    groups = partitions_of(ranges, partitions_min=partitions_min, records_max=records_max)
    total = sum(one.count for one in ranges)
    assert sum(one.count for group in groups for one in group) == total
    by_queue: dict[MessageQueue, list[QueueRange]] = {}
    for group in groups:
        assert group
        assert all(one.count > 0 for one in group)
        if records_max is not None:
            assert sum(one.count for one in group) <= records_max
        for one in group:
            by_queue.setdefault(one.queue, []).append(one)
    for whole in ranges:
        pieces = sorted(by_queue.get(whole.queue, []), key=lambda one: one.start)
        if whole.count:
            assert (pieces[0].start, pieces[-1].end) == (whole.start, whole.end)
        assert [one.start for one in pieces[1:]] == [one.end for one in pieces[:-1]]
    if partitions_min is not None:
        assert len(groups) >= min(partitions_min, total)


def test_small_ranges_share_a_task_and_large_ones_do_not() -> None:
    small = [QueueRange(MessageQueue("t", "b", number), 0, 100) for number in range(50)]
    assert len(partitions_of(small)) == 1
    assert len(partitions_of(small, partitions_min=8)) == 8
    large = [QueueRange(A, 0, 1_000_000), QueueRange(B, 0, 1_000_000)]
    assert len(partitions_of(large)) == 2
    assert len(partitions_of(large, partitions_min=10)) == 10
    assert len(partitions_of(large, records_max=100_000)) == 20
    assert partitions_of([]) == []
