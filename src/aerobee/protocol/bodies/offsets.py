"""Offsets and statistics of consumption: tables by queue, resets, time spans."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from aerobee.model.queue import MessageQueue
from aerobee.protocol.bodies.base import Body


@dataclass(frozen=True, slots=True)
class OffsetWrapper(Body):
    """The offsets of the broker and of a group in one queue."""

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int = 0
    last_timestamp: int = 0


@dataclass(frozen=True, slots=True)
class ConsumeStats(Body):
    """GET_CONSUME_STATS."""

    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0

    @property
    def diff_total(self) -> int:
        """Return how many messages are not consumed yet. RocketMQ: ConsumeStats.computeTotalDiff."""
        return sum(wrapper.broker_offset - wrapper.consumer_offset for wrapper in self.offset_table.values())


@dataclass(frozen=True, slots=True)
class ConsumeStatsList(Body):
    """GET_BROKER_CONSUME_STATS."""

    consume_stats_list: tuple[dict[str, tuple[ConsumeStats, ...]], ...] = ()
    broker_addr: str | None = None
    total_diff: int = 0
    total_inflight_diff: int = 0


@dataclass(frozen=True, slots=True)
class TopicOffset(Body):
    """The first and last offset of one queue, and the time of the last write."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


@dataclass(frozen=True, slots=True)
class TopicStatsTable(Body):
    """GET_TOPIC_STATS_INFO."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0


@dataclass(frozen=True, slots=True)
class ResetOffsetBody(Body):
    """RESET_CONSUMER_CLIENT_OFFSET and the answer of INVOKE_BROKER_TO_RESET_OFFSET."""

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MessageQueueForC(Body):
    """A queue and its offset, for clients that cannot read an object as a key."""

    topic: str = ""
    broker_name: str = ""
    queue_id: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class ResetOffsetBodyForC(Body):
    """RESET_CONSUMER_CLIENT_OFFSET for C++ clients."""

    offset_table: tuple[MessageQueueForC, ...] = ()


@dataclass(frozen=True, slots=True)
class GetConsumerStatusBody(Body):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS: client id -> queue -> offset."""

    message_queue_table: dict[MessageQueue, int] = field(default_factory=dict)
    consumer_table: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueryCorrectionOffsetBody(Body):
    """QUERY_CORRECTION_OFFSET."""

    correction_offsets: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueTimeSpan(Body):
    """The range of store times in a queue, and the time of the message that a group reads next."""

    message_queue: MessageQueue | None = None
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object. It has each time as text too, as Apache's getters add it (here in UTC)."""
        data = Body.to_json(self)
        for name in ("minTimeStamp", "maxTimeStamp", "consumeTimeStamp"):
            data[name + "Str"] = readable_time(data[name])
        return dict(sorted(data.items()))


@dataclass(frozen=True, slots=True)
class QueryConsumeTimeSpanBody(Body):
    """QUERY_CONSUME_TIME_SPAN."""

    consume_time_span_set: tuple[QueueTimeSpan, ...] = ()


def readable_time(timestamp_ms: int) -> str:
    """Return a time as `1970-01-01#00:00:00:000`, as RocketMQ's QueueTimeSpan writes it."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=max(0, min(timestamp_ms, 10**14)))
    return moment.strftime("%Y-%m-%d#%H:%M:%S:") + f"{moment.microsecond // 1000:03d}"
