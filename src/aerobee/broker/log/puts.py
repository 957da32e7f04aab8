"""Puts: everything to be stored in one tick goes into the log in one write, and is answered when it is safe.

A send costs no task and no future. Plain sends are answered here, from the draft itself; everything else brings
a callback. With SYNC_FLUSH (or replicas to wait for) one waiter stands for all puts of a tick; when it takes
longer than its time-out the message is stored but not yet safe, and the answer says so. RocketMQ:
CommitLog.handleDiskFlushAndHA.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from aerobee.broker.flowcontrol import FlowControl
from aerobee.broker.log.arrivals import Arrivals, LongPolls
from aerobee.broker.log.waiting import (
    AfterSave,
    Cancellable,
    EarlyLog,
    TopicSaves,
    is_for_any,
    refusal_of,
)
from aerobee.broker.stats import (
    BROKER_PUT_NUMS,
    BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC,
    QUEUE_PUT_NUMS,
    QUEUE_PUT_SIZE,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
    BrokerStats,
)
from aerobee.errors import AerobeeError, DiskFullError, StoreError
from aerobee.hot.log.record import Draft
from aerobee.net.channel import Channel
from aerobee.protocol.codes import ResponseCode
from aerobee.runtime.seams import Clock
from aerobee.store.messagestore import MessageStore

# One write of the log takes at most this much of a tick's puts; the rest follows in the next write.
_WRITE_BYTES_MAX: Final = 4 << 20

# With SYNC_FLUSH a write waits while each look at the network brings more, so often at most: a sync costs more than a
# few looks, and one sync for more messages is why one in flight for each of 16 connections costs 34 us
# instead of 47 (docs/decisions/0005).
_LOOKS_MAX: Final = 6

# A send is written at once, without the turn of the loop that would gather others, where so many turns before it
# brought one send each, and where none was read so shortly before that both must have waited at the same time.
_ALONE_TURNS: Final = 4
_COMPANY_S: Final = 50e-6

# A draft lives until its index entry is made, but its body is in the log already. Given up at once, the memory of the
# body takes the next message while the processor's caches still hold it.
_IN_LOG: Final = b""

# Codes of a put that is in the log. The code says whether it is safe yet.
STORED: Final = frozenset(
    (
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    )
)

# How many queues are brought into the statistics in one tick, and for how long counts are gathered at least.
_TICK_KEYS: Final = 128
_GATHER_MS: Final = 100
_RECENT: Final = 16

# Sizes of records by which metrics count them. RocketMQ: BrokerMetricsManager.registerMetricsView.
SIZE_BOUNDS: Final = (1024, 4096, 524_288, 1_048_576, 2_097_152, 4_194_304)
_SMALL: Final = 1024
_MIDDLE: Final = 4096

# (code, remark) when stored: SUCCESS, FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT; or why it was not.
Done = Callable[[int, str], None]


@dataclass(slots=True)
class SendSettings:
    """What writers need of the broker's configuration. All share one object, because settings change at run time."""

    cluster: str
    region: str
    trace_on: bool
    store_host: bytes
    body_size_max: int
    writable: bool = True


class PlainAnswer(Protocol):
    """What writes the answers of plain sends: SUCCESS from the draft, or a refusal."""

    def stored(self, channel: Channel, opaque: int, codec: int, draft: Draft, code: int) -> None: ...
    def stored_all(
        self, channels: list[Channel | None], opaques: list[int], codecs: list[int], drafts: list[Draft]
    ) -> None: ...
    def refused(self, channel: Channel, opaque: int, codec: int, code: int, remark: str) -> None: ...


class _Tick:
    """The puts of one tick, column by column."""

    __slots__ = ("calls", "channels", "codecs", "drafts", "opaques", "size")

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self.channels: list[Channel | None] = []
        self.opaques: list[int] = []
        self.codecs: list[int] = []
        # Drafts, who is told, whether to wait until they are safe, and whether that may take too long.
        self.calls: list[tuple[list[Draft], Done, bool, bool]] = []
        self.size = 0

    def apart(self) -> Iterator[_Tick]:
        """Yield each plain send as if it had come alone."""
        for draft, channel, opaque, codec in zip(self.drafts, self.channels, self.opaques, self.codecs, strict=True):
            yield _one(draft, channel, opaque, codec)

    def divided(self, topics: dict[bytes, int]) -> tuple[_Tick, _Tick]:
        """Return the plain sends to these topics, and the others."""
        inside, outside = _Tick(), _Tick()
        for i in range(len(self.drafts)):
            part = inside if self.drafts[i].topic in topics else outside
            part.drafts.append(self.drafts[i])
            part.channels.append(self.channels[i])
            part.opaques.append(self.opaques[i])
            part.codecs.append(self.codecs[i])
        return inside, outside


