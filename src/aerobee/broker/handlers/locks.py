"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: queues for ordered consumption. RocketMQ: AdminBrokerProcessor.lockBatchMQ.

A broker decides alone. With replicas and `lockInStrictMode` Apache asks a majority of them; that comes with
replication.
"""

from __future__ import annotations

from aerobee.broker.locks import QueueLocks
from aerobee.model.queue import MessageQueue
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.protocol.bodies.lock import LockBatchRequestBody, LockBatchResponseBody
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, response
from aerobee.runtime.seams import Clock


class LockHandlers:
    """Gives queues to clients and takes them back."""

    def __init__(self, locks: QueueLocks[MessageQueue], clock: Clock) -> None:
        self._locks = locks
        self._clock = clock

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.LOCK_BATCH_MQ: self.lock, RequestCode.UNLOCK_BATCH_MQ: self.unlock}

    def lock(self, channel: Channel, command: Command) -> Command:
        body = LockBatchRequestBody.decode(command.body)
        held = self._locks.lock(body.consumer_group, body.mq_set, body.client_id, self._clock.monotonic())
        return response(command, body=LockBatchResponseBody(tuple(held)).encode())

    def unlock(self, channel: Channel, command: Command) -> Command:
        body = LockBatchRequestBody.decode(command.body)
        self._locks.unlock(body.consumer_group, body.mq_set, body.client_id)
        return response(command)
