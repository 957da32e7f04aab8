"""SendMessage, EndTransaction and RecallMessage. RocketMQ: SendMessageActivity, GrpcConverter, ProducerProcessor.

The id of a transaction tells where its half message is (broker, queue offset, place in the log), so any front of the
cluster can end it, at any time. Apache's proxy keeps the place in its memory for 30 seconds.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.errors import AerobeeError, RequestTimeoutError, TransportError
from aerobee.hot.log.javahash import java_hash
from aerobee.hot.log.layout import (
    COMPRESSED,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from aerobee.hot.log.properties import encode_properties
from aerobee.model import sysproperties as keys
from aerobee.model.ids import decode_offset_message_id
from aerobee.model.numbers import NumberError, int_or, parse_int
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.send import RecallMessageRequestHeader, SendMessageRequestHeaderV2
from aerobee.protocol.headers.transaction import EndTransactionRequestHeader
from aerobee.protocol.v2 import enums
from aerobee.protocol.v2.calls import (
    PbEndTransactionRequest,
    PbEndTransactionResponse,
    PbRecallMessageRequest,
    PbRecallMessageResponse,
    PbSendMessageRequest,
    PbSendMessageResponse,
    PbSendResultEntry,
)
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.values import PbMessage, PbStatus, PbSystemProperties
from aerobee.proxy.backend import Route, WriteQueue, route_or_refuse
from aerobee.proxy.lookups import Lookups
from aerobee.proxy.rules import TYPE_NAMES, accepted_types, check_message, millis, topic_of, type_of
from aerobee.proxy.status import OK, RefusedCallError, code_of, refusal_of

if TYPE_CHECKING:
    from aerobee.proxy.service import Caller

_STORED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)
_MESSAGES_MAX: Final = 32
# A broker that has not answered for so long is late.
PATIENT_S: Final = 1.0


class HalfPlace(NamedTuple):
    """Where a half message is."""

    broker: str
    queue_offset: int
    physical_offset: int
    message_id: str

    def text(self) -> str:
        """Return the id of the transaction."""
        return f"{self.queue_offset}@{self.physical_offset}@{self.message_id}@{self.broker}"


def place_of(text: str) -> HalfPlace:
    """Return what the id of a transaction tells."""
    parts = text.split("@", 3)
    try:
        if len(parts) == 4 and parts[3]:
            return HalfPlace(parts[3], parse_int(parts[0], 0), parse_int(parts[1], 0), parts[2])
    except NumberError:
        pass
    raise RefusedCallError(Code.INVALID_TRANSACTION_ID, "this is no transaction id of this service")


async def send_message(caller: Caller, request: PbSendMessageRequest) -> PbSendMessageResponse:
    """Store messages. Each has an entry of its own in the answer."""
    if not request.messages:
        raise RefusedCallError(Code.MESSAGE_CORRUPTED, "there is no message")
    if len(request.messages) > _MESSAGES_MAX:
        raise RefusedCallError(Code.TOO_MANY_REQUESTS, f"at most {_MESSAGES_MAX} messages are sent at once")
    topics = [topic_of(message.topic) for message in request.messages]
    if len(set(topics)) > 1:
        raise RefusedCallError(Code.MESSAGE_CORRUPTED, "all messages of a call have one topic")
    topic, now_ms = topics[0], caller.now_ms()
    checked = [(message, check_message(message, now_ms)) for message in request.messages]
    route = await route_or_refuse(caller.backend, topic)
    declared = await caller.backend.message_type(topic, route)
    accepted = accepted_types(declared)
    for _, system in checked:
        kind = type_of(system)
        if kind not in accepted:
            raise RefusedCallError(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"topic {topic} takes {' '.join(TYPE_NAMES[one] for one in accepted)}, not {TYPE_NAMES[kind]}",
            )
    if not route.write:
        raise RefusedCallError(Code.FORBIDDEN, f"no queue of topic {topic} may be written")
    if len(checked) == 1:
        entry = await _send(caller, topic, route, *checked[0])
        return PbSendMessageResponse(entry.status, [entry])
    entries = list(await asyncio.gather(*(_send_or_tell(caller, topic, route, *one) for one in checked)))
    first = entries[0].status
    same = all(one.status == first for one in entries)
    return PbSendMessageResponse(first if same else PbStatus(Code.MULTIPLE_RESULTS, "see the entries"), entries)


async def _send_or_tell(
    caller: Caller, topic: str, route: Route, message: PbMessage, system: PbSystemProperties
) -> PbSendResultEntry:
    try:
        return await _send(caller, topic, route, message, system)
    except AerobeeError as error:
        refusal = refusal_of(error)
        return PbSendResultEntry(PbStatus(refusal.status, refusal.message))


async def _send(
    caller: Caller, topic: str, route: Route, message: PbMessage, system: PbSystemProperties
) -> PbSendResultEntry:
    kind = type_of(system)
    queue = _queue_of(caller.backend.lookups, route, system, kind)
    header = send_header(topic, queue.queue_id, message, system, caller.now_ms())
    address, began_s = route.addresses[queue.broker], asyncio.get_running_loop().time()
    try:
        answer = await caller.client.ask(
            address, RequestCode.SEND_MESSAGE_V2, header, message.body, timeout_s=caller.timeout_s()
        )
    except (TransportError, asyncio.CancelledError) as error:
        # A client that gives up at once teaches nothing about the broker.
        is_lost = isinstance(error, TransportError) and not isinstance(error, RequestTimeoutError)
        if is_lost or asyncio.get_running_loop().time() - began_s >= PATIENT_S:
            caller.backend.lookups.late(address)
        raise
    if answer.code not in _STORED:
        raise RefusedCallError(code_of(answer.code), answer.remark or "the broker refused the message")
    queue_offset = int_or(answer.ext.get("queueOffset"), 0)
    transaction_id = ""
    if kind == enums.TRANSACTION:
        found = decode_offset_message_id(answer.ext.get("msgId", ""))
        transaction_id = HalfPlace(queue.broker, queue_offset, found.physical_offset, system.message_id).text()
    status = OK if answer.code == 0 else PbStatus(code_of(answer.code), answer.remark or "stored, and not yet safe")
    return PbSendResultEntry(
        status, system.message_id, transaction_id, queue_offset, answer.ext.get("recallHandle", "")
    )


def send_header(
    topic: str, queue_id: int, message: PbMessage, system: PbSystemProperties, now_ms: int
) -> SendMessageRequestHeaderV2:
    """Return what the broker is asked for a message."""
    kind = type_of(system)
    sys_flag = COMPRESSED if system.body_encoding == enums.GZIP else 0
    if kind == enums.TRANSACTION:
        sys_flag |= TRANSACTION_PREPARED
    return SendMessageRequestHeaderV2(
        producer_group=topic, topic=topic, default_topic="TBW102", default_topic_queue_nums=4,
        queue_id=queue_id, sys_flag=sys_flag, born_timestamp=millis(system.born_timestamp) or now_ms,
        flag=0, properties=encode_properties(_properties(topic, message, system, kind)).decode(), reconsume_times=0,
        unit_mode=False, batch=False,
    )  # fmt: skip


def _properties(topic: str, message: PbMessage, system: PbSystemProperties, kind: int) -> dict[str, str]:
    """Return the properties of the stored message. RocketMQ: SendMessageActivity.buildMessageProperty."""
    found = dict(message.user_properties)
    found[keys.UNIQ_KEY] = system.message_id
    if system.tag is not None:
        found[keys.TAGS] = system.tag
    if system.keys:
        found[keys.KEYS] = " ".join(system.keys)
    if system.message_group is not None:
        found[keys.SHARDING_KEY] = system.message_group
    if system.delivery_timestamp is not None:
        found[keys.TIMER_DELIVER_MS] = str(millis(system.delivery_timestamp))
    if kind == enums.TRANSACTION:
        found[keys.TRANSACTION_PREPARED] = "true"
        if system.orphaned_transaction_recovery_duration is not None:
            seconds = millis(system.orphaned_transaction_recovery_duration) // 1000
            found[keys.CHECK_IMMUNITY_TIME] = str(seconds)
    if system.priority is not None:
        found[keys.PRIORITY] = str(system.priority)
    if system.lite_topic is not None:
        found[keys.LITE_TOPIC] = system.lite_topic
    if system.trace_context:
        found[keys.TRACE_CONTEXT] = system.trace_context
    if system.born_host:
        found[keys.BORN_HOST] = system.born_host
    found[keys.PRODUCER_GROUP] = topic
    return {name: value for name, value in found.items() if value}


def _queue_of(lookups: Lookups, route: Route, system: PbSystemProperties, kind: int) -> WriteQueue:
    """Return the queue of a message: by its group, by its priority, or the next one."""
    if system.message_group is not None and kind == enums.FIFO:
        return route.write[jump_hash(java_hash(system.message_group), len(route.write))]
    if system.lite_topic is not None:
        return route.write[jump_hash(java_hash(system.lite_topic), len(route.write))]
    return route.pick(lookups)


def jump_hash(key: int, buckets: int) -> int:
    """Return the bucket of a key. RocketMQ: Guava's Hashing.consistentHash of a 32-bit hash code."""
    state = key & 0xFFFFFFFF
    bucket = 0
    while True:
        state = (state * 2862933555777941757 + 1) & 0xFFFFFFFFFFFFFFFF
        fraction = ((state >> 33) + 1) / 2147483648.0
        after = (bucket + 1) / fraction
        if not 0 <= after < buckets:
            return bucket
        bucket = _floor(after)


