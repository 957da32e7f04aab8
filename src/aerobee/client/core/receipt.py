"""The receipt of a stored message."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

from aerobee.errors import RemoteProtocolError
from aerobee.model.numbers import INT32_MAX, INT32_MIN, parse_int
from aerobee.model.offsets import QueueOffset
from aerobee.model.queue import MessageQueue
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command

# RocketMQ: MixAll.DEFAULT_TRACE_REGION_ID
DEFAULT_REGION: Final = "DefaultRegion"


class SendStatus(enum.Enum):
    """How safely a message is stored. Only SEND_OK is returned; the others are raised as a NotDurableError."""

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


SEND_STATUSES: Final = {status.value: status for status in SendStatus}


@dataclass(frozen=True, slots=True)
class SendReceipt:
    """Where a message is stored. `message_id` is the producer's unique id, `offset_id` names the place in the log."""

    topic: str
    broker: str
    queue_id: int
    queue_offset: QueueOffset
    message_id: str
    offset_id: str
    status: SendStatus = SendStatus.SEND_OK
    transaction_id: str | None = None
    # `Producer.cancel` needs this handle. Only a delayed message has one, where its broker can recall messages.
    recall_handle: str | None = field(default=None, repr=False)
    region: str = field(default=DEFAULT_REGION, repr=False)
    trace_on: bool = field(default=True, repr=False)
    broker_address: str = field(default="", repr=False)

    @property
    def queue(self) -> MessageQueue:
        """The queue that the message is stored in."""
        return MessageQueue(self.topic, self.broker, self.queue_id)


def receipt_of(answer: Command, topic: str, broker: str, address: str, message_id: str) -> SendReceipt:
    """Return the receipt in a broker's answer. RocketMQ: MQClientAPIImpl.processSendResponse."""
    ext = answer.ext
    try:
        return SendReceipt(
            topic,
            broker,
            parse_int(ext["queueId"], INT32_MIN, INT32_MAX),
            QueueOffset(parse_int(ext["queueOffset"])),
            message_id,
            ext["msgId"],
            SEND_STATUSES[answer.code],
            ext.get("transactionId"),
            ext.get("recallHandle"),
            ext.get("MSG_REGION") or DEFAULT_REGION,
            ext.get("TRACE_ON") != "false",
            address,
        )
    except (KeyError, ValueError) as error:
        raise RemoteProtocolError(f"the answer to a send lacks {error}", broker=address) from None
