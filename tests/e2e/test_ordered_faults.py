"""A short round of `make ordered-faults`, and the judge of its rounds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aerobee.testing.orderedfaults.judge import HandlerEvent, KeyRecord, judge_order, parse_events
from aerobee.testing.orderedfaults.round import RoundPlan, play


def test_nothing_is_lost_or_out_of_order_by_key(tmp_path: Path) -> None:
    plan = RoundPlan(seed=3, seconds=7.0, rate=300.0, calm_s=(0.5, 1.0))
    result = asyncio.run(play(plan, tmp_path))
    verdict = result.verdict
    assert verdict.is_sound, f"{verdict.lost[:3]} {verdict.stored_out_of_order[:3]} {verdict.handled_out_of_order[:3]}"
    assert verdict.acknowledged > 500 and sum(result.faults.values()) >= 2


def handled(*calls: tuple[float, float, int]) -> list[HandlerEvent]:
    """Return the events of calls of one key: (begin, end, number)."""
    return [
        event
        for begin, end, number in calls
        for event in (HandlerEvent(begin, False, "k", number), HandlerEvent(end, True, "k", number))
    ]


GOOD = [KeyRecord("k", 0, "a/0", 5), KeyRecord("k", 1, "a/0", 6)]


@pytest.mark.parametrize(
    ("stored", "events", "which"),
    [
        (GOOD[:1], handled((1, 2, 0)), "lost"),
        (GOOD, handled((1, 2, 0)), "lost"),
        ([GOOD[0], KeyRecord("k", 1, "b/0", 0)], handled((1, 2, 0), (3, 4, 1)), "stored_out_of_order"),
        ([GOOD[0], KeyRecord("k", 1, "a/0", 4)], handled((1, 2, 0), (3, 4, 1)), "stored_out_of_order"),
        ([*GOOD, KeyRecord("k", 0, "a/0", 7)], handled((1, 2, 0), (3, 4, 1)), "stored_out_of_order"),
        (GOOD, handled((1, 4, 0), (3, 5, 1)), "handled_out_of_order"),
        (GOOD, [HandlerEvent(1, False, "k", 0), *handled((2, 3, 1), (4, 5, 0))], "handled_out_of_order"),
    ],
)
def test_the_judge_finds_what_is_wrong(stored: list[KeyRecord], events: list[HandlerEvent], which: str) -> None:
    verdict = judge_order({"k": [0, 1]}, stored, events, ["k"])
    assert not verdict.is_sound and getattr(verdict, which)


def test_the_judge_allows_what_at_least_once_means() -> None:
    again = handled((1, 2, 0), (3, 4, 1), (5, 6, 0), (7, 8, 1))
    verdict = judge_order({"k": [0, 1]}, [*GOOD, KeyRecord("k", 0, "a/0", 7)], again, [])
    assert verdict.is_sound and (verdict.repeats, verdict.handled) == (2, 4)


def test_a_line_that_a_killed_consumer_did_not_finish_is_left_out() -> None:
    assert parse_events([b"b k 1 2.5\n", b"e k 1 2.6\n", b"b k 2 2."]) == [
        HandlerEvent(2.5, False, "k", 1),
        HandlerEvent(2.6, True, "k", 1),
    ]
