"""Headers of pulling (11, 361) and of its answer."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field, json

from aerobee.protocol.headers.base import Header, Int32, Int64, TopicQueueRequestHeader


class PullMessageRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """PULL_MESSAGE."""

    declared_order: ClassVar[bool] = True

    consumer_group: str
    topic: str
    lite_topic: str | None = None
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    subscription: str | None = None
    sub_version: Int64
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_froward_client_id: str | None = None


class PullEnvelope(Struct, gc=False):
    """The JSON header of a pull."""

    code: int
    ext: PullMessageRequestHeader = field(name="extFields")
    flag: int = 0
    opaque: int = 0


decode_pull_envelope = json.Decoder(PullEnvelope, strict=False).decode


class PullMessageResponseHeader(Header, kw_only=True):
    """Answer to PULL_MESSAGE."""

    declared_order: ClassVar[bool] = True

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None
