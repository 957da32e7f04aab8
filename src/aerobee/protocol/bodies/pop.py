"""The body of a request that acknowledges many popped messages."""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Self

import msgspec

from aerobee.model.dialect import DialectError, loads_object
from aerobee.model.numbers import INT64_MAX, INT64_MIN
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

    def set_bits(self) -> bytes:
        """Return the bits as bytes, the lowest first: Java's BitSet.toByteArray. Raises DialectError."""
        try:
            return base64.b64decode(self.bits, validate=True)
        except (binascii.Error, ValueError):
            raise DialectError("<b> is not base64") from None


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

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the body of these bytes. Raises DialectError.

        A body in the form that clients write is read at once into its types. Everything else is read as any body is.
        """
        try:
            found: Any = _usual.decode(data)
        except (ValueError, RecursionError):
            return cls.from_json(loads_object(data))
        return cls(found.brokerName, tuple([BatchAck(*msgspec.structs.astuple(one)) for one in found.acks]))


_types: Final[dict[type, Any]] = {str: str, int: Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]}
_usual_ack: Any = msgspec.defstruct(
    "_UsualAck",
    [(one.metadata["wire"], _types[type(one.default)], one.default) for one in dataclasses.fields(BatchAck)],
    forbid_unknown_fields=True,
)
_usual_acks: Any = list[_usual_ack]
_usual: Final = msgspec.json.Decoder(
    msgspec.defstruct("_UsualBody", [("brokerName", str, ""), ("acks", _usual_acks, [])], forbid_unknown_fields=True)
)
