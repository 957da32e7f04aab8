"""The records of a transaction: half message, committed copy, copy to ask about, copy of one given up, op message.

Each is as Apache's broker stores it, except that copies say their origin in *prepared transaction offset*
(docs/formats/transactions.md). RocketMQ: TransactionalMessageBridge, EndTransactionProcessor.endMessageTransaction,
DefaultTransactionalMessageCheckListener, AbstractTransactionalMessageCheckListener.sendCheckMessage.
"""

from __future__ import annotations

from collections.abc import Iterable

from aerobee.broker.log import copy_of, fitting_block, real_place
from aerobee.broker.transactions.halves import REMOVE_TAG, encode_op, origin_mark
from aerobee.hot.log.javahash import tags_code
from aerobee.hot.log.layout import TRANSACTION_COMMIT, TRANSACTION_MASK
from aerobee.hot.log.properties import decode_properties, encode_properties
from aerobee.hot.log.record import Draft, Record, encode_records
from aerobee.model.ids import offset_message_id
from aerobee.model.names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from aerobee.model.sysproperties import (
    CRC32,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    WAIT,
)
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.transaction import CheckTransactionStateRequestHeader

HALF: bytes = HALF_TOPIC.encode()
OP: bytes = OP_HALF_TOPIC.encode()
CHECK_MAX_TIME_QUEUE_NUMS = 1


def prepare_half(topic: str, queue_id: int, properties: dict[str, str], sys_flag: int) -> int:
    """Put a message away as a half message (queue 0 of the half topic): `properties` remember where it belongs. The
    new sys flag. RocketMQ: parseHalfMessageInner."""
    unique = properties.get(UNIQ_KEY)
    if unique:
        properties[TRANSACTION_ID] = unique
    properties[REAL_TOPIC] = topic
    properties[REAL_QUEUE_ID] = str(queue_id)
    return sys_flag & ~TRANSACTION_MASK


def renewed_copy(record: Record, origin: int, check_times: int | None) -> Draft:
    """Return a half message to be stored again, with its new count of questions (None: as it was)."""
    properties = decode_properties(record.properties)
    if check_times is not None:
        properties[TRANSACTION_CHECK_TIMES] = str(check_times)
    return _copy(record, HALF_TOPIC, record.queue_id, origin, properties)


def given_up_copy(record: Record, origin: int) -> Draft:
    """Return the copy of a half message that nobody answered for."""
    return _copy(record, TRANS_CHECK_MAX_TIME_TOPIC, 0, origin, decode_properties(record.properties))


def resumed_copy(record: Record) -> Draft:
    """Return a half message that was given up, as the beginning of a new transaction. RocketMQ:
    AdminBrokerProcessor.resumeCheckHalfMessage."""
    properties = decode_properties(record.properties)
    properties[TRANSACTION_CHECK_TIMES] = "0"
    draft = _copy(record, HALF_TOPIC, 0, 0, properties)
    draft.prepared_transaction_offset = 0
    return draft


def committed_copy(record: Record, origin: int, topic: str, queue_id: int, properties: dict[str, str]) -> Draft:
    """Return the message for its readers. `properties` are as `commit_properties` and the placing left them."""
    draft = _copy(record, topic, queue_id, origin, properties)
    draft.sys_flag = record.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
    return draft


def commit_properties(record: Record) -> tuple[str, int, dict[str, str]]:
    """Return real topic, real queue and properties of a half message to be committed; raise InvalidArgumentError where
    it names no place. Apache leaves TRAN_MSG in the stored text of a message that is committed at once, and so does
    this."""
    properties = decode_properties(record.properties)
    topic, queue_id = real_place(properties)
    del properties[REAL_TOPIC]
    del properties[REAL_QUEUE_ID]
    return topic, queue_id, properties


def op_draft(queue_offsets: Iterable[int], store_host: bytes, now_ms: int) -> Draft:
    """Return an op message, which says that half messages have ended. RocketMQ: makeOpMessageInner."""
    block = encode_properties({TAGS: REMOVE_TAG, WAIT: "true"})
    body = encode_op(queue_offsets)
    code = tags_code(REMOVE_TAG)
    return Draft(OP, 0, 0, 0, now_ms, store_host, store_host, 0, 0, body, block, code, "", "")


def check_request(copy: Draft, opaque: int, broker_name: str) -> Command:
    """Return the question about a half message, for a member of its group."""
    topic, queue_id = real_place(decode_properties(copy.properties))
    shown = Draft(
        topic.encode(), queue_id, copy.flag, copy.sys_flag, copy.born_timestamp, copy.born_host, copy.store_host,
        copy.reconsume_times, 0, copy.body, copy.properties, copy.tags_code, copy.keys, copy.uniq_key,
    )  # fmt: skip
    shown.queue_offset = copy.queue_offset
    body = encode_records([shown], copy.physical_offset, copy.store_timestamp, False)
    header = CheckTransactionStateRequestHeader(
        topic=HALF_TOPIC,
        tran_state_table_offset=copy.queue_offset,
        commit_log_offset=copy.physical_offset,
        msg_id=copy.uniq_key or None,
        transaction_id=copy.uniq_key or None,
        offset_msg_id=offset_message_id(copy.store_host, copy.physical_offset),
        bname=broker_name,
    )
    return request(RequestCode.CHECK_TRANSACTION_STATE, header, body, opaque=opaque, oneway=True)


def drop_prepared(properties: dict[str, str]) -> None:
    """Take TRAN_MSG from a committed message that is put away for later, as Apache does."""
    properties.pop(TRANSACTION_PREPARED, None)


def _copy(record: Record, topic: str, queue_id: int, origin: int, properties: dict[str, str]) -> Draft:
    properties.pop(CRC32, None)
    return copy_of(record, topic, queue_id, properties, fitting_block(record, properties), origin_mark(origin))


def real_topic(record: Record) -> str:
    """Return the topic that a half message was sent to; empty where it names none."""
    return decode_properties(record.properties).get(REAL_TOPIC, "")
