"""The mark an idempotent producer puts on its messages: who sent it, and the how-manieth it is.

`__AEROBEE_PID` = `<producer id>:<sequence>`, see docs/formats/private.md. No RocketMQ has it; every other one just
stores the property.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from aerobee.model.numbers import int_or
from aerobee.model.sysproperties import PRIVATE_PREFIX

PRODUCER_MARK: Final = PRIVATE_PREFIX + "PID"
# A producer has no message under way that is this far behind its newest one, and a broker remembers as many.
SEQUENCE_WINDOW: Final = 8192
_ID_SIZE: Final = 16
_SEQUENCE_MAX: Final = 10**18 - 1


class ProducerMark(NamedTuple):
    """The same in every try of one message."""

    producer_id: str
    sequence: int

    def encode(self) -> str:
        return f"{self.producer_id}:{self.sequence}"


def parse_mark(text: str | None) -> ProducerMark | None:
    """None for anything that is no mark."""
    if text is None:
        return None
    producer_id, _, digits = text.partition(":")
    sequence = int_or(digits, None, 0, _SEQUENCE_MAX) if digits[:1].isdigit() else None
    return None if len(producer_id) != _ID_SIZE or sequence is None else ProducerMark(producer_id, sequence)
