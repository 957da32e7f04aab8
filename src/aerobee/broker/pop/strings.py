"""The strings of POP's headers and handles. RocketMQ: ExtraInfoUtil.

A handle's parts are parted by single blanks: ckOffset popTime invisibleTime reviveQid type brokerName queueId and, in
handles of messages, the offset. Other parts may follow: Apache's proxy adds one or two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from mypy_extensions import i64

from aerobee.broker.pop.asked import PopBatch, PopResult
from aerobee.broker.pop.records import NORMAL, ORDER_REVIVE_QUEUE, recoded, records_in
from aerobee.errors import InvalidArgumentError
from aerobee.hot.wire.digits import whole_text
from aerobee.hot.wire.pop import numbers_text
from aerobee.model.numbers import INT32_MAX, NumberError, parse_int

_LONG_MAX: Final = 2**63 - 1
_FULL_BYTE: Final = 0xFF
_PARTS_MIN: Final = 7


class Handle(NamedTuple):
    """What a request names of a handle."""

    pop_time: int
    invisible_ms: int
    revive_queue: int

    @property
    def in_order(self) -> bool:
        return self.revive_queue == ORDER_REVIVE_QUEUE

    @property
    def until_ms(self) -> int:
        return self.pop_time + self.invisible_ms


def parse_handle(text: str) -> Handle:
    """Return what counts of a handle. Raise InvalidArgumentError for what is none."""
    parts = text.split(" ", 5)
    if len(parts) < 4:
        raise InvalidArgumentError(f"the handle [{text[:80]}] has {len(parts)} parts, and needs {_PARTS_MIN}")
    pop_time, invisible_ms, revive_queue = whole_text(parts[1]), whole_text(parts[2]), whole_text(parts[3])
    if pop_time >= 0 and invisible_ms >= 0 and 0 <= revive_queue <= INT32_MAX:
        return Handle(pop_time, invisible_ms, revive_queue)
    try:
        return Handle(
            parse_int(parts[1], 0, _LONG_MAX), parse_int(parts[2], 0, _LONG_MAX), parse_int(parts[3], 0, INT32_MAX)
        )
    except NumberError as error:
        raise InvalidArgumentError(f"the handle [{text[:80]}] cannot be read: {error}") from None


def runs_in(bits: bytes, start: int) -> list[tuple[int, int]]:
    """Return first and length of each run of set bits, the lowest bit first, where the first bit stands for `start`."""
    runs: list[tuple[int, int]] = []
    first: i64 = -1
    at: i64 = 0
    for place in range(len(bits)):
        byte: i64 = bits[place]
        if byte == _FULL_BYTE and first >= 0:
            at += 8
            continue
        if byte == 0 and first < 0:
            at += 8
            continue
        for _ in range(8):
            if byte & 1:
                if first < 0:
                    first = at
            elif first >= 0:
                runs.append((start + int(first), int(at - first)))
                first = -1
            byte >>= 1
            at += 1
    if first >= 0:
        runs.append((start + int(first), int(at - first)))
    return runs


def handle(start: int, result: PopResult, batch: PopBatch, broker_name: str, offset: int) -> str:
    """Return the handle of a message. RocketMQ: ExtraInfoUtil.buildExtraInfo."""
    return (
        f"{start} {result.pop_time} {result.invisible_ms} {result.revive_queue} {batch.kind} {broker_name}"
        f" {batch.queue_id} {offset}"
    )


def start_offset_info(batches: Iterable[PopBatch]) -> str:
    return ";".join([f"{one.kind} {one.queue_id} {one.start}" for one in batches])


def msg_offset_info(batches: Iterable[PopBatch]) -> str:
    return ";".join([f"{one.kind} {one.queue_id} {numbers_text(one.offsets).decode()}" for one in batches])


def order_count_info(batches: Iterable[PopBatch]) -> str:
    """Return how often messages were consumed before, and for old clients the least of each queue."""
    parts: list[str] = []
    for one in batches:
        parts += [f"{one.kind} qo{one.queue_id}%{offset} {count}" for offset, count in one.consumed.items()]
        all_known = len(one.consumed) == len(one.offsets)
        parts.append(f"{one.kind} {one.queue_id} {min(one.consumed.values()) if all_known else 0}")
    return ";".join(parts)


def body_of(result: PopResult, topic: str, broker_name: str) -> list[bytes | memoryview]:
    """Return the records of an answer: those of a retry topic under the name of the topic that was asked for."""
    parts: list[bytes | memoryview] = []
    name = topic.encode()
    for batch in result.batches:
        if batch.kind == NORMAL:
            parts += batch.buffers
            continue
        for offset, record in zip(batch.offsets, records_in(batch.buffers), strict=True):
            parts.append(recoded(record, name, handle(batch.start, result, batch, broker_name, offset)))
    return parts
