"""The mark that an idempotent producer puts on its messages: the producer's id and the message's sequence number.

The mark is the property `__AEROBEE_PID` = `<producer id>:<sequence>` (docs/formats/private.md). Apache's broker stores
it as it stores any property.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from aerobee.model.numbers import int_or
from aerobee.model.sysproperties import PRIVATE_PREFIX

PRODUCER_MARK: Final = PRIVATE_PREFIX + "PID"
# The number of the message before it that goes to the same queue and has no answer yet; -1 where there is none.
ORDER_MARK: Final = PRIVATE_PREFIX + "AFTER"
# A producer has no message under way that is this far behind its newest one. A broker remembers as many.
SEQUENCE_WINDOW: Final = 8192
_ID_SIZE: Final = 16
_SEQUENCE_MAX: Final = 10**18 - 1


class ProducerMark(NamedTuple):
    """A mark, which is the same in every try of one message."""

    producer_id: str
    sequence: int

    def encode(self) -> str:
        return f"{self.producer_id}:{self.sequence}"


def parse_mark(text: str | None) -> ProducerMark | None:
    """Return the mark, or None where the text is not one."""
    if text is None:
        return None
    producer_id, _, digits = text.partition(":")
    sequence = int_or(digits, None, 0, _SEQUENCE_MAX) if digits[:1].isdigit() else None
    return None if len(producer_id) != _ID_SIZE or sequence is None else ProducerMark(producer_id, sequence)


def order_property(before: int) -> str:
    """Return the property of a message that must be stored after another one of its queue."""
    return f"{ORDER_MARK}\x01{before}\x02"


def parse_order(text: str | None) -> int | None:
    """Return the sequence number that a message must come after, -1 for any, or None where no order is asked for."""
    return None if text is None else int_or(text, None, -1, _SEQUENCE_MAX)
