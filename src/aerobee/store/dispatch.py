"""Dispatch: how confirmed records reach everything derived from the log (queues, index, timers...).

Owns the Sink interface and the order: every sink sees every record once, in log order, and never one that is not
confirmed (RocketMQ: #8239, unflushed messages consumed and their offsets reused after a power cut).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from aerobee.hot.record import Draft
from aerobee.runtime.seams import File


class Sink(Protocol):
    """Something derived from the log. Deleting its files loses nothing: it is rebuilt from the log.

    The order of calls: `recover(log_start, log_end)` once at open, then `dispatch` from `position()` on, `flush`
    and `flushed` in pairs while running, `truncate` when the log lost its tail, `close` last.
    """

    name: str

    def recover(self, log_start: int, log_end: int) -> None:
        """Open the files, drop whatever points at or beyond `log_end`; afterwards `position()` is true."""

    def position(self) -> int:
        """Everything of the log below this physical offset is in here durably. -1: nothing, dispatch all again."""

    def dispatch(self, drafts: Sequence[Draft]) -> None:
        """Confirmed records, in log order. Records seen before (below what it holds) must be harmless."""

    def flush(self) -> list[File]:
        """Write what memory holds; the files that must be synced before `flushed` may be told."""

    def flushed(self) -> None:
        """The files of the last `flush` are synced: `position()` may move to where dispatch stood at that call."""

    def truncate(self, physical_offset: int) -> None:
        """The log now ends here: forget everything at or beyond it, durably."""

    def close(self) -> None: ...
