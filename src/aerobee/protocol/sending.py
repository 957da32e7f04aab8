"""The decode of a send, from any version and codec into SendFields."""

from __future__ import annotations

from typing import Final

from aerobee.errors import RemoteProtocolError
from aerobee.hot.wire.frame import CODEC_JSON, Frame
from aerobee.hot.wire.send import SendAnswerForm, SendFields, scan_binary_send, scan_json_send
from aerobee.protocol.codes import LANGUAGE, LANGUAGE_CODES, VERSION, RequestCode
from aerobee.protocol.command import Command, decode_command
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2, decode_send_envelope

_SEND_MESSAGE: Final[int] = RequestCode.SEND_MESSAGE
_SEND_REPLY_MESSAGE: Final[int] = RequestCode.SEND_REPLY_MESSAGE


def decode_send(frame: Frame) -> SendFields:
    """Return the fields of SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, SEND_REPLY_MESSAGE_V2 or their first versions.

    Raises InvalidHeaderError for a field that is missing or wrong, and RemoteProtocolError for a broken frame.
    """
    if frame.code == _SEND_MESSAGE or frame.code == _SEND_REPLY_MESSAGE:
        return send_fields(decode_command(frame))
    if frame.codec != CODEC_JSON:
        return scan_binary_send(frame) or send_fields(decode_command(frame))
    return scan_json_send(frame) or decode_json_send(frame)


def decode_json_send(frame: Frame) -> SendFields:
    """Return what `decode_send` does, for a JSON header of the second version that is written in any way."""
    try:
        envelope = decode_send_envelope(frame.header())
    except (ValueError, RecursionError):
        return send_fields(decode_command(frame))
    if envelope.code != frame.code:
        raise RemoteProtocolError(f"the header names two codes, {frame.code} and {envelope.code}")
    frame.opaque = envelope.opaque
    frame.flag = envelope.flag
    ext = envelope.ext
    return SendFields(
        ext.producer_group,
        ext.topic,
        ext.default_topic,
        ext.default_topic_queue_nums,
        ext.queue_id,
        ext.sys_flag,
        ext.born_timestamp,
        ext.flag,
        ext.properties.encode("utf-8", "replace"),
        ext.reconsume_times,
        ext.unit_mode,
        ext.max_reconsume_times,
        ext.batch,
        ext.broker_name,
    )


def send_fields(cmd: Command) -> SendFields:
    """Return the fields of a decoded command. This is the slow way, and the one that says which field is wrong."""
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


def send_answer_form(store_host: bytes, region: str, trace_on: bool) -> SendAnswerForm:
    """Return the form that writes the answers to the sends of a broker."""
    return SendAnswerForm(store_host, region, trace_on, LANGUAGE_CODES[LANGUAGE], LANGUAGE, VERSION)
