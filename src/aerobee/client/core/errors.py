"""The errors that only clients raise. The others are in `aerobee.errors` and `aerobee.errors.codes`."""

from __future__ import annotations

from typing import Final

from aerobee.client.core.receipt import SendReceipt
from aerobee.errors import AerobeeError, InvalidArgumentError, TransportError
from aerobee.errors import codes as refusals
from aerobee.protocol.codes import ResponseCode

_DURABILITY_HINTS = {
    10: "the disk did not confirm in time: the message is stored and a crash of the broker may lose it",
    11: "no slave is in sync: the message is stored on the master alone",
    12: "no slave confirmed in time: the message is stored on the master alone",
}


# How a follower refuses what only a master does, Apache's too. RocketMQ: NettyRemotingAbstract.processRequestCommand.
_REJECTED: Final = "[REJECTREQUEST]"
# RocketMQ: SendMessageProcessor.handlePutMessageResult, IN_SYNC_REPLICAS_NOT_ENOUGH.
_FEW_REPLICAS: Final = "in-sync replicas not enough"


def is_not_master(error: AerobeeError) -> bool:
    """Tell whether a broker refused because it is not the master that can do this now. It did nothing, and who is
    master may be known in a moment."""
    if error.code == ResponseCode.SYSTEM_BUSY:
        return error.message.startswith(_REJECTED)
    if error.code == ResponseCode.SYSTEM_ERROR:
        return _FEW_REPLICAS in error.message
    return error.code == ResponseCode.SERVICE_NOT_AVAILABLE


class NotDurableError(refusals.NotDurableError):
    """A message is stored, but less safely than asked. `receipt` says where; sending again would store it twice."""

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
    """An argument has the wrong type."""


class ClientStateError(AerobeeError):
    """A client is not started, is closed, or belongs to another event loop or process."""


class TooManyInFlightError(AerobeeError):
    """As many sends as `max_in_flight` allows wait for their answers."""

    retriable = True


class QueueUnavailableError(TransportError, TimeoutError):
    """The queue of a sharding key had no master in time. The message was not stored."""


class SelectorError(AerobeeError):
    """A selector raised, or chose a queue the topic does not have."""


class HandleExpiredError(AerobeeError):
    """The time of a message that was handed out is over, or it is acknowledged: its handle says nothing any more."""


class NoReplyError(AerobeeError, TimeoutError):
    """A request was stored, and no consumer replied in time."""

    retriable = True
