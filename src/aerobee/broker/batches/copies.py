"""Rows of a chunk as the messages that their readers see, and the checks of a chunk when it comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aerobee.broker.log import SHORT_PROPERTIES_MAX, batch_refusal, encode_stored, key_refusal, row_refusal
from aerobee.broker.refusal import Refusal
from aerobee.errors import AerobeeError
from aerobee.hot.log.batch import decode_batch
from aerobee.hot.log.javahash import java_hash_utf8
from aerobee.hot.log.layout import PROPERTIES_SIZE_MAX, SEAL_SIZE
from aerobee.hot.log.properties import decode_properties
from aerobee.hot.log.record import Draft
from aerobee.hot.wire.send import SLOW, scan_send_properties
from aerobee.model.sysproperties import (
    CLUSTER,
    KEYS,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
)
from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import ResponseCode

ROWS_MAX = 10_000
Parts = list[tuple[int, bytes, bytes]]
Place = Callable[[str, int, dict[str, str]], "tuple[str, int] | Refusal"]

_TIMER_NAMES = (TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC)


@dataclass(frozen=True, slots=True)
class Origin:
    """What the copies of one chunk have in common."""

    topic: str
    queue_id: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_host: bytes
    # The number of the chunk, for the field *prepared transaction offset*.
    serial: int


class Copies:
    """The maker of drafts from rows."""

    def __init__(self, place: Place, cluster: str, unique_id: Callable[[], str]) -> None:
        self._place = place
        self._cluster = cluster
        self._unique_id = unique_id

    def check(self, config: TopicConfig, queue_id: int, body: bytes, body_size_max: int) -> Parts | Refusal:
        """Return the rows of a chunk, each of which can be stored later whatever happens.

        The topic and the queue, unless it is negative, are found good by `Catalog.for_send` before.
        """
        if queue_id < 0:
            return _illegal(f"queue {queue_id}: rows name the queue they are for")
        try:
            parts = decode_batch(body, ROWS_MAX)
        except AerobeeError as error:
            return _illegal(error.message)
        refusal = batch_refusal(config.topic_name, len(parts), body_size_max)
        if refusal is not None:
            return refusal
        is_compacted = key_refusal(config, "") is not None
        for _, row, block in parts:
            is_slow = scan_send_properties(block)[0] == SLOW
            # A short and plain row passes every rule but that of its body.
            if is_slow or is_compacted or len(block) > SHORT_PROPERTIES_MAX or not 0 < len(row) <= body_size_max:
                refusal = row_refusal(block, len(row), body_size_max)
                properties = decode_properties(block)
                if refusal is None and is_compacted:
                    refusal = key_refusal(config, properties.get(KEYS, ""))
                if refusal is None and is_slow:
                    placed = self._place(config.topic_name, queue_id, properties)
                    refusal = placed if isinstance(placed, Refusal) else None
                if refusal is not None:
                    return refusal
        return parts

    def drafts(self, origin: Origin, parts: Parts) -> tuple[list[Draft], str]:
        """Return the rows as messages, without those that no record can hold, and why one of these cannot be held.

        None is left out of rows that passed `check`; a store that an older broker wrote may have others.
        """
        pair = f"{CLUSTER}\x01{self._cluster}\x02".encode()
        name = origin.topic.encode()
        drafts: list[Draft] = []
        reason = ""
        for part in parts:
            try:
                draft = self._draft(origin, name, pair, part)
            except AerobeeError as error:
                reason = error.message
                continue
            size = len(draft.properties) + SEAL_SIZE + 1
            if size > PROPERTIES_SIZE_MAX:
                reason = f"its properties take {size} bytes with those that the broker adds, {PROPERTIES_SIZE_MAX} fit"
            else:
                drafts.append(draft)
        return drafts, reason

    def _draft(self, origin: Origin, name: bytes, pair: bytes, part: tuple[int, bytes, bytes]) -> Draft:
        flag, body, block = part
        kind, tags, keys, unique = scan_send_properties(block)
        if kind == SLOW or not unique:
            return self._timed(origin, part)
        if block[-1] != 2:
            block += b"\x02"
        return Draft(
            name, origin.queue_id, flag, origin.sys_flag, origin.born_timestamp, origin.born_host, origin.store_host,
            0, origin.serial, body, block + pair, java_hash_utf8(tags, 0, len(tags)) if tags else 0,
            keys.decode("utf-8", "replace") if keys else "", unique.decode("utf-8", "replace"),
        )  # fmt: skip

    def _timed(self, origin: Origin, part: tuple[int, bytes, bytes]) -> Draft:
        flag, body, block = part
        properties = decode_properties(block)
        if not properties.get(UNIQ_KEY):
            properties[UNIQ_KEY] = self._unique_id()
        properties[CLUSTER] = self._cluster
        placed = self._place(origin.topic, origin.queue_id, properties)
        if isinstance(placed, Refusal):
            # The row could be placed when it came, and settings changed since. To deliver it now is better than never.
            for timer in _TIMER_NAMES:
                properties.pop(timer, None)
            placed = origin.topic, origin.queue_id
        tags = properties.get(TAGS, "").encode()
        return Draft(
            placed[0].encode(), placed[1], flag, origin.sys_flag, origin.born_timestamp, origin.born_host,
            origin.store_host, 0, origin.serial, body, encode_stored(properties),
            java_hash_utf8(tags, 0, len(tags)) if tags else 0, properties.get(KEYS, ""), properties[UNIQ_KEY],
        )  # fmt: skip


def _illegal(remark: str) -> Refusal:
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the rows are illegal: {remark}")
