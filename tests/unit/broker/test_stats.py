"""Statistics: windows of a minute, an hour and a day, as VIEW_BROKER_STATS_DATA answers them."""

import pytest

from aerobee.broker import stats as names
from aerobee.broker.stats import BrokerStats

START_MS = 1_700_000_000_000


def put(stats: BrokerStats, topic: str, nums: int, size: int, now_ms: int, *, system: bool = False) -> None:
    """Count as PutCounts does for messages that are stored."""
    stats.add(names.TOPIC_PUT_NUMS, topic, nums, now_ms)
    stats.add(names.TOPIC_PUT_SIZE, topic, size, now_ms)
    stats.add(names.BROKER_PUT_NUMS, stats.cluster, nums, now_ms, 0)
    if not system:
        stats.add(names.BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC, stats.cluster, nums, now_ms, 0)


def test_a_minute_of_ten_per_second() -> None:
    stats = BrokerStats("cluster")
    now = START_MS
    for _ in range(7):
        for _ in range(100):
            put(stats, "t", 1, 128, now)
        stats.sample(now)
        now += 10_000
    view = stats.view(names.TOPIC_PUT_NUMS, "t")
    assert view is not None
    assert view.minute.sum == 600, "the seventh sample is a minute after the first"
    assert view.minute.tps == pytest.approx(10.0)
    size = stats.view(names.TOPIC_PUT_SIZE, "t")
    assert size is not None and size.minute.avgpt == pytest.approx(128.0)
    assert stats.tps(names.TOPIC_PUT_NUMS, "t") == pytest.approx(10.0)
    assert stats.total(names.BROKER_PUT_NUMS) == 700


def test_the_first_sample_counts_from_zero_ten_seconds_before() -> None:
    stats = BrokerStats("cluster")
    put(stats, "t", 50, 1000, START_MS)
    stats.sample(START_MS + 1)
    view = stats.view(names.TOPIC_PUT_NUMS, "t")
    assert view is not None
    assert (view.minute.sum, view.minute.tps) == (50, pytest.approx(5.0))


def test_hour_and_day_windows_slide() -> None:
    stats = BrokerStats("cluster")
    now = START_MS
    for _ in range(30 * 360):
        stats.add(names.TOPIC_PUT_NUMS, "t", 10, now)
        stats.sample(now)
        now += 10_000
    view = stats.view(names.TOPIC_PUT_NUMS, "t")
    assert view is not None
    assert view.minute.sum == 60
    assert view.hour.sum == 3_600
    assert view.day.sum == 86_400
    assert view.day.tps == pytest.approx(1.0)


def test_the_unknown_has_no_view() -> None:
    stats = BrokerStats("cluster")
    assert stats.view(names.TOPIC_PUT_NUMS, "t") is None
    assert stats.tps(names.TOPIC_PUT_NUMS, "t") == 0.0
    assert stats.total(names.TOPIC_PUT_NUMS, "t") == 0


def test_system_topics_do_not_count_for_the_day() -> None:
    stats = BrokerStats("cluster")
    put(stats, "t", 5, 10, START_MS)
    put(stats, "SCHEDULE_TOPIC_XXXX", 7, 10, START_MS, system=True)
    stats.get("g", "t", 3, 10, START_MS)
    stats.midnight()
    put(stats, "t", 1, 10, START_MS)
    stats.midnight()
    assert (stats.day.put_yesterday_morning, stats.day.put_today_morning) == (5, 6)
    assert (stats.day.get_yesterday_morning, stats.day.get_today_morning) == (3, 3)
    assert stats.total(names.BROKER_PUT_NUMS) == 13


def test_deleting_forgets_exactly_the_keys_of_the_topic_or_group() -> None:
    stats = BrokerStats("cluster")
    for topic in ("t", "tt"):
        put(stats, topic, 1, 1, START_MS)
        stats.add(names.TOPIC_PUT_LATENCY, f"0@{topic}", 1, START_MS)
        for group in ("g", "gg"):
            stats.get(group, topic, 1, 1, START_MS)
            stats.add(names.GROUP_GET_LATENCY, f"0@{topic}@{group}", 1, START_MS)
            stats.send_back(group, topic, START_MS, dead_letter=True)
    stats.forget_topic("t")
    assert stats.view(names.TOPIC_PUT_NUMS, "t") is None
    assert stats.view(names.TOPIC_PUT_LATENCY, "0@t") is None
    assert stats.view(names.GROUP_GET_LATENCY, "0@t@g") is None
    assert stats.view(names.GROUP_GET_NUMS, "tt@g") is not None
    stats.forget_group("g")
    assert stats.view(names.GROUP_GET_NUMS, "tt@g") is None
    assert stats.view(names.SNDBCK_PUT_NUMS, "tt@gg") is not None
    assert stats.view(names.GROUP_GET_LATENCY, "0@tt@gg") is not None
    assert stats.total(names.SNDBCK2DLQ_TIMES, "null@t@g@SEND_BACK_TO_DLQ") == 1


def test_idle_counters_are_dropped_and_living_ones_kept() -> None:
    stats = BrokerStats("cluster")
    put(stats, "idle", 1, 1, START_MS)
    put(stats, "busy", 1, 1, START_MS)
    stats.sample(START_MS)
    put(stats, "busy", 1, 1, START_MS + 60_000)
    stats.sample(START_MS + 60_000)
    assert stats.forget_idle(30_000, START_MS + 70_000) > 0
    assert stats.view(names.TOPIC_PUT_NUMS, "idle") is None
    assert stats.view(names.TOPIC_PUT_NUMS, "busy") is not None
    assert stats.total(names.BROKER_PUT_NUMS) == 3
