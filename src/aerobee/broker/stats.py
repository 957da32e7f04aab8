"""Statistics by name and key, with sums, rates and averages over a minute, an hour and a day.

It owns the counters behind VIEW_BROKER_STATS_DATA and the totals of the day. `counter` hands out the item
itself, so that a hot path adds to two attributes without a lookup. `sample` is called every 10 s and does the
rest.

Keys: topic; topic@group; topic@queue; queue@topic; queue@topic@group; cluster name for broker totals.
RocketMQ: BrokerStatsManager, StatsItem, BrokerStats.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
TOPIC_PUT_LATENCY = "TOPIC_PUT_LATENCY"
QUEUE_PUT_NUMS = "QUEUE_PUT_NUMS"
QUEUE_PUT_SIZE = "QUEUE_PUT_SIZE"
QUEUE_GET_NUMS = "QUEUE_GET_NUMS"
QUEUE_GET_SIZE = "QUEUE_GET_SIZE"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
GROUP_GET_SIZE = "GROUP_GET_SIZE"
GROUP_GET_LATENCY = "GROUP_GET_LATENCY"
GROUP_ACK_NUMS = "GROUP_ACK_NUMS"
GROUP_CK_NUMS = "GROUP_CK_NUMS"
GROUP_GET_FALL_SIZE = "GROUP_GET_FALL_SIZE"
GROUP_GET_FALL_TIME = "GROUP_GET_FALL_TIME"
SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
SNDBCK2DLQ_TIMES = "SNDBCK2DLQ_TIMES"
BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
BROKER_GET_NUMS = "BROKER_GET_NUMS"
BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC = "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"
BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC = "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC"

# Where the topic or the group stands in the key of each name, for deletions.
_TOPIC_FIRST = (
    TOPIC_PUT_NUMS, TOPIC_PUT_SIZE, QUEUE_PUT_NUMS, QUEUE_PUT_SIZE, QUEUE_GET_NUMS, QUEUE_GET_SIZE,
    GROUP_GET_NUMS, GROUP_GET_SIZE, GROUP_CK_NUMS, GROUP_ACK_NUMS, SNDBCK_PUT_NUMS,
)  # fmt: skip
_QUEUE_FIRST = (TOPIC_PUT_LATENCY, GROUP_GET_LATENCY, GROUP_GET_FALL_SIZE, GROUP_GET_FALL_TIME)
_GROUP_LAST = (
    QUEUE_GET_NUMS, QUEUE_GET_SIZE, GROUP_GET_NUMS, GROUP_GET_SIZE, GROUP_CK_NUMS, GROUP_ACK_NUMS,
    SNDBCK_PUT_NUMS, GROUP_GET_LATENCY, GROUP_GET_FALL_SIZE, GROUP_GET_FALL_TIME,
)  # fmt: skip

SAMPLE_INTERVAL_MS = 10_000
_TEN_MINUTES_MS = 600_000
_HOUR_MS = 3_600_000
# First and last of the kept samples span one minute, one hour, one day.
_MINUTE_SAMPLES = 7
_HOUR_SAMPLES = 7
_DAY_SAMPLES = 25


@dataclass(frozen=True, slots=True)
class StatsSnapshot:
    """One window. RocketMQ: BrokerStatsItem (sum, tps, avgpt)."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0
    times: int = 0


@dataclass(frozen=True, slots=True)
class StatsView:
    """The answer to VIEW_BROKER_STATS_DATA."""

    minute: StatsSnapshot
    hour: StatsSnapshot
    day: StatsSnapshot


