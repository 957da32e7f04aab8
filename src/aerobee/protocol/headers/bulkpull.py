"""Headers of BULK_PULL, a request of ours (docs/formats/private.md)."""

from __future__ import annotations

from aerobee.protocol.headers.base import Header, Int32, Int64, TopicQueueRequestHeader


class BulkPullRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """BULK_PULL. `subscription` and `expression_type` as a pull has them; none takes every message."""

    topic: str
    queue_id: Int32
    queue_offset: Int64
    # No message from here on is wanted.
    end_offset: Int64
    max_msg_bytes: Int32
    subscription: str | None = None
    expression_type: str | None = None
    # For the statistics only.
    consumer_group: str | None = None


class BulkPullResponseHeader(Header, kw_only=True):
    """Answer to BULK_PULL. `damaged` counts records of the stretch that are in the log and cannot be served."""

    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    damaged: Int32 = 0
