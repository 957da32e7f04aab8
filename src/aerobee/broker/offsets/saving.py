"""Saving of the consume offsets, every few seconds and at a stop.

Apache 5.5.0 has a scan for offsets of groups that no longer subscribe, and never calls it. This broker does not scan
either: a group that comes back after a week goes on where the log begins, and not where it ends.
"""

from __future__ import annotations

from aerobee.runtime.seams import Clock
from aerobee.store.metadata.offsets import ConsumerOffsetTable
from aerobee.telemetry.stdlog import RateLimitedLog, get_log


class OffsetSaver:
    """Writes the table of consume offsets, one save at a time."""

    def __init__(self, table: ConsumerOffsetTable, clock: Clock) -> None:
        self._table = table
        self._warn = RateLimitedLog(get_log("broker.housekeeping"), clock)
        self._is_saving = False

    def save(self) -> None:
        """Save what changed, off this thread."""
        if not self._is_saving:
            self._is_saving = True
            self._table.submit(self._saved)

    def _saved(self, error: Exception | None) -> None:
        self._is_saving = False
        if error is not None:
            self._warn.warning("offsets", "consume offsets were not saved", reason=error)

    def close(self) -> None:
        """Save what changed, blocking."""
        self._table.save()
