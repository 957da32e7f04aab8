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
    from aerobee.client.consumer.allocation import Allocation as Allocation
    from aerobee.client.consumer.allocation import Averagely as Averagely
    from aerobee.client.consumer.allocation import AveragelyByCircle as AveragelyByCircle
    from aerobee.client.consumer.allocation import ByConfig as ByConfig
    from aerobee.client.consumer.allocation import ByMachineRoom as ByMachineRoom
    from aerobee.client.consumer.allocation import ConsistentHash as ConsistentHash
    from aerobee.client.consumer.allocation import MachineRoomNearby as MachineRoomNearby
    from aerobee.client.consumer.options import LitePullConsumerOptions as LitePullConsumerOptions
    from aerobee.client.consumer.options import PushConsumerOptions as PushConsumerOptions
    from aerobee.client.consumer.pull.consumer import LitePullConsumer as LitePullConsumer
    from aerobee.client.consumer.pulling import PullResult as PullResult
    from aerobee.client.consumer.pulling import PullStatus as PullStatus
    from aerobee.client.consumer.push.consumer import PushConsumer as PushConsumer
    from aerobee.client.consumer.push.listener import DeadLetter as DeadLetter
    from aerobee.client.consumer.push.listener import Handler as Handler
    from aerobee.client.consumer.push.listener import RetryLater as RetryLater
    from aerobee.client.consumer.telling import OnQueues as OnQueues
    from aerobee.client.core.errors import ClientStateError as ClientStateError
    from aerobee.client.core.errors import NoReplyError as NoReplyError
    from aerobee.client.core.errors import NotDurableError as NotDurableError
    from aerobee.client.core.errors import SelectorError as SelectorError
    from aerobee.client.core.errors import TooManyInFlightError as TooManyInFlightError
    from aerobee.client.core.receipt import SendReceipt as SendReceipt
    from aerobee.client.core.receipt import SendStatus as SendStatus
    from aerobee.client.producer.options import ClientOptions as ClientOptions
    from aerobee.client.producer.options import ProducerOptions as ProducerOptions
    from aerobee.client.producer.options import SendContext as SendContext
    from aerobee.client.producer.options import SendHook as SendHook
    from aerobee.client.producer.outgoing import Body as Body
    from aerobee.client.producer.producer import Producer as Producer
    from aerobee.client.producer.selectors import Selector as Selector
    from aerobee.client.producer.sendoptions import BatchOptions as BatchOptions
    from aerobee.client.producer.sendoptions import SendOptions as SendOptions
    from aerobee.client.producer.transactions import OnCheck as OnCheck
    from aerobee.client.producer.transactions import TransactionState as TransactionState
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
    "aerobee.client.core.errors": (
        "ClientStateError",
        "NoReplyError",
        "NotDurableError",
        "SelectorError",
        "TooManyInFlightError",
    ),
    "aerobee.client.producer.options": ("ClientOptions", "ProducerOptions", "SendContext", "SendHook"),
    "aerobee.client.consumer.options": ("LitePullConsumerOptions", "PushConsumerOptions"),
    "aerobee.client.producer.outgoing": ("Body",),
    "aerobee.client.producer.selectors": ("Selector",),
    "aerobee.client.producer.sendoptions": ("BatchOptions", "SendOptions"),
    "aerobee.client.consumer.telling": ("OnQueues",),
    "aerobee.client.consumer.allocation": (
        "Allocation",
        "Averagely",
        "AveragelyByCircle",
        "ByConfig",
        "ByMachineRoom",
        "ConsistentHash",
        "MachineRoomNearby",
    ),
    "aerobee.client.consumer.push.listener": ("DeadLetter", "Handler", "RetryLater"),
    "aerobee.client.consumer.pull.consumer": ("LitePullConsumer",),
    "aerobee.client.producer.producer": ("Producer",),
    "aerobee.client.consumer.pulling": ("PullResult", "PullStatus"),
    "aerobee.client.consumer.push.consumer": ("PushConsumer",),
    "aerobee.client.core.receipt": ("SendReceipt", "SendStatus"),
    "aerobee.client.producer.transactions": ("OnCheck", "TransactionState"),
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
