"""How a stream waits for new messages: brokers hold a pull for every queue, on connections of their own.

Each pull asks for the message at the end of a queue, so that an answer means that there may be a new one. The pulls
stay at the brokers between waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from aerobee.client.blocking import BlockingConnection, Call
from aerobee.errors import AerobeeError
from aerobee.model.queue import MessageQueue
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.runtime.blocking import pause, wait_readable
from pyspark_rocketmq.options import Endpoint
from pyspark_rocketmq.source.pulling import TOOLS_GROUP

# With more queues than this, the stream asks again and again instead.
QUEUES_MAX: Final = 512
_ASK_AGAIN_S: Final = 0.05
_HOLD_MS: Final = 15_000
_FLAG_SUSPEND: Final = 2
_FLAG_SUBSCRIPTION: Final = 4


class HeldPulls:
    """The pulls of one stream that brokers hold."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._connections: dict[str, BlockingConnection] = {}
        # By address and opaque: the queue of a held pull, and the end that it waits at.
        self._armed: dict[str, dict[int, tuple[MessageQueue, int]]] = {}

    def wait(
        self, ends: Mapping[MessageQueue, int], address_of: Callable[[MessageQueue], str | None], timeout_s: float
    ) -> None:
        """Wait until a message comes at one of these ends, or the time is over. It may return sooner."""
        if not ends or len(ends) > QUEUES_MAX:
            pause(min(timeout_s, _ASK_AGAIN_S))
            return
        for queue, end in ends.items():
            address = address_of(queue)
            if address is not None:
                self._arm(address, queue, end)
        streams = {connection.stream: address for address, connection in self._connections.items()}
        if not streams:
            pause(min(timeout_s, _ASK_AGAIN_S))
            return
        for stream in wait_readable(list(streams), timeout_s):
            self._read(streams[stream])

    def _arm(self, address: str, queue: MessageQueue, end: int) -> None:
        armed = self._armed.setdefault(address, {})
        if any(one == (queue, end) for one in armed.values()):
            return
        header = PullMessageRequestHeader(
            consumer_group=TOOLS_GROUP, topic=queue.topic, queue_id=queue.queue_id, queue_offset=end, max_msg_nums=1,
            sys_flag=_FLAG_SUSPEND | _FLAG_SUBSCRIPTION, commit_offset=0, suspend_timeout_millis=_HOLD_MS,
            subscription="*", sub_version=0, expression_type="TAG", bname=queue.broker_name,
        )  # fmt: skip
        try:
            connection = self._connections.get(address)
            if connection is None:
                connection = self._connections[address] = BlockingConnection(address, self._endpoint.client_config())
            armed[connection.post(Call(RequestCode.PULL_MESSAGE, header))] = (queue, end)
        except AerobeeError:
            # The caller looks again, meets the same error and reports it.
            self._drop(address)

    def _read(self, address: str) -> None:
        connection = self._connections[address]
        try:
            while not connection.stream.is_quiet():
                self._armed[address].pop(connection.read().opaque, None)
        except AerobeeError:
            self._drop(address)

    def _drop(self, address: str) -> None:
        connection = self._connections.pop(address, None)
        self._armed.pop(address, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close every connection."""
        for address in list(self._connections):
            self._drop(address)
