"""Messages as clients of the service get them, and the handles by which they acknowledge them.

    handle   ckOffset popTime invisibleTime reviveQid type broker queueId offset commitLogOffset    by single blanks

RocketMQ: GrpcConverter.buildMessage, ReceiptHandle, ExtraInfoUtil. Apache's LOCAL proxy writes ten parts; what follows
the eighth is taken from the end.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Final

from aerobee.hot.log.host import decode_host
from aerobee.hot.log.layout import COMPRESSED
from aerobee.hot.log.properties import decode_properties, find_property
from aerobee.hot.log.record import Record
from aerobee.hot.wire.grpcmessage import received
from aerobee.model import sysproperties as keys
from aerobee.model.compression import DecompressionError, decompress
from aerobee.model.names import pop_retry_topic
from aerobee.model.numbers import NumberError, int_or, parse_int
from aerobee.protocol.v2 import enums
from aerobee.protocol.v2.calls import PbReceiveMessageResponse
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.fields import encode
from aerobee.protocol.v2.values import (
    PbDeadLetterQueue,
    PbDigest,
    PbMessage,
    PbResource,
    PbSystemProperties,
)
from aerobee.proxy.rules import BODY_MAX, timestamp_of
from aerobee.proxy.status import RefusedCallError

_GZIP_MAGIC: Final = b"\x1f\x8b"
_HANDLE_MAX: Final = 4096
_RESERVED: Final = frozenset(name.encode() for name in keys.RESERVED)


@dataclass(frozen=True, slots=True)
class Receipt:
    """A receipt handle."""

    ck_offset: int
    pop_time: int
    invisible_ms: int
    revive_qid: int
    kind: str
    broker: str
    queue_id: int
    offset: int
    # The place in the log, -1 where the handle does not tell it.
    physical_offset: int = -1

    def text(self) -> str:
        """Return the handle as clients get it."""
        return f"{self.extra_info()} {self.physical_offset}"

    def extra_info(self) -> str:
        """Return the eight parts that brokers read."""
        return (
            f"{self.ck_offset} {self.pop_time} {self.invisible_ms} {self.revive_qid} {self.kind} {self.broker}"
            f" {self.queue_id} {self.offset}"
        )

    def topic(self, topic: str, group: str) -> str:
        """Return the topic that holds the message: the one that is subscribed, or its retry topic."""
        if self.kind == "1":
            return pop_retry_topic(topic, group)
        return pop_retry_topic(topic, group, 2) if self.kind == "2" else topic

    def key(self) -> tuple[str, str, int, int, int]:
        """Return what tells a delivered message from all others of its topic and group."""
        return self.broker, self.kind, self.queue_id, self.offset, self.pop_time

    @property
    def ends_ms(self) -> int:
        """Return when the message becomes visible again."""
        return self.pop_time + self.invisible_ms

    def renewed(self, pop_time: int, invisible_ms: int, revive_qid: int) -> Receipt:
        """Return the handle after its invisible time was changed."""
        return replace(self, ck_offset=self.offset, pop_time=pop_time, invisible_ms=invisible_ms, revive_qid=revive_qid)


def parse_handle(text: str) -> Receipt:
    """Return the handle; raise RefusedCallError for anything that is none."""
    parts = text.split(" ") if len(text) <= _HANDLE_MAX else []
    try:
        if len(parts) >= 8 and parts[4] in ("0", "1", "2") and parts[5]:
            return Receipt(
                parse_int(parts[0]), parse_int(parts[1]), parse_int(parts[2]), parse_int(parts[3]), parts[4], parts[5],
                parse_int(parts[6]), parse_int(parts[7]), int_or(parts[-1], -1) if len(parts) > 8 else -1,
            )  # fmt: skip
    except NumberError:
        pass
    raise RefusedCallError(Code.INVALID_RECEIPT_HANDLE, "this is no receipt handle")


def receipt_of(handle: bytes) -> Receipt:
    """Return what a handle of `Handles` says."""
    return parse_handle(handle.decode("utf-8", "replace"))


class Handles:
    """The handles of messages that one answer to a pop brought. RocketMQ: MQClientAPIImpl.processPopResponse."""

    def __init__(self, ext: dict[str, str], broker: str, hidden_ms: int) -> None:
        pop_time, hidden = int_or(ext.get("popTime"), 0), int_or(ext.get("invisibleTime"), hidden_ms)
        # What stands in all of them between the offset of the queue and the number of the queue.
        self._middle: bytes = f" {pop_time} {hidden} {int_or(ext.get('reviveQid'), 0)} 0 {broker} ".encode()
        # By queue: the first offset that was taken.
        self._starts: dict[int, int] = {}
        for entry in ext.get("startOffsetInfo", "").split(";"):
            words = entry.split(" ")
            if len(words) == 3 and words[0] == "0":
                start = int_or(words[2], -1, 0)
                if start >= 0:
                    self._starts[int_or(words[1], -1)] = start

    def of(self, record: Record) -> bytes:
        """Return the handle of a message."""
        ck = find_property(record.properties, b"POP_CK")
        if ck is not None:
            # A message of a retry topic, which the broker has re-encoded, brings its own.
            base = parse_handle(ck.decode("utf-8", "replace"))
            return f"{base.extra_info()} {record.physical_offset}".encode()
        offset = record.queue_offset
        start = self._starts.get(record.queue_id, offset)
        return str(start).encode() + self._middle + f"{record.queue_id} {offset} {record.physical_offset}".encode()


class Deliveries:
    """Messages of one answer to a pop as the bytes that carry them to a client."""

    def __init__(self, topic: str, group: str, now_ms: int) -> None:
        self._topic = topic
        self._group = group
        self._now_ms = now_ms
        self._resource = encode(PbResource("", topic))
        self._hosts: dict[bytes, bytes] = {}

    def message(self, record: Record, handle: bytes) -> bytes:
        """Return the ReceiveMessageResponse that carries a message."""
        if not record.sys_flag & COMPRESSED:
            found = received(
                record, self._resource, handle, digest_of(record.body).encode(), self._host(record.born_host),
                self._host(record.store_host), _RESERVED,
            )  # fmt: skip
            if found is not None:
                return found
        message = pb_message(record, self._topic, self._group, handle.decode("utf-8", "replace"), self._now_ms)
        return encode(PbReceiveMessageResponse(message=message))

    def _host(self, data: bytes) -> bytes:
        found = self._hosts.get(data)
        if found is None:
            found = self._hosts[data] = decode_host(data).encode()
        return found


def digest_of(body: bytes) -> str:
    """Return the digest of a body: its MD5 in hexadecimal, which is the one that all clients read alike."""
    return hashlib.md5(body, usedforsecurity=False).hexdigest().upper()


def pb_message(record: Record, topic: str, group: str, handle: str | None, now_ms: int) -> PbMessage:
    """Return a record as a message of the service. `handle` is None for one that was pulled."""
    everything = decode_properties(record.properties)
    user, system = keys.split_properties(everything)
    body, encoding = _body(record)
    properties = PbSystemProperties(
        tag=system.get(keys.TAGS),
        keys=[key for key in system.get(keys.KEYS, "").split(" ") if key],
        message_id=system.get(keys.UNIQ_KEY, ""),
        body_digest=PbDigest(enums.MD5, digest_of(body)),
        body_encoding=encoding,
        message_type=_type(everything),
        born_timestamp=timestamp_of(record.born_timestamp),
        born_host=system.get(keys.BORN_HOST) or decode_host(record.born_host),
        store_timestamp=timestamp_of(record.store_timestamp),
        store_host=decode_host(record.store_host),
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        message_group=system.get(keys.SHARDING_KEY),
        trace_context=system.get(keys.TRACE_CONTEXT),
        lite_topic=system.get(keys.LITE_TOPIC),
    )
    if handle is not None:
        properties.receipt_handle = handle
        properties.delivery_attempt = record.reconsume_times + 1
    deliver_ms = int_or(system.get(keys.TIMER_DELIVER_MS), 0)
    if deliver_ms > 0:
        properties.delivery_timestamp = timestamp_of(deliver_ms)
    priority = int_or(system.get(keys.PRIORITY), -1)
    if priority >= 0:
        properties.priority = priority
    origin = system.get(keys.DLQ_ORIGIN_TOPIC)
    if origin is not None:
        properties.dead_letter_queue = PbDeadLetterQueue(origin, system.get(keys.DLQ_ORIGIN_MESSAGE_ID, ""))
    return PbMessage(PbResource("", topic), user, properties, body)


def _body(record: Record) -> tuple[bytes, int]:
    """Return the body as every client reads it: gzip as it is, all other compression taken off.

    A body that is not what its flags say, or becomes larger than any client sends, is told as it is stored. Other
    messages would wait for ever behind one that cannot be told.
    """
    if not record.sys_flag & COMPRESSED:
        return record.body, enums.IDENTITY
    if record.body[:2] == _GZIP_MAGIC:
        return record.body, enums.GZIP
    try:
        return decompress(record.body, record.sys_flag, BODY_MAX), enums.IDENTITY
    except DecompressionError:
        return record.body, enums.IDENTITY


def _type(properties: dict[str, str]) -> int:
    if properties.get(keys.TRANSACTION_PREPARED) == "true":
        return enums.TRANSACTION
    if any(
        name in properties for name in (keys.TIMER_DELIVER_MS, keys.TIMER_DELAY_MS, keys.TIMER_DELAY_SEC, keys.DELAY)
    ):
        return enums.DELAY
    if keys.SHARDING_KEY in properties:
        return enums.FIFO
    if keys.PRIORITY in properties:
        return enums.PRIORITY
    return enums.LITE if keys.LITE_TOPIC in properties else enums.NORMAL
