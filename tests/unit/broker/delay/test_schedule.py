"""The schedule: due at the right time, tried again alone, progress never past what is not safe."""

import pytest

from aerobee.broker.delay.levels import DelayLevels
from aerobee.broker.delay.schedule import (
    POLL_INTERVAL_MS,
    Correction,
    DelayedUnit,
    DelaySchedule,
    delivery_mark,
    read_mark,
)

LEVELS = DelayLevels.parse("1s 10s")
NOW = 1_700_000_000_000


def units(first: int, *deliver_ms: int) -> list[DelayedUnit]:
    return [DelayedUnit(first + i, 1000 * (first + i), 100, at) for i, at in enumerate(deliver_ms)]


def offsets(plan_units: tuple[DelayedUnit, ...]) -> list[int]:
    return [unit.queue_offset for unit in plan_units]


def test_only_what_is_due_and_not_a_millisecond_early() -> None:
    schedule = DelaySchedule(LEVELS)
    line = units(0, NOW, NOW + 1, NOW + 500)
    plan = schedule.plan(1, line, NOW)
    assert (offsets(plan.deliver), plan.wait_ms) == ([0], 1)
    plan = schedule.plan(1, line[1:], NOW + 1)
    assert (offsets(plan.deliver), plan.wait_ms) == ([1], 499)
    assert schedule.plan(1, [], NOW + 1).wait_ms == POLL_INTERVAL_MS
    schedule.validate()


def test_progress_waits_for_the_oldest() -> None:
    schedule = DelaySchedule(LEVELS)
    schedule.plan(1, units(0, NOW, NOW, NOW), NOW)
    schedule.delivered(1, 2, 0)
    schedule.delivered(1, 1, 0)
    assert schedule.offsets() == {}
    schedule.validate()
    schedule.delivered(1, 0, 0)
    assert schedule.offsets() == {1: 3}
    assert schedule.version == 1
    schedule.validate()


def test_one_failure_is_tried_again_alone_and_nothing_overtakes_it() -> None:
    schedule = DelaySchedule(LEVELS)
    schedule.plan(1, units(0, NOW, NOW, NOW), NOW)
    schedule.delivered(1, 0, 0)
    schedule.failed(1, 1)
    schedule.delivered(1, 2, 0)
    plan = schedule.plan(1, units(3, NOW), NOW)
    assert offsets(plan.deliver) == [1], "2 is not repeated, 3 does not overtake"
    schedule.validate()
    schedule.delivered(1, 1, 0)
    assert schedule.offsets() == {1: 3}
    assert offsets(schedule.plan(1, units(3, NOW), NOW).deliver) == [3]
    with pytest.raises(ValueError, match="not on its way"):
        schedule.failed(1, 1)


def test_what_cannot_be_delivered_does_not_stop_the_line() -> None:
    schedule = DelaySchedule(LEVELS)
    schedule.plan(2, units(0, NOW, NOW), NOW)
    schedule.skipped(2, 0)
    schedule.delivered(2, 1, 0)
    assert schedule.offsets() == {2: 2}
    assert schedule.rescan_from(77) == 77


def test_deliveries_on_their_way_are_bounded() -> None:
    schedule = DelaySchedule(LEVELS, in_flight_max=2)
    line = units(0, NOW, NOW, NOW)
    assert offsets(schedule.plan(1, line, NOW).deliver) == [0, 1]
    assert offsets(schedule.plan(1, line[2:], NOW).deliver) == []
    assert schedule.in_flight(1) == 2
    schedule.delivered(1, 0, 0)
    assert offsets(schedule.plan(1, line[2:], NOW).deliver) == [2]


def test_a_restart_goes_on_from_the_saved_table() -> None:
    schedule = DelaySchedule(LEVELS, {1: 40, 2: 7, 18: 5})
    assert schedule.next_offset(1) == 40
    assert schedule.offsets() == {1: 40, 2: 7, 18: 5}, "a level not configured now keeps its place"
    with pytest.raises(ValueError, match="expected 40"):
        schedule.plan(1, units(39, NOW), NOW)


def test_marks_in_the_log_save_deliveries_that_a_crash_would_repeat() -> None:
    schedule = DelaySchedule(LEVELS, {1: 10})
    marks = [0, 8192, delivery_mark(1, 9), delivery_mark(1, 10), delivery_mark(1, 12), delivery_mark(60, 3)]
    assert schedule.seen([(mark, 500 + at) for at, mark in enumerate(marks)]) == 2
    assert schedule.rescan_from(1000) == 504, "offset 12 is not in the table yet: its mark must be seen again"
    assert schedule.offsets() == {1: 11}
    plan = schedule.plan(1, units(11, NOW, NOW, NOW), NOW)
    assert offsets(plan.deliver) == [11, 13], "12 was delivered before the crash"
    schedule.delivered(1, 11, 0)
    schedule.delivered(1, 13, 0)
    assert schedule.offsets() == {1: 14}
    schedule.validate()


@pytest.mark.parametrize(("level", "offset"), [(1, 0), (18, 12345), (63, (1 << 56) - 1)])
def test_a_mark_reads_back_and_fits_its_field(level: int, offset: int) -> None:
    mark = delivery_mark(level, offset)
    assert -(1 << 63) <= mark < 0
    assert read_mark(mark) == (level, offset)


def test_other_values_of_the_field_are_no_marks() -> None:
    assert read_mark(0) is None
    assert read_mark(123456) is None
    assert read_mark(-1) is None
    with pytest.raises(ValueError, match="no mark"):
        delivery_mark(0, 5)


def test_progress_outside_its_queue_is_corrected() -> None:
    schedule = DelaySchedule(LEVELS, {1: 5, 2: 50})
    assert schedule.correct(1, 8, 20) == Correction(1, 5, 8)
    assert schedule.correct(2, 0, 20) == Correction(2, 50, 20)
    assert schedule.correct(1, 8, 20) is None
    assert schedule.offsets() == {1: 8, 2: 20}


def test_a_clock_set_back_delays_but_never_hurries_nor_stops_a_message() -> None:
    schedule = DelaySchedule(LEVELS)
    hour = 3_600_000
    # Stored by a clock that was an hour ahead: due in an hour and ten seconds.
    line = units(0, NOW + hour + 10_000, NOW + hour + 10_000)
    assert schedule.plan(2, line[:1], NOW, 1).wait_ms == 10_000
    # The second came five seconds after the first was seen.
    assert schedule.plan(2, line, NOW + 5_000, 2).wait_ms == 5_000
    plan = schedule.plan(2, line, NOW + 10_000, 2)
    assert (offsets(plan.deliver), plan.wait_ms) == ([0], 5_000)
    assert offsets(schedule.plan(2, line[1:], NOW + 15_000, 2).deliver) == [1]


def test_a_large_backlog_under_a_clock_set_back_waits_once_not_once_each() -> None:
    schedule = DelaySchedule(LEVELS)
    late = NOW + 3_600_000
    schedule.plan(2, units(0, late), NOW, 500)
    for first in range(0, 500, 50):
        assert len(schedule.plan(2, units(first, *[late] * 50), NOW + 10_000, 500).deliver) == 50