class StatsItem:
    """One counter: add to `value` and `times` directly."""

    __slots__ = ("_day", "_hour", "_minute", "_seen_times", "times", "updated_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.value = 0
        self.times = 0
        self.updated_ms = now_ms
        self._seen_times = 0
        self._minute: deque[tuple[int, int, int]] = deque(maxlen=_MINUTE_SAMPLES)
        self._hour: deque[tuple[int, int, int]] = deque(maxlen=_HOUR_SAMPLES)
        self._day: deque[tuple[int, int, int]] = deque(maxlen=_DAY_SAMPLES)

    def view(self) -> StatsView:
        """Return sums and rates of the three windows."""
        return StatsView(_span(self._minute), _span(self._hour), _span(self._day))

    def sample(self, now_ms: int, *, ten_minutes: bool, hour: bool) -> None:
        """Take the 10 s sample, and the longer ones when due."""
        if self.times != self._seen_times:
            self._seen_times = self.times
            self.updated_ms = now_ms
        self._take(self._minute, now_ms, SAMPLE_INTERVAL_MS)
        if ten_minutes:
            self._take(self._hour, now_ms, _TEN_MINUTES_MS)
        if hour:
            self._take(self._day, now_ms, _HOUR_MS)

    def _take(self, samples: deque[tuple[int, int, int]], now_ms: int, interval_ms: int) -> None:
        # A counter is created by its first event, so before its first sample it stood at zero.
        if not samples:
            samples.append((now_ms - interval_ms, 0, 0))
        samples.append((now_ms, self.times, self.value))


def _span(samples: deque[tuple[int, int, int]]) -> StatsSnapshot:
    if not samples:
        return StatsSnapshot()
    first_ms, first_times, first_value = samples[0]
    last_ms, last_times, last_value = samples[-1]
    total = last_value - first_value
    times = last_times - first_times
    elapsed_ms = last_ms - first_ms
    return StatsSnapshot(
        sum=total,
        tps=total * 1000.0 / elapsed_ms if elapsed_ms > 0 else 0.0,
        avgpt=total / times if times > 0 else 0.0,
        times=times,
    )


@dataclass(slots=True)
class DayTotals:
    """Messages in and out by midnight. RocketMQ: BrokerStats (msgPutTotalTodayMorning ...)."""

    put_yesterday_morning: int = 0
    put_today_morning: int = 0
    get_yesterday_morning: int = 0
    get_today_morning: int = 0


class BrokerStats:
    """All counters of a broker."""

    def __init__(self, cluster: str, *, per_queue: bool = True) -> None:
        self.cluster = cluster
        self.per_queue = per_queue
        self.day = DayTotals()
        self._items: dict[str, dict[str, StatsItem]] = {}
        # The counters of pulls by topic and group, until counters are forgotten.
        self._gets: dict[tuple[str, str], tuple[StatsItem, StatsItem, StatsItem, StatsItem]] = {}
        self._next_ten_minutes_ms: int | None = None
        self._next_hour_ms: int | None = None

    def counter(self, name: str, key: str, now_ms: int) -> StatsItem:
        """Return the item itself, made on first use. After a `forget_*` ask again: the old item counts for nobody."""
        items = self._items.setdefault(name, {})
        item = items.get(key)
        if item is None:
            item = items[key] = StatsItem(now_ms)
        return item

    def add(self, name: str, key: str, value: int, now_ms: int, times: int = 1) -> None:
        """Add to one counter. RocketMQ: StatsItemSet.addValue."""
        item = self.counter(name, key, now_ms)
        item.value += value
        item.times += times

    def get(self, group: str, topic: str, nums: int, size: int, now_ms: int) -> None:
        """Count messages handed to a group. RocketMQ: DefaultPullMessageResultHandler.handle, case SUCCESS."""
        if not self.get_again(group, topic, nums, size):
            self._gets[topic, group] = self._get_items(topic, group, now_ms)
            self.get_again(group, topic, nums, size)

    def get_again(self, group: str, topic: str, nums: int, size: int) -> bool:
        """Count as `get`, without a time, where these were counted before; return False where they were not."""
        found = self._gets.get((topic, group))
        if found is None:
            return False
        of_group, of_size, of_all, of_plain = found
        of_group.value += nums
        of_group.times += 1
        of_size.value += size
        of_size.times += 1
        of_all.value += nums
        of_plain.value += nums
        return True

    def _get_items(self, topic: str, group: str, now_ms: int) -> tuple[StatsItem, StatsItem, StatsItem, StatsItem]:
        key = f"{topic}@{group}"
        return (
            self.counter(GROUP_GET_NUMS, key, now_ms),
            self.counter(GROUP_GET_SIZE, key, now_ms),
            self.counter(BROKER_GET_NUMS, self.cluster, now_ms),
            self.counter(BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC, self.cluster, now_ms),
        )

    def send_back(self, group: str, topic: str, now_ms: int, *, dead_letter: bool = False) -> None:
        """Count a message that was sent back. RocketMQ: AbstractSendMessageProcessor.consumerSendMsgBack."""
        self.add(SNDBCK_PUT_NUMS, f"{topic}@{group}", 1, now_ms)
        if dead_letter:
            self.add(SNDBCK2DLQ_TIMES, f"null@{topic}@{group}@SEND_BACK_TO_DLQ", 1, now_ms)

    def view(self, name: str, key: str) -> StatsView | None:
        """Return the three windows; None where nothing was ever counted (Apache answers SYSTEM_ERROR)."""
        item = self._items.get(name, {}).get(key)
        return None if item is None else item.view()

    def tps(self, name: str, key: str) -> float:
        """Return the rate over the last minute; 0 for the unknown. RocketMQ: tpsTopicPutNums, tpsGroupGetNums."""
        view = self.view(name, key)
        return 0.0 if view is None else view.minute.tps

    def total(self, name: str, key: str | None = None) -> int:
        """Return the count since the start."""
        item = self._items.get(name, {}).get(self.cluster if key is None else key)
        return 0 if item is None else item.value

    def totals(self, name: str) -> list[tuple[str, int]]:
        """Return every key of a name with its count since the start."""
        return [(key, item.value) for key, item in self._items.get(name, {}).items()]

    def sample(self, now_ms: int) -> None:
        """Take the samples of 10 s. Longer ones are taken by the time that has passed, however late the call."""
        if self._next_ten_minutes_ms is None or self._next_hour_ms is None:
            self._next_ten_minutes_ms = self._next_hour_ms = now_ms
        ten_minutes = now_ms >= self._next_ten_minutes_ms
        hour = now_ms >= self._next_hour_ms
        for items in self._items.values():
            for item in items.values():
                item.sample(now_ms, ten_minutes=ten_minutes, hour=hour)
        if ten_minutes:
            self._next_ten_minutes_ms = now_ms + _TEN_MINUTES_MS
        if hour:
            self._next_hour_ms = now_ms + _HOUR_MS

    def midnight(self) -> None:
        """Begin a new day. RocketMQ: BrokerStats.record."""
        put = self.total(BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC)
        get = self.total(BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC)
        self.day = DayTotals(self.day.put_today_morning, put, self.day.get_today_morning, get)

    def forget_topic(self, topic: str) -> None:
        """Forget the counters of a topic. RocketMQ: BrokerStatsManager.onTopicDeleted."""
        for name in _TOPIC_FIRST:
            self._forget(name, lambda key: key == topic or key.startswith(topic + "@"))
        for name in _QUEUE_FIRST:
            self._forget(name, lambda key: topic in key.split("@")[:2])

    def forget_group(self, group: str) -> None:
        """Forget the counters of a group. RocketMQ: BrokerStatsManager.onGroupDeleted."""
        for name in _GROUP_LAST:
            self._forget(name, lambda key: key.endswith("@" + group))

    def forget_idle(self, idle_ms: int, now_ms: int) -> int:
        """Drop counters of topics and groups that did not move (maxStatsIdleTimeInMinutes); how many."""
        dropped = 0
        self._gets.clear()
        for name in _TOPIC_FIRST + _QUEUE_FIRST:
            items = self._items.get(name, {})
            dead = [key for key, item in items.items() if now_ms - item.updated_ms > idle_ms]
            for key in dead:
                del items[key]
            dropped += len(dead)
        return dropped

    def _forget(self, name: str, dead: Callable[[str], bool]) -> None:
        items = self._items.get(name)
        self._gets.clear()
        if items:
            for key in [key for key in items if dead(key)]:
                del items[key]
