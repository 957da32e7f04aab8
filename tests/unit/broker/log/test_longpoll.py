"""Long polling: woken by matching messages, expired in time order, bounded."""

from aerobee.broker.log.arrivals import BUCKET_S, SUSPEND_MAX_S, LongPolls


def hold(
    polls: LongPolls[str],
    name: str,
    *,
    queue: int = 0,
    offset: int = 5,
    now: float = 0.0,
    timeout: float = 15.0,
    tags: set[int] | None = None,
    channel: str = "c1",
) -> bool:
    return polls.suspend(b"t", queue, offset, name, channel=channel, now_s=now, timeout_s=timeout, tag_codes=tags)


def test_a_message_wakes_the_pulls_of_its_queue_in_order_of_coming() -> None:
    polls: LongPolls[str] = LongPolls()
    hold(polls, "a")
    hold(polls, "b")
    hold(polls, "other queue", queue=1)
    assert polls.arrived(b"t", 0, 6, 123) == ["a", "b"]
    assert polls.arrived(b"t", 0, 7, 123) == [], "a pull is woken once"
    assert polls.arrived(b"u", 0, 7, 123) == []
    assert len(polls) == 1
    polls.validate()


def test_a_message_at_or_below_the_asked_offset_wakes_nobody() -> None:
    polls: LongPolls[str] = LongPolls()
    hold(polls, "a", offset=9)
    assert polls.arrived(b"t", 0, 9, None) == []
    assert polls.arrived(b"t", 0, 10, None) == ["a"]


def test_tags_decide_but_the_sweep_wakes_all() -> None:
    polls: LongPolls[str] = LongPolls()
    hold(polls, "paid", tags={-7, 2})
    hold(polls, "all")
    hold(polls, "refund", tags={3})
    assert polls.arrived(b"t", 0, 6, -7) == ["paid", "all"]
    assert polls.waiting() == [(b"t", 0)]
    assert polls.arrived(b"t", 0, 6, None) == ["refund"]
    assert not polls.has_waiting(b"t")


def test_time_outs_come_in_order_of_deadline_never_early_and_at_most_one_bucket_late() -> None:
    polls: LongPolls[str] = LongPolls()
    hold(polls, "late", timeout=20.0)
    hold(polls, "soon", timeout=1.03)
    hold(polls, "middle", timeout=15.0)
    assert polls.expire(1.02) == []
    assert polls.expire(1.03 + BUCKET_S) == ["soon"]
    assert polls.expire(100.0) == ["middle", "late"]
    polls.validate()


def test_a_woken_pull_leaves_no_deadline_behind() -> None:
    polls: LongPolls[str] = LongPolls()
    for round_ in range(1000):
        hold(polls, "a", offset=round_, now=round_ * 0.001, timeout=15.0)
        assert polls.arrived(b"t", 0, round_ + 1, 0) == ["a"]
    assert polls.expire(100.0) == []
    polls.validate()


def test_a_pull_that_may_not_wait_is_answered_now() -> None:
    polls: LongPolls[str] = LongPolls(held_max=3, held_per_channel_max=2)
    assert not hold(polls, "no time", timeout=0.0)
    assert hold(polls, "a") and hold(polls, "b")
    assert not hold(polls, "third of the channel")
    assert hold(polls, "c", channel="c2")
    assert not hold(polls, "fourth", channel="c3")
    polls.validate()
    polls.expire(16.0)
    assert hold(polls, "again", channel="c3")


def test_an_endless_time_out_is_cut() -> None:
    polls: LongPolls[str] = LongPolls()
    hold(polls, "a", timeout=1e9)
    assert polls.expire(SUSPEND_MAX_S + BUCKET_S) == ["a"]


def test_a_closed_connection_frees_its_place() -> None:
    polls: LongPolls[str] = LongPolls()
    hold(polls, "a")
    hold(polls, "b", queue=3)
    hold(polls, "c", channel="c2")
    assert polls.channel_closed("c1") == 2
    assert polls.channel_closed("c1") == 0
    assert polls.arrived(b"t", 0, 6, None) == ["c"]
    polls.validate()


def test_deleting_a_topic_and_stopping_answer_everything() -> None:
    polls: LongPolls[str] = LongPolls()
    hold(polls, "a")
    hold(polls, "b", queue=1)
    polls.suspend(b"u", 0, 0, "c", channel="c1", now_s=0.0, timeout_s=1.0)
    assert polls.topic_deleted(b"t") == ["a", "b"]
    assert polls.drain() == ["c"]
    assert len(polls) == 0
    polls.validate()
