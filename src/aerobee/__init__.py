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
    from aerobee.client.allocation import Allocation as Allocation
    from aerobee.client.allocation import Averagely as Averagely
    from aerobee.client.allocation import AveragelyByCircle as AveragelyByCircle
    from aerobee.client.allocation import ByConfig as ByConfig
    from aerobee.client.allocation import ByMachineRoom as ByMachineRoom
    from aerobee.client.allocation import ConsistentHash as ConsistentHash
    from aerobee.client.allocation import MachineRoomNearby as MachineRoomNearby
    from aerobee.client.consumeroptions import LitePullConsumerOptions as LitePullConsumerOptions
    from aerobee.client.consumeroptions import PushConsumerOptions as PushConsumerOptions
    from aerobee.client.errors import ClientStateError as ClientStateError
    from aerobee.client.errors import NoReplyError as NoReplyError
    from aerobee.client.errors import NotDurableError as NotDurableError
    from aerobee.client.errors import SelectorError as SelectorError
    from aerobee.client.errors import TooManyInFlightError as TooManyInFlightError
    from aerobee.client.listener import DeadLetter as DeadLetter
    from aerobee.client.listener import Handler as Handler
    from aerobee.client.listener import RetryLater as RetryLater
    from aerobee.client.litepull import LitePullConsumer as LitePullConsumer
    from aerobee.client.options import ClientOptions as ClientOptions
    from aerobee.client.options import ProducerOptions as ProducerOptions
    from aerobee.client.options import SendContext as SendContext
    from aerobee.client.options import SendHook as SendHook
    from aerobee.client.outgoing import Body as Body
    from aerobee.client.producer import Producer as Producer
    from aerobee.client.pulling import PullResult as PullResult
    from aerobee.client.pulling import PullStatus as PullStatus
    from aerobee.client.push import PushConsumer as PushConsumer
    from aerobee.client.receipt import SendReceipt as SendReceipt
    from aerobee.client.receipt import SendStatus as SendStatus
    from aerobee.client.selectors import Selector as Selector
    from aerobee.client.sendoptions import BatchOptions as BatchOptions
    from aerobee.client.sendoptions import SendOptions as SendOptions
    from aerobee.client.telling import OnQueues as OnQueues
    from aerobee.client.transactions import OnCheck as OnCheck
    from aerobee.client.transactions import TransactionState as TransactionState
    from aerobee.errors import AerobeeError as AerobeeError
    from aerobee.errors import BrokerError as BrokerError
    from aerobee.errors import InvalidArgumentError as InvalidArgumentError
    from aerobee.errors import RequestTimeoutError as RequestTimeoutError
    from aerobee.errors import TransportError as TransportError
    from aerobee.errors.codes import NoPermissionError as NoPermissionError
    from aerobee.errors.codes import TopicNotExistError as TopicNotExistError
    from aerobee.model.message import Message as Message
    from aerobee.model.queue import MessageQueue as MessageQueue

# Where each public name lives.
_HOMES = {
    "aerobee.client.errors": (
        "ClientStateError",
        "NoReplyError",
        "NotDurableError",
        "SelectorError",
        "TooManyInFlightError",
    ),
    "aerobee.client.options": ("ClientOptions", "ProducerOptions", "SendContext", "SendHook"),
    "aerobee.client.consumeroptions": ("LitePullConsumerOptions", "PushConsumerOptions"),
    "aerobee.client.outgoing": ("Body",),
    "aerobee.client.selectors": ("Selector",),
    "aerobee.client.sendoptions": ("BatchOptions", "SendOptions"),
    "aerobee.client.telling": ("OnQueues",),
    "aerobee.client.allocation": (
        "Allocation",
        "Averagely",
        "AveragelyByCircle",
        "ByConfig",
        "ByMachineRoom",
        "ConsistentHash",
        "MachineRoomNearby",
    ),
    "aerobee.client.listener": ("DeadLetter", "Handler", "RetryLater"),
    "aerobee.client.litepull": ("LitePullConsumer",),
    "aerobee.client.producer": ("Producer",),
    "aerobee.client.pulling": ("PullResult", "PullStatus"),
    "aerobee.client.push": ("PushConsumer",),
    "aerobee.client.receipt": ("SendReceipt", "SendStatus"),
    "aerobee.client.transactions": ("OnCheck", "TransactionState"),
    "aerobee.errors": (
        "AerobeeError",
        "BrokerError",
        "InvalidArgumentError",
        "RequestTimeoutError",
        "TransportError",
    ),
    "aerobee.errors.codes": ("NoPermissionError", "TopicNotExistError"),
    "aerobee.model.message": ("Message",),
    "aerobee.model.queue": ("MessageQueue",),
}
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
