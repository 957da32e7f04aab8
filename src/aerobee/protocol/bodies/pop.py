"""The body of a request that acknowledges many popped messages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass

from aerobee.model.dialect import DialectError
from aerobee.protocol.bodies.base import Body, wire


@dataclass(frozen=True, slots=True)
class BatchAck(Body):
    """The acknowledged offsets of one pop. `bits` has one bit for each offset from `start_offset` on."""

    consumer_group: str = wire("c", "")
    topic: str = wire("t", "")
    retry: str = wire("r", "")
    start_offset: int = wire("so", 0)
    queue_id: int = wire("q", 0)
    revive_queue_id: int = wire("rq", 0)
    pop_time: int = wire("pt", 0)
    invisible_time: int = wire("it", 0)
    bits: str = wire("b", "")

    def count(self) -> int:
        """Return how many offsets are acknowledged. Raises DialectError."""
        return int.from_bytes(self._bytes()).bit_count()

    def _bytes(self) -> bytes:
        try:
            return base64.b64decode(self.bits, validate=True)
        except (binascii.Error, ValueError):
            raise DialectError("<b> is not base64") from None

    def offsets(self) -> list[int]:
        """Return the acknowledged offsets. Raises DialectError."""
        data, start = self._bytes(), self.start_offset
        return [
            start + 8 * place + bit for place, byte in enumerate(data) if byte for bit in range(8) if byte >> bit & 1
        ]


def bits_of(start_offset: int, offsets: Iterable[int]) -> str:
    """Return the `bits` of offsets: Java's BitSet.toByteArray in base64."""
    mask = 0
    for offset in offsets:
        mask |= 1 << (offset - start_offset)
    return base64.b64encode(mask.to_bytes((mask.bit_length() + 7) // 8, "little")).decode()


@dataclass(frozen=True, slots=True)
class BatchAckMessageRequestBody(Body):
    """BATCH_ACK_MESSAGE."""

    broker_name: str = ""
    acks: tuple[BatchAck, ...] = ()
