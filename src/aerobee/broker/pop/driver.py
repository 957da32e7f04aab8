"""The driver of POP: it reads queues for pops, journals what they take and give back, and revives what is due.

Choosing messages and holding them is one step of the loop, so nothing is locked; what must be read from the disk is
waited for with the queue set aside for that one pop. RocketMQ: PopMessageProcessor, AckMessageProcessor,
ChangeInvisibleTimeProcessor, PopReviveService.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from aerobee.broker.config import BrokerConfig
from aerobee.broker.log import Puts, queue_records
from aerobee.broker.offsets import ConsumerOffsets, offset_key
from aerobee.broker.pop.asked import InFlight, Lease, PopRequest, PopResult
from aerobee.broker.pop.entries import Key
from aerobee.broker.pop.handover import Handover
from aerobee.broker.pop.ledger import PopLedger, Told
from aerobee.broker.pop.orders import PopOrders
from aerobee.broker.pop.reviving import Reviver
from aerobee.broker.pop.table import PopTable
from aerobee.broker.pop.tour import Tour
from aerobee.broker.pop.waits import PopWaits
from aerobee.broker.pop.window import Window
from aerobee.broker.stats import BrokerStats
from aerobee.broker.topics import Catalog
from aerobee.model.names import is_retry_topic, pop_retry_topic
from aerobee.runtime.seams import Clock, Disk, Entropy
from aerobee.store.messagestore import MessageStore

# So many messages that a group holds of one queue are told to whoever looks.
TOLD_MAX: Final = 1_000
# By how much the clocks of two masters may differ.
_SKEW_MS: Final = 10_000
# So many messages of one request are looked at, before it is searched which were stored by its time.
_LOOKS_MAX: Final = 16
# So many names of retry topics are kept, which every pop asks for.
_NAMES_MAX: Final = 10_000
# A change may be of the last of so many messages of which no take is known.
_GAP_MAX: Final = 10_000


class Pop:
    """POP of one broker. Call `open` after the store is open, and `tick` often; the rest serves requests."""

    def __init__(  # noqa: PLR0913, PLR0917 (what a feature that reads, writes and remembers needs)
        self,
        broker_name: str,
        store: MessageStore,
        puts: Puts,
        catalog: Catalog,
        offsets: ConsumerOffsets,
        stats: BrokerStats,
        host: bytes,
        disk: Disk,
        clock: Clock,
        entropy: Entropy,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self.broker_name = broker_name
        self.config = config
        self.store = store
        self.puts = puts
        self.catalog = catalog
        self.offsets = offsets
        self.stats = stats
        self.clock = clock
        self.entropy = entropy
        self.table = PopTable()
        self.ledger = PopLedger(store, puts, catalog, host, disk, clock)
        self.waits = PopWaits(store.dispatcher)
        self.orders = PopOrders(self)
        self.reviver = Reviver(self, host)
        self.handover = Handover(self, stats.cluster, host)
        self._revive_queue = 0
        # Positions that may be told to the table of offsets, and where the log must be settled to before.
        self._kept: tuple[list[tuple[Window, int]], int] | None = None
        self.revive_queues = 8
        self._retry_topics: dict[tuple[str, str], list[str]] = {}
        # Of one request, by topic, queue and time: up to where messages were stored by then; below 0, how often one may
        # still be looked at before that is searched for.
        self._lost_ends: dict[tuple[str, int, int], int] = {}
        # When this broker began to serve: what was taken since cannot be lost.
        self._began_ms = 0
        # Pops, messages and acknowledgements since the start.
        self.popped = 0
        self.acked = 0

    # -- start and end

    def open(self, *, following: bool = False) -> int:
        """Take up what the log says; how many messages are held."""
        self.table.committed = self._committed
        self.table = self.ledger.open(self.table)
        self.orders.open()
        self.ledger.is_following = following
        if not following:
            self.lead()
        return self.table.in_flight

    def _committed(self, key: Key) -> int | None:
        return self.offsets.table.get(offset_key(key.topic, key.group), {}).get(key.queue_id)

    def follow(self) -> None:
        """Take up what the master stored."""
        self.ledger.follow(self.table)
        self.ledger.tick(self.table, self.clock.now_ms())

    def lead(self) -> None:
        """Serve consumers: everything that the log holds was learnt."""
        self.ledger.is_following = False
        self._began_ms = self.clock.now_ms()
        self.table.look_at_all()
        self.orders.open()
        if self.table.windows or self.table.orders:
            self.offsets.popped = self.position

    def release(self) -> None:
        """Answer the pops that wait, and store what was said."""
        self.waits.drain()
        self.ledger.flush()

    def before_close(self, *, acts: bool) -> None:
        """Say where everybody stands, while the log is still open; positions only where this broker is the master."""
        if acts:
            self._tell_positions(settled=True)
        self.ledger.release(self.table)

    def close(self) -> None:
        self.orders.close()
        self.ledger.close()

    # -- requests

    def receive(self, asked: PopRequest) -> None:
        """Hand out messages, or wait for some. `asked.told` is called with what was found."""
        queue = self._revive_queue = (self._revive_queue + 1) % self.revive_queues
        Tour(self, asked, queue).run()

    def retry_topics(self, topic: str, group: str) -> list[str]:
        """Return the names that the retry topics of a topic have; none for a retry topic."""
        found = self._retry_topics.get((topic, group))
        if found is None:
            found = [] if is_retry_topic(topic) else [pop_retry_topic(topic, group, kind) for kind in (1, 2)]
            if len(self._retry_topics) >= _NAMES_MAX:
                self._retry_topics.clear()
            self._retry_topics[topic, group] = found
        return found

    def ack(self, lease: Lease, told: Told) -> None:
        """Acknowledge one message; `told` hears 0 when that is stored, also where the lease was over."""
        self.ack_all([lease], told)

    def ack_all(self, leases: list[Lease], told: Told) -> None:
        """Acknowledge messages together: one wait for all of them."""
        worst = 0
        self._lost_ends.clear()
        for lease in leases:
            if lease.in_order:
                for one in lease.each():
                    worst = max(worst, self.orders.ack(one))
            else:
                self._ack(lease)
        if worst:
            told(worst, "")
        else:
            self.ledger.wait(told)

    def _ack(self, lease: Lease) -> None:
        key, count = Key(lease.topic, lease.group, lease.queue_id), lease.count
        window = self.table.windows.get(key)
        if count > 1 and window is not None and window.ack_run(lease.offset, count, lease.pop_time):
            self.acked += count
            self.ledger.writer.ack(key, lease.pop_time, lease.offset, count)
            if self.ledger.is_large:
                self.ledger.cut()
        elif count == 1:
            self._ack_one(key, window, lease)
        else:
            for one in lease.each():
                self._ack_one(key, self.table.windows.get(key), one)

    def _ack_one(self, key: Key, window: Window | None, lease: Lease) -> None:
        is_first = False
        if window is None or lease.offset >= window.taken:
            if (window is not None and window.ahead_is_full) or not self._may_be_lost(lease):
                return
            window = self._window_of_lost(key)
            if window is None:
                return
            is_first = not window.ahead
        named = self.table.ack(window, lease.offset, lease.pop_time)
        if named >= 0:
            self.acked += 1
            if is_first:
                self._say_where(key, window)
            self.ledger.writer.ack(key, named, lease.offset, 1)
            if self.ledger.is_large:
                self.ledger.cut()

    def _may_be_lost(self, lease: Lease) -> bool:
        """Tell whether a crash may have lost the take of a lease that is not known: it is from before this broker began
        to serve, it is not over, and the message was there by then. Other handles are of a topic or group that was
        deleted, or of none.
        """
        if lease.until_ms and lease.until_ms <= self.clock.now_ms():
            return False
        if lease.pop_time > self._began_ms + _SKEW_MS:
            return False
        # One request may name thousands of messages. Later ones were not stored earlier, so a search tells of all.
        topic, asked = lease.topic.encode(), (lease.topic, lease.queue_id, lease.pop_time)
        end = self._lost_ends.get(asked, -_LOOKS_MAX)
        if end >= 0:
            return lease.offset < end
        self._lost_ends[asked] = end + 1
        if end < -1:
            return self._was_there(topic, lease.queue_id, lease.offset, lease.pop_time)
        low, end = self.store.min_offset(topic, lease.queue_id), self.store.max_offset(topic, lease.queue_id)
        while low < end:
            middle = (low + end) // 2
            if self._was_there(topic, lease.queue_id, middle, lease.pop_time):
                low = middle + 1
            else:
                end = middle
        self._lost_ends[asked] = end
        return lease.offset < end

    def _was_there(self, topic: bytes, queue_id: int, offset: int, at_ms: int) -> bool:
        """Tell whether a message was stored by then. One that is not in memory is old."""
        queue = self.store.queues.find(topic, queue_id)
        unit = None if queue is None else queue.unit(offset)
        if unit is None:
            return False
        if self.store.log_end - unit[0] > self.store.reads.hot_bytes:
            return True
        for _, record in queue_records(self.store, topic, queue_id, offset, 1):
            if record is not None:
                return record.store_timestamp <= at_ms
        return False

    def _window_of_lost(self, key: Key) -> Window | None:
        """Return a window for a handle whose take a crash has lost, also where that was the first one."""
        window = self.table.windows.get(key)
        if window is None:
            start = self._committed(key)
            if start is None:
                if self.catalog.group_table.get(key.group) is None:
                    return None
                start = self.store.min_offset(key.topic.encode(), key.queue_id)
            window = self.table.window(key, start)
            self.offsets.popped = self.position
        return window

    def _say_where(self, key: Key, window: Window) -> None:
        """Let the journal know where a window begins of which it may have no take: what follows is beyond that."""
        now_ms = self.clock.now_ms()
        self.ledger.writer.take(key, now_ms, now_ms, window.taken, window.taken, ())

    def change(
        self, lease: Lease, invisible_ms: int, told: Callable[[int, int], None], *, suspend: bool = False
    ) -> None:
        """Hide a message for another time from now on. `told` hears the code, and the new deadline, when it is stored;
        -1 where that lease is over."""
        now_ms = self.clock.now_ms()
        self._lost_ends.clear()
        if lease.in_order:
            deadline = self.orders.change(lease, now_ms + invisible_ms)
        else:
            key = Key(lease.topic, lease.group, lease.queue_id)
            deadline = now_ms + invisible_ms
            window = self._window_for_change(key, lease, deadline)
            if window is None or not self.table.change(window, lease.offset, lease.pop_time, deadline, suspend=suspend):
                deadline = -1
            else:
                self.ledger.writer.change(key, lease.pop_time, lease.offset, deadline, suspend=suspend)
        self.ledger.wait(lambda code, remark: told(code, deadline))

    def _window_for_change(self, key: Key, lease: Lease, deadline: int) -> Window | None:
        """Return the window of a lease. One whose take a crash has lost is taken anew, and stays hidden."""
        window = self.table.windows.get(key)
        if window is not None and lease.offset < window.taken:
            return window
        if not self._may_be_lost(lease):
            return None
        window = self._window_of_lost(key)
        if window is None or lease.offset - window.taken > _GAP_MAX or lease.pop_time <= window.reset_time:
            return None
        self._say_where(key, window)
        if lease.offset not in window.ahead:
            at = lease.offset
            self.table.take(window, at, at + 1, (at,), lease.pop_time, deadline)
            self.ledger.writer.take(key, lease.pop_time, deadline, at, at + 1, (at,))
        return window

    def dead_letter(self, lease: Lease, told: Told) -> None:
        """Copy a message to the group's dead letters and acknowledge it, in one write."""
        self.reviver.dead_letter(lease, told)

    def is_held(self, lease: Lease) -> bool:
        """Tell whether that lease still holds its message."""
        if lease.in_order:
            return self.orders.is_held(lease)
        window = self.table.windows.get(Key(lease.topic, lease.group, lease.queue_id))
        found = None if window is None else window.lease_of(lease.offset)
        return found is not None and found[0] == lease.pop_time

    # -- what others ask

    def position(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return how far a group was handed a queue; None where it does not pop."""
        window = self.table.windows.get(Key(topic, group, queue_id))
        return None if window is None else max(window.taken, self._committed(Key(topic, group, queue_id)) or 0)

    def has_returned(self, group: str, topic: str, queue_id: int) -> bool:
        """Tell whether messages were given back that the next pop gets at once."""
        window = self.table.windows.get(Key(topic, group, queue_id))
        return window is not None and window.returned_run(1)[0] >= 0

    def in_flight(self, group: str | None, topic: str | None, count_max: int = TOLD_MAX) -> Iterator[InFlight]:
        """Yield what is held, by queue; of a group and of a topic with its retries only, where they are named.

        It may take many turns of the loop: what changes meanwhile is told as it was or as it is.
        """
        for key, window in list(self.table.windows.items()):
            if (group is None or key.group == group) and (topic is None or topic in (key.topic, _plain(key))):
                messages: list[tuple[int, int, int]] = []
                for one in window.held():
                    if len(messages) >= count_max:
                        break
                    messages.append(one)
                yield InFlight(
                    key.topic, key.group, key.queue_id, window.taken, window.safe, window.in_flight, messages
                )
        yield from self.orders.in_flight(group, topic)

    def forget(self, topic: str, group: str) -> None:
        """Forget a deleted topic, or a deleted group; the other name is empty."""
        forgotten = self.table.forget_topic(topic) if topic else self.table.forget_group(group)
        if not forgotten:
            return
        for key in forgotten:
            self.orders.clear(key)
        self.ledger.writer.forget(topic=topic, group=group, now_ms=self.clock.now_ms())
        self.ledger.said()

    def moved(self, group: str, topic: str, queue_id: int, offset: int, is_reset: bool) -> None:
        """Follow a position that an administrator set, at once: what is acknowledged until the next pop, and a restart
        before it, would bring the old one back. A commit that goes back counts only where a queue is read in order."""
        if self.ledger.is_following:
            return  # a slave takes commits of those who read from it, and writes nothing into its log
        key = Key(topic, group, queue_id)
        window = self.table.windows.get(key) if is_reset else None
        if window is None:
            self.orders.moved(key, offset, is_reset=is_reset)
        else:
            self.reset(window, offset)
        if is_reset:
            self.waits.wake(topic, group)
            self.waits.wake(topic, group, queue_id)

    def reset(self, window: Window, offset: int) -> None:
        """Go on from an offset."""
        key = window.key
        self.table.reset(window, offset, self.clock.now_ms())
        self.orders.moved(key, offset, is_reset=True)
        self.ledger.writer.reset(key, offset, window.reset_time)
        self.ledger.said()
        self.offsets.table.setdefault(offset_key(key.topic, key.group), {})[key.queue_id] = offset
        window.told = offset
        # Positions from before must not be told any more.
        self._kept = None

    # -- time

    def tick(self, now_ms: int) -> None:
        """Revive what is due, and answer the pops whose time is over."""
        if not self.store.is_open:
            return
        self.waits.expire(self.clock.monotonic())
        self.reviver.tick(now_ms)
        self.orders.tick(now_ms)
        self.handover.tick(now_ms)
        self.ledger.tick(self.table, now_ms)

    def tell_positions(self) -> None:
        """Tell the table of consume offsets how far nothing is held, once the log is settled beyond it."""
        self._tell_positions(settled=False)

    def _tell_positions(self, *, settled: bool) -> None:
        store = self.store
        if settled or self._kept is None:
            moved = [(window, safe) for window in self.table.windows.values() if (safe := window.safe) != window.told]
            self._kept = moved, store.log_end
        moved, settled_to = self._kept
        if not settled and store.settled_offset < settled_to:
            return
        self._kept = None
        for window, safe in moved:
            queues = self.offsets.table.setdefault(offset_key(window.topic, window.group), {})
            found = queues.get(window.queue_id)
            # Who consumes by pull meanwhile may have gone further.
            if found is None or found == window.told or found < safe:
                queues[window.queue_id] = safe
            window.told = safe

    def done(self, result: PopResult) -> None:
        """Count what was handed out."""
        self.popped += sum(len(batch.offsets) for batch in result.batches)


def _plain(key: Key) -> str:
    """Return the topic that a retry topic of POP belongs to."""
    if not is_retry_topic(key.topic):
        return key.topic
    return key.topic.partition(key.group)[2][1:]


class PopState(Protocol):
    """What POP needs of the broker's shared state."""

    config: BrokerConfig
    name: str
    store: MessageStore
    puts: Puts
    catalog: Catalog
    offsets: ConsumerOffsets
    stats: BrokerStats
    store_host: bytes
    clock: Clock
    entropy: Entropy


def pop_of(state: PopState, disk: Disk) -> Pop:
    """Return the POP of a broker, told of topics and groups that are deleted."""
    pop = Pop(
        state.name, state.store, state.puts, state.catalog, state.offsets, state.stats, state.store_host, disk,
        state.clock, state.entropy, lambda: state.config,
    )  # fmt: skip
    state.offsets.removed, state.offsets.moved = pop.forget, pop.moved
    return pop
