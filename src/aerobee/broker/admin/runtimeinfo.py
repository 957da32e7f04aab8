"""The runtime info of a broker, under Apache's keys: rates, totals, offsets, queues, disk.

Apache's monitors read these keys. The keys of its thread pools tell what stands in their place here.
RocketMQ: AdminBrokerProcessor.prepareRuntimeInfo, DefaultMessageStore.getRuntimeInfo, ScheduleMessageService.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from aerobee.broker.state import BrokerState
from aerobee.broker.stats import (
    BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC,
    BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC,
)
from aerobee.model.dialect import java_double
from aerobee.model.names import SCHEDULE_TOPIC
from aerobee.model.topic import PERM_WRITE
from aerobee.protocol.bodies.cluster import HARuntimeInfo
from aerobee.store.recordhead import HEAD_SIZE, head_of
from aerobee.store.stats import StoreStats

VERSION_NAME: Final = "V5_5_0"

# Total and free bytes of the file system that holds a path.
DiskSpace = Callable[[str], tuple[int, int]]


class RuntimeInfo:
    """The runtime info of a broker, with rates from a sample a second."""

    def __init__(
        self,
        state: BrokerState,
        delay_offsets: Callable[[], Mapping[int, int]],
        disk_space: DiskSpace | None,
        pending: Callable[[], Mapping[str, str]] = dict,
        rejected: Callable[[], int] = int,
    ) -> None:
        self._pending = pending
        # The status of replication, for GET_BROKER_HA_STATUS. Without replicas: that of a master without slaves.
        self.ha_status: Callable[[], HARuntimeInfo] = self._alone
        self._rejected = rejected
        self._state = state
        self._delay_offsets = delay_offsets
        self._disk_space = disk_space
        self._started_ms = state.clock.now_ms()
        self._stats = StoreStats(self._started_ms)
        self._stats.sample(self._started_ms)

    def _alone(self) -> HARuntimeInfo:
        return HARuntimeInfo(master=True, master_commit_log_max_offset=self._state.store.log_end)

    def sample(self, now_ms: int) -> None:
        """Take the sample of a second, from which rates come."""
        self._take()
        self._stats.sample(now_ms)

    def _take(self) -> None:
        counters, stats = self._state.store.counters, self._stats
        stats.put_messages, stats.put_size = counters.appended, counters.appended_bytes
        stats.put_failed = counters.refused_full
        stats.get_found, stats.get_miss = counters.get_found, counters.get_miss
        stats.transferred = counters.transferred
        stats.dispatch_behind_max = max(stats.dispatch_behind_max, self._behind())

    def _behind(self) -> int:
        store = self._state.store
        return max(0, store.confirmed_offset - store.dispatched_offset)

    def table(self) -> dict[str, str]:
        """Return everything, for GET_BROKER_RUNTIME_INFO."""
        self._take()
        found = self._stats.runtime_info(self._state.clock.now_ms())
        found.update(self._disk())
        found.update(self._schedule())
        found.update(self._totals())
        found.update(self._log())
        found.update(self._queues())
        found.update(self._refusing())
        found.update(self._pending())
        # A key of ours: entries of state files that could not be used and lie in `config/*.rejected`.
        found["stateEntriesRejected"] = str(self._rejected())
        return found

    def _disk(self) -> dict[str, str]:
        store = self._state.store
        log_path = store.config.store_path_commit_log or f"{store.root}/commitlog"
        used = java_double(round(store.disk.used_ratio(store.root), 4))
        found = {
            f"commitLogDiskRatio_{log_path}": used,
            "commitLogDiskRatio": used,
            "consumeQueueDiskRatio": used,
        }
        if self._disk_space is not None:
            total, free = self._disk_space(store.root)
            found["commitLogDirCapacity"] = f"Total : {readable_size(total)}, Free : {readable_size(free)}."
        return found

    def _schedule(self) -> dict[str, str]:
        store = self._state.store
        topic = SCHEDULE_TOPIC.encode()
        done = self._delay_offsets()
        found: dict[str, str] = {}
        for level in range(1, self._state.levels.max_level + 1):
            end = store.max_offset(topic, level - 1)
            if level in done:
                found[f"scheduleMessageOffset_{level}"] = f"{done[level]},{end}"
            if end:
                # A key of ours: what waits, as of the last save of the progress.
                found[f"scheduleMessagePending_{level}"] = str(max(0, end - done.get(level, 0)))
        return found

    def _totals(self) -> dict[str, str]:
        stats = self._state.stats
        day = stats.day
        return {
            "msgPutTotalYesterdayMorning": str(day.put_yesterday_morning),
            "msgPutTotalTodayMorning": str(day.put_today_morning),
            "msgPutTotalTodayNow": str(stats.total(BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC)),
            "msgGetTotalYesterdayMorning": str(day.get_yesterday_morning),
            "msgGetTotalTodayMorning": str(day.get_today_morning),
            "msgGetTotalTodayNow": str(stats.total(BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC)),
        }

    def _log(self) -> dict[str, str]:
        store = self._state.store
        return {
            "brokerActive": "true",
            "brokerVersionDesc": VERSION_NAME,
            "commitLogMinOffset": str(store.log_start),
            "commitLogMaxOffset": str(store.log_end),
            "dispatchBehindBytes": str(self._behind()),
            # A key of ours: records of the log that cannot be used.
            "setAsideRecords": str(store.asides.total),
            "pageCacheLockTimeMills": str(int(self._state.flow.sends.age_s(self._state.clock.monotonic()) * 1000)),
            "earliestMessageTimeStamp": str(self._earliest_ms()),
            "startAcceptSendRequestTimeStamp": "0",
            "remainTransientStoreBufferNumbs": "2147483647",
            "remainHowManyDataToFlush": readable_size(store.log_end - store.flushed_offset),
            "timerReadBehind": "0",
            "timerOffsetBehind": "0",
            "timerCongestNum": "0",
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
        }

    def _refusing(self) -> dict[str, str]:
        """Return, under keys of ours, why sends are refused, while they are."""
        store = self._state.store
        found = {} if store.fenced is None else {"storeFenced": store.fenced.message}
        if store.full is not None:
            found["storeFull"] = store.full
        if not self._state.config.broker_permission & PERM_WRITE:
            found["sendsClosed"] = "brokerPermission forbids sends"
        return found

    def _earliest_ms(self) -> int:
        """Store time of the log's first record. RocketMQ: DefaultMessageStore.getEarliestMessageTime."""
        store = self._state.store
        head = head_of(store.read_log(store.log_start, HEAD_SIZE))
        return -1 if head is None else head.store_timestamp

    def _queues(self) -> dict[str, str]:
        """Return what stands for Apache's thread pools: sends wait for the disk or replicas, pulls for messages."""
        state = self._state
        now_s = state.clock.monotonic()
        lag_ms = str(int(state.flow.loop.lag_s(now_s) * 1000))
        return {
            "sendThreadPoolQueueSize": str(state.flow.sends.count),
            "sendThreadPoolQueueCapacity": str(state.config.send_queue_capacity),
            "sendThreadPoolQueueHeadWaitTimeMills": str(int(state.flow.sends.age_s(now_s) * 1000)),
            "pullThreadPoolQueueSize": "0",
            "pullThreadPoolQueueCapacity": str(state.config.held_pulls_max),
            "pullThreadPoolQueueHeadWaitTimeMills": lag_ms,
            "litePullThreadPoolQueueSize": "0",
            "litePullThreadPoolQueueCapacity": str(state.config.held_pulls_max),
            "litePullThreadPoolQueueHeadWaitTimeMills": lag_ms,
            "queryThreadPoolQueueSize": "0",
            "queryThreadPoolQueueCapacity": "0",
            "queryThreadPoolQueueHeadWaitTimeMills": lag_ms,
            "ackThreadPoolQueueSize": "0",
            "ackThreadPoolQueueCapacity": "0",
            "ackThreadPoolQueueHeadWaitTimeMills": lag_ms,
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": "0",
        }


def readable_size(size: int) -> str:
    """Return a size for people, as `1.5 GiB`. RocketMQ: MixAll.humanReadableByteCount."""
    if size < 1024:
        return f"{size} B"
    amount: float = size
    for unit in "KMGTP":
        amount /= 1024
        if amount < 1024:
            return f"{amount:.1f} {unit}iB"
    return f"{amount / 1024:.1f} EiB"
