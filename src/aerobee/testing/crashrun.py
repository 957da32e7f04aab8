"""Seeded runs of a store with a crash image after every call that can change what a power cut leaves.

Owns the program of a run: several lives of one store, each sending, flushing, truncating, deleting segments and
topics, ended by a stop, a kill or a power cut, sometimes with the loss of what is derived. Starts are part of it, so
cuts during recovery are among the images. Every image can be made again from the run's seed and its number.
"""

from __future__ import annotations

from typing import NamedTuple

from aerobee.errors import StoreError
from aerobee.hot.log.record import Draft
from aerobee.store.dispatch import Sink
from aerobee.store.messagestore import MessageStore
from aerobee.testing.clock import VirtualClock
from aerobee.testing.crash import CrashMode, NamesMode
from aerobee.testing.crashcheck import check_image, check_store, require
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.faults import DiskCall
from aerobee.testing.history import History, Queue, is_queued
from aerobee.testing.storeshapes import ROOT, TOPICS, DraftMaker, Shape

LIVES = 3
#: After these an image is taken. `open` only adds a name, which is part of the images behind it.
IMAGED_KINDS = frozenset(
    ("write", "reserve", "truncate", "sync", "rename", "unlink", "make_dirs", "remove_dir", "sync_dir")
)
_HOUR_MS = 3_600_000
_MODES = tuple(CrashMode)
_ORDERLY_MODES = (CrashMode.NONE, CrashMode.ALL, CrashMode.PREFIX)
_NAMES = (NamesMode.SAME,) * 4 + (NamesMode.NONE, NamesMode.ALL)


class CrashRunError(AssertionError):
    """A run broke a promise; the text says how to see it again."""


class CrashOutcome(NamedTuple):
    """What a run has looked at."""

    images: int
    records: int
    truncations: int
    deletions: int


class Watcher(Sink):
    """A sink that sees every dispatch of a run: what readers may see must be safe, and stays what it was."""

    name = "watcher"

    def __init__(self, run: CrashRun) -> None:
        self._run = run
        self._seen: dict[tuple[Queue, int], int] = {}

    def dispatch(self, drafts: list[Draft]) -> None:
        run = self._run
        for draft in filter(is_queued, drafts):
            place = ((draft.topic, draft.queue_id), draft.queue_offset)
            below = run.history.deleted_topics.get(draft.topic, 0)
            require(draft.physical_offset >= below, f"a message of {draft.topic!r} comes back after its deletion")
            was = self._seen.setdefault(place, draft.physical_offset)
            require(was == draft.physical_offset, f"queue offset {place} given to two messages")
        if drafts and run.shape.sync_flush and run.is_open:
            end = drafts[-1].physical_offset + drafts[-1].size
            run.require_durable(drafts[0].physical_offset, end)
            run.history.safe(end)

    def forget(self, end: int) -> None:
        """Forget what lay behind `end`: the log lost its tail, and nobody was promised it."""
        self._seen = {place: start for place, start in self._seen.items() if start < end}

    def forget_topic(self, topic: bytes) -> None:
        """Forget the numbers of a topic, which begin again."""
        self._seen = {place: start for place, start in self._seen.items() if place[0][0] != topic}

    def position(self) -> int:
        """Return a place.

        In some runs it is that of a sink that lost everything: the others must not get more for its sake.
        """
        return -1 if self._run.seed % 3 == 0 else 2**62

    def truncate(self, physical_offset: int) -> None:
        self.forget(physical_offset)


