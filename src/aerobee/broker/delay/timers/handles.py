"""Recall handles: what a sender gets for a timed message, and hands back to cancel it.

RocketMQ: RecallMessageHandle, SendMessageProcessor.attachRecallHandle.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from aerobee.model.names import is_retry_topic
from aerobee.model.numbers import INT64_MAX, int_or
from aerobee.model.sysproperties import REAL_TOPIC, TIMER_OUT_MS, UNIQ_KEY

_VERSION = "v1"


class RecallHandle(NamedTuple):
    """`v1 topic broker time id` in URL-safe base64. The time lies in the message's slot."""

    topic: str
    broker_name: str
    timestamp: str
    unique_id: str

    def encode(self) -> str:
        return base64.urlsafe_b64encode(" ".join((_VERSION, *self)).encode()).decode()


def decode_handle(text: str) -> RecallHandle | None:
    """Return the handle; None for anything that is none."""
    try:
        words = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True).decode().split(" ")
    except (binascii.Error, ValueError):
        return None
    return RecallHandle(*words[1:5]) if words[0] == _VERSION and len(words) >= 5 else None


def handle_of(properties: dict[str, str], broker_name: str) -> str:
    """Return the handle of a message that waits for its time; "" for every other. RocketMQ: attachRecallHandle."""
    topic = properties.get(REAL_TOPIC)
    out_ms = int_or(properties.get(TIMER_OUT_MS), -1, 0, INT64_MAX - 1)
    if out_ms < 0 or topic is None or is_retry_topic(topic):
        return ""
    return RecallHandle(topic, broker_name, str(out_ms + 1), properties.get(UNIQ_KEY, "")).encode()
