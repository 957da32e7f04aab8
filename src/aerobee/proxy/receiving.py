"""ReceiveMessage, AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue, by POP of the brokers.

RocketMQ: ReceiveMessageActivity, ConsumerProcessor, AckMessageActivity.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aerobee.errors import AerobeeError
from aerobee.hot.log.layout import COMPRESSED
from aerobee.hot.log.properties import find_property
from aerobee.hot.log.record import Record, decode_records
from aerobee.model.numbers import int_or
from aerobee.protocol.codes import TELL_HELD_FIELD, RequestCode, ResponseCode
from aerobee.protocol.command import Command
from aerobee.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    PopMessageRequestHeader,
)
from aerobee.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from aerobee.protocol.v2 import enums
from aerobee.protocol.v2.calls import (
    PbAckMessageEntry,
    PbAckMessageRequest,
    PbAckMessageResponse,
    PbAckMessageResultEntry,
    PbChangeInvisibleDurationRequest,
    PbChangeInvisibleDurationResponse,
    PbForwardMessageToDeadLetterQueueRequest,
    PbForwardMessageToDeadLetterQueueResponse,
    PbReceiveMessageRequest,
    PbReceiveMessageResponse,
)
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.fields import encode
from aerobee.protocol.v2.values import PbFilterExpression, PbStatus
from aerobee.proxy.backend import route_or_refuse
from aerobee.proxy.delivered import Deliveries, Handles, Receipt, parse_handle, receipt_of
from aerobee.proxy.renewal import Renewals
from aerobee.proxy.rules import ENTRIES_MAX, group_of, invisible_ms, millis, timestamp_of, topic_of
from aerobee.proxy.status import OK, RefusedCallError, code_of, refusal_of

if TYPE_CHECKING:
    from aerobee.proxy.service import Caller

_POLL_MIN_MS: Final = 5_000
_POLL_MAX_MS: Final = 20_000
_BATCH_MAX: Final = 32
# What push consumers get while the front renews for them, and how long a message is hidden that was not delivered.
RENEWED_MS: Final = 60_000
_GIVEN_BACK_MS: Final = 1_000
_NOT_BEFORE_MS: Final = 300
_ACKS_AT_ONCE: Final = 16
_ATTEMPT_ID_MAX: Final = 256
FILTER_MAX: Final = 10_000
# One answer brings so many bytes. Bodies that are compressed in the log could become far more.
ANSWER_BYTES_MAX: Final = 16 << 20
# What a stream with messages begins with.
_FIRST: Final = encode(PbReceiveMessageResponse(status=OK))


async def receive_message(caller: Caller, request: PbReceiveMessageRequest, renewals: Renewals) -> None:
    """Answer with a stream: a status, messages, and the time of delivery."""
    group = group_of(request.group)
    queue = request.message_queue
    topic = topic_of(queue.topic if queue is not None else None)
    broker = queue.broker.name if queue is not None and queue.broker is not None else ""
    if len(request.attempt_id or "") > _ATTEMPT_ID_MAX:
        raise RefusedCallError(Code.BAD_REQUEST, f"an attempt id has at most {_ATTEMPT_ID_MAX} characters")
    poll_ms = _poll_ms(caller, request)
    hidden_ms = RENEWED_MS if request.auto_renew else invisible_ms(request.invisible_duration)
    kind, text = filter_of(request.filter_expression)
    route = await route_or_refuse(caller.backend, topic)
    address = route.addresses.get(broker)
    if address is None:
        raise RefusedCallError(Code.BAD_REQUEST, f"broker {broker!r} has no topic {topic}, or is away")
    if not route.may_read(broker):
        raise RefusedCallError(Code.FORBIDDEN, f"topic {topic} may not be read on broker {broker}")
    config = await caller.backend.group(group, [topic])
    fifo = config is not None and config.consume_message_orderly
    header = PopMessageRequestHeader(
        consumer_group=group, topic=topic, queue_id=-1, max_msg_nums=min(max(request.batch_size, 1), _BATCH_MAX),
        invisible_time=hidden_ms, poll_time=poll_ms, born_time=caller.now_ms(), init_mode=1,
        exp_type="SQL92" if kind == enums.SQL else "TAG", exp=text, order=fifo, attempt_id=request.attempt_id,
    )  # fmt: skip
    answer = await caller.client.ask(address, RequestCode.POP_MESSAGE, header, timeout_s=poll_ms / 1000 + 5.0)
    now_ms = caller.now_ms()
    if answer.code != ResponseCode.SUCCESS:
        _tell_none(caller, answer, now_ms)
        return
    attempts = config.retry_max_times + 1 if config is not None else 17
    # Messages, and their handles.
    found: list[tuple[bytes, bytes]] = []
    spent: list[tuple[Record, Receipt]] = []
    too_many: list[Receipt] = []
    size = 0
    handles, deliveries = Handles(answer.ext, broker, hidden_ms), Deliveries(topic, group, now_ms)
    for record in decode_records(answer.body):
        handle = handles.of(record)
        if record.reconsume_times >= attempts:
            spent.append((record, receipt_of(handle)))
        elif size >= ANSWER_BYTES_MAX:
            too_many.append(receipt_of(handle))
        else:
            message = deliveries.message(record, handle)
            size += len(message)
            found.append((message, handle))
            if record.sys_flag & COMPRESSED:
                # Taking compression off takes time; others have their turn in between.
                await asyncio.sleep(0)
    await _give_back(caller, address, topic, group, too_many)
    for record, receipt in spent:
        await _bury_spent(caller, address, topic, group, record, receipt)
    await _deliver(caller, request, topic, group, address, found, renewals)


async def _deliver(
    caller: Caller,
    request: PbReceiveMessageRequest,
    topic: str,
    group: str,
    address: str,
    found: list[tuple[bytes, bytes]],
    renewals: Renewals,
) -> None:
    if caller.is_gone or not found:
        if found:
            await _give_back(caller, address, topic, group, [receipt_of(handle) for _, handle in found])
        elif not caller.is_gone:
            caller.send(PbReceiveMessageResponse(status=PbStatus(Code.MESSAGE_NOT_FOUND, "no new message")))
            caller.end()
        return
    if request.auto_renew:
        for _, handle in found:
            renewals.add(caller.client, topic, group, receipt_of(handle))

    async def give_back() -> None:
        await _give_back(
            caller, address, topic, group, [renewals.take(topic, group, receipt_of(handle)) for _, handle in found]
        )  # fmt: skip

    caller.unless_delivered(give_back)
    last = encode(PbReceiveMessageResponse(delivery_timestamp=timestamp_of(caller.now_ms())))
    caller.send_all([_FIRST, *(message for message, _ in found), last])
    caller.end()


def _tell_none(caller: Caller, answer: Command, now_ms: int) -> None:
    none = (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)
    if answer.code in none:
        status = PbStatus(Code.MESSAGE_NOT_FOUND, "no new message")
    else:
        status = PbStatus(code_of(answer.code), answer.remark or "the broker refused the request")
    caller.send(PbReceiveMessageResponse(status=status))
    caller.send(PbReceiveMessageResponse(delivery_timestamp=timestamp_of(now_ms)))
    caller.end()


def _poll_ms(caller: Caller, request: PbReceiveMessageRequest) -> int:
    """Return how long to wait for messages. RocketMQ: ReceiveMessageActivity.receiveMessage."""
    left_ms = caller.left_ms()
    if 0 < left_ms < _POLL_MIN_MS:
        raise RefusedCallError(Code.ILLEGAL_POLLING_TIME, f"a receive waits at least {_POLL_MIN_MS} ms for its answer")
    if request.long_polling_timeout is not None:
        wanted_ms = millis(request.long_polling_timeout)
    else:
        settings = caller.known.settings if caller.known is not None else None
        wanted_ms = left_ms - (millis(settings.request_timeout) if settings is not None else 3_000) // 2
    wanted_ms = min(max(wanted_ms, _POLL_MIN_MS), _POLL_MAX_MS)
    # The answer needs some of the time, too.
    return min(wanted_ms, left_ms - _NOT_BEFORE_MS) if left_ms > 0 else wanted_ms


def filter_of(expression: PbFilterExpression | None) -> tuple[int, str]:
    if expression is None:
        return enums.TAG, "*"
    text = expression.expression
    if len(text) > FILTER_MAX:
        raise RefusedCallError(Code.ILLEGAL_FILTER_EXPRESSION, f"a filter has at most {FILTER_MAX} characters")
    if expression.type != enums.SQL:
        if any(not tag.strip() for tag in text.split("||")) and text.strip():
            raise RefusedCallError(Code.ILLEGAL_FILTER_EXPRESSION, "a filter is tags with || between them, or *")
        return enums.TAG, text.strip() or "*"
    if not text.strip():
        raise RefusedCallError(Code.ILLEGAL_FILTER_EXPRESSION, "the SQL expression is empty")
    return enums.SQL, text


async def ack_message(caller: Caller, request: PbAckMessageRequest, renewals: Renewals) -> PbAckMessageResponse:
    """Acknowledge messages, each with a status of its own."""
    group, topic = group_of(request.group), topic_of(request.topic)
    if not request.entries:
        raise RefusedCallError(Code.BAD_REQUEST, "there is no entry")
    if len(request.entries) > ENTRIES_MAX:
        raise RefusedCallError(Code.TOO_MANY_REQUESTS, f"at most {ENTRIES_MAX} entries are acknowledged at once")
    if len(request.entries) == 1:
        entries = [await _ack_entry(caller, topic, group, request.entries[0], renewals)]
    else:
        entries = await _ack_many(caller, topic, group, request.entries, renewals)
    first = entries[0].status
    assert first is not None
    same = all(one.status is not None and one.status.code == first.code for one in entries)
    return PbAckMessageResponse(first if same else PbStatus(Code.MULTIPLE_RESULTS, "see the entries"), entries)


async def _ack_many(
    caller: Caller, topic: str, group: str, given: list[PbAckMessageEntry], renewals: Renewals
) -> list[PbAckMessageResultEntry]:
    """Acknowledge messages, some at a time: each is a request to a broker, and only some calls ask at a time."""
    entries: list[PbAckMessageResultEntry] = []
    for start in range(0, len(given), _ACKS_AT_ONCE):
        async with caller.acks:
            part = given[start : start + _ACKS_AT_ONCE]
            entries += await asyncio.gather(*(_ack_entry(caller, topic, group, one, renewals) for one in part))
    return entries


async def _ack_entry(
    caller: Caller, topic: str, group: str, entry: PbAckMessageEntry, renewals: Renewals
) -> PbAckMessageResultEntry:
    try:
        given = parse_handle(entry.receipt_handle)
        await _ack(caller, topic, group, renewals.pause(topic, group, given))
        renewals.take(topic, group, given)
        status = OK
    except (AerobeeError, TimeoutError) as error:
        refusal = refusal_of(error)
        status = PbStatus(refusal.status, refusal.message)
    return PbAckMessageResultEntry(entry.message_id, entry.receipt_handle, status)


async def _ack(caller: Caller, topic: str, group: str, handle: Receipt) -> None:
    # A message whose time was renewed by a front that is gone is held for longer than its handle says. The broker
    # knows; one of Apache's does not tell.
    is_late = handle.ends_ms <= caller.now_ms()
    header = AckMessageRequestHeader(
        consumer_group=group, topic=handle.topic(topic, group), queue_id=handle.queue_id,
        extra_info=handle.extra_info(), offset=handle.offset,
    )  # fmt: skip
    address = await _address(caller, topic, handle)
    answer = await caller.client.ask(
        address, RequestCode.ACK_MESSAGE, header, timeout_s=caller.timeout_s(),
        ext={TELL_HELD_FIELD: "true"} if is_late else None,
    )  # fmt: skip
    _require_handle(answer)
    if is_late and answer.ext.get(TELL_HELD_FIELD) != "true":
        raise _expired()


def _expired() -> RefusedCallError:
    return RefusedCallError(Code.INVALID_RECEIPT_HANDLE, "the handle has expired: the message is visible again")


def _require_handle(answer: Command) -> None:
    if answer.code == ResponseCode.MESSAGE_ILLEGAL:
        raise RefusedCallError(Code.INVALID_RECEIPT_HANDLE, answer.remark or "the handle is not valid")
    if answer.code != ResponseCode.SUCCESS:
        raise RefusedCallError(code_of(answer.code), answer.remark or "the broker refused the request")


async def _address(caller: Caller, topic: str, handle: Receipt) -> str:
    route = await route_or_refuse(caller.backend, topic)
    address = route.addresses.get(handle.broker)
    if address is None:
        raise RefusedCallError(Code.INVALID_RECEIPT_HANDLE, f"broker {handle.broker} has no topic {topic}, or is away")
    return address


async def change_invisible(
    caller: Caller, request: PbChangeInvisibleDurationRequest, renewals: Renewals
) -> PbChangeInvisibleDurationResponse:
    """Change when a message becomes visible again."""
    group, topic = group_of(request.group), topic_of(request.topic)
    hidden_ms = invisible_ms(request.invisible_duration, low=0)
    given = parse_handle(request.receipt_handle)
    handle = renewals.pause(topic, group, given)
    if handle.ends_ms <= caller.now_ms():
        raise _expired()
    address = await _address(caller, topic, handle)
    suspend = bool(request.suspend)
    changed = await change(caller, address, topic, group, handle, hidden_ms, suspend=suspend)
    renewals.take(topic, group, given)
    return PbChangeInvisibleDurationResponse(OK, changed.text())


async def change(
    caller: Caller, address: str, topic: str, group: str, handle: Receipt, hidden_ms: int, *, suspend: bool = False
) -> Receipt:
    """Ask the broker to hide a message for so long from now on; return its handle afterwards."""
    header = ChangeInvisibleTimeRequestHeader(
        consumer_group=group, topic=handle.topic(topic, group), queue_id=handle.queue_id,
        extra_info=handle.extra_info(), offset=handle.offset, invisible_time=hidden_ms, suspend=suspend,
    )  # fmt: skip
    answer = await caller.client.ask(
        address, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header, timeout_s=caller.timeout_s()
    )
    _require_handle(answer)
    return handle.renewed(
        int_or(answer.ext.get("popTime"), handle.pop_time),
        int_or(answer.ext.get("invisibleTime"), hidden_ms),
        int_or(answer.ext.get("reviveQid"), handle.revive_qid),
    )


async def _give_back(caller: Caller, address: str, topic: str, group: str, handles: list[Receipt]) -> None:
    """Let messages that did not reach their client become visible soon, without counting the try."""
    for handle in handles:
        try:
            await change(caller, address, topic, group, handle, _GIVEN_BACK_MS, suspend=True)
        except AerobeeError:
            return


async def forward_dead_letter(
    caller: Caller, request: PbForwardMessageToDeadLetterQueueRequest, renewals: Renewals
) -> PbForwardMessageToDeadLetterQueueResponse:
    """Move a message to the dead letters of the group, and acknowledge it."""
    group, topic = group_of(request.group), topic_of(request.topic)
    given = parse_handle(request.receipt_handle)
    handle = renewals.pause(topic, group, given)
    if handle.physical_offset < 0:
        raise RefusedCallError(Code.INVALID_RECEIPT_HANDLE, "the handle does not tell where the message is")
    if handle.ends_ms <= caller.now_ms():
        # Somebody else may have it by now: it would be a dead letter, and delivered.
        raise _expired()
    address = await _address(caller, topic, handle)
    await _bury(caller, address, topic, group, handle, request.message_id)
    renewals.take(topic, group, given)
    return PbForwardMessageToDeadLetterQueueResponse(OK)


async def _bury_spent(caller: Caller, address: str, topic: str, group: str, record: Record, handle: Receipt) -> None:
    """Move a message that was delivered often enough to the dead letters. One that cannot be moved comes again later,
    and must not keep those that came with it from their client."""
    message_id = (find_property(record.properties, b"UNIQ_KEY") or b"").decode("utf-8", "replace")
    try:
        await _bury(caller, address, topic, group, handle, message_id)
    except AerobeeError as error:
        caller.log.warning(
            "dead letter", "a message that was delivered often enough cannot become a dead letter", topic=topic,
            group=group, message=message_id, reason=error.message,
        )  # fmt: skip


async def _bury(caller: Caller, address: str, topic: str, group: str, handle: Receipt, message_id: str) -> None:
    header = ConsumerSendMsgBackRequestHeader(
        offset=handle.physical_offset, group=group, delay_level=-1, origin_msg_id=message_id,
        origin_topic=handle.topic(topic, group), unit_mode=False, max_reconsume_times=0,
    )  # fmt: skip
    answer = await caller.client.ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_s=caller.timeout_s())
    _require_handle(answer)
    await _ack(caller, topic, group, handle)
