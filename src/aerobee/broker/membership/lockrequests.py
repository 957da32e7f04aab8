"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: queues for ordered consumption. RocketMQ: AdminBrokerProcessor.lockBatchMQ.

A broker decides alone. A new lock of a replicated group is answered when the replicas know of it, so that a new master
gives it to nobody else before its lease has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aerobee.broker.answers import Confirming, when_confirmed
from aerobee.broker.membership.locks import GroupLocks
from aerobee.model.names import client_id_problem, group_problem, stored_topic_problem
from aerobee.model.queue import MessageQueue
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.net.turns import Sliced, Slices
from aerobee.protocol.bodies.lock import LockBatchRequestBody, LockBatchResponseBody
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.lock import LockBatchMqRequestHeader
from aerobee.runtime.seams import Clock

_SLICE: Final = 200
_BROKER_NAME_MAX: Final = 255


class LockHandlers:
    """The requests that lock queues for clients and unlock them."""

    def __init__(self, locks: GroupLocks[MessageQueue], confirming: Confirming, clock: Clock) -> None:
        """Take the locks. `confirming` tells when the replicas of a group know who holds one: a new master keeps it."""
        self._locks = locks
        self._confirming = confirming
        self._clock = clock

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.LOCK_BATCH_MQ: self.lock, RequestCode.UNLOCK_BATCH_MQ: self.unlock}

    def lock(self, channel: Channel, command: Command) -> Sliced:
        return Sliced(self._lock(channel, command))

    def unlock(self, channel: Channel, command: Command) -> Sliced:
        return Sliced(self._unlock(command))

    def _lock(self, channel: Channel, command: Command) -> Slices:
        # Java's clients name no lease.
        lease_ms = decode_header(LockBatchMqRequestHeader, command).lease_ms
        lease_s = None if lease_ms is None else lease_ms / 1000
        body = yield from LockBatchRequestBody.decode_slices(command.body)
        problem = group_problem(body.consumer_group) or client_id_problem(body.client_id)
        if problem is not None:
            # A lock is kept for a minute with these names, so they are checked.
            return response(command, ResponseCode.INVALID_PARAMETER, remark=problem)
        held: list[MessageQueue] = []
        version = self._locks.version
        for wanted in _sliced(body):
            queues = [queue for queue in wanted if _may_exist(queue)]
            now_s = self._clock.monotonic()
            held += self._locks.lock(body.consumer_group, queues, body.client_id, now_s, lease_s)
            yield
        answer = response(command, body=(yield from LockBatchResponseBody(tuple(held)).encode_slices()))
        if version == self._locks.version:
            return answer  # a renewal
        confirmed = when_confirmed(self._confirming, channel, command, answer)
        return confirmed if isinstance(confirmed, Command) else None

    def _unlock(self, command: Command) -> Slices:
        body = yield from LockBatchRequestBody.decode_slices(command.body)
        for queues in _sliced(body):
            self._locks.unlock(body.consumer_group, queues, body.client_id)
            yield
        return response(command)


def _may_exist(queue: MessageQueue) -> bool:
    return stored_topic_problem(queue.topic) is None and len(queue.broker_name) <= _BROKER_NAME_MAX


def _sliced(body: LockBatchRequestBody) -> Iterator[list[MessageQueue]]:
    queues = list(dict.fromkeys(body.mq_set))
    return (queues[at : at + _SLICE] for at in range(0, len(queues), _SLICE))