class CrashRun:
    """One seed. `only`: of all images check just this one. `orderly`: a disk that writes whole sectors in order.
    `cutting`: many truncations."""

    def __init__(
        self,
        seed: int,
        *,
        only: int | None = None,
        shape: Shape | None = None,
        orderly: bool = False,
        cutting: bool = False,
    ) -> None:
        self.seed = seed
        self._truncations_per_100 = 40 if cutting else 5
        self._only = only
        self._modes = _ORDERLY_MODES if orderly else _MODES
        entropy = SeededEntropy(seed)
        self.shape = shape or Shape.draw(entropy.fork())
        self._sender = DraftMaker(self.shape, entropy.fork())
        self._program = entropy.fork()
        self._cuts = entropy.fork()
        self.clock = VirtualClock()
        self.disk = RecordingDisk(seed=seed)
        self.history = History(self.shape.segment_size, self.shape.with_crc, self.shape.config().delay_levels_ms)
        self._watcher = Watcher(self)
        self.store: MessageStore | None = None
        self._is_whole = True  # no power cut has taken anything since the log was last looked at
        self.images = 0
        self._records = 0
        self._truncations = 0
        self._deletions = 0

    @property
    def is_open(self) -> bool:
        return self.store is not None and self.store.is_open

    def run(self) -> CrashOutcome:
        try:
            for life in range(LIVES):
                self._start()
                for _ in range(8 + self._program.below(14)):
                    self._step()
                if life < LIVES - 1:
                    self._stop()
        except CrashRunError:
            raise
        except Exception as error:
            raise CrashRunError(f"{self._replay()}: {type(error).__name__}: {error}") from error
        return CrashOutcome(self.images, self._records, self._truncations, self._deletions)

    def _replay(self) -> str:
        return f"python -m aerobee.testing.crashimages --seed {self.seed} --image {self.images} ({self.shape})"

    # --- a life

    def _start(self) -> None:
        if self.shape.late_syncs:
            self.disk.complete_queued()
        self.disk.after_call = self._after_call
        expect = self.history.expectation(everything=self._is_whole)
        store = self.shape.store(self.disk, self.clock, (self._watcher,))
        store.open()
        end = check_store(store, self.disk.contents(), expect, self.shape, deep=True)
        self.history.cut(end)
        self.history.safe(end)
        self._watcher.forget(end)
        self._is_whole = True
        self.store = store

    def _stop(self) -> None:
        how = self._program.below(4)
        store, self.store = self._store(), None
        self._note_flushed(store)
        if how == 0:
            self.disk.run_pending()
            store.close()
            require(not self.disk.exists(f"{ROOT}/abort"), "a clean stop left abort behind")
            self.history.safe(self.history.end)
            self._lose_derived()
        self.disk.after_call = None
        if how == 1:
            self.disk = self.disk.kill()
        else:
            mode = self._program.choose(self._modes)
            self.disk = self.disk.crash(mode, self._program.below(1 << 30))
            self._is_whole = False
        self.clock.jump(self._program.choose((-_HOUR_MS, 0, 0, _HOUR_MS)))

    def _lose_derived(self) -> None:
        """Remove the index, or consume queues: they are built again."""
        lost = self._program.choose(("", "", "index", "consumequeue", f"consumequeue/{TOPICS[0].decode()}"))
        for path in [path for path in self.disk.contents() if lost and path.startswith(f"{ROOT}/{lost}/")]:
            self.disk.unlink(path)

    def _store(self) -> MessageStore:
        assert self.store is not None
        return self.store

    # --- steps

    def _step(self) -> None:
        program = self._program
        if program.below(100) < self._truncations_per_100:
            self._truncate()
        else:
            self._step_on(program.below(100))
        if self.disk.pending_count and program.chance(0.4):
            self.disk.run_pending(1 + program.below(2))

    def _step_on(self, what: int) -> None:
        program = self._program
        if what < 60:
            self._append()
        elif what < 67:
            self._delete_topic()
        elif what < 78:
            self.clock.advance(program.choose((0.2, 0.6, 1.1)))
            self._store().tick()
        elif what < 86:
            self._store().flush_sinks()
        elif what < 92:
            self.clock.jump(program.choose((-_HOUR_MS, -1, _HOUR_MS)))
        else:
            self._delete()

    def _append(self) -> None:
        store, history = self._store(), self.history
        drafts = self._sender.batch()
        history.appending(drafts)
        end = store.append(drafts)
        history.appended()
        self._records += len(drafts)

        def told(error: StoreError | None) -> None:
            if error is None and self.shape.sync_flush:
                history.safe(end)

        store.on_safe(end, told)

    def _truncate(self) -> None:
        store, history = self._store(), self.history
        ends = [entry.end for entry in history.entries[-8:] if entry.end > store.log_start]
        if not ends:
            return
        to = self._program.choose(ends)
        self._note_flushed(store)
        history.cutting_to = to
        store.truncate(to)
        history.cut(to)
        self._truncations += 1

    def _delete(self) -> None:
        store = self._store()
        starts = store.log.segments.starts
        self.history.deleting_to = starts[1] if len(starts) > 1 else None
        if store.delete_oldest_segment():
            self.history.deleted(store.log_start)
        self.history.deleting_to = None

    def _delete_topic(self) -> None:
        """Delete a topic. The next message sent to it makes it again."""
        topic = self._program.choose(TOPICS[: self.shape.topic_count])
        self._note_flushed(self._store())
        self.history.deleting_topics([topic])
        self._store().delete_topics([topic])
        self.history.topics_deleted()
        self._watcher.forget_topic(topic)
        self._deletions += 1

    def require_durable(self, start: int, end: int) -> None:
        """Require that these bytes of the log survive any power cut."""
        contents = self.disk.crash(CrashMode.NONE).contents()
        size = self.shape.segment_size
        base = start - start % size
        wanted = self.history.expectation().log[start:end]
        found = contents.get(f"{ROOT}/commitlog/{base:020d}", (0, b""))[1][start - base :]
        require(found.startswith(wanted.rstrip(b"\0")), f"readers see {start} to {end} before it is safe")

    # --- images

    def _note_flushed(self, store: MessageStore) -> None:
        """Note as promised what an ASYNC_FLUSH store calls flushed."""
        if not self.shape.sync_flush:
            self.history.safe(store.flushed_offset)

    def _after_call(self, call: DiskCall) -> None:
        if call.kind not in IMAGED_KINDS:
            return
        cuts = self._cuts
        again = cuts.choose((None, *self._modes[:4]))
        is_kill = cuts.chance(0.1)
        mode, names, seed = cuts.choose(self._modes), cuts.choose(_NAMES), cuts.below(1 << 30)
        self.images += 1
        if self._only is not None and self.images != self._only:
            return
        if self.is_open:
            self._note_flushed(self._store())
        expect = self.history.expectation(everything=is_kill and self._is_whole)
        image = self.disk.kill() if is_kill else self.disk.crash(mode, seed, names=names)
        try:
            check_image(image, expect, self.shape, again=again, deep=self.images % 10 == 0)
        except Exception as error:
            how = "kill" if is_kill else f"{mode.value} of what was not synced, names {names.value}"
            raise CrashRunError(
                f"{self._replay()}: after call {call}, {how}: {type(error).__name__}: {error}"
            ) from error
