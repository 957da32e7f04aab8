"""The decode of a pull, from both codecs into PullFields, and its answers."""

from __future__ import annotations

from typing import Final

import msgspec

from aerobee.errors import RemoteProtocolError
from aerobee.hot.wire.frame import CODEC_JSON, Frame, ext_fields
from aerobee.hot.wire.pull import PullAnswerForm, PullFields, encode_pull_answer
from aerobee.protocol.codes import LANGUAGE, LANGUAGE_CODES, VERSION
from aerobee.protocol.headers.pull import PullMessageRequestHeader, decode_pull_envelope

_LANGUAGE_CODE: Final = LANGUAGE_CODES[LANGUAGE]


def read_pull(frame: Frame) -> PullFields | None:
    """Return the fields of a pull that `scan_json_pull` leaves, or None if the slow decode must say what is wrong.

    Raises RemoteProtocolError for a broken frame.
    """
    header = decode_pull(frame)
    return None if header is None else pull_fields(header)


def decode_pull(frame: Frame) -> PullMessageRequestHeader | None:
    """Return the header of a pull, decoded in one typed step. The result and the errors are as in `read_pull`."""
    if frame.codec != CODEC_JSON:
        try:
            return msgspec.convert(ext_fields(frame), PullMessageRequestHeader, strict=False)
        except msgspec.ValidationError:
            return None
    try:
        envelope = decode_pull_envelope(frame.header())
    except (ValueError, RecursionError):
        return None
    if envelope.code != frame.code:
        raise RemoteProtocolError(f"the header names two codes, {frame.code} and {envelope.code}")
    frame.opaque = envelope.opaque
    frame.flag = envelope.flag
    return envelope.ext


def pull_fields(header: PullMessageRequestHeader) -> PullFields:
    """Return the fields of a decoded header."""
    return PullFields(
        consumer_group=header.consumer_group,
        topic=header.topic,
        queue_id=header.queue_id,
        queue_offset=header.queue_offset,
        max_msg_nums=header.max_msg_nums,
        sys_flag=header.sys_flag,
        commit_offset=header.commit_offset,
        suspend_timeout_millis=header.suspend_timeout_millis,
        subscription=header.subscription,
        sub_version=header.sub_version,
        expression_type=header.expression_type,
        max_msg_bytes=header.max_msg_bytes,
    )


def pull_answer_form() -> PullAnswerForm:
    """Return the form that writes the JSON answers with messages."""
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
    """Return the length words and the header of an answer with these (next begin, min, max) offsets."""
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
