"""The numbers an idempotent producer gives its messages, by which a broker knows one that it has stored."""

from __future__ import annotations

from aerobee.model.producermark import PRODUCER_MARK, SEQUENCE_WINDOW, ProducerMark


class Sequences:
    """One running producer's. A broker remembers the last SEQUENCE_WINDOW: no send may stay behind further."""

    def __init__(self, producer_id: str) -> None:
        self.producer_id = producer_id
        self._next = 0
        # Under way, the oldest first.
        self._open: dict[int, None] = {}

    @property
    def is_full(self) -> bool:
        """Whether the next one must wait for the oldest under way."""
        return bool(self._open) and self._next - next(iter(self._open)) >= SEQUENCE_WINDOW

    def next(self) -> tuple[int, str]:
        """The next number, and the property that says it."""
        sequence = self._next
        self._next += 1
        self._open[sequence] = None
        return sequence, f"{PRODUCER_MARK}\x01{ProducerMark(self.producer_id, sequence).encode()}\x02"

    def end(self, sequence: int) -> None:
        """It has its answer, or was given up."""
        self._open.pop(sequence, None)
