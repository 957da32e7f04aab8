"""Counts of stored messages: complete whenever asked for, and a tick's work does not grow with the topics."""

from __future__ import annotations

from aerobee.broker.log.puts import PutCounts
from aerobee.broker.stats import BROKER_PUT_NUMS, BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC, TOPIC_PUT_NUMS, BrokerStats
from aerobee.hot.log.record import Draft

HOST = bytes(8)


def draft(topic: str) -> Draft:
    made = Draft(topic.encode(), 0, 0, 0, 1, HOST, HOST, 0, 0, b"", b"", 0, "", "")
    made.size = 100
    return made


def test_few_topics_are_counted_with_the_next_tick() -> None:
    stats = BrokerStats("C")
    counts = PutCounts(stats, lambda topic: topic == "system")
    counts.stored([draft("a"), draft("a"), draft("system")])
    counts.tick(1000)
    assert stats.total(TOPIC_PUT_NUMS, "a") == 2
    assert (stats.total(BROKER_PUT_NUMS), stats.total(BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC)) == (3, 2)


def test_many_topics_are_counted_tick_by_tick_and_none_is_forgotten_meanwhile() -> None:
    stats = BrokerStats("C")
    counts = PutCounts(stats, lambda topic: False)
    names = [f"topic-{number}" for number in range(1000)]
    counts.stored([draft(name) for name in names])
    counts.tick(1000)
    assert 0 < stats.total(BROKER_PUT_NUMS) <= 200, "one tick takes a bounded part"
    ticks = 1
    while min(stats.total(TOPIC_PUT_NUMS, name) for name in names) == 0:
        # Busy topics must not keep the quiet ones waiting.
        counts.stored([draft(name) for name in names[:50]])
        counts.tick(1000)
        ticks += 1
        assert ticks < 40
    counts.flush(1000)
    assert stats.total(BROKER_PUT_NUMS) == 1000 + 50 * (ticks - 1)


def test_every_queue_has_its_own_count_whichever_was_counted_last() -> None:
    stats = BrokerStats("C")
    counts = PutCounts(stats, lambda topic: False)
    for now_ms in (1000, 2000):
        drafts = [draft(topic) for topic in ("a", "b", "a")]
        for queue_id in (0, 16, 32, 5):
            for made in drafts:
                made.queue_id = queue_id
            counts.stored(drafts)
        counts.tick(now_ms)
    assert (stats.total(TOPIC_PUT_NUMS, "a"), stats.total(TOPIC_PUT_NUMS, "b")) == (16, 8)
