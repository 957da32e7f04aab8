"""The largest body that a request of each code may have. The server asks before it decodes any of the body.

Apache accepts any body that fits a frame. Most requests have no body, or one of a few hundred bytes. A large body is
expensive for the server, so each code is allowed what its largest honest sender needs.
"""

from __future__ import annotations

from typing import Final

from aerobee.hot.wire.frame import FRAME_LENGTH_MAX
from aerobee.protocol.codes import PrivateRequestCode, RequestCode

DEFAULT_MAX: Final = 64 << 10

# Messages. The code that stores them checks their size.
_MESSAGES: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    PrivateRequestCode.BATCH_STATUS,
    PrivateRequestCode.BATCH_ROWS,
    PrivateRequestCode.BATCH_END,
)
_LARGE: Final = {
    # About 200 bytes a subscription: some thousand topics of one client.
    RequestCode.HEART_BEAT: 2 << 20,
    # About 70 bytes a queue.
    RequestCode.LOCK_BATCH_MQ: 1 << 20,
    RequestCode.UNLOCK_BATCH_MQ: 1 << 20,
    # About 200 bytes a topic or group: several thousand at a time.
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: 2 << 20,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: 2 << 20,
    # All topics of a broker, each time: about 200 bytes a topic.
    RequestCode.REGISTER_BROKER: 8 << 20,
    # All topics of another broker group: about 30 bytes a topic, and a line for each of 1,000 groups.
    PrivateRequestCode.TELL_GROUP: 8 << 20,
    PrivateRequestCode.KNOWN_GROUPS: 1 << 20,
}
BODY_SIZE_MAX: Final = {**dict.fromkeys(_MESSAGES, FRAME_LENGTH_MAX), **_LARGE}


def body_size_max(code: int) -> int:
    """Return the largest body in bytes that a request of this code may have."""
    return BODY_SIZE_MAX.get(code, DEFAULT_MAX)


def body_problem(code: int, size: int) -> str:
    """Return what is wrong with a body of this size and what to do about it, or '' if nothing is wrong."""
    limit = body_size_max(code)
    if size <= limit:
        return ""
    return f"the body of request {code} has {size} bytes, more than the {limit} it may have: send less at a time"
