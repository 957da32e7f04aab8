"""What only clients raise. The rest is in `aerobee.errors` and `aerobee.errors.codes`."""

from __future__ import annotations

from aerobee.client.core.receipt import SendReceipt
from aerobee.errors import AerobeeError, InvalidArgumentError
from aerobee.errors import codes as refusals

_DURABILITY_HINTS = {
    10: "the disk did not confirm in time: the message is stored and a crash of the broker may lose it",
    11: "no slave is in sync: the message is stored on the master alone",
    12: "no slave confirmed in time: the message is stored on the master alone",
}


class NotDurableError(refusals.NotDurableError):
    """Stored, but not as safely as asked. `receipt` says where; sending again would store it twice."""

    def __init__(self, receipt: SendReceipt) -> None:
        code = receipt.status.value
        super().__init__(
            f"the message is stored, but {receipt.status.name}",
            code=code,
            broker=f"{receipt.broker} ({receipt.broker_address})",
            hint=_DURABILITY_HINTS.get(code),
        )
        self.receipt = receipt


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """What was passed is of the wrong type."""


class ClientStateError(AerobeeError):
    """A client that is not started, is closed, or belongs to another loop or process."""


class TooManyInFlightError(AerobeeError):
    """`max_in_flight` sends wait for their answers."""

    retriable = True


class SelectorError(AerobeeError):
    """A selector raised, or chose a queue the topic does not have."""


class NoReplyError(AerobeeError, TimeoutError):
    """A request was sent and stored, and nobody answered it in time."""

    retriable = True
