from aerobee.store.stats import StoreStats, format_runtime

BOOT = 1_700_000_000_000


def test_rates_as_apache_shows_them() -> None:
    stats = StoreStats(BOOT)
    for second in range(62):
        stats.sample(BOOT + second * 1000)
        stats.put_messages += 50
        stats.put_size += 5000
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


def test_nothing_happened_yet() -> None:
    info = StoreStats(BOOT).runtime_info(BOOT)
    assert info["putTps"] == "  "
    assert info["putMessageTimesTotal"] == "1"
    assert info["putMessageAverageSize"] == "0.0"
    assert info["putLatency99"] == "0.00"


def test_a_clock_that_stands_still_divides_nothing_by_zero() -> None:
    stats = StoreStats(BOOT)
    for _ in range(20):
        stats.sample(BOOT)
    assert stats.runtime_info(BOOT)["putTps"] == "0.0  "


def test_runtime_as_apache_shows_it() -> None:
    assert format_runtime(90_061_000) == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
