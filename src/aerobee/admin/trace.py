"""The trace of a message: what clients wrote about it to the trace topic.

Apache's clients and ours write the same records. RocketMQ: TraceDataEncoder, TraceView.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aerobee.admin.connection import AdminConnection
from aerobee.admin.messages import find_by_key
from aerobee.admin.values import Value
from aerobee.errors.codes import TopicNotExistError
from aerobee.model.numbers import int_or

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
_LONG_MAX: Final = (1 << 63) - 1
_RECORD_END: Final = "\x02"
_FIELD_END: Final = "\x01"


@dataclass(frozen=True, slots=True)
class TraceEvent(Value):
    """One thing that a client did with a message: Pub, SubBefore, SubAfter, EndTransaction or Recall.

    `host` is the address of the client that wrote the trace. What an event does not tell is empty, 0 or None.
    """

    kind: str
    time_ms: int
    group: str
    host: str
    message_id: str
    topic: str = ""
    tags: str = ""
    keys: str = ""
    broker: str = ""
    cost_ms: int = 0
    success: bool | None = None
    retries: int = 0
    request_id: str = ""
    context_code: int | None = None
    transaction_state: str = ""
    from_check: bool = False


@dataclass(frozen=True, slots=True)
class MessageTrace(Value):
    """The events of one message in the order of their times, and the brokers that could not be asked."""

    message_id: str
    events: tuple[TraceEvent, ...]
    problems: tuple[str, ...] = ()


async def trace_of(
    admin: AdminConnection,
    key: str,
    *,
    topic: str = TRACE_TOPIC,
    begin_ms: int = 0,
    end_ms: int = _LONG_MAX,
    limit: int = 64,
    by_key: bool = False,
) -> MessageTrace:
    """Return what clients wrote about a message, found by its unique id, or with `by_key` by one of its keys."""
    try:
        found = await find_by_key(admin, topic, key, begin_ms=begin_ms, end_ms=end_ms, limit=limit)
    except TopicNotExistError:
        if topic != TRACE_TOPIC:
            raise
        # The first trace makes the topic.
        return MessageTrace(key, ())
    events: list[TraceEvent] = []
    for message in found.messages:
        host = message.born_host.rpartition(":")[0].strip("[]")
        for event in decode(message.body, host):
            if key in event.keys.split(" ") if by_key else event.message_id == key:
                events.append(event)
    events.sort(key=lambda event: event.time_ms)
    return MessageTrace(key, tuple(dict.fromkeys(events)), found.problems)


def decode(body: bytes, host: str = "") -> list[TraceEvent]:
    """Return the events of one trace message. Records that cannot be read are left out: anybody can write them."""
    events = []
    for record in body.decode("utf-8", "replace").split(_RECORD_END):
        event = _event(record.split(_FIELD_END), host)
        if event is not None:
            events.append(event)
    return events


def _event(line: Sequence[str], host: str) -> TraceEvent | None:
    kind = line[0]
    least = {"Pub": 13, "SubBefore": 8, "SubAfter": 6, "EndTransaction": 13, "Recall": 7}.get(kind)
    if least is None or len(line) < least:
        return None
    text = ["" if field == "null" else field for field in line]
    if kind == "Pub":
        return TraceEvent(
            kind, _number(text[1]), text[3], host, text[5], text[4], text[6], text[7], text[8], _number(text[10]),
            text[13 if len(text) > 13 else 12] == "true",
        )  # fmt: skip
    if kind == "SubBefore":
        return TraceEvent(
            kind, _number(text[1]), text[3], host, text[5], keys=text[7], retries=_number(text[6]), request_id=text[4]
        )
    if kind == "SubAfter":
        whole = len(text) >= 9
        return TraceEvent(
            kind, _number(text[7]) if whole else 0, text[8] if whole else "", host, text[2], keys=text[5],
            cost_ms=_number(text[3]), success=text[4] == "true", request_id=text[1],
            context_code=_number(text[6]) if len(text) >= 7 else None,
        )  # fmt: skip
    if kind == "EndTransaction":
        return TraceEvent(
            kind, _number(text[1]), text[3], host, text[5], text[4], text[6], text[7], text[8],
            transaction_state=text[11], from_check=text[12] == "true",
        )  # fmt: skip
    return TraceEvent(kind, _number(text[1]), text[3], host, text[5], text[4], success=text[6] == "true")


def _number(text: str) -> int:
    return int_or(text, 0)
