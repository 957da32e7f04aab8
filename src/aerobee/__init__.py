"""Aerobee: RocketMQ in Python.

The names here are loaded when first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from aerobee import _pure

_pure.install_if_asked()

__version__ = "0.1.0"

if TYPE_CHECKING:
    from aerobee.admin.client import Admin as Admin
    from aerobee.client.consumer import Allocation as Allocation
    from aerobee.client.consumer import Averagely as Averagely
    from aerobee.client.consumer import AveragelyByCircle as AveragelyByCircle
    from aerobee.client.consumer import ByConfig as ByConfig
    from aerobee.client.consumer import ByMachineRoom as ByMachineRoom
    from aerobee.client.consumer import ConsistentHash as ConsistentHash
    from aerobee.client.consumer import DeadLetter as DeadLetter
    from aerobee.client.consumer import Handler as Handler
    from aerobee.client.consumer import LitePullConsumer as LitePullConsumer
    from aerobee.client.consumer import LitePullConsumerOptions as LitePullConsumerOptions
    from aerobee.client.consumer import MachineRoomNearby as MachineRoomNearby
    from aerobee.client.consumer import OnQueues as OnQueues
    from aerobee.client.consumer import PoppedMessage as PoppedMessage
    from aerobee.client.consumer import PullResult as PullResult
    from aerobee.client.consumer import PullStatus as PullStatus
    from aerobee.client.consumer import PushConsumer as PushConsumer
    from aerobee.client.consumer import PushConsumerOptions as PushConsumerOptions
    from aerobee.client.consumer import RetryLater as RetryLater
    from aerobee.client.consumer import SimpleConsumer as SimpleConsumer
    from aerobee.client.consumer import SimpleConsumerOptions as SimpleConsumerOptions
    from aerobee.client.core import ClientOptions as ClientOptions
    from aerobee.client.core import ClientStateError as ClientStateError
    from aerobee.client.core import ConsumeContext as ConsumeContext
    from aerobee.client.core import ConsumeHook as ConsumeHook
    from aerobee.client.core import HandleExpiredError as HandleExpiredError
    from aerobee.client.core import NoReplyError as NoReplyError
    from aerobee.client.core import NotDurableError as NotDurableError
    from aerobee.client.core import QueueUnavailableError as QueueUnavailableError
    from aerobee.client.core import ReceiveHook as ReceiveHook
    from aerobee.client.core import SelectorError as SelectorError
    from aerobee.client.core import SendContext as SendContext
    from aerobee.client.core import SendHook as SendHook
    from aerobee.client.core import SendReceipt as SendReceipt
    from aerobee.client.core import SendStatus as SendStatus
    from aerobee.client.core import TooManyInFlightError as TooManyInFlightError
    from aerobee.client.producer import BatchOptions as BatchOptions
    from aerobee.client.producer import Body as Body
    from aerobee.client.producer import OnCheck as OnCheck
    from aerobee.client.producer import Producer as Producer
    from aerobee.client.producer import ProducerOptions as ProducerOptions
    from aerobee.client.producer import Selector as Selector
    from aerobee.client.producer import SendOptions as SendOptions
    from aerobee.client.producer import TransactionState as TransactionState
    from aerobee.errors import AerobeeError as AerobeeError
    from aerobee.errors import BrokerError as BrokerError
    from aerobee.errors import InvalidArgumentError as InvalidArgumentError
    from aerobee.errors import RequestTimeoutError as RequestTimeoutError
    from aerobee.errors import TransportError as TransportError
    from aerobee.errors.codes import NoPermissionError as NoPermissionError
    from aerobee.errors.codes import TopicNotExistError as TopicNotExistError
    from aerobee.model.message import Message as Message
    from aerobee.model.queue import MessageQueue as MessageQueue

# The module that each public name is loaded from.
_HOMES = {
    "aerobee.admin.client": ("Admin",),
    "aerobee.client.core": (
        "ClientOptions", "ClientStateError", "HandleExpiredError", "NoReplyError", "NotDurableError",
        "ConsumeContext", "ConsumeHook", "QueueUnavailableError", "ReceiveHook", "SelectorError", "SendContext",
        "SendHook", "SendReceipt",
        "SendStatus", "TooManyInFlightError",
    ),
    "aerobee.client.producer": (
        "BatchOptions", "Body", "OnCheck", "Producer", "ProducerOptions", "Selector",
        "SendOptions", "TransactionState",
    ),
    "aerobee.client.consumer": (
        "Allocation", "Averagely", "AveragelyByCircle", "ByConfig", "ByMachineRoom", "ConsistentHash", "DeadLetter",
        "Handler", "LitePullConsumer", "LitePullConsumerOptions", "MachineRoomNearby", "OnQueues", "PullResult",
        "PullStatus", "PoppedMessage", "PushConsumer", "PushConsumerOptions", "RetryLater", "SimpleConsumer",
        "SimpleConsumerOptions",
    ),
    "aerobee.errors": ("AerobeeError", "BrokerError", "InvalidArgumentError", "RequestTimeoutError", "TransportError"),
    "aerobee.errors.codes": ("NoPermissionError", "TopicNotExistError"),
    "aerobee.model.message": ("Message",),
    "aerobee.model.queue": ("MessageQueue",),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'aerobee' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