def _one(draft: Draft, channel: Channel | None, opaque: int, codec: int) -> _Tick:
    one = _Tick()
    one.drafts, one.channels, one.opaques, one.codecs = [draft], [channel], [opaque], [codec]
    return one


class _Wait:
    """Somebody who is told when the log is safe up to `end`, or at `deadline_s` that it is not yet."""

    __slots__ = ("count", "deadline_s", "done", "end", "is_over", "puts", "waiter")

    def __init__(self, puts: Puts, end: int, done: Done, count: int, deadline_s: float) -> None:
        self.puts = puts
        self.end = end
        self.done = done
        self.count = count
        self.deadline_s = deadline_s
        self.waiter: Cancellable | None = None
        self.is_over = False

    def safe(self, error: StoreError | None) -> None:
        """Take that the log is safe, or the error that means it never is."""
        self.is_over = True
        self.puts.waited(self)
        if error is None:
            self.done(ResponseCode.SUCCESS, "")
        else:
            self.done(*refusal_of(error))


class Puts:
    """The writer: it collects what is to be stored, writes it once per tick, and answers."""

    def __init__(
        self,
        log: MessageStore,
        answer: PlainAnswer,
        flow: FlowControl,
        clock: Clock,
        *,
        timeout_s: float,
        write_bytes_max: int = _WRITE_BYTES_MAX,
        gather: bool = False,
        stored: Callable[[list[Draft]], None] = lambda drafts: None,
        arrivals: Arrivals | None = None,
    ) -> None:
        """`gather` says that a sync follows every write. `stored` is told of everything written, once per write.
        `arrivals` wakes whoever waits for what is written, after its senders are answered."""
        self._log = log
        self._answer = answer
        self._flow = flow
        self._clock = clock
        self.timeout_s = timeout_s
        # With replicas and ASYNC_MASTER: senders wait for this machine only, everybody else for the replicas too.
        self.early: EarlyLog | None = None
        # With slaves of a SYNC_MASTER: senders wait for them too, readers do not.
        self.slaves: EarlyLog | None = None
        # A crash could change a topic that is not saved, so nobody is told before that its message is stored.
        self._topics: TopicSaves | None = None
        self._unsaved: dict[bytes, int] = {}
        # The code for a put up to this end of the log that is stored and not safe in time.
        self.late_code: Callable[[int], int] = _flush_is_late
        self._write_bytes_max = write_bytes_max
        self.stored = stored
        self._arrivals = arrivals if arrivals is not None else Arrivals(LongPolls())
        self._tick = _Tick()
        self._scheduled = False
        self._looks_max = _LOOKS_MAX if gather else 0
        self._looks = 0
        self._seen = 0
        # Turns in a row that brought one send each, and when the last one written at once was read.
        self._alone_turns = 0
        self._alone_read_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        # Called once when a tick's puts are written, before anything else is read from the network.
        self.written: Callable[[], None] | None = None
        # Those who wait, by deadline. One timer of the loop serves them all: a timer costs more than its message's
        # numbering, log write and dispatch together, and it is nearly always cancelled.
        self._waits: deque[_Wait] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def wait_for(self, topics: TopicSaves) -> None:
        """Answer sends when their topics are saved."""
        self._topics, self._unsaved = topics, topics.unsaved

    # -- in

    def send(self, channel: Channel | None, opaque: int, codec: int, draft: Draft) -> None:
        """Take a plain send; `channel` is None where the sender wants no answer."""
        tick = self._tick
        tick.drafts.append(draft)
        tick.channels.append(channel)
        tick.opaques.append(opaque)
        tick.codecs.append(codec)
        tick.size += len(draft.body) + len(draft.properties) + 256
        if not self._scheduled:
            self._schedule()
        elif tick.size > self._write_bytes_max:
            self._write(tick)

    def send_alone(self, channel: Channel | None, opaque: int, codec: int, draft: Draft, read_s: float) -> None:
        """Take a plain send that came alone in its read, at `read_s`. While sends come one by one nothing is gathered:
        gathering would cost each of them a callback and a turn of the loop."""
        if self._alone_turns < _ALONE_TURNS or self._scheduled or read_s - self._alone_read_s < _COMPANY_S:
            self._alone_turns = min(self._alone_turns, _ALONE_TURNS - 1)
            self._alone_read_s = read_s
            self.send(channel, opaque, codec, draft)
            return
        self._alone_read_s = read_s
        arrivals = self._arrivals
        arrivals.is_drained = True
        try:
            self._write_alone(channel, opaque, codec, draft)
        finally:
            arrivals.is_drained = False
            if self.written is not None:
                self.written()
            if arrivals.woken:
                arrivals.drain()

    def _write_alone(self, channel: Channel | None, opaque: int, codec: int, draft: Draft) -> None:
        drafts = [draft]
        try:
            end = self._log.append(drafts)
        except AerobeeError as error:
            if channel is not None:
                self._answer.refused(channel, opaque, codec, *refusal_of(error))
            return
        draft.body = _IN_LOG
        self.stored(drafts)
        if end > self._log.confirmed_offset or self.slaves is not None or self._unsaved:
            self._answer_when_safe(_one(draft, channel, opaque, codec), end)
        elif channel is not None:
            self._answer.stored(channel, opaque, codec, draft, 0)

    def put(self, drafts: list[Draft], done: Done, *, wait: bool = True, may_be_late: bool = False) -> None:
        """Store drafts that belong together (a batch, a retry, a half message): all of them, or none.

        `done` is told SUCCESS when they are safe, however long that takes. Only with `may_be_late`, for senders whose
        answer can say so, it is told after a while that they are stored and not safe yet.
        """
        self._tick.calls.append((drafts, done, wait, may_be_late))
        if not self._scheduled:
            self._schedule()

    def when_safe(self, end: int, done: Done, *, may_be_late: bool = False) -> None:
        """Call `done` for what the log holds up to `end` already, as if it had been put just now."""
        if self._unsaved:
            self._when_saved_and_safe(None, end, done, may_be_late=may_be_late)
        else:
            self._when_safe(end, done, may_be_late=may_be_late)

    def _schedule(self) -> None:
        self._scheduled = True
        self._own_loop().call_soon(self._look if self._looks_max else self.flush)

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        # Asked once: each call costs a system call, because Python checks whether the process was forked.
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    # -- the end of a tick

    def _look(self) -> None:
        """Write now, unless more is still coming."""
        count = len(self._tick.drafts) + len(self._tick.calls)
        if self._looks < self._looks_max and count > self._seen and self._loop is not None:
            self._seen = count
            self._looks += 1
            self._loop.call_soon(self._look)
            return
        self._looks = self._seen = 0
        self.flush()

    def flush(self) -> None:
        self._scheduled = False
        tick = self._tick
        # With a sync behind each write waiting gains something, so nothing is written at once then.
        if len(tick.drafts) == 1 and not tick.calls and not self._looks_max:
            self._alone_turns += 1
        else:
            self._alone_turns = 0
        self._write(tick)

    def _write(self, tick: _Tick) -> None:
        self._tick = _Tick()
        arrivals = self._arrivals
        arrivals.is_drained = True
        try:
            self._write_tick(tick)
        finally:
            arrivals.is_drained = False
            if self.written is not None:
                self.written()
            if arrivals.woken:
                arrivals.drain()

    def _write_tick(self, tick: _Tick) -> None:
        if tick.drafts:
            self._write_sends(tick)
        for drafts, done, wait, may_be_late in tick.calls:
            try:
                end = self._log.append(drafts)
            except AerobeeError as error:
                done(*refusal_of(error))
            else:
                self.stored(drafts)
                if wait and self._unsaved:
                    self._when_saved_and_safe(drafts, end, done, may_be_late=may_be_late)
                else:
                    self._when_safe(end, done, wait=wait, may_be_late=may_be_late)

    def _write_sends(self, tick: _Tick) -> None:
        try:
            end = self._log.append(tick.drafts)
        except AerobeeError as error:
            if len(tick.drafts) > 1 and not isinstance(error, StoreError | DiskFullError):
                # One of them is illegal. The others, perhaps of other clients, must not be refused for it.
                for one in tick.apart():
                    self._write_sends(one)
                return
            self._outcome(tick)(*refusal_of(error))
            return
        for draft in tick.drafts:
            draft.body = _IN_LOG
        self.stored(tick.drafts)
        if end <= self._log.confirmed_offset and self.slaves is None and not self._unsaved:
            self._answer_sends(tick, ResponseCode.SUCCESS)
        else:
            self._answer_when_safe(tick, end)

    def _answer_when_safe(self, tick: _Tick, end: int) -> None:
        log = self.early or self.slaves or self._log
        if self._unsaved:
            held, tick = tick.divided(self._unsaved)
            if held.drafts:
                self._wait(AfterSave(log, self._when_saved), end, self._outcome(held), len(held.drafts))
        if not tick.drafts:
            return
        if end <= log.confirmed_offset:
            self._answer_sends(tick, ResponseCode.SUCCESS)
        else:
            self._wait(log, end, self._outcome(tick), len(tick.drafts))

    def _outcome(self, tick: _Tick) -> Done:
        def done(code: int, remark: str) -> None:
            if code in STORED:
                self._answer_sends(tick, code)
            else:
                for channel, opaque, codec in zip(tick.channels, tick.opaques, tick.codecs, strict=True):
                    if channel is not None:
                        self._answer.refused(channel, opaque, codec, code, remark)

        return done

    def _when_saved(self, done: Callable[[StoreError | None], None]) -> None:
        """Call back when the topics are saved. Everything that is made in one turn of the loop shares one write."""
        assert self._topics is not None
        self._topics.when_saved(done)
        asyncio.get_running_loop().call_soon(self._topics.tick)

    def _when_saved_and_safe(self, drafts: list[Draft] | None, end: int, done: Done, *, may_be_late: bool) -> None:
        """Wait for the topics first. None stands for drafts that are not known any more.

        What is in the log is not refused where a topic cannot be saved: its sender would store it again.
        """

        def saved(error: StoreError | None) -> None:
            if error is None or (drafts is not None and not any(is_for_any(draft, self._unsaved) for draft in drafts)):
                self._when_safe(end, done, may_be_late=may_be_late)
            elif not may_be_late:
                # A feature that is refused would store the same again and again.
                assert self._topics is not None
                self._topics.when_saved(saved)
            else:
                done(ResponseCode.FLUSH_DISK_TIMEOUT, "")

        self._when_saved(saved)

    def _answer_sends(self, tick: _Tick, code: int) -> None:
        if code == 0:
            self._answer.stored_all(tick.channels, tick.opaques, tick.codecs, tick.drafts)
            return
        stored = self._answer.stored
        for draft, channel, opaque, codec in zip(tick.drafts, tick.channels, tick.opaques, tick.codecs, strict=True):
            if channel is not None:
                stored(channel, opaque, codec, draft, code)

    def _when_safe(self, end: int, done: Done, *, wait: bool = True, may_be_late: bool = False) -> None:
        log: EarlyLog = self._log if self.slaves is None else self.slaves
        if not wait or end <= log.confirmed_offset:
            done(ResponseCode.SUCCESS, "")
        elif may_be_late or self.slaves is not None:
            # With static roles a slave may be away for hours. Features go on without it, as Apache's do.
            self._wait(log, end, done)
        else:
            log.on_safe(end, lambda error: done(*((ResponseCode.SUCCESS, "") if error is None else refusal_of(error))))

    def _wait(self, log: EarlyLog, end: int, done: Done, count: int = 1) -> None:
        self._flow.sends.added(self._clock.monotonic(), count)
        loop = self._own_loop()
        wait = _Wait(self, end, done, count, loop.time() + self.timeout_s)
        self._waits.append(wait)
        if self._timer is None:
            self._timer = loop.call_later(self.timeout_s, self._tell_late)
        wait.waiter = log.on_safe(end, wait.safe)

    def waited(self, wait: _Wait) -> None:
        """Note that a wait is over. Those that are over in front of the others are forgotten."""
        waits = self._waits
        while waits and waits[0].is_over:
            waits.popleft()
        self._flow.sends.answered(wait.count)

    def _tell_late(self) -> None:
        """Tell everybody whose time is over, and come again when that of the next one is."""
        loop, waits = self._own_loop(), self._waits
        now_s = loop.time()
        try:
            while waits and (waits[0].is_over or waits[0].deadline_s <= now_s):
                wait = waits.popleft()
                if not wait.is_over:
                    wait.is_over = True
                    if wait.waiter is not None:
                        wait.waiter.cancel()
                    self._flow.sends.answered(wait.count)
                    wait.done(self.late_code(wait.end), "")
        finally:
            # Whoever was told may wait for something again, which is due later than what is left.
            self._timer = None
            if waits:
                self._timer = loop.call_later(max(0.0, waits[0].deadline_s - now_s), self._tell_late)


