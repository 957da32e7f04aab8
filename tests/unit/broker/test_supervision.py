"""Parts of a tick: one that fails is told, left alone for a while and tried again; the others run on."""

from __future__ import annotations

import asyncio

import pytest

from aerobee.broker.supervision import PAUSE_MAX_S, Supervisor
from aerobee.errors import StoreFencedError
from aerobee.testing.clock import VirtualClock


class Part:
    """Fails while it has an error."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.runs = 0

    def __call__(self, now_s: float, now_ms: int) -> None:
        self.runs += 1
        if self.error is not None:
            raise self.error


def test_a_failing_part_is_tried_again_ever_more_rarely_and_the_others_run_at_every_tick() -> None:
    supervisor = Supervisor(VirtualClock(), lambda error: None)
    bad, good, rare = Part(KeyError("x")), Part(), Part()
    supervisor.add("bad", bad)
    supervisor.add("good", good)
    supervisor.add("rare", rare, every_s=10)
    for tick in range(60 * 50):  # a minute
        supervisor.tick(tick / 50, 0)
    assert (good.runs, rare.runs) == (3000, 5)
    assert 8 <= bad.runs <= 14
    assert supervisor.failures == bad.runs
    assert supervisor.told() == {"partFailures": str(bad.runs), "partsFailing": "bad"}
    bad.error, runs = None, bad.runs
    supervisor.tick(60 + PAUSE_MAX_S, 0)
    supervisor.tick(60 + PAUSE_MAX_S, 0)
    assert (bad.runs, supervisor.failing) == (runs + 2, [])


def test_failures_are_told_with_their_traceback_but_not_at_every_try(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    supervisor = Supervisor(clock, lambda error: None)
    part = Part(ValueError("5,000 digits"))
    supervisor.add("timers", part)
    for at_s in (0, 1, 2, 3):
        supervisor.tick(at_s, 0)
    (line,) = caplog.records
    assert "5,000 digits" in line.getMessage() and "Traceback" in line.getMessage()
    clock.advance(11)
    supervisor.tick(11, 0)
    assert "suppressed=3" in caplog.records[-1].getMessage()


def test_a_failed_sync_still_fences() -> None:
    met: list[StoreFencedError] = []
    supervisor = Supervisor(VirtualClock(), met.append)
    supervisor.add("store", Part(StoreFencedError("a sync failed")))
    supervisor.tick(0, 0)
    assert [error.message for error in met] == ["a sync failed"]


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(1)])
def test_what_ends_a_task_passes(error: BaseException) -> None:
    supervisor = Supervisor(VirtualClock(), lambda error: None)
    supervisor.add("store", Part(error))
    with pytest.raises(type(error)):
        supervisor.tick(0, 0)
    assert supervisor.failures == 0
