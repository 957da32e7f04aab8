"""The consumers: `push` calls handlers with messages, `pull` returns messages to the program that asks, and `simple`
hands them out for a time.

Other rooms and the outside import these names only; the modules behind them are private.
"""

from __future__ import annotations

from aerobee.client.consumer.allocation import (
    Allocation,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
)
from aerobee.client.consumer.groupmember import OnQueues
from aerobee.client.consumer.options import (
    LitePullConsumerConfig,
    LitePullConsumerOptions,
    PushConsumerConfig,
    PushConsumerOptions,
    SimpleConsumerConfig,
    SimpleConsumerOptions,
)
from aerobee.client.consumer.popping import PoppedMessage
from aerobee.client.consumer.pull.consumer import LitePullConsumer
from aerobee.client.consumer.puller import PULL_BATCH_SIZE, PullResult, PullStatus
from aerobee.client.consumer.push.consumer import PushConsumer
from aerobee.client.consumer.push.listener import DeadLetter, Handler, RetryLater
from aerobee.client.consumer.simple.consumer import SimpleConsumer

__all__ = [
    "Allocation", "Averagely", "AveragelyByCircle", "ByConfig", "ByMachineRoom", "ConsistentHash", "DeadLetter",
    "Handler", "LitePullConsumer", "LitePullConsumerConfig", "LitePullConsumerOptions", "MachineRoomNearby", "OnQueues",
    "PULL_BATCH_SIZE", "PoppedMessage", "SimpleConsumer", "SimpleConsumerConfig", "SimpleConsumerOptions",
    "PullResult", "PullStatus", "PushConsumer", "PushConsumerConfig", "PushConsumerOptions",
    "RetryLater",
]  # fmt: skip
