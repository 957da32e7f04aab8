"""Flow control: overload is answered, not queued."""

import pytest

from aerobee.broker.flowcontrol import FlowControl, FlowLimits, LoopLag, SendsWaiting, Work


def test_a_loop_that_keeps_up_has_no_lag() -> None:
    lag = LoopLag(0.0)
    assert lag.lag_s(0.05) == 0.0
    assert lag.beat(0.05) == 0.0
    assert lag.lag_s(0.1) == 0.0


def test_a_stalled_loop_is_seen_before_its_beat_runs_and_forgotten_after() -> None:
    flow = FlowControl(FlowLimits(), 0.0)
    assert flow.busy(Work.SEND, 0.2) is None
    remark = flow.busy(Work.SEND, 0.3)
    assert remark is not None and remark.startswith("[TIMEOUT_CLEAN_QUEUE]broker busy") and "250ms" in remark
    assert flow.busy(Work.PULL, 0.3) is None, "each kind has its own patience"
    assert flow.busy(Work.PULL, 5.1) is not None
    assert flow.busy(Work.HEARTBEAT, 5.1) is None
    flow.loop.beat(5.1)
    assert flow.busy(Work.SEND, 5.1) is None
    assert flow.loop.worst_s == pytest.approx(5.05)


def test_too_many_waiting_sends_are_overload() -> None:
    flow = FlowControl(FlowLimits(sends_waiting_max=10), 0.0)
    flow.sends.added(0.0, 9)
    assert flow.busy(Work.SEND, 0.0) is None
    flow.sends.added(0.0)
    assert flow.busy(Work.SEND, 0.0) == "[OVERLOAD]system busy, start flow control for a while"
    assert flow.busy(Work.PULL, 0.0) is None, "readers go on"
    flow.sends.answered(1)
    assert flow.busy(Work.SEND, 0.0) is None


def test_a_disk_that_does_not_answer_is_told_to_senders() -> None:
    flow = FlowControl(FlowLimits(), 0.0)
    flow.sends.added(0.0, 3)
    now = 0.0
    while now < 1.0:
        now += 0.05
        flow.loop.beat(now)
    assert flow.busy(Work.SEND, 1.0) is None
    remark = flow.busy(Work.SEND, 1.01)
    assert remark is not None and remark.startswith("[PCBUSY_CLEAN_QUEUE]") and "size of queue: 3" in remark


def test_the_line_of_waiting_sends_ages_by_its_oldest() -> None:
    line = SendsWaiting()
    assert line.age_s(9.0) == 0.0
    line.added(1.0, 5)
    line.added(2.0, 5)
    line.answered(4)
    assert line.age_s(3.0) == 2.0
    line.answered(3)
    assert (line.age_s(3.0), line.count) == (1.0, 3)
    line.answered(3)
    assert (line.age_s(3.0), line.count) == (0.0, 0)
    with pytest.raises(ValueError, match="1 answered, 0 waited"):
        line.answered(1)


def test_switched_off_it_refuses_nothing() -> None:
    flow = FlowControl(FlowLimits(enabled=False, sends_waiting_max=0), 0.0)
    assert flow.busy(Work.SEND, 100.0) is None
