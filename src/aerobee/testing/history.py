"""What a run of a store has written and promised: the model with which every crash image is compared.

It owns the log as it must be, byte for byte (a crash may shorten it, never change it), the places where it may end,
how far it was promised, and what of it was deleted with its topic.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from aerobee.hot.log.layout import BLANK_SIZE_MIN, TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from aerobee.hot.log.record import Draft, encode_blank, encode_records
from aerobee.model.numbers import parse_int
from aerobee.store.index import index_keys
from aerobee.store.indexfile import key_hash

SCHEDULE_TOPIC = b"SCHEDULE_TOPIC_XXXX"
Queue = tuple[bytes, int]


def is_queued(draft: Draft) -> bool:
    """Return whether a message gets a queue unit; prepared and rolled-back ones do not. RocketMQ:
    CommitLogDispatcherBuildConsumeQueue."""
    return draft.sys_flag & TRANSACTION_MASK not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


class Entry(NamedTuple):
    """One record of the log, and what must be derived from it."""

    start: int
    end: int
    queue: Queue
    queue_offset: int
    tags_code: int
    is_queued: bool
    hashes: tuple[int, ...]
    keys: tuple[str, ...]
    store_timestamp: int


class Expectation(NamedTuple):
    """What a start after a crash at this moment must find."""

    log: bytes  # from offset 0; what is below the log's start is not checked
    entries: Sequence[Entry]
    starts: tuple[int, ...]  # where the log may begin
    safe_end: int  # the log must reach at least to here
    cut_to: int | None  # where a truncation that is under way may have ended it
    deleted: Mapping[bytes, int]  # nothing of these topics may be found below these places
    deleting: Mapping[bytes, int]  # nothing or everything of these: their deletion is under way

    def ends(self) -> list[int]:
        """Return every place where the log may end."""
        found = [0]
        for entry in self.entries:
            if entry.start > found[-1]:
                found.append(entry.start)  # the blank record survived, the record after it did not
            found.append(entry.end)
        if len(self.log) > found[-1]:
            found.append(len(self.log))
        return found

    def alive(self, entry: Entry) -> bool:
        """Return whether a record was not deleted with its topic."""
        return entry.start >= self.deleted.get(entry.queue[0], 0)

    def settled(self, positions: Mapping[bytes, int]) -> Expectation:
        """Return the same expectation with the deletion that was under way done or not, as the positions found say."""
        is_done = all(positions.get(topic, 0) >= at for topic, at in self.deleting.items())
        return self._replace(deleted={**self.deleted, **self.deleting} if is_done else self.deleted, deleting={})


class History:
    """The model. It is told before and after each step of a run."""

    def __init__(self, segment_size: int, with_crc: bool, delay_levels_ms: Sequence[int]) -> None:
        self._segment_size = segment_size
        self._with_crc = with_crc
        self._delay_levels_ms = delay_levels_ms
        self.log = bytearray()
        self.entries: list[Entry] = []
        self.start = 0
        self.deleting_to: int | None = None
        self.cutting_to: int | None = None
        self.safe_end = 0
        self.deleted_topics: dict[bytes, int] = {}
        self._deleting_topics: dict[bytes, int] = {}
        self._pending: list[Draft] = []

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else 0

    def appending(self, drafts: list[Draft]) -> None:
        self._pending = drafts

    def appended(self) -> None:
        drafts, self._pending = self._pending, []
        before = self.entries[-1].store_timestamp if self.entries else 0
        assert drafts[0].store_timestamp >= before, "store time went back"
        self._add(self.log, self.entries, drafts)

    def failed(self) -> None:
        self._pending = []

    def safe(self, end: int) -> None:
        """Note that everything below `end` was acknowledged or called flushed, so that it must not be lost any more."""
        self.safe_end = max(self.safe_end, end)

    def cut(self, end: int) -> None:
        """Note that the log ends here now: a truncation has returned, or a start has found no more."""
        del self.entries[bisect_right(self.entries, end, key=lambda entry: entry.end) :]
        del self.log[end:]
        self.log.extend(bytes(end - len(self.log)))
        self.safe_end = min(self.safe_end, end)
        self.cutting_to = None
        self.deleted_topics = {topic: min(at, end) for topic, at in self.deleted_topics.items()}

    def deleting_topics(self, topics: Collection[bytes]) -> None:
        """Note that these topics are about to be deleted."""
        self._deleting_topics = dict.fromkeys(topics, self.end)

    def topics_deleted(self) -> None:
        """Note that the deletion has returned. It must hold, and so must the log below it."""
        self.deleted_topics |= self._deleting_topics
        self._deleting_topics = {}
        self.safe(self.end)

    def deleted(self, start: int) -> None:
        """Note that the log begins here now."""
        self.start = start
        self.deleting_to = None

    def floor(self, end: int) -> int:
        """Return the last place at or below `end` where a record ends."""
        at = bisect_right(self.entries, end, key=lambda entry: entry.end)
        return self.entries[at - 1].end if at else 0

    def expectation(self, *, everything: bool = False) -> Expectation:
        """Return what an image made now must hold. With `everything`, only the process failed and not the machine."""
        log, entries = self.log, self.entries
        if any(draft.physical_offset >= 0 for draft in self._pending):
            log, entries = bytearray(log), list(entries)
            self._add(log, entries, self._pending)
        starts = (self.start,) if self.deleting_to is None else (self.start, self.deleting_to)
        safe_end = self.end if everything else self.floor(self.safe_end)
        return Expectation(
            bytes(log), entries, starts, safe_end, self.cutting_to, self.deleted_topics, self._deleting_topics
        )

    def _add(self, log: bytearray, entries: list[Entry], drafts: list[Draft]) -> None:
        start = drafts[0].physical_offset
        if start > len(log):
            blank = encode_blank(start - len(log))
            log += blank + bytes(start - len(log) - BLANK_SIZE_MIN)
        # Drafts of one call share their store time and lie end to end.
        log += encode_records(drafts, start, drafts[0].store_timestamp, self._with_crc)
        entries.extend(self._entry(draft) for draft in drafts)

    def _entry(self, draft: Draft) -> Entry:
        tags_code = draft.tags_code
        if draft.topic == SCHEDULE_TOPIC:
            level = parse_int(draft.properties.partition(b"DELAY\x01")[2].partition(b"\x02")[0])
            tags_code = draft.store_timestamp + self._delay_levels_ms[level - 1]
        keys = index_keys(draft, draft.topic.decode())
        return Entry(
            start=draft.physical_offset,
            end=draft.physical_offset + draft.size,
            queue=(draft.topic, draft.queue_id),
            queue_offset=draft.queue_offset,
            tags_code=tags_code,
            is_queued=is_queued(draft),
            hashes=tuple(map(key_hash, keys)),
            keys=tuple(keys),
            store_timestamp=draft.store_timestamp,
        )
