"""Sending a message back to the broker: to the retries of the group after a delay, or to its dead letters.

RocketMQ: DefaultMQPushConsumerImpl.sendMessageBack, sendMessageBackAsNormalMessage.
"""

from __future__ import annotations

from aerobee.client.core import ClientCore, with_namespace
from aerobee.errors import AerobeeError, TransportError
from aerobee.hot.log.properties import encode_properties
from aerobee.model import sysproperties as names
from aerobee.model.message import Message
from aerobee.model.names import AUTO_CREATE_TOPIC, retry_topic
from aerobee.model.queue import MessageQueue
from aerobee.model.route import LOGICAL_BROKER_PREFIX
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.send import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeaderV2
from aerobee.telemetry.stdlog import get_log

_TIMEOUT_S = 5.0
_INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
_log = get_log("client.sendback")


class RetrySender:
    """The messages that one group sends back."""

    def __init__(self, core: ClientCore, group: str, namespace: str, retries_max: int) -> None:
        self._core = core
        self._group = group
        self._namespace = namespace
        self._retries_max = retries_max

    async def send_back(self, message: Message, queue: MessageQueue, delay_level: int) -> bool:
        """Send a message back. Return whether a broker took it: only then may it count as done here.

        A `delay_level` below 0 makes a dead letter, and 0 leaves the delay to the broker.
        """
        problem: AerobeeError | None = None
        if not queue.broker_name.startswith(LOGICAL_BROKER_PREFIX):
            try:
                await self._to_its_broker(message, queue, delay_level)
                return True
            except AerobeeError as error:
                problem = error
        try:
            await self._to_any_broker(message, delay_level)
        except AerobeeError as error:
            _log.warning(
                "no broker took a message back; it will be tried again here",
                message=message.message_id,
                queue=queue,
                reason=str(problem or error),
            )
            return False
        return True

    async def _to_its_broker(self, message: Message, queue: MessageQueue, delay_level: int) -> None:
        """Ask the broker of the message, which reads it from its own log."""
        address = self._core.routes.master(self._core.routes.broker_of(queue))
        if address is None:
            raise TransportError(f"no master of {queue.broker_name!r} is known")
        header = ConsumerSendMsgBackRequestHeader(
            group=self._group,
            origin_topic=queue.topic,
            offset=message.commitlog_offset,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            max_reconsume_times=self._retries_max,
            bname=queue.broker_name,
        )
        await self._core.ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_s=_TIMEOUT_S)

    async def _to_any_broker(self, message: Message, delay_level: int) -> None:
        """Send the message to the retry topic as a new one, because its own broker is gone."""
        topic = retry_topic(self._group)
        route = await self._core.route(topic)
        if not route.write_queues:
            raise TransportError(f"no broker takes messages for {topic!r} now", hint="is a master up?")
        queue = route.write_queues[self._core.entropy.below(len(route.write_queues))]
        address = self._core.routes.master(route.broker_of(queue))
        if address is None:
            raise TransportError(f"no master of {queue.broker_name!r} is known")
        times = message.reconsume_times + 1
        # A plain message with more tries than are allowed becomes a dead letter.
        header = SendMessageRequestHeaderV2(
            producer_group=_INNER_PRODUCER_GROUP,
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=4,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=self._core.clock.now_ms(),
            flag=message.flag,
            properties=self._properties(message, delay_level),
            reconsume_times=max(times, self._retries_max + 1) if delay_level < 0 else times,
            max_reconsume_times=self._retries_max,
            broker_name=queue.broker_name,
        )
        await self._core.ask(address, RequestCode.SEND_MESSAGE_V2, header, message.body, timeout_s=_TIMEOUT_S)

    def _properties(self, message: Message, delay_level: int) -> str:
        own = {**message.properties, **message.system_properties}
        own.pop(names.TRANSACTION_PREPARED, None)
        own.setdefault(names.ORIGIN_MESSAGE_ID, message.message_id)
        own[names.RETRY_TOPIC] = with_namespace(self._namespace, message.topic)
        own[names.DELAY] = str(delay_level if delay_level > 0 else 3 + message.reconsume_times)
        return encode_properties(own).decode()
