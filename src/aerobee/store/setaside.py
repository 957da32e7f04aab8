"""Records that a background reader of the log cannot use: they are logged, counted, listed, and passed over.

No record stops a broker. Whoever reads the log in the background (dispatch, delay levels, timers, transactions,
batches) and finds a record that it can do nothing with says so here, once, and goes on with the next one. The record
stays in the log, where `aerobee store dump` shows it.

The list is kept in `config/setAside.json`, bounded. `aerobee store inspect` shows it, and brokers show the counters in
their runtime info. It is a report and never a reason to stop: where it cannot be read or written there is a warning.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from aerobee.errors import CorruptLogError, StoreError
from aerobee.model.numbers import INT64_MAX
from aerobee.runtime.seams import Clock, Disk
from aerobee.store.statefile import StateFile
from aerobee.telemetry.stdlog import get_log

FILE_NAME: Final = "setAside.json"
# What reading a record raises where the record is at fault. Anything else is a fault of ours, which must not be
# mistaken for a bad record: a message would be lost for it.
UNUSABLE: Final = (ValueError, ArithmeticError, LookupError, struct.error, CorruptLogError)

_LISTED_MAX: Final = 500
_READERS_MAX: Final = 32
_TEXT_MAX: Final = 300
_SAVE_INTERVAL_MS: Final = 1_000
# A flood of bad records must not become a flood of lines.
_LINES_MAX: Final = 20
_LINES_INTERVAL_S: Final = 10.0
_HINT: Final = "it stays in the log: see it with `aerobee store dump`, list all with `aerobee store inspect`"

_log = get_log("store")


class Lies(Protocol):
    """A record or a draft: something with a place in the log."""

    topic: bytes
    queue_id: int
    queue_offset: int
    physical_offset: int


@dataclass(frozen=True, slots=True)
class SetAside:
    """One record that was set aside: by whom, why, where it lies. A place that is not known is -1."""

    reader: str
    reason: str
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    found_ms: int

    @property
    def key(self) -> tuple[object, ...]:
        """Return what makes it the same record for the same reader, over restarts."""
        if self.physical_offset >= 0:
            return self.reader, self.physical_offset
        return self.reader, self.topic, self.queue_id, self.queue_offset


@dataclass(frozen=True, slots=True)
class SetAsideReport:
    """What the file says: the newest records, and how many there were by reader."""

    records: tuple[SetAside, ...] = ()
    counts: Mapping[str, int] | None = None

    @property
    def total(self) -> int:
        """Return how many records were set aside since the store was made."""
        return sum((self.counts or {}).values())


def encode_report(report: SetAsideReport) -> bytes:
    """Return the text of the file."""
    records = [
        {
            "reader": one.reader,
            "reason": one.reason,
            "topic": one.topic,
            "queueId": one.queue_id,
            "queueOffset": one.queue_offset,
            "physicalOffset": one.physical_offset,
            "foundTime": one.found_ms,
        }
        for one in report.records
    ]
    return json.dumps({"counts": dict(report.counts or {}), "records": records}, indent=1).encode()


def decode_report(content: bytes) -> SetAsideReport:
    """Return what the text says, without the entries that make no sense; raise ValueError where nothing does."""
    data = json.loads(content)
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    counts, entries = data.get("counts"), data.get("records")
    if not isinstance(counts, dict) or not isinstance(entries, list):
        raise ValueError("neither counts nor records")
    kept = {str(reader)[:_TEXT_MAX]: n for reader, n in counts.items() if type(n) is int and 0 <= n <= INT64_MAX}
    records = [record for entry in entries[-_LISTED_MAX:] if (record := _entry_of(entry)) is not None]
    return SetAsideReport(tuple(records), dict(list(kept.items())[:_READERS_MAX]))


def _entry_of(entry: Any) -> SetAside | None:
    if not isinstance(entry, dict):
        return None
    texts = [_cut(text) for name in ("reader", "reason", "topic") if isinstance(text := entry.get(name), str)]
    names = ("queueId", "queueOffset", "physicalOffset", "foundTime")
    numbers: list[int] = [number for name in names if type(number := entry.get(name)) is int]
    if len(texts) < 3 or len(numbers) < len(names):
        return None
    return SetAside(texts[0], texts[1], texts[2], numbers[0], numbers[1], numbers[2], numbers[3])


class SetAsides:
    """The records one store has set aside. `load` before the first is added, `tick` often, `close` at the end."""

    def __init__(self, disk: Disk, root: str, clock: Clock) -> None:
        self._state = StateFile(disk, f"{root}/config/{FILE_NAME}")
        self._clock = clock
        self._records: dict[tuple[object, ...], SetAside] = {}
        self._counts: dict[str, int] = {}
        self._dirty = False
        self._saving = False
        self._next_save_ms = 0
        self._lines = 0
        self._lines_until_s = 0.0
        self._untold = 0

    # -- adding

    def add(self, reader: str, reason: object, record: Lies) -> None:
        """Set a record aside for one reader, who goes on with the next one."""
        self.add_place(
            reader, reason, record.topic, record.queue_id, record.queue_offset, record.physical_offset
        )  # fmt: skip

    def add_place(
        self, reader: str, reason: object, topic: bytes, queue_id: int, queue_offset: int, physical_offset: int = -1
    ) -> None:
        """Add what cannot be read at all: only its place is known."""
        name = topic.decode("utf-8", "backslashreplace")
        one = SetAside(
            reader, _cut(str(reason)), _cut(name), queue_id, queue_offset, physical_offset, self._clock.now_ms()
        )  # fmt: skip
        if one.key in self._records:
            return  # the record is known, for instance from before a restart
        self._records[one.key] = one
        while len(self._records) > _LISTED_MAX:
            del self._records[next(iter(self._records))]
        if reader in self._counts or len(self._counts) < _READERS_MAX:
            self._counts[reader] = self._counts.get(reader, 0) + 1
        self._dirty = True
        self._tell(one)

    def _tell(self, one: SetAside) -> None:
        now_s = self._clock.monotonic()
        if now_s >= self._lines_until_s:
            self._lines, self._lines_until_s = 0, now_s + _LINES_INTERVAL_S
        self._lines += 1
        if self._lines > _LINES_MAX:
            self._untold += 1
            return
        untold, self._untold = self._untold, 0
        _log.error(
            "a record cannot be used and was set aside",
            reader=one.reader,
            reason=one.reason,
            topic=one.topic,
            queue=one.queue_id,
            offset=one.queue_offset,
            physical_offset=one.physical_offset,
            suppressed=untold,
            hint=_HINT,
        )

    # -- asking

    @property
    def total(self) -> int:
        """Return how many records were set aside since the store was made.

        One that fell off the list and is met again counts twice.
        """
        return sum(self._counts.values())

    def report(self) -> SetAsideReport:
        """Return the list and the counters as they are now."""
        return SetAsideReport(tuple(self._records.values()), dict(self._counts))

    # -- the file

    def load(self) -> None:
        """Take up what was saved."""
        try:
            found = self._state.load(decode_report)
        except (StoreError, OSError, RecursionError) as error:
            _log.warning("the list of records set aside cannot be read: a new one is begun", reason=error)
            return
        if found is not None:
            self._records = {one.key: one for one in found.records}
            self._counts = dict(found.counts or {})

    def tick(self, now_ms: int) -> None:
        """Save what was added, off this thread, at most once a second. `now_ms` only ever grows."""
        if self._untold and self._clock.monotonic() >= self._lines_until_s:
            _log.error("more records were set aside", count=self._untold, hint=_HINT)
            self._untold = 0
        if not self._dirty or self._saving or now_ms < self._next_save_ms:
            return
        self._next_save_ms = now_ms + _SAVE_INTERVAL_MS
        self._dirty, self._saving = False, True
        self._state.submit(encode_report(self.report()), self._saved)

    def _saved(self, error: OSError | StoreError | None) -> None:
        self._saving = False
        if error is not None:
            self._dirty = True
            self._next_save_ms += 10 * _SAVE_INTERVAL_MS
            _log.warning("the list of records set aside was not saved, it is tried again", reason=error)

    def close(self) -> None:
        """Save what was added, blocking."""
        if not self._dirty:
            return
        try:
            self._state.save(encode_report(self.report()))
            self._dirty = False
        except (StoreError, OSError) as error:
            _log.warning("the list of records set aside was not saved", reason=error)


def _cut(text: str) -> str:
    """Return a text from a record in a form that can stand in a file and on a terminal."""
    short = text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 3]}..."
    return short if short.isprintable() else short.encode("unicode_escape").decode()[:_TEXT_MAX]