def _flush_is_late(end: int) -> int:
    return ResponseCode.FLUSH_DISK_TIMEOUT


class _Count:
    """The counts of one queue."""

    def __init__(self, topic: bytes, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.messages: int = 0
        self.size: int = 0
        # Messages by size, where sizes are counted: up to the first of SIZE_BOUNDS, the second, and each of the others.
        self.small: int = 0
        self.middle: int = 0
        self.large: list[int] | None = None

    def count_large(self, size: int) -> None:
        """Count a message above the second of SIZE_BOUNDS."""
        if self.large is None:
            self.large = [0] * (len(SIZE_BOUNDS) - 1)
        self.large[_place_of(size) - 2] += 1

    def sizes(self) -> list[int]:
        """Return the messages of each size; nothing where sizes are not counted."""
        if not self.small and not self.middle and self.large is None:
            return []
        return [self.small, self.middle, *(self.large or [0] * (len(SIZE_BOUNDS) - 1))]


def _place_of(size: int) -> int:
    """Return the place of a size among the counts of SIZE_BOUNDS."""
    place = 0
    while place < len(SIZE_BOUNDS) and size > SIZE_BOUNDS[place]:
        place += 1
    return place


class PutCounts:
    """Counts of stored messages by topic and queue. `tick` and `flush` bring them into the statistics."""

    def __init__(self, stats: BrokerStats, is_system: Callable[[str], bool]) -> None:
        self._stats = stats
        self._is_system = is_system
        self._counts: dict[tuple[bytes, int], _Count] = {}
        # The counts used last, by the low bits of the queue's id. A look here costs a fifth of a look into the table.
        self._recent: list[_Count | None] = [None] * _RECENT
        self._taken_at_ms = 0
        # Counts that are being brought in, while others are gathered.
        self._taken: dict[tuple[bytes, int], _Count] = {}
        # By topic: messages of each size, where `stored_sized` counts them.
        self.sizes: dict[str, list[int]] = {}

    def stored(self, drafts: list[Draft]) -> None:
        """Count everything of one write."""
        recent = self._recent
        for draft in drafts:
            queue_id = draft.queue_id
            count = recent[queue_id % _RECENT]
            if count is None or count.queue_id != queue_id or count.topic != draft.topic:
                count = self._counts.get((draft.topic, queue_id))
                if count is None:
                    count = self._counts[(draft.topic, queue_id)] = _Count(draft.topic, queue_id)
                recent[queue_id % _RECENT] = count
            count.messages += 1
            count.size += draft.size

    def stored_sized(self, drafts: list[Draft]) -> None:
        """Count as `stored`, and sizes too: what a broker with metrics is told of in its place."""
        self.stored(drafts)
        recent = self._recent
        for draft in drafts:
            queue_id = draft.queue_id
            count = recent[queue_id % _RECENT]
            if count is None or count.queue_id != queue_id or count.topic != draft.topic:
                count = self._counts[(draft.topic, queue_id)]
            size = draft.size
            if size <= _SMALL:
                count.small += 1
            elif size <= _MIDDLE:
                count.middle += 1
            else:
                count.count_large(size)

    def _take(self) -> None:
        self._taken, self._counts = self._counts, {}
        self._recent = [None] * _RECENT

    def tick(self, now_ms: int) -> None:
        """Bring some queues into the statistics. With 10,000 topics in use each is brought in every second or two: at
        every tick that would cost more than storing its message."""
        if not self._taken:
            if not self._counts or 0 <= now_ms - self._taken_at_ms < _GATHER_MS:
                return
            self._taken_at_ms = now_ms
            self._take()
        self._bring_in(_TICK_KEYS, now_ms)

    def flush(self, now_ms: int) -> None:
        """Bring everything into the statistics."""
        self._bring_in(len(self._taken), now_ms)
        self._take()
        self._bring_in(len(self._taken), now_ms)

    def _bring_in(self, keys_max: int, now_ms: int) -> None:
        taken, stats = self._taken, self._stats
        all_count = plain_count = 0
        while taken and keys_max > 0:
            keys_max -= 1
            (name, queue_id), found = taken.popitem()
            topic, count, size = name.decode("utf-8", "replace"), found.messages, found.size
            stats.add(TOPIC_PUT_NUMS, topic, count, now_ms, count)
            stats.add(TOPIC_PUT_SIZE, topic, size, now_ms, count)
            sizes = found.sizes()
            if sizes:
                before = self.sizes.get(topic)
                self.sizes[topic] = sizes if before is None else [a + b for a, b in zip(before, sizes, strict=True)]
            all_count += count
            if not self._is_system(topic):
                plain_count += count
            if stats.per_queue:
                stats.add(QUEUE_PUT_NUMS, f"{topic}@{queue_id}", count, now_ms, count)
                stats.add(QUEUE_PUT_SIZE, f"{topic}@{queue_id}", size, now_ms, count)
        if all_count:
            stats.add(BROKER_PUT_NUMS, stats.cluster, all_count, now_ms, 0)
        if plain_count:
            stats.add(BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC, stats.cluster, plain_count, now_ms, 0)
