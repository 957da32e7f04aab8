"""Flow control: a request is served, or answered busy at once, so that overload never becomes a silent queue.

Two things decide. One is the age of a request against RocketMQ's limit for its kind. Bytes that waited in the kernel
have no time of arrival, so the lag of the event loop stands for their age. The other is the number and age of what
already waits for the disk or replicas. Times are monotonic seconds (Apache uses the wall clock here, which a clock step
breaks).

RocketMQ: BrokerFastFailure, NettyRemotingAbstract.processRequestCommand, SendMessageProcessor.rejectRequest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from aerobee.broker.config import BrokerConfig

BEAT_INTERVAL_S = 0.05


class Work(IntEnum):
    """Kinds of request with a limit of their own; everything else is never refused for age."""

    SEND = 0
    PULL = 1
    LITE_PULL = 2
    HEARTBEAT = 3
    END_TRANSACTION = 4
    ACK = 5
    ADMIN = 6


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """RocketMQ's keys: brokerFastFailureEnable, waitTimeMillsIn*Queue, *ThreadPoolQueueCapacity,
    osPageCacheBusyTimeOutMills."""

    enabled: bool = True
    wait_max_ms: dict[Work, int] = field(
        default_factory=lambda: {
            Work.SEND: 200,
            Work.PULL: 5_000,
            Work.LITE_PULL: 5_000,
            Work.HEARTBEAT: 31_000,
            Work.END_TRANSACTION: 3_000,
            Work.ACK: 3_000,
            Work.ADMIN: 5_000,
        }
    )
    sends_waiting_max: int = 10_000
    store_busy_ms: int = 1_000


def flow_limits(config: BrokerConfig, store_busy_ms: int) -> FlowLimits:
    """Return the limits of the configuration; `store_busy_ms` is the store's osPageCacheBusyTimeOutMills."""
    return FlowLimits(
        enabled=config.broker_fast_failure_enable,
        wait_max_ms={
            Work.SEND: config.wait_in_send_queue_ms,
            Work.PULL: config.wait_in_pull_queue_ms,
            Work.LITE_PULL: config.wait_in_lite_pull_queue_ms,
            Work.HEARTBEAT: config.wait_in_heartbeat_queue_ms,
            Work.END_TRANSACTION: config.wait_in_transaction_queue_ms,
            Work.ACK: config.wait_in_ack_queue_ms,
            Work.ADMIN: config.wait_in_admin_broker_queue_ms,
        },
        sends_waiting_max=config.send_queue_capacity,
        store_busy_ms=store_busy_ms,
    )


class LoopLag:
    """How late the loop is. The driver calls `beat` every 50 ms by a timer; a beat overdue is the lag.

    Sockets are served before timers in an iteration of the loop, so the first requests read after a stall
    still find the beat overdue.
    """

    def __init__(self, now_s: float, interval_s: float = BEAT_INTERVAL_S) -> None:
        self.interval_s = interval_s
        self.worst_s = 0.0
        self._due_s = now_s + interval_s

    def beat(self, now_s: float) -> float:
        """Note that the timer fired. Return the lag that it measured."""
        lag_s = self.lag_s(now_s)
        self.worst_s = max(self.worst_s, lag_s)
        self._due_s = now_s + self.interval_s
        return lag_s

    def lag_s(self, now_s: float) -> float:
        """Return the seconds by which the beat is overdue; 0 where the loop keeps up."""
        return max(0.0, now_s - self._due_s)


class CountedLag(LoopLag):
    """A `LoopLag` that also counts what it measured, for metrics: by upper bounds in seconds."""

    BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)

    def __init__(self, now_s: float, interval_s: float = BEAT_INTERVAL_S) -> None:
        super().__init__(now_s, interval_s)
        self.counts: list[int] = [0] * (len(self.BOUNDS_S) + 1)
        self.total_s = 0.0
        self.beat_s = now_s

    def beat(self, now_s: float) -> float:
        lag_s = super().beat(now_s)
        self.beat_s = now_s
        self.counts[bisect_left(self.BOUNDS_S, lag_s)] += 1
        self.total_s += lag_s
        return lag_s


class SendsWaiting:
    """Sends that were accepted and not yet answered (flush, replicas), in the order of arrival."""

    def __init__(self) -> None:
        self._since: deque[tuple[float, int]] = deque()
        self.count = 0

    def added(self, now_s: float, count: int = 1) -> None:
        """Add the sends of one tick to those that wait."""
        self._since.append((now_s, count))
        self.count += count

    def answered(self, count: int) -> None:
        """Note that the `count` oldest were answered."""
        if count > self.count:
            raise ValueError(f"{count} answered, {self.count} waited")
        self.count -= count
        while count:
            since_s, size = self._since[0]
            if size > count:
                self._since[0] = (since_s, size - count)
                return
            self._since.popleft()
            count -= size

    def age_s(self, now_s: float) -> float:
        """Return how long the oldest has waited."""
        return now_s - self._since[0][0] if self._since else 0.0


class FlowControl:
    """The decision whether a request is served: None, or the remark of a SYSTEM_BUSY answer."""

    def __init__(self, limits: FlowLimits, now_s: float) -> None:
        self.limits = limits
        self.loop = LoopLag(now_s)
        self.sends = SendsWaiting()

    def busy(self, work: Work, now_s: float) -> str | None:
        """Return why requests of this kind are refused in this tick, in Apache's words, or None."""
        if not self.limits.enabled:
            return None
        waited_ms = int(self.loop.lag_s(now_s) * 1000)
        if waited_ms >= self.limits.wait_max_ms[work]:
            return (
                "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
                f"period in queue: {waited_ms}ms, size of queue: {self.sends.count}"
            )
        if work is Work.SEND:
            return self._store_busy(now_s)
        return None

    def store_is_busy(self, now_s: float) -> bool:
        """Tell whether the oldest unanswered send has waited too long. RocketMQ: MessageStore.isOSPageCacheBusy."""
        return self.sends.age_s(now_s) * 1000 > self.limits.store_busy_ms

    def _store_busy(self, now_s: float) -> str | None:
        if self.sends.count >= self.limits.sends_waiting_max:
            return "[OVERLOAD]system busy, start flow control for a while"
        if self.store_is_busy(now_s):
            return (
                "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, "
                f"period in queue: {int(self.sends.age_s(now_s) * 1000)}ms, size of queue: {self.sends.count}"
            )
        return None
