"""Headers of popping, acknowledging and changing invisible time."""

from __future__ import annotations

from aerobee.protocol.headers.base import Header, Int32, Int64, TopicQueueRequestHeader


class PopMessageRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """POP_MESSAGE."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class PopMessageResponseHeader(Header, kw_only=True):
    """Answer to POP_MESSAGE."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """ACK_MESSAGE."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    lite_topic: str | None = None


class ChangeInvisibleTimeRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """CHANGE_MESSAGE_INVISIBLETIME."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64
    lite_topic: str | None = None
    suspend: bool = False


class ChangeInvisibleTimeResponseHeader(Header, kw_only=True):
    """Answer to CHANGE_MESSAGE_INVISIBLETIME."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


class PeekMessageRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """PEEK_MESSAGE."""

    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


class PollingInfoRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """POLLING_INFO."""

    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoResponseHeader(Header, kw_only=True):
    """Answer to POLLING_INFO."""

    polling_num: Int32


class NotificationRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """NOTIFICATION."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    order: bool = False
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class NotificationResponseHeader(Header, kw_only=True):
    """Answer to NOTIFICATION."""

    has_msg: bool = False
    polling_full: bool = False
