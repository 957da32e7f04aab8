"""A replica's own log with its epochs and its identity: what must be durable before what."""

from __future__ import annotations

from dataclasses import replace

from aerobee.replication.epochs import Epochs
from aerobee.replication.identity import Identity, Prepared, encode_identity, identity_file, renewed
from aerobee.replication.transfer import Taken
from aerobee.replication.values import Epoch
from aerobee.runtime.seams import Disk, Entropy
from aerobee.store.messagestore import MessageStore


class OwnLog:
    """The store as its replica uses it. Every change of identity or epochs is durable when its method returns."""

    def __init__(self, store: MessageStore, prepared: Prepared, disk: Disk, entropy: Entropy) -> None:
        self.store = store
        self.identity = prepared.identity
        # Why the incarnation is new, empty where it is that of the last run.
        self.renewed = prepared.renewed
        self._file = identity_file(disk, store.root)
        self._entropy = entropy
        # How far the log is known to be confirmed by the group. What was dispatched was confirmed.
        limit = store.log_end if prepared.confirm_limit is None else prepared.confirm_limit
        self.confirmed = max(min(limit, store.log_end), store.dispatched_offset)
        if not self.renewed and store.log_end < prepared.known_end:
            self.renewed = f"the log was synced up to {prepared.known_end} and ends at {store.log_end}"
            self.identity = renewed(self.identity, entropy)
        entries = self.identity.epochs
        if not entries and store.log_end > store.log_start:
            entries = (Epoch(number=0, start=0),)  # what a single broker wrote before it had a group
        self.epochs = Epochs(one for one in entries if one.start <= store.log_end)
        if replace(self.identity, epochs=self.epochs.entries) != prepared.identity:
            self._save(self.identity, self.epochs)

    @property
    def start(self) -> int:
        return self.store.log_start

    @property
    def end(self) -> int:
        return self.store.log_end

    @property
    def stored(self) -> int:
        """Return how far the log is stored at this replica's own level of flushing."""
        return self.store.flusher.confirmed

    def joined(self, number: int) -> None:
        """Remember the id that the coordinator gave, and that this start has joined."""
        known = replace(self.identity, id=number, starts=self.identity.starts[-1:])
        if known != self.identity:
            self._save(known, self.epochs)

    def see(self, epoch: int) -> None:
        """Remember the highest epoch seen. Nothing of it may be acknowledged before this returns."""
        if epoch > self.identity.epoch:
            self._save(replace(self.identity, epoch=epoch), self.epochs)

    def begin_epoch(self, number: int) -> None:
        """Note that this replica writes from here on as the master of an epoch. No byte of it is written yet."""
        epochs = Epochs(self.epochs.entries)
        epochs.append(number, self.end)
        epochs.drop_below(self.start)
        self._save(replace(self.identity, epoch=max(number, self.identity.epoch)), epochs)

    def cut(self, point: int) -> None:
        """Make the log end here, then forget the epochs behind. In the other order a crash would leave records under a
        wrong epoch. An epoch that this replica began and wrote nothing in is forgotten too."""
        if point < self.end:
            self.store.truncate(point)
        if self.epochs.entries and self.epochs.entries[-1].start >= point:
            epochs = Epochs(self.epochs.entries)
            epochs.cut(point)
            self._save(self.identity, epochs)

    def take(self, offset: int, taken: Taken) -> None:
        """Append what a master sent, and show what is confirmed."""
        if taken.new_epoch is not None:
            epochs = Epochs(self.epochs.entries)
            epochs.append(taken.new_epoch, offset)
            self._save(self.identity, epochs)
        if taken.body:
            self.store.append_raw(offset, taken.body, taken.sealed)
        self.confirm(taken.confirmed)

    def confirm(self, limit: int) -> None:
        """Show the log up to here. What was shown stays."""
        if limit > self.confirmed:
            self.confirmed = limit
            self.store.set_confirm_limit(limit)

    def doubt(self) -> None:
        """Remember that a sync failed: the next start draws a new incarnation."""
        self._save(replace(self.identity, suspect=True), self.epochs)

    def close(self) -> None:
        """Note an orderly stop, if all of the log is synced. Nothing may be written any more."""
        if self.store.fenced is None and self.store.flushed_offset == self.end:
            self._save(replace(self.identity, clean_end=self.end), self.epochs)

    def _save(self, identity: Identity, epochs: Epochs) -> None:
        """Store these, then take them. After an error the old ones count."""
        identity = replace(identity, epochs=epochs.entries)
        self._file.save(encode_identity(identity))
        self.identity, self.epochs = identity, epochs
