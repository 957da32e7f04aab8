"""The crash suite must be able to see: each planted bug is one it has to find, within a few runs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from aerobee._pure import is_compiled
from aerobee.hot.log.record import VERIFY_NONE, Draft
from aerobee.runtime.seams import File
from aerobee.store import commitlog, opening, recovery
from aerobee.store.commitlog import CommitLog, Segment, Segments
from aerobee.store.deletions import Deletions
from aerobee.store.durablemark import DurableMark
from aerobee.store.flush import FlushMachine
from aerobee.store.indexfile import IndexFile
from aerobee.store.messagestore import MessageStore
from aerobee.store.queueflush import QueueFlusher
from aerobee.store.queues import ConsumeQueues
from aerobee.store.queuetable import QueueTable, QueueTableFiles
from aerobee.store.segment import LogSource, scan
from aerobee.store.statefile import StateFile
from aerobee.testing.crashrun import CrashRun, CrashRunError

pytestmark = pytest.mark.skipif(is_compiled(), reason="compiled classes call each other past what is planted")

SEEDS_MAX = 25
Patch = pytest.MonkeyPatch


def acknowledge_without_sync(patch: Patch) -> None:
    """Answer the sync of the log at once and never do it."""
    patch.setattr(MessageStore, "_sync_log", lambda self, target: self._log_synced(None))


def acknowledge_before_sync(patch: Patch) -> None:
    patch.setattr(MessageStore, "on_safe", lambda self, end, callback: callback(None))


def dispatch_before_confirm(patch: Patch) -> None:
    """Dispatch what is not confirmed. RocketMQ #8239."""
    patch.setattr(MessageStore, "confirmed_offset", property(lambda self: self.log.end))


def leave_the_tail(patch: Patch) -> None:
    """Move the end at a cut and wipe nothing. RocketMQ #10666."""
    patch.setattr(Segments, "zero", lambda self, start, end: None)


def forget_to_note_truncations(patch: Patch) -> None:
    original = StateFile.save

    def save(self: StateFile, content: bytes) -> None:
        if not self.path.endswith("/truncate"):
            original(self, content)

    patch.setattr(StateFile, "save", save)


def units_not_synced(patch: Patch) -> None:
    """Write the queue table though its units are not on disk. RocketMQ #678, #1434."""
    original = QueueFlusher.flush

    def flush(self: QueueFlusher) -> list[File]:
        original(self)
        self._in_flight.clear()
        return []

    patch.setattr(QueueFlusher, "flush", flush)


def numbering_not_saved(patch: Patch) -> None:
    """Keep no table: expired queues would start again from 0."""
    patch.setattr(QueueTableFiles, "write", lambda self, content: self._files[0])


def no_checksums(patch: Patch) -> None:
    """Accept a half-written record. RocketMQ #7437."""

    def unverified(log: Any, start: int, stop: int, *, verify: int) -> Any:
        return scan(log, start, stop, verify=VERIFY_NONE)

    patch.setattr(recovery, "scan", unverified)


def mark_ahead_of_the_sync(patch: Patch) -> None:
    """Write a mark ahead of the sync: a torn tail is then taken for rot in the middle."""
    original = DurableMark.write
    patch.setattr(DurableMark, "write", lambda self, offset: original(self, offset + 600))


def names_not_synced(patch: Patch) -> None:
    patch.setattr(Segments, "_sync_dir", lambda self: None)


def new_segments_not_synced(patch: Patch) -> None:
    """Use a segment while its name and length may still be lost."""
    original = Segments._create

    def create(self: Segments, start: int, size: int) -> Segment:
        with patch.context() as inside:
            inside.setattr(commitlog, "sync_file", lambda file: None)
            inside.setattr(Segments, "_sync_dir", lambda self: None)
            return original(self, start, size)

    patch.setattr(Segments, "_create", create)


def believe_the_clock(patch: Patch) -> None:
    """Let store time go back with the clock."""
    original = CommitLog.append

    def append(self: CommitLog, drafts: list[Draft]) -> int:
        self.store_timestamp = 0
        return original(self, drafts)

    patch.setattr(CommitLog, "append", append)


