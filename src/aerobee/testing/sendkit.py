"""Frames of producers for tests of a broker: sends with properties, half messages, ends, heartbeats, recalls."""

from __future__ import annotations

from aerobee.hot.log.layout import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from aerobee.hot.log.properties import encode_properties
from aerobee.model.ids import decode_offset_message_id
from aerobee.model.numbers import parse_int
from aerobee.protocol.bodies.heartbeat import HeartbeatData, ProducerData
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.send import RecallMessageRequestHeader, SendMessageRequestHeaderV2
from aerobee.protocol.headers.transaction import CheckTransactionStateRequestHeader, EndTransactionRequestHeader

COMMIT, ROLLBACK, UNKNOWN = TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, 0
GROUP = "P"


def send(
    unique_id: str = "K",
    body: bytes = b"body",
    *,
    topic: str = "T",
    queue_id: int = 0,
    sys_flag: int = 0,
    born_ms: int = 1,
    opaque: int = 8,
    properties: dict[str, str] | None = None,
) -> Command:
    """Return a SEND_MESSAGE_V2 request."""
    header = SendMessageRequestHeaderV2(
        producer_group=GROUP,
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_timestamp=born_ms,
        flag=0,
        properties=encode_properties({"UNIQ_KEY": unique_id, **(properties or {})}).decode(),
    )
    return request(RequestCode.SEND_MESSAGE_V2, header, body, opaque=opaque)


def half(
    unique_id: str = "K",
    body: bytes = b"body",
    *,
    topic: str = "T",
    queue_id: int = 0,
    born_ms: int = 1,
    opaque: int = 8,
    group: str = GROUP,
    properties: dict[str, str] | None = None,
) -> Command:
    """Return a half message, as Java's client sends it."""
    named = {"TRAN_MSG": "true", "PGROUP": group, **(properties or {})}
    return send(
        unique_id, body, topic=topic, queue_id=queue_id, sys_flag=TRANSACTION_PREPARED, born_ms=born_ms,
        opaque=opaque, properties=named,
    )  # fmt: skip


def end(answer: Command, verdict: int, *, group: str = GROUP, opaque: int = 9, oneway: bool = False) -> Command:
    """Return the end of the transaction whose half message was answered so."""
    header = EndTransactionRequestHeader(
        topic="T",
        producer_group=group,
        tran_state_table_offset=parse_int(answer.ext["queueOffset"]),
        commit_log_offset=decode_offset_message_id(answer.ext["msgId"]).physical_offset,
        commit_or_rollback=verdict,
        msg_id=answer.ext["transactionId"],
        transaction_id=answer.ext["transactionId"],
    )
    return request(RequestCode.END_TRANSACTION, header, opaque=opaque, oneway=oneway)


def end_checked(check: Command, verdict: int, *, group: str = GROUP, opaque: int = 10) -> Command:
    """Return the answer to a broker's question."""
    header = decode_header(CheckTransactionStateRequestHeader, check)
    told = EndTransactionRequestHeader(
        topic=header.topic,
        producer_group=group,
        tran_state_table_offset=header.tran_state_table_offset,
        commit_log_offset=header.commit_log_offset,
        commit_or_rollback=verdict,
        from_transaction_check=True,
        msg_id=header.msg_id or "",
        transaction_id=header.transaction_id,
    )
    return request(RequestCode.END_TRANSACTION, told, opaque=opaque, oneway=True)


def heartbeat(client_id: str = "client", *groups: str, opaque: int = 7) -> Command:
    """Return the heartbeat of a producer of these groups."""
    body = HeartbeatData(client_id, tuple(ProducerData(group) for group in groups or (GROUP,)), ())
    return request(RequestCode.HEART_BEAT, None, body.encode(), opaque=opaque)


def recall(handle: str, *, topic: str = "T", opaque: int = 11) -> Command:
    """Return a RECALL_MESSAGE request."""
    header = RecallMessageRequestHeader(producer_group=GROUP, topic=topic, recall_handle=handle)
    return request(RequestCode.RECALL_MESSAGE, header, opaque=opaque)
