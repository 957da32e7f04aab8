"""The pull path's decode: what a pull asks, as one object from both codecs."""

from __future__ import annotations

from types import FunctionType
from typing import Final

from aerobee.hot.wire.frame import CODEC_JSON, Frame
from aerobee.hot.wire.jsonpull import PullFields, scan_json_pull
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.protocol.pulljson import decode_pull


def read_pull(frame: Frame) -> PullFields | None:
    """As decode_pull: None where the slow decode must say what is wrong, RemoteProtocolError for a broken frame."""
    # Byte by byte is the fastest way compiled, and by far the slowest interpreted.
    if frame.codec == CODEC_JSON and not _INTERPRETED:
        pull = scan_json_pull(frame)
        if pull is not None:
            return pull
    header = decode_pull(frame)
    return None if header is None else pull_fields(header)


def pull_fields(header: PullMessageRequestHeader) -> PullFields:
    """The same out of a decoded header."""
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


_INTERPRETED: Final = isinstance(read_pull, FunctionType)
