"""The send path's decode and answers: one typed decode per frame, no dict, one object from both codecs."""

from __future__ import annotations

from types import FunctionType
from typing import Final

from aerobee.errors import RemoteProtocolError
from aerobee.hot.wire.extfields import (
    SendFields,
    encode_pull_answer,
    encode_send_answer,
    encode_send_request,
    scan_send,
)
from aerobee.hot.wire.frame import CODEC_JSON, Frame
from aerobee.hot.wire.jsonsend import scan_json_send
from aerobee.hot.wire.pullanswer import PullAnswerForm
from aerobee.hot.wire.sendanswer import SendAnswerForm
from aerobee.protocol.codes import FLAG_ONEWAY, JSON, LANGUAGE, LANGUAGE_CODES, VERSION, RequestCode
from aerobee.protocol.command import Command, decode_command
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from aerobee.protocol.sendjson import decode_envelope

_LANGUAGE_CODE: Final = LANGUAGE_CODES[LANGUAGE]
_SEND_MESSAGE: Final[int] = RequestCode.SEND_MESSAGE
_SEND_REPLY_MESSAGE: Final[int] = RequestCode.SEND_REPLY_MESSAGE


def decode_send(frame: Frame) -> SendFields:
    """The fields of SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, SEND_REPLY_MESSAGE_V2 and their first versions.

    Raises InvalidHeaderError for a field that is missing or wrong, RemoteProtocolError for a broken frame.
    """
    if frame.code == _SEND_MESSAGE or frame.code == _SEND_REPLY_MESSAGE:
        return send_fields(decode_command(frame))
    if frame.codec != CODEC_JSON:
        return scan_send(frame) or send_fields(decode_command(frame))
    # Byte by byte is the fastest way compiled, and by far the slowest interpreted.
    send = None if _INTERPRETED else scan_json_send(frame)
    return send or decode_json_send(frame)


def decode_json_send(frame: Frame) -> SendFields:
    """As decode_send, for any JSON header of the second version."""
    try:
        envelope = decode_envelope(frame.header())
    except (ValueError, RecursionError):
        return send_fields(decode_command(frame))
    if envelope.code != frame.code:
        raise RemoteProtocolError(f"the header names two codes, {frame.code} and {envelope.code}")
    frame.opaque = envelope.opaque
    frame.flag = envelope.flag
    x = envelope.ext
    properties = x.i.encode("utf-8", "replace")
    return SendFields(x.a, x.b, x.c, x.d, x.e, x.f, x.g, x.h, properties, x.j, x.k, x.l, x.m, x.n)


def send_fields(cmd: Command) -> SendFields:
    """The same out of a decoded command: the slow way, and the one that says what is wrong."""
    header: SendMessageRequestHeader | SendMessageRequestHeaderV2
    if cmd.code in (_SEND_MESSAGE, _SEND_REPLY_MESSAGE):
        header = decode_header(SendMessageRequestHeader, cmd)
        broker_name = header.bname
    else:
        header = decode_header(SendMessageRequestHeaderV2, cmd)
        broker_name = header.broker_name
    return SendFields(
        header.producer_group,
        header.topic,
        header.default_topic,
        header.default_topic_queue_nums,
        header.queue_id,
        header.sys_flag,
        header.born_timestamp,
        header.flag,
        (header.properties or "").encode("utf-8", "replace"),
        header.reconsume_times or 0,
        bool(header.unit_mode),
        -1 if header.max_reconsume_times is None else header.max_reconsume_times,
        bool(header.batch),
        broker_name or "",
    )


def send_request(
    send: SendFields,
    body_size: int,
    *,
    opaque: int,
    code: int = RequestCode.SEND_MESSAGE_V2,
    oneway: bool = False,
    codec: int = JSON,
) -> bytes:
    """Head of a send; its body of `body_size` bytes follows. The client's own fast way."""
    flag = FLAG_ONEWAY if oneway else 0
    return encode_send_request(codec, code, opaque, flag, send, body_size, _LANGUAGE_CODE, LANGUAGE, VERSION)


def send_answer(
    codec: int,
    opaque: int,
    msg_id: str,
    queue_id: int,
    queue_offset: int,
    transaction_id: str,
    region: str,
    trace_on: bool,
) -> bytes:
    """The whole frame that answers a stored send. '' for transaction_id leaves it out."""
    return encode_send_answer(
        codec,
        opaque,
        msg_id,
        queue_id,
        queue_offset,
        transaction_id,
        region,
        trace_on,
        _LANGUAGE_CODE,
        LANGUAGE,
        VERSION,
    )


def send_answer_form(store_host: bytes, region: str, trace_on: bool) -> SendAnswerForm:
    """The same for many sends of one broker, which then write into one buffer."""
    return SendAnswerForm(store_host, region, trace_on, _LANGUAGE_CODE, LANGUAGE, VERSION)


def pull_answer_form() -> PullAnswerForm:
    """The same for the JSON answers that carry messages."""
    return PullAnswerForm(LANGUAGE, VERSION)


def pull_answer(
    codec: int,
    code: int,
    opaque: int,
    offsets: tuple[int, int, int],
    *,
    suggest_which_broker_id: int = 0,
    topic_sys_flag: int = -1,
    group_sys_flag: int = -1,
    remark: str = "",
    body_size: int = 0,
) -> bytes:
    """Head of a pull's answer for (next begin, min, max) offsets; the records follow as `body_size` bytes."""
    return encode_pull_answer(
        codec,
        code,
        opaque,
        suggest_which_broker_id,
        offsets[0],
        offsets[1],
        offsets[2],
        topic_sys_flag,
        group_sys_flag,
        remark,
        body_size,
        _LANGUAGE_CODE,
        LANGUAGE,
        VERSION,
    )


_INTERPRETED: Final = isinstance(decode_send, FunctionType)
