"""`python -m aerobee.testing.bitflips`: one flipped bit anywhere in a store: found, contained, never served.

Owns the store that is damaged (every kind of record, queue, index and state file, stopped or killed) and the
verdict on one flip. A flip counts as detected when `verify`, the start or a read reports it. What nobody reports
must change nothing: every message, key and number is then compared with the sound store, before and after a
restart, and it must be possible to say in words why that byte means nothing (`Subject.why_meaningless`).
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import click

from aerobee.errors import StoreError
from aerobee.hot.log.layout import (
    BLANK_SIZE_MIN,
    INDEX_ENTRY_OFFSET_POS,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER_SIZE,
    INDEX_SLOT_SIZE,
    UNIT_SIZE,
)
from aerobee.model.numbers import parse_int
from aerobee.store.indexfile import decode_header
from aerobee.store.messagestore import MessageStore
from aerobee.store.offline.directory import look_at
from aerobee.store.offline.verify import verify
from aerobee.store.statefile import StateFile
from aerobee.testing.clock import VirtualClock
from aerobee.testing.crashcheck import read_all
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.history import Entry, History, Queue
from aerobee.testing.manyruns import run_until
from aerobee.testing.recordcases import draft_of
from aerobee.testing.storeshapes import ROOT, DraftMaker, Shape

STATE = ("topics.json", "consumerOffset.json")


_MARK_SPACING = 4096
_MARK_SIZE = 48
_WHOLE_FILES = {
    "lock": "only that it is locked counts",
    "abort": "only that it exists counts",
    "checkpoint": "a hint, brought within the log's bounds",
    "indexFiles.json": "a note of the index's files, which are looked at themselves",
}


class BitFlipError(AssertionError):
    """A flip was not found, or wrong bytes were served."""


@dataclass(slots=True)
class Tally:
    """Flips by file and outcome."""

    flips: int = 0
    by_verify: int = 0
    by_broker: int = 0
    detected: Counter[str] = field(default_factory=Counter)
    meaningless: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.flips += other.flips
        self.by_verify += other.by_verify
        self.by_broker += other.by_broker
        self.detected += other.detected
        self.meaningless += other.meaningless


class View(NamedTuple):
    """Everything a store serves."""

    queues: dict[Queue, list[bytes]]
    keys: dict[str, tuple[int, ...]]
    numbers: dict[Queue, tuple[int, int]]
    state: dict[str, bytes | None]


class Subject:
    """A sound store, and what it serves."""

    def __init__(self, seed: int) -> None:
        entropy = SeededEntropy(seed)
        self.shape = Shape(
            sync_flush=True,
            segment_size=16384,
            units_per_file=entropy.choose((5, 40)),
            with_index=True,
            late_syncs=False,
            queue_count=2,
            topic_count=3,
        )
        self.clock = VirtualClock()
        self.disk = RecordingDisk(seed=seed)
        self.history = History(self.shape.segment_size, True, self.shape.config().delay_levels_ms)
        self.is_killed = entropy.chance(0.5)
        store = self.shape.store(self.disk, self.clock)
        store.open()
        sender = DraftMaker(self.shape, entropy.fork())
        for number in range(45):
            # The first is the only one of its queue, and expires.
            drafts = sender.batch() if number else [draft_of(b"old", b"expiring")]
            self.history.appending(drafts)
            store.append(drafts)
            self.history.appended()
            self.clock.advance(0.7)
            if number % 3 == 0 and not (self.is_killed and number > 30):
                store.tick()  # a killed store has records that no table speaks of yet
            if number == 20:
                store.delete_oldest_segment()
        for name in STATE:
            state = StateFile(self.disk, f"{ROOT}/config/{name}")
            state.save(_state_of(name))
            state.save(_state_of(name))
        self.log_start = store.log_start
        self.keys = {key for entry in self.entries for key in entry.keys}
        if not self.is_killed:
            store.close()
        self.disk = self.disk.kill()
        self.disk.sync_everything()
        copy = self.disk.kill()
        opened = self.shape.store(copy, self.clock)
        opened.open()
        self.view = self.view_of(opened, copy)

    @property
    def entries(self) -> list[Entry]:
        return [entry for entry in self.history.entries if entry.start >= self.log_start]

    def view_of(self, store: MessageStore, disk: RecordingDisk) -> View:
        assert store.index is not None
        start = store.log_start
        numbers = {(it.topic, it.queue_id): (it.min_for(start), it.assign_next) for it in store.queues}
        keys = {}
        for key in sorted(self.keys):
            topic, _, word = key.partition("#")
            keys[key] = tuple(at for at in store.index.query(topic, word, 64).offsets if at >= start)
        return View(
            {queue: read_all(store, *queue) for queue in sorted(numbers)},
            keys,
            numbers,
            {name: _load(disk, name) for name in STATE},
        )

    def try_flip(self, path: str, offset: int, bit: int, tally: Tally) -> None:
        """Flip, look, start and read. Raise BitFlipError where a promise is broken."""
        image = self.disk.kill()
        image.rot(path, offset, 1 << bit)
        by_verify = self._verify_finds(image)
        by_broker, is_harmless = self._broker_finds(image, path, offset)
        tally.flips += 1
        tally.by_verify += by_verify
        tally.by_broker += by_broker
        kind = _kind_of(path)
        if by_verify or by_broker:
            tally.detected[kind] += 1
        elif is_harmless and (why := self.why_meaningless(path, offset)) is not None:
            tally.meaningless[f"{kind}: {why}"] += 1
        else:
            raise BitFlipError("nobody found it" + (", though it changes nothing" if is_harmless else ""))

    def why_meaningless(self, path: str, offset: int) -> str | None:
        """Return why this byte has no meaning; None where it has one."""
        kind = _kind_of(path)
        if kind == "commitlog":
            at = parse_int(path.rpartition("/")[2]) + offset
            is_record = any(entry.start <= at < entry.end for entry in self.entries)
            return None if is_record or at in self._blanks() else "unused rest of a segment"
        if kind == "consumequeue":
            return self._why_unit_means_nothing(path, offset)
        if kind == "index":
            return self._why_entry_means_nothing(path, offset)
        if kind == "durableMark":
            if offset % _MARK_SPACING >= _MARK_SIZE:
                return "between the slots"
            return "of a killed store: the other slot is a little older" if self.is_killed else None
        if kind.startswith("queueTable"):
            return "of a killed store: the other table is used" if self.is_killed else None
        return _WHOLE_FILES.get(kind)

    def _blanks(self) -> set[int]:
        """Return where the bytes of blank records stand."""
        found: set[int] = set()
        for before, entry in pairwise(self.entries):
            if before.end != entry.start:
                found.update(range(before.end, before.end + BLANK_SIZE_MIN))
        return found

    def _why_unit_means_nothing(self, path: str, offset: int) -> str | None:
        _, topic, queue_id, name = path.removeprefix(f"{ROOT}/").split("/")
        low, high = self.view.numbers[topic.encode(), parse_int(queue_id)]
        number = (parse_int(name) + offset) // UNIT_SIZE
        if number < low:
            return "unit of an expired record"
        return "behind the last unit" if number >= high else None

    def _why_entry_means_nothing(self, path: str, offset: int) -> str | None:
        size, data = self.disk.contents()[path]
        header = decode_header(data.ljust(size, b"\0"))
        entries_at = INDEX_HEADER_SIZE + self.shape.config().max_hash_slot_num * INDEX_SLOT_SIZE
        if offset < 8 and header.begin_offset < self.log_start:
            return "time of an expired record, within the second that its entries name"
        if 14 <= offset < 16:
            return "end time, late by less than a second: a truncation leaves it so too"
        if offset < entries_at:
            unused = INDEX_HEADER_SIZE <= offset and not header.slots_used
            return "slots that are not in use yet" if unused else None
        number = (offset - entries_at) // INDEX_ENTRY_SIZE
        if number == 0:
            return "entry 0, which no file has"
        if number >= header.count:
            return "behind the last entry"
        at = int.from_bytes(
            data[offset - (offset - entries_at) % INDEX_ENTRY_SIZE + INDEX_ENTRY_OFFSET_POS :][:8], "big"
        )
        return "entry of an expired record" if at < self.log_start else None

    def _verify_finds(self, image: RecordingDisk) -> bool:
        return verify(look_at(image.kill(), ROOT, config=self.shape.config())).findings.exit_code != 0

    def _broker_finds(self, image: RecordingDisk, path: str, offset: int) -> tuple[bool, bool]:
        store = self.shape.store(image, self.clock)
        try:
            report = store.open()
        except StoreError as error:
            if "/commitlog/" in path:
                raise BitFlipError(f"one flipped bit of the log kept the store from starting: {error}") from error
            return True, False
        view = self.view_of(store, image)
        self._require_right(store, view, path, offset)
        found = bool(report.damages or report.problems or store.damages or (store.index and store.index.problems))
        if view != self.view:
            return found, False
        store.close()
        again = self.shape.store(image, self.clock)
        again.open()
        return found, self.view_of(again, image) == self.view

    def _require_right(self, store: MessageStore, view: View, path: str, offset: int) -> None:
        """Require that nothing wrong is served, and that only a message whose record or unit was hit is missing."""
        missing = 0
        for queue, records in self.view.queues.items():
            served = view.queues.get(queue, [])
            wrong = [record for record in served if record not in records]
            if wrong:
                raise BitFlipError(f"{queue} serves what was never sent: {wrong[0][:60]!r}")
            missing += len(records) - len(served)
        if missing > (1 if "/commitlog/" in path or "/consumequeue/" in path else 0):
            raise BitFlipError(f"{missing} messages can no longer be read")
        for entry in self.entries:
            record = store.run(store.message_at(entry.start))
            if record is not None and record != self.history.log[entry.start : entry.end]:
                raise BitFlipError(f"the message at {entry.start} is another")
            begin = parse_int(path.rpartition("/")[2]) if "/commitlog/" in path else 0
            if record is None and not ("/commitlog/" in path and entry.start <= begin + offset < entry.end):
                raise BitFlipError(f"the message at {entry.start} is gone with its neighbour")
        for queue, (_, number) in self.view.numbers.items():
            if view.numbers.get(queue, (0, 0))[1] < number:
                raise BitFlipError(f"{queue} would give number {number - 1} away again")


def _kind_of(path: str) -> str:
    parts = path.removeprefix(f"{ROOT}/").split("/")
    return parts[0] if parts[0] != "config" else parts[1].removesuffix(".bak")


def _state_of(name: str) -> bytes:
    if name == "topics.json":
        return b'{"topicConfigTable":{"orders":{"perm":6,"readQueueNums":8,"topicName":"orders","writeQueueNums":8}}}'
    return b'{"offsetTable":{"orders@group":{0:17,1:23},"other@group":{0:0}}}'


def _load(disk: RecordingDisk, name: str) -> bytes | None:
    try:
        return StateFile(disk, f"{ROOT}/config/{name}").load(bytes)
    except StoreError:
        return None


FLIPS_PER_SUBJECT = 250


def run_seed(seed: int, count: int = FLIPS_PER_SUBJECT, only: int | None = None) -> Tally:
    """Flip bits in copies of one store: the files in turn by kind, any byte of them, any bit."""
    subject = Subject(seed)
    entropy = SeededEntropy(seed + 1)
    paths: dict[str, list[str]] = {}
    for path, (size, _) in subject.disk.contents().items():
        if size:
            paths.setdefault(_kind_of(path), []).append(path)
    kinds = sorted(paths)
    weighted = kinds + ["commitlog"] * 6 + ["consumequeue"] * 3 + ["index"] * 3
    tally = Tally()
    for number in range(count):
        path = entropy.choose(paths[entropy.choose(weighted)])
        offset, bit = entropy.below(subject.disk.contents()[path][0]), entropy.below(8)
        if only is not None and number != only:
            continue
        try:
            subject.try_flip(path, offset, bit, tally)
        except Exception as error:
            raise BitFlipError(
                f"python -m aerobee.testing.bitflips --seed {seed} --flip {number}: bit {bit} of byte {offset} of "
                f"{path} ({'killed' if subject.is_killed else 'stopped'}): {type(error).__name__}: {error}"
            ) from error
    return tally


@click.command()
@click.option("--flips", default=10_000, show_default=True)
@click.option("--seed", default=1, show_default=True, help="The first store's.")
@click.option("--flip", type=int, help="Of the store of this seed, only this one.")
@click.option("--processes", default=2, show_default=True)
def main(flips: int, seed: int, flip: int | None, processes: int) -> None:
    """Flip single bits in sound stores and see whether anybody notices."""
    try:
        if flip is not None:
            run_seed(seed, only=flip)
            click.echo(f"flip {flip} of seed {seed}: as promised")
            return
        click.echo(f"bit flips from seed {seed} on")
        found = run_until(
            run_seed,
            lambda tally: tally.flips,
            flips,
            what="bit flips",
            first_seed=seed,
            processes=processes,
        )
    except BitFlipError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    total = Tally()
    for tally in found:
        total.add(tally)
    click.echo(summary(total))


def summary(total: Tally) -> str:
    """Return the count, in words."""
    detected, meaningless = total.detected.total(), total.meaningless.total()
    lines = [
        f"{total.flips} bit flips: {detected} detected ({total.by_verify} by verify, {total.by_broker} at start or "
        f"read), {meaningless} in bytes that mean nothing, 0 undetected, 0 wrong bytes served"
    ]
    lines += [f"  detected {count:6} {kind}" for kind, count in sorted(total.detected.items())]
    lines += [f"  nothing  {count:6} {kind}" for kind, count in sorted(total.meaningless.items())]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
