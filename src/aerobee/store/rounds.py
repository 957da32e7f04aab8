"""Rounds: the sinks' memory is written to disk in steps, off the owner's thread; the checkpoint follows each round.

This module decides when a round is due and what may be claimed at its end. The log is synced before any sink speaks of
it. A truncation meanwhile makes a round count for nothing. RocketMQ: ConsumeQueueStore.FlushConsumeQueueService.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.errors import DiskFullError, StoreError, StoreFencedError
from aerobee.runtime.seams import File
from aerobee.runtime.shortage import is_passing
from aerobee.store.dispatch import Sink

if TYPE_CHECKING:
    from aerobee.store.messagestore import MessageStore

# Time between rounds for each file a round syncs.
_SYNC_BUDGET_MS: Final = 20


class SinkRounds:
    """Flushes the sinks of one store, one round at a time."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._flushing = False
        self._saving = False
        self._last_ms = 0
        # Where dispatch stood when the last whole round began.
        self.flushed_to = -1

    @property
    def is_busy(self) -> bool:
        return self._flushing or self._saving

    def tick(self, now_ms: int) -> None:
        if now_ms - self._last_ms >= self._interval_ms():
            self._last_ms = now_ms
            self.begin()

    def _interval_ms(self) -> int:
        """Return the time between rounds.

        Every dirty queue is a file to sync: many of them too often would hold up log syncs.
        """
        config = self._store.config
        spread = len(self._store.queues.flusher.dirty) * _SYNC_BUDGET_MS
        thorough = config.flush_consume_queue_thorough_interval_ms
        return max(config.flush_interval_consume_queue_ms, min(spread, thorough))

    def begin(self) -> None:
        """Start a round, unless one is under way or there is nothing to do."""
        store = self._store
        if self._flushing:
            return
        if store.dispatcher.position == self.flushed_to and store.flusher.flushed == store.log.end:
            return
        self._step()
        # A disk that answers inside the call (tests, tools) must not deepen the stack with each step.
        while store.queues.flusher.is_behind and not self._flushing and store.fenced is None:
            self._step()

    def _step(self) -> None:
        """Flush as many files as can be open together."""
        store = self._store
        generation, log_to, dispatched = store.generation, store.log.end, store.dispatcher.position
        files: list[File] = store.log.segments.files_between(store.flusher.flushed, log_to)
        flushing: list[Sink] = []
        for sink in store.sinks:
            try:
                files.extend(sink.flush())
                flushing.append(sink)
            except StoreFencedError as error:
                store.fence(error)
                return
            except DiskFullError:
                store.counters.refused_full += 1  # kept in memory, tried again in the next round
            except OSError as error:
                store.warn.warning(
                    sink.name, "files cannot be written now; the store tries again soon", of=sink.name, reason=error
                )
        self._flushing = True
        submitting = True
        slot = store.mark.begin_sync()

        def synced(error: OSError | None) -> None:
            self._flushing = False
            if not store.is_open or store.fenced is not None:
                return
            if error is not None:
                store.fence(error)
                return
            store.mark.synced(slot)
            if generation == store.generation:
                self._synced(flushing, log_to, dispatched)
                if store.queues.flusher.is_behind and not submitting:
                    self.begin()

        store.disk.sync([*dict.fromkeys(files), store.mark.file], synced)
        submitting = False

    def _synced(self, flushing: list[Sink], log_to: int, dispatched: int) -> None:
        store = self._store
        store.flusher.flushed_to(log_to)
        try:
            for sink in flushing:
                sink.flushed()
        except StoreFencedError as error:
            store.fence(error)
            return
        except (OSError, DiskFullError) as error:
            store.warn.warning("flushed", "files cannot be written now; the store tries again soon", reason=error)
            return
        if len(flushing) == len(store.sinks) and not store.queues.flusher.is_behind:
            self.flushed_to = dispatched
        store.advance()
        self._submit_checkpoint()

    def _submit_checkpoint(self) -> None:
        store = self._store
        if self._saving:
            return
        try:
            store.checkpoint.settle()
            value = store.checkpoint_value()
            if value == store.checkpoint.value:
                return
            store.mark.note_checkpoint(store.checkpoint.on_disk.encode(), value.encode())
            store.mark.write(store.flusher.flushed)
        except StoreFencedError as error:
            store.fence(error)
            return
        except (OSError, DiskFullError):
            return  # the older checkpoint stays, and the older mark knows it
        generation = store.generation
        self._saving = True

        def saved(error: OSError | StoreError | None) -> None:
            self._saving = False
            if not store.is_open or error is None:
                return
            if is_passing(error):
                store.warn.warning(
                    "checkpoint", "the checkpoint was not saved; the store tries again soon", reason=error
                )
            else:
                store.fence(error)

        slot = store.mark.begin_sync()

        def marked(error: OSError | None) -> None:
            if error is None:
                store.mark.synced(slot)
            if error is not None or not store.is_open or store.fenced is not None or generation != store.generation:
                saved(error)
            else:
                store.checkpoint.submit(value, saved)

        # The mark is synced first. Otherwise the checkpoint would look like another broker's after a power cut.
        store.disk.sync([store.mark.file], marked)
