"""Long polling: pulls that found nothing wait for a message or for their time-out.

`LongPolls` owns the waiting pulls, by topic and queue. An arrival costs one dict lookup when nobody waits; waking or
dropping a pull is O(1). No request has a timer: deadlines fall into buckets of 100 ms, and `expire` takes whole buckets
in the order of time. What waits is bounded in total and per connection, by memory and not by number: a pull with many
tags counts as several. A pull over the bound is answered busy, because a client that is told "nothing there" asks again
at once, and one that is told "busy" waits first.

`Arrivals` finds the pulls that a message wakes while the message is dispatched, and runs them after its append has
returned. Running a pull reads the log and writes to a connection, and both can fail. Inside the append such a failure
would be taken for a failure of the append, and a producer would hear that its message is not stored.

A woken pull is removed; the handler runs it again with suspension off (RocketMQ: executeRequestWhenWakeup).
Apache also looks at every waiting pull each 5 s without regard to tags, so that a reader whose tags do not
match moves its offset forward: `waiting` and `arrived(..., tags_code=None)` are for that sweep.

RocketMQ: PullRequestHoldService.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable, Collection, Hashable
from typing import Any, Final, Generic, TypeVar

from aerobee.hot.log.record import Draft
from aerobee.runtime.seams import File
from aerobee.store.dispatch import Sink

# Bounds in parts of about 1 KB: one for a pull, and one for so many tags of it.
HELD_MAX: Final = 100_000
HELD_PER_CHANNEL_MAX: Final = 20_000
TAGS_PER_PART: Final = 16
# A client may ask for any time; beyond this its connection would be idle for longer than an idle connection
# lives.
SUSPEND_MAX_S: Final = 110.0
SWEEP_INTERVAL_S: Final = 5.0
BUCKET_S: Final = 0.1
EXPIRED_MAX: Final = 500
WOKEN_MAX: Final = 500

Request = TypeVar("Request")


class HeldPull(Generic[Request]):
    """One waiting pull. Every message matches where `tag_codes` is None. It is no dataclass: an interpreted function
    would make each one in compiled code."""

    def __init__(
        self,
        topic: bytes,
        queue_id: int,
        offset: int,
        tag_codes: Collection[int] | None,
        channel: Hashable,
        request: Request,
        bucket: int,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.tag_codes = tag_codes
        self.channel = channel
        self.request = request
        self.bucket = bucket
        self.parts = 1 if tag_codes is None else 1 + len(tag_codes) // TAGS_PER_PART


class LongPolls(Generic[Request]):
    """All waiting pulls of a broker. Time is monotonic seconds."""

    def __init__(self, held_max: int = HELD_MAX, held_per_channel_max: int = HELD_PER_CHANNEL_MAX) -> None:
        self.held_max = held_max
        self.held_per_channel_max = held_per_channel_max
        self.count = 0
        self._parts = 0
        self._channel_parts: dict[Hashable, int] = {}
        # Dicts used as ordered sets: first come, first woken.
        self._queues: dict[bytes, dict[int, dict[HeldPull[Request], None]]] = {}
        self._channels: dict[Hashable, dict[HeldPull[Request], None]] = {}
        self._buckets: dict[int, dict[HeldPull[Request], None]] = {}
        self._order: list[int] = []

    def __len__(self) -> int:
        return self.count

    def suspend(
        self,
        topic: bytes,
        queue_id: int,
        offset: int,
        request: Request,
        *,
        channel: Hashable,
        now_s: float,
        timeout_s: float,
        tag_codes: Collection[int] | None = None,
    ) -> bool:
        """Hold a pull from `offset`. False: it does not wait (no time, or a bound is reached).

        The caller has just seen that the queue ends at `offset`, in the same step: a message that came in
        between would wake nobody before the sweep.
        """
        if timeout_s <= 0 or self._parts >= self.held_max:
            return False
        channel_parts = self._channel_parts.get(channel, 0)
        if channel_parts >= self.held_per_channel_max:
            return False
        bucket = math.ceil((now_s + min(timeout_s, SUSPEND_MAX_S)) / BUCKET_S)
        pull = HeldPull(topic, queue_id, offset, tag_codes, channel, request, bucket)
        self._queues.setdefault(topic, {}).setdefault(queue_id, {})[pull] = None
        channel_pulls = self._channels.get(channel)
        if channel_pulls is None:
            channel_pulls = self._channels[channel] = {}
        channel_pulls[pull] = None
        pulls = self._buckets.get(bucket)
        if pulls is None:
            pulls = self._buckets[bucket] = {}
            heapq.heappush(self._order, bucket)
        pulls[pull] = None
        self.count += 1
        self._parts += pull.parts
        self._channel_parts[channel] = channel_parts + pull.parts
        return True

    def arrived(self, topic: bytes, queue_id: int, max_offset: int, tags_code: int | None) -> list[Request]:
        """Take out the pulls that a message wakes; the queue now ends at `max_offset`.

        `tags_code` None wakes whatever the tag. RocketMQ: PullRequestHoldService.notifyMessageArriving.
        """
        queues = self._queues.get(topic)
        if queues is None:
            return []
        pulls = queues.get(queue_id)
        if pulls is None:
            return []
        woken = [
            pull
            for pull in pulls
            if pull.offset < max_offset and (tags_code is None or pull.tag_codes is None or tags_code in pull.tag_codes)
        ]
        for pull in woken:
            self._remove(pull)
        return [pull.request for pull in woken]

    def has_waiting(self, topic: bytes) -> bool:
        """Tell whether any queue of the topic is waited for: a dispatch pays for this look only."""
        return topic in self._queues

    def waiting(self) -> list[tuple[bytes, int]]:
        """Return the queues that somebody waits for, for the sweep each 5 s."""
        return [(topic, queue_id) for topic, queues in self._queues.items() for queue_id in queues]

    def expire(self, now_s: float) -> list[Request]:
        """Take out the pulls whose time is up, earliest deadline first: at most one bucket late, never early.

        No more than EXPIRED_MAX: each is answered, and the rest with the next call.
        """
        expired: list[Request] = []
        while self._order and self._order[0] * BUCKET_S <= now_s:
            pulls = self._buckets[self._order[0]]
            for pull in list(pulls):
                if len(expired) == EXPIRED_MAX:
                    return expired
                self._remove(pull)
                expired.append(pull.request)
            del self._buckets[heapq.heappop(self._order)]
        return expired

    def channel_closed(self, channel: Hashable) -> int:
        """Drop the pulls of a connection that is gone. Return how many there were."""
        pulls = list(self._channels.get(channel, ()))
        for pull in pulls:
            self._remove(pull)
        return len(pulls)

    def topic_deleted(self, topic: bytes) -> list[Request]:
        """Take out everything that waits for the topic, to be answered now."""
        pulls = [pull for queue in self._queues.get(topic, {}).values() for pull in queue]
        for pull in pulls:
            self._remove(pull)
        return [pull.request for pull in pulls]

    def drain(self) -> list[Request]:
        """Take out everything: the broker stops, or its master is back. RocketMQ: notifyMasterOnline."""
        return [request for topic in list(self._queues) for request in self.topic_deleted(topic)]

    def validate(self) -> None:
        """Assert that the three views hold the same pulls, within the bounds."""
        by_queue = {p for queues in self._queues.values() for pulls in queues.values() for p in pulls}
        by_channel = {p for pulls in self._channels.values() for p in pulls}
        by_bucket = {p for pulls in self._buckets.values() for p in pulls}
        assert by_queue == by_channel == by_bucket, "views differ"
        assert len(by_queue) == self.count <= self.held_max, "count"
        assert sum(pull.parts for pull in by_queue) == self._parts == sum(self._channel_parts.values()), "parts"
        assert self._channel_parts.keys() == self._channels.keys(), "parts of a channel"
        assert all(len(p) <= self.held_per_channel_max for p in self._channels.values()), "per channel"
        assert all(pulls for queues in self._queues.values() for pulls in queues.values()), "empty queue kept"
        assert all(self._channels.values()) and all(self._queues.values()), "empty entry kept"
        assert sorted(self._order) == sorted(self._buckets), "bucket without a place in the order"

    def _remove(self, pull: HeldPull[Request]) -> None:
        queues = self._queues[pull.topic]
        pulls = queues[pull.queue_id]
        del pulls[pull]
        if not pulls:
            del queues[pull.queue_id]
            if not queues:
                del self._queues[pull.topic]
        channel_pulls = self._channels[pull.channel]
        del channel_pulls[pull]
        self._parts -= pull.parts
        if channel_pulls:
            self._channel_parts[pull.channel] -= pull.parts
        else:
            del self._channels[pull.channel]
            del self._channel_parts[pull.channel]
        bucket = self._buckets.get(pull.bucket)
        if bucket is not None:
            bucket.pop(pull, None)
        self.count -= 1


class Arrivals(Sink):
    """A sink of the log that keeps only the pulls to wake.

    Whoever appends and calls `drain` afterwards sets `is_drained` meanwhile; what a dispatch finds at any other time (a
    sync has ended) is drained in the loop's next turn.
    """

    name = "arrivals"

    def __init__(self, polls: LongPolls[Any]) -> None:
        self._polls = polls
        self._end = -1
        self._scheduled = False
        # Pulls that were taken out of the held ones and not run yet.
        self.woken: list[Any] = []
        self.is_drained = False
        # Runs pulls again. Whoever serves pulls sets it.
        self.wake: Callable[[list[Any]], None] | None = None

    def recover(self, log_start: int, log_end: int) -> None:
        self._end = log_end

    def position(self) -> int:
        """Return the end of the log: nothing is derived here, so nothing is ever missing."""
        return self._end

    def dispatch(self, drafts: list[Draft]) -> None:
        polls = self._polls
        if not polls.count or self.wake is None:
            return
        for draft in drafts:
            if polls.has_waiting(draft.topic):
                self.woken += polls.arrived(draft.topic, draft.queue_id, draft.queue_offset + 1, draft.tags_code)
        if self.woken and not self.is_drained and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.drain)

    def drain(self) -> None:
        """Run what was woken; where thousands waited for one message, a part in each turn of the loop."""
        self._scheduled = False
        woken = self.woken
        if not woken or self.wake is None:
            return
        if len(woken) > WOKEN_MAX:
            self.woken = woken[WOKEN_MAX:]
            woken = woken[:WOKEN_MAX]
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.drain)
        else:
            self.woken = []
        self.wake(woken)

    def flush(self) -> list[File]:
        return []

    def flushed(self) -> None:
        """Do nothing."""

    def truncate(self, physical_offset: int) -> None:
        """Do nothing: nothing is derived."""

    def close(self) -> None:
        """Do nothing."""
