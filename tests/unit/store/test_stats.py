from aerobee.store.stats import StoreStats, format_runtime

BOOT = 1_700_000_000_000


def test_rates_as_apache_shows_them() -> None:
    stats = StoreStats(BOOT)
    topic = stats.topic(b"T")
    for second in range(62):
        stats.sample(BOOT + second * 1000)
        topic.messages += 50
        topic.size += 5000
        stats.get_found += 2
        stats.get_miss += 1
        stats.transferred += 64
    info = stats.runtime_info(BOOT + 62_000)
    assert info["putTps"] == "50.0 50.0 "
    assert info["getFoundTps"] == "2.0 2.0 "
    assert info["getMissTps"] == "1.0 1.0 "
    assert info["getTotalTps"] == "3.0 3.0 0.0"
    assert info["getTransferredTps"] == "64.0 64.0 "
    assert info["putMessageTimesTotal"] == "3100"
    assert info["putMessageSizeTotal"] == "310000"
    assert info["putMessageAverageSize"] == "100.0"
    assert stats.put_tps() == 50.0
    assert stats.put_tps(600) == 0.0


def test_nothing_happened_yet() -> None:
    info = StoreStats(BOOT).runtime_info(BOOT)
    assert info["putTps"] == "  "
    assert info["putMessageTimesTotal"] == "1"
    assert info["putMessageAverageSize"] == "0.0"
    assert info["putLatency99"] == "0.00"


def test_spread_of_put_times_turns_over_each_minute() -> None:
    stats = StoreStats(BOOT)
    for elapsed_ms in (0, 1, 9, 10, 49, 50, 999, 1000, 9999, 10_000):
        stats.put_took(elapsed_ms)
    stats.put_took(3, count=90)
    stats.sample(BOOT + 60_000)
    info = stats.runtime_info(BOOT + 60_000)
    assert info["putMessageDistributeTime"] == (
        "[<=0ms]:1 [0~10ms]:92 [10~50ms]:2 [50~100ms]:1 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:1 [1~2s]:1 "
        "[2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:1 [10s~]:1 "
    )
    assert info["putMessageEntireTimeMax"] == "10000"
    assert 2 < stats.put_time_percentile(0.5) <= 3
    assert stats.put_time_percentile(0.999) > 9000
    stats.sample(BOOT + 120_000)
    assert stats.runtime_info(BOOT)["putMessageDistributeTime"].startswith("[<=0ms]:0 [0~10ms]:0 ")


def test_a_clock_that_stands_still_divides_nothing_by_zero() -> None:
    stats = StoreStats(BOOT)
    for _ in range(20):
        stats.sample(BOOT)
    assert stats.put_tps() == 0.0


def test_forgotten_topics_and_runtime() -> None:
    stats = StoreStats(BOOT)
    stats.topic(b"T").messages = 5
    assert stats.topic(b"T").messages == 5
    stats.forget_topic(b"T")
    assert stats.put_messages == 0
    assert format_runtime(90_061_000) == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
