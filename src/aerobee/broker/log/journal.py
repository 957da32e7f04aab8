"""Journals: what a feature keeps in the log, as records in one queue of a private topic.

A feature writes a record for each thing that it must not forget, and counts it only once it is stored. A start reads
the records again, from a place that is saved in the table of consume offsets. The place moves on when the log is
settled beyond it, so that it never names records that a power cut or another master could still take. Records that
cannot be used are set aside. Whoever writes must store again what it still needs from far back, and say from where on
(`keep`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping

from aerobee.broker.log.puts import Done, Puts
from aerobee.broker.log.tail import queue_records
from aerobee.hot.log.record import Draft, Record
from aerobee.store.messagestore import MessageStore
from aerobee.store.setaside import UNUSABLE


def saved_place(store: MessageStore, topic: bytes, saved: Mapping[int, int] | None) -> int:
    """Return the offset of queue 0 that was saved, brought into what the queue holds now."""
    place = 0 if saved is None else saved.get(0, 0)
    return min(max(place, store.min_offset(topic, 0)), store.max_offset(topic, 0))


class Journal:
    """The records of one feature, in queue 0 of its topic."""

    def __init__(
        self,
        topic: str,
        reader: str,
        store: MessageStore,
        puts: Puts,
        places: MutableMapping[str, dict[int, int]],
        key: str,
        make_topic: Callable[[], object],
    ) -> None:
        """`reader` names the feature in what is set aside. `places` holds the saved place, under `key`. `make_topic` is
        called before each write and makes the topic where it is missing."""
        self._topic = topic.encode()
        self._reader = reader
        self._store = store
        self._puts = puts
        self._places = places
        self._key = key
        self._make_topic = make_topic
        # A place that may be saved, and where the log must be settled to before.
        self._kept: tuple[int, int] | None = None

    @property
    def first_offset(self) -> int:
        """The queue offset from which a start reads."""
        return saved_place(self._store, self._topic, self._places.get(self._key))

    @property
    def end_offset(self) -> int:
        """The queue offset of the next record."""
        return self._store.max_offset(self._topic, 0)

    def replay(self, learn: Callable[[Record], None], start: int | None = None) -> int:
        """Show every sound record from an offset on to `learn`; set aside those that it cannot use.

        Without `start` begin at `first_offset`. Return the offset behind the last record.
        """
        start, end = self.first_offset if start is None else start, self.end_offset
        for _, record in queue_records(self._store, self._topic, 0, start):
            if record is not None:
                try:
                    learn(record)
                except UNUSABLE as error:
                    self._store.asides.add(self._reader, error, record)
        return max(start, end)

    def write(self, drafts: list[Draft], done: Done) -> None:
        """Store records, and other messages between them, in one write: all of them or none."""
        self._make_topic()
        self._puts.put(drafts, done)

    def set_aside(self, reason: str, queue_offset: int, physical_offset: int) -> None:
        """Note that nothing more can be made of a record."""
        self._store.asides.add_place(self._reader, reason, self._topic, 0, queue_offset, physical_offset)

    def keep(self, lowest: Callable[[], int]) -> None:
        """Save the place below which no record is needed any more. Call it often: the log must settle in between.

        The table of consume offsets is written by its owner.
        """
        if self._kept is None:
            self._kept = (lowest(), self._store.log_end)
        place, settled_to = self._kept
        if self._store.settled_offset >= settled_to:
            self._kept = None
            if place:
                self._places.setdefault(self._key, {})[0] = place
