"""Requests that look into a consume queue, and that clean up its files. RocketMQ: AdminBrokerProcessor."""

from __future__ import annotations

from aerobee.broker.answers import encoded
from aerobee.broker.membership import subscription_data
from aerobee.broker.state import BrokerState
from aerobee.hot.log.units import decode_units
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.net.turns import Sliced
from aerobee.protocol.bodies.queues import ConsumeQueueData, QueryConsumeQueueResponseBody
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.message import QueryConsumeQueueRequestHeader
from aerobee.store.queues import ConsumeQueue

# Units of one answer at most, so that it fits into a frame.
_UNITS_MAX = 10_000


class QueueAdmin:
    """Requests about single queues."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._store = state.store

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_CONSUME_QUEUE: self.query,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_expired,
        }

    def query(self, channel: Channel, command: Command) -> Command | Sliced:
        header = decode_header(QueryConsumeQueueRequestHeader, command)
        topic, queue_id = header.topic or "", header.queue_id
        queue = self._store.queues.find(topic.encode(), queue_id)
        if queue is None:
            return response(command, ResponseCode.SYSTEM_ERROR, remark=f"{queue_id}@{topic} is not exist!")
        low, high = queue.min_for(self._store.log_start), queue.next_offset
        subscription = None
        filter_data = None
        if header.consumer_group is not None:
            subscription = self._state.clients.subscription(header.consumer_group, topic)
            # Apache writes null where there is no filter.
            filter_data = "null" if subscription else f"{header.consumer_group}@{topic} is not online!"
        if not low <= header.index < high:
            remark = f"Index {header.index} of {queue_id}@{topic} is not exist!"
            return response(command, remark=remark)
        count = max(0, min(header.count, high - header.index, _UNITS_MAX))
        units = _units(queue, header.index, count)
        body = QueryConsumeQueueResponseBody(
            None if subscription is None else subscription_data(subscription),
            filter_data,
            tuple(ConsumeQueueData(offset, size, code) for offset, size, code in units),
            high,
            low,
        )
        return encoded(command, body)

    def clean_expired(self, channel: Channel, command: Command) -> Command:
        self._store.queues.drop_below(self._store.log_start)
        return response(command)


def _units(queue: ConsumeQueue, offset: int, count: int) -> list[tuple[int, int, int]]:
    """Return units of a queue. A queue gives what one of its files holds, so the rest is asked for again."""
    found: list[tuple[int, int, int]] = []
    while len(found) < count:
        more = decode_units(queue.units(offset + len(found), count - len(found)))
        if not more:
            break
        found += more
    return found