def _floor(value: float) -> int:
    return value.__floor__()


async def end_transaction(caller: Caller, request: PbEndTransactionRequest) -> PbEndTransactionResponse:
    """Commit or roll back. The answer says whether that is stored."""
    topic = topic_of(request.topic)
    if not request.transaction_id.strip():
        raise RefusedCallError(Code.INVALID_TRANSACTION_ID, "an end names its transaction")
    place = place_of(request.transaction_id)
    flag = {enums.COMMIT: TRANSACTION_COMMIT, enums.ROLLBACK: TRANSACTION_ROLLBACK}.get(request.resolution, 0)
    route = await route_or_refuse(caller.backend, topic)
    address = route.addresses.get(place.broker)
    if address is None:
        raise RefusedCallError(Code.INVALID_TRANSACTION_ID, f"broker {place.broker} has no topic {topic}, or is away")
    header = EndTransactionRequestHeader(
        topic=topic, producer_group=topic, tran_state_table_offset=place.queue_offset,
        commit_log_offset=place.physical_offset, commit_or_rollback=flag,
        from_transaction_check=request.source == enums.SOURCE_SERVER_CHECK,
        msg_id=request.message_id or place.message_id, transaction_id=place.message_id,
    )  # fmt: skip
    answer = await caller.client.ask(address, RequestCode.END_TRANSACTION, header, timeout_s=caller.timeout_s())
    if answer.code != ResponseCode.SUCCESS:
        # Not found, ended otherwise, or of another producer: the id does not stand for a pending transaction.
        code = Code.INVALID_TRANSACTION_ID if answer.code == ResponseCode.SYSTEM_ERROR else code_of(answer.code)
        raise RefusedCallError(code, answer.remark or "the transaction is not pending")
    return PbEndTransactionResponse(OK)


