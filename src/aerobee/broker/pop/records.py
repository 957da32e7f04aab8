"""Records that POP changes: the copy that is tried again, and a retry record as a client gets it.

RocketMQ: PopReviveService.reviveRetry, PopMessageProcessor.recodeRetryMessage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from aerobee.broker.log import copy_of, fitting_block
from aerobee.hot.log.layout import (
    BORNHOST_V6,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_SIZE_MAX,
    RECORD_BODY_POS,
    RECORD_BODY_SIZE_POS,
    RECORD_MAGIC_POS,
    RECORD_SYS_FLAG_POS,
    SEAL_NAME,
    STOREHOST_V6,
    TOPIC_V1_SIZE_MAX,
    V6_HOST_EXTRA,
)
from aerobee.hot.log.properties import decode_properties, remove_property
from aerobee.hot.log.record import Draft, Record
from aerobee.model.names import is_retry_topic, pop_retry_topic
from aerobee.model.numbers import INT32_MAX
from aerobee.model.sysproperties import CRC32, FIRST_POP_TIME, ORIGIN_GROUP, POP_CK

# What Apache's clients know a topic by in the strings of POP.
NORMAL: Final = 0
RETRY_V1: Final = 1
RETRY_V2: Final = 2
# The revive queue of handles: Apache's number for pops in order.
ORDER_REVIVE_QUEUE: Final = 999
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")


def kind_of(real_topic: str, group: str) -> int:
    """Return the type that Apache's strings give a topic."""
    if not is_retry_topic(real_topic):
        return NORMAL
    return RETRY_V2 if real_topic.startswith(pop_retry_topic("", group, 2)) else RETRY_V1


def real_topic(topic: str, group: str, kind: int) -> str:
    """Return the topic that is read for a type. RocketMQ: ExtraInfoUtil.getRealTopic."""
    if kind in (RETRY_V1, RETRY_V2):
        return pop_retry_topic(topic, group, kind)
    return topic


def retry_copy(record: Record, topic: str, group: str, pop_time: int, host: bytes, *, suspended: bool) -> Draft:
    """Return the message as it is stored to be tried again; from a retry topic it goes to the end of the same."""
    properties = decode_properties(record.properties)
    properties.pop(CRC32, None)
    times = max(0, min(record.reconsume_times, INT32_MAX - 1))
    if times == 0 or FIRST_POP_TIME not in properties:
        properties[FIRST_POP_TIME] = str(pop_time)
    properties[ORIGIN_GROUP] = group
    target = topic if is_retry_topic(topic) else pop_retry_topic(topic, group)
    draft = copy_of(record, target, 0, properties, fitting_block(record, properties))
    draft.born_host = draft.store_host = host
    draft.reconsume_times = times if suspended else times + 1
    return draft


def records_in(buffers: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Yield each of the records that buffers hold one behind the other."""
    for buffer in buffers:
        at, end = 0, len(buffer)
        while at < end:
            size = _INT.unpack_from(buffer, at)[0]
            yield bytes(buffer[at : at + size])
            at += size


def recoded(record: bytes, topic: bytes, handle: str) -> bytes:
    """Return a retry record under the name of its topic, with the handle as a property, as Apache's broker sends it."""
    flags = _INT.unpack_from(record, RECORD_SYS_FLAG_POS)[0]
    hosts = (V6_HOST_EXTRA if flags & BORNHOST_V6 else 0) + (V6_HOST_EXTRA if flags & STOREHOST_V6 else 0)
    body_end = RECORD_BODY_POS + hosts + _INT.unpack_from(record, RECORD_BODY_SIZE_POS + hosts)[0]
    long_name = _INT.unpack_from(record, RECORD_MAGIC_POS)[0] == MAGIC_V2
    at = body_end + (2 if long_name else 1)
    name_size = _SHORT.unpack_from(record, body_end)[0] if long_name else record[body_end]
    at += name_size
    properties = record[at + 2 : at + 2 + _SHORT.unpack_from(record, at)[0]]
    if SEAL_NAME in properties:
        properties = remove_property(properties, SEAL_NAME)
    if properties and properties[-1] != 2:
        properties += b"\x02"
    added = properties + f"{POP_CK}\x01{handle}\x02".encode()
    if len(added) <= PROPERTIES_SIZE_MAX:
        properties = added
    out = bytearray(record[:body_end])
    if len(topic) <= TOPIC_V1_SIZE_MAX:
        _INT.pack_into(out, RECORD_MAGIC_POS, MAGIC_V1)
        out.append(len(topic))
    else:
        _INT.pack_into(out, RECORD_MAGIC_POS, MAGIC_V2)
        out += _SHORT.pack(len(topic))
    out += topic
    out += _SHORT.pack(len(properties))
    out += properties
    _INT.pack_into(out, 0, len(out))
    return bytes(out)
