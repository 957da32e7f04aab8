"""The queues that a topic's messages may go to now, and the part of a send's frame that does not change.

A route is turned into slots once; each send then picks a slot and adds its own fields.
RocketMQ: TopicPublishInfo, MQFaultStrategy.selectOneMessageQueue, SendMessageRequestHeaderV2.
"""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.client.producer.brokerfaults import FaultTable
from aerobee.client.producer.sendrequest import SendRequest
from aerobee.hot.wire.frame import json_frame, json_text
from aerobee.hot.wire.send import SEND_V2_NAMES
from aerobee.model.queue import MessageQueue
from aerobee.protocol.codes import FLAG_ONEWAY, LANGUAGE, VERSION, RequestCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.send import SendMessageRequestHeaderV2


def _fields(**values: str) -> str:
    """Return fields of a send in JSON, from their values in JSON."""
    return ",".join(f'"{SEND_V2_NAMES[name]}":{value}' for name, value in values.items())


# The JSON between the values that differ from send to send, each of which but the properties is quoted.
_BORN = '",' + _fields(born_timestamp='"')
_FLAG = '",' + _fields(flag='"')
_PROPERTIES = '",' + _fields(properties="")
_NO_BATCH = _fields(batch='"false"')
_IS_BATCH = _fields(batch='"true"')


@dataclass(slots=True)
class Slot:
    """One writable queue, the broker that serves it, and the broker's address."""

    queue: MessageQueue
    broker: str
    address: str
    # The JSON before and after the fields that differ from send to send.
    head: str
    tail: str
    # How many other brokers have queues of the topic.
    others: int = 0


class PublishInfo:
    """The slots of one topic. Sends take them in turn (round robin)."""

    def __init__(self, slots: list[Slot], turn: int) -> None:
        self.slots = slots
        others = len({slot.broker for slot in slots}) - 1
        for slot in slots:
            slot.others = others
        self.queues = [slot.queue for slot in slots]
        self._turn = turn

    def pick(self, last_broker: str | None, faults: FaultTable, now_ms: float) -> Slot:
        """Return the next slot, where possible not on the broker just tried, nor on one that is avoided."""
        slots = self.slots
        self._turn += 1
        if last_broker is None and not faults.avoided:
            return slots[self._turn % len(slots)]
        others = [slot for slot in slots if slot.broker != last_broker]
        usable = (
            [slot for slot in others if faults.is_available(slot.broker, now_ms)]
            or [slot for slot in others if faults.is_reachable(slot.broker)]
            or others
            or slots
        )
        return usable[self._turn % len(usable)]

    def slot_of(self, queue: MessageQueue) -> Slot | None:
        for slot in self.slots:
            if slot.queue == queue:
                return slot
        return None


class Frames:
    """A builder of the frames of one producer group's sends."""

    def __init__(self, group: str, default_topic: str, default_topic_queue_nums: int) -> None:
        self._group = group
        self._default_topic = default_topic
        self._queue_nums = default_topic_queue_nums

    def slot(self, queue: MessageQueue, broker: str, address: str) -> Slot:
        head = _fields(
            producer_group=json_text(self._group),
            topic=json_text(queue.topic),
            default_topic=json_text(self._default_topic),
            default_topic_queue_nums=f'"{self._queue_nums}"',
            queue_id=f'"{queue.queue_id}"',
            sys_flag='"',
        )
        tail = _fields(reconsume_times='"0"', unit_mode='"false"', batch='"false"', broker_name=json_text(broker))
        return Slot(queue, broker, address, f'"extFields":{{{head}', f',{tail}}},"flag":')

    @staticmethod
    def json(slot: Slot, out: SendRequest, opaque: int, born_ms: int, oneway: bool) -> bytes:
        """Return the whole frame in the JSON codec."""
        tail = slot.tail
        if out.code == RequestCode.SEND_BATCH_MESSAGE:
            tail = tail.replace(_NO_BATCH, _IS_BATCH, 1)
        header = (
            f'{{"code":{out.code},{slot.head}{out.sys_flag}{_BORN}{born_ms}{_FLAG}{out.flag}'
            f'{_PROPERTIES}{json_text(out.properties)}{tail}{FLAG_ONEWAY if oneway else 0},"language":"{LANGUAGE}",'
            f'"opaque":{opaque},"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
        )
        return json_frame(header, len(out.body)) + out.body

    def command(self, slot: Slot, out: SendRequest, opaque: int, born_ms: int, oneway: bool, codec: int) -> Command:
        """Return the request as a command, which can be signed and encoded in the binary codec."""
        header = SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=out.topic,
            default_topic=self._default_topic,
            default_topic_queue_nums=self._queue_nums,
            queue_id=slot.queue.queue_id,
            sys_flag=out.sys_flag,
            born_timestamp=born_ms,
            flag=out.flag,
            properties=out.properties,
            reconsume_times=0,
            unit_mode=False,
            batch=out.code == RequestCode.SEND_BATCH_MESSAGE,
            broker_name=slot.broker,
        )
        return request(out.code, header, out.body, opaque=opaque, oneway=oneway, codec=codec)