async def recall_message(caller: Caller, request: PbRecallMessageRequest) -> PbRecallMessageResponse:
    """Take back a message that waits for its time."""
    topic = topic_of(request.topic)
    route = await route_or_refuse(caller.backend, topic)
    if enums.DELAY not in accepted_types(await caller.backend.message_type(topic, route)):
        raise RefusedCallError(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, f"topic {topic} has no delayed messages")
    address = route.addresses.get(_broker_of(request.recall_handle))
    if address is None:
        raise RefusedCallError(Code.BAD_REQUEST, "this is no recall handle of a broker of the topic")
    header = RecallMessageRequestHeader(producer_group=topic, topic=topic, recall_handle=request.recall_handle)
    answer = await caller.client.ask(address, RequestCode.RECALL_MESSAGE, header, timeout_s=caller.timeout_s())
    if answer.code != ResponseCode.SUCCESS:
        code = Code.BAD_REQUEST if answer.code == ResponseCode.ILLEGAL_OPERATION else code_of(answer.code)
        raise RefusedCallError(code, answer.remark or "the message cannot be recalled")
    return PbRecallMessageResponse(OK, answer.ext.get("msgId", ""))


def _broker_of(handle: str) -> str:
    """Return the broker that a recall handle names, or ''. RocketMQ: RecallMessageHandle."""
    try:
        words = base64.b64decode(handle[:2000] + "=" * (-len(handle) % 4), b"-_", validate=True).decode().split(" ")
    except (binascii.Error, ValueError):
        return ""
    return words[2] if words[0] == "v1" and len(words) >= 5 else ""
