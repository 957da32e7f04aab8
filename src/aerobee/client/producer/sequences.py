"""The sequence numbers of an idempotent producer, by which a broker recognises a message that it has stored."""

from __future__ import annotations

from aerobee.model.producermark import PRODUCER_MARK, SEQUENCE_WINDOW, ProducerMark


class Sequences:
    """The sequence numbers of one producer. A broker remembers the last SEQUENCE_WINDOW; no send may lag further."""

    def __init__(self, producer_id: str) -> None:
        self.producer_id = producer_id
        self._next = 0
        # The numbers of the sends under way, the oldest first.
        self._open: dict[int, None] = {}

    @property
    def is_full(self) -> bool:
        """Whether the next send must wait for the oldest one under way."""
        return bool(self._open) and self._next - next(iter(self._open)) >= SEQUENCE_WINDOW

    def next(self) -> tuple[int, str]:
        """Return the next number, and the property that carries it."""
        sequence = self._next
        self._next += 1
        self._open[sequence] = None
        return sequence, f"{PRODUCER_MARK}\x01{ProducerMark(self.producer_id, sequence).encode()}\x02"

    def end(self, sequence: int) -> None:
        """Note that the send with this number was answered or given up."""
        self._open.pop(sequence, None)
