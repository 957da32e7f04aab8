"""The queues that a topic's messages may go to now, and the part of a send's frame that does not change.

A route is turned into slots once; each send then picks a slot and adds its own fields.
RocketMQ: TopicPublishInfo, MQFaultStrategy.selectOneMessageQueue, SendMessageRequestHeaderV2.
"""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.client.producer.brokerfaults import FaultTable
from aerobee.client.producer.sendrequest import SendRequest
from aerobee.hot.wire.frame import json_frame, json_text
from aerobee.model.queue import MessageQueue
from aerobee.protocol.codes import FLAG_ONEWAY, LANGUAGE, VERSION, RequestCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.send import SendMessageRequestHeaderV2


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
        head = (
            f'"extFields":{{"a":{json_text(self._group)},"b":{json_text(queue.topic)},'
            f'"c":{json_text(self._default_topic)},"d":"{self._queue_nums}","e":"{queue.queue_id}","f":"'
        )
        tail = f',"j":"0","k":"false","m":"false","n":{json_text(broker)}}},"flag":'
        return Slot(queue, broker, address, head, tail)

    @staticmethod
    def json(slot: Slot, out: SendRequest, opaque: int, born_ms: int, oneway: bool) -> bytes:
        """Return the whole frame in the JSON codec."""
        tail = slot.tail
        if out.code == RequestCode.SEND_BATCH_MESSAGE:
            tail = tail.replace('"m":"false"', '"m":"true"', 1)
        header = (
            f'{{"code":{out.code},{slot.head}{out.sys_flag}","g":"{born_ms}","h":"{out.flag}",'
            f'"i":{json_text(out.properties)}{tail}{FLAG_ONEWAY if oneway else 0},"language":"{LANGUAGE}",'
            f'"opaque":{opaque},"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
        )
        return json_frame(header, len(out.body)) + out.body

    def command(self, slot: Slot, out: SendRequest, opaque: int, born_ms: int, oneway: bool, codec: int) -> Command:
        """Return the request as a command, which can be signed and encoded in the binary codec."""
        header = SendMessageRequestHeaderV2(
            producer_group=self._group, topic=out.topic, default_topic=self._default_topic,
            default_topic_queue_nums=self._queue_nums, queue_id=slot.queue.queue_id, sys_flag=out.sys_flag,
            born_timestamp=born_ms, flag=out.flag, properties=out.properties, reconsume_times=0, unit_mode=False,
            batch=out.code == RequestCode.SEND_BATCH_MESSAGE, broker_name=slot.broker,
        )  # fmt: skip
        return request(out.code, header, out.body, opaque=opaque, oneway=oneway, codec=codec)