def cut_at_any_damage(patch: Patch) -> None:
    """Count everything as synced: nothing is ever cut."""
    original = recovery.find_end

    def find_end(log: LogSource, start: int, stop: int, durable: int, verify: int, sealed_from: int) -> recovery.LogEnd:
        return original(log, start, stop, stop, verify, sealed_from)

    patch.setattr(opening, "find_end", find_end)


def flushed_too_far(patch: Patch) -> None:
    """Believe that a sync covers what was written while it was under way."""

    def synced(self: FlushMachine) -> int | None:
        self.flushed, self.syncing = self.written, None
        return None

    patch.setattr(FlushMachine, "synced", synced)


def index_not_cut(patch: Patch) -> None:
    """Keep entries of records that were cut off."""
    patch.setattr(IndexFile, "cut", lambda self, physical_offset: True)


def reuse_numbers(patch: Patch) -> None:
    """Count queues, at each start, from what is dispatched minus one."""
    original = ConsumeQueues.recover

    def recover(self: ConsumeQueues, log_start: int, log_end: int) -> None:
        original(self, log_start, log_end)
        for queue in self:
            queue.assign_next = max(0, queue.assign_next - 1)

    patch.setattr(ConsumeQueues, "recover", recover)


def state_renamed_before_sync(patch: Patch) -> None:
    """Rename a state file before it is synced. RocketMQ #3401, #9328."""

    def save(self: StateFile, content: bytes) -> None:
        self._write_temporary(content).close()
        self._put_in_place()

    patch.setattr(StateFile, "save", save)


def deletions_not_noted(patch: Patch) -> None:
    """Remove the queues of a deleted topic and note nothing."""
    patch.setattr(Deletions, "note", lambda self, topics, log_start, log_end: None)


def deletions_noted_in_memory_only(patch: Patch) -> None:
    patch.setattr(Deletions, "_save", lambda self, positions: self._set(positions, 0))


def deletions_forgotten_at_start(patch: Patch) -> None:
    patch.setattr(Deletions, "load", lambda self, log_start=0: None)


def deletions_reach_behind_a_cut(patch: Patch) -> None:
    """Count what is written where the log lost its tail as deleted."""
    patch.setattr(Deletions, "cut", lambda self, log_end: None)


def deleted_queues_believed(patch: Patch) -> None:
    """Believe a table written before the deletion."""
    patch.setattr(QueueTable, "rows", lambda self, deletions: self.queues.items())


def deletion_ahead_of_the_sync(patch: Patch) -> None:
    """Note a tail that a power cut may take: what comes in its place counts as deleted."""
    original = MessageStore.delete_topics

    def delete_topics(self: MessageStore, topics: Collection[bytes]) -> None:
        with patch.context() as inside:
            inside.setattr(MessageStore, "sync_now", lambda self: None)
            original(self, topics)

    patch.setattr(MessageStore, "delete_topics", delete_topics)


BUGS: list[Callable[[Patch], None]] = [
    acknowledge_without_sync,
    acknowledge_before_sync,
    dispatch_before_confirm,
    leave_the_tail,
    forget_to_note_truncations,
    units_not_synced,
    numbering_not_saved,
    no_checksums,
    mark_ahead_of_the_sync,
    names_not_synced,
    new_segments_not_synced,
    believe_the_clock,
    cut_at_any_damage,
    flushed_too_far,
    index_not_cut,
    reuse_numbers,
    state_renamed_before_sync,
    deletions_not_noted,
    deletions_noted_in_memory_only,
    deletions_forgotten_at_start,
    deletions_reach_behind_a_cut,
    deleted_queues_believed,
    deletion_ahead_of_the_sync,
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Callable[[Patch], None], monkeypatch: Patch) -> None:
    bug(monkeypatch)
    for seed in range(SEEDS_MAX):
        try:
            CrashRun(seed).run()
        except CrashRunError as error:
            assert f"--seed {seed} " in str(error)
            assert not isinstance(error.__cause__, TypeError | NameError), "what is planted does not fit the code"
            return
    pytest.fail(f"{bug.__name__} was not found in {SEEDS_MAX} runs")
