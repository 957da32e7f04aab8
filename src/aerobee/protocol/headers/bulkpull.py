"""Headers of BULK_PULL, a request of Aerobee's own (docs/formats/private.md)."""

from __future__ import annotations

from typing import Final

from aerobee.protocol.headers.base import Header, Int32, Int64, TopicQueueRequestHeader

# The value of `parts` for readers that want no records, but to know which offsets have one. A broker that does not know
# it sends records without both parts.
OFFSETS_ONLY: Final = 4


class BulkPullRequestHeader(TopicQueueRequestHeader, kw_only=True):
    """BULK_PULL. `subscription` and `expression_type` are as in a pull. Without them, it takes all messages."""

    topic: str
    queue_id: Int32
    queue_offset: Int64
    # The pull ends before this offset.
    end_offset: Int64
    max_msg_bytes: Int32
    subscription: str | None = None
    expression_type: str | None = None
    # Used for statistics only.
    consumer_group: str | None = None
    # The generation of the topic that is meant. If the topic has another one, it was deleted and created again.
    generation: str | None = None
    # What records are wanted with: 1 their bodies, 2 their properties, 3 or nothing both; 4 no records, see the answer.
    parts: Int32 | None = None


class BulkPullResponseHeader(Header, kw_only=True):
    """Answer to BULK_PULL. `damaged` counts records of the range that are in the log but cannot be read.

    With `count` the answer has no records: the messages are those at `first_offset` and the offsets that follow it.
    """

    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    damaged: Int32 = 0
    first_offset: Int64 | None = None
    count: Int32 | None = None
    # How many bytes these messages have in the log.
    size: Int64 | None = None
