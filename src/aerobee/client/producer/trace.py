"""Message trace: what happened to each message, as records in a topic that Apache's tools read.

`encode_*` write the records; `TraceDispatcher` gathers them and sends them in the background, so that messages do not
wait for them. RocketMQ: TraceDataEncoder, AsyncTraceDispatcher, SendMessageTraceHookImpl.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from aerobee.client.core import ClientCore, SendReceipt, SendStatus
from aerobee.client.producer.sender import Sender, SenderConfig
from aerobee.client.producer.sendrequest import COMMIT, SendRequest, properties_text
from aerobee.errors import AerobeeError
from aerobee.telemetry.stdlog import get_log

_FIELD: Final = "\x01"
_END: Final = "\x02"
GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER"
BATCH_NUM: Final = 10
QUEUE_MAX: Final = 2048
BODY_SIZE_MAX: Final = 128_000
FLUSH_INTERVAL_S: Final = 5.0
_SEND_TIMEOUT_S: Final = 5.0
_CLOSE_TIMEOUT_S: Final = 3.0

_log = get_log("client.trace")


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One encoded event, and the keys by which it can be found."""

    text: str
    keys: tuple[str, ...]


def _line(*fields: object) -> str:
    texts = ("true" if f is True else "false" if f is False else "null" if f is None else str(f) for f in fields)
    return _FIELD.join(texts) + _END


def _keys(message_id: str, keys: str) -> tuple[str, ...]:
    return (message_id, *(key for key in keys.split(" ") if key))


def encode_pub(out: SendRequest, receipt: SendReceipt, group: str, began_ms: int, cost_ms: int) -> TraceRecord:
    """Return the record of a message that was sent. Absent tags and keys are `null`, as Java prints them."""
    text = _line(
        "Pub",
        began_ms,
        receipt.region,
        group,
        out.user_topic,
        receipt.message_id,
        out.tags or None,
        out.keys or None,
        receipt.broker_address,
        out.body_size,
        cost_ms,
        out.kind,
        receipt.offset_id,
        receipt.status is SendStatus.SEND_OK,
    )
    return TraceRecord(text, _keys(receipt.message_id, out.keys))


def encode_end_transaction(
    receipt: SendReceipt, group: str, state_name: str, from_check: bool, now_ms: int, kind: int = COMMIT
) -> TraceRecord:
    """Return the record of a transaction that ended: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW."""
    text = _line(
        "EndTransaction",
        now_ms,
        receipt.region,
        group,
        receipt.topic,
        receipt.message_id,
        None,
        None,
        receipt.broker_address,
        kind,
        receipt.transaction_id,
        state_name,
        from_check,
    )
    return TraceRecord(text, (receipt.message_id,))


def encode_sub_before(
    group: str, request_id: str, region: str, messages: Sequence[tuple[str, int, str]], now_ms: int
) -> TraceRecord:
    """Return the record of messages that go to a listener, each given as (message id, retries, keys)."""
    lines = [
        _line("SubBefore", now_ms, region, group, request_id, message_id, retries, keys or None)
        for message_id, retries, keys in messages
    ]
    return TraceRecord("".join(lines), _all_keys((m[0], m[2]) for m in messages))


def encode_sub_after(
    group: str,
    request_id: str,
    messages: Sequence[tuple[str, str]],
    *,
    cost_ms: int,
    success: bool,
    context_code: int,
    now_ms: int,
) -> TraceRecord:
    """Return the record of a listener that has answered. Each message is given as (message id, keys).

    `context_code`: 0 success, 1 time out, 2 exception, 3 returned null, 4 failed (ConsumeReturnType).
    """
    lines = [
        _line("SubAfter", request_id, message_id, cost_ms, success, keys or None, context_code, now_ms, group)
        for message_id, keys in messages
    ]
    return TraceRecord("".join(lines), _all_keys(messages))


def _all_keys(messages: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for message_id, keys in messages for key in _keys(message_id, keys)))


class TraceDispatcher:
    """A sender of records in batches. When too many records wait, the newest are dropped and counted."""

    def __init__(self, core: ClientCore, group: str, kind: str, topic: str) -> None:
        self.topic = topic
        self.dropped = 0
        self._core = core
        self._sender = Sender(core, f"{GROUP_PREFIX}-{group}-{kind}-1", SenderConfig(timeout_s=_SEND_TIMEOUT_S))
        self._waiting: deque[TraceRecord] = deque()
        self._flusher: asyncio.TimerHandle | None = None

    def append(self, record: TraceRecord) -> None:
        """Add a record. This neither waits nor fails."""
        if len(self._waiting) >= QUEUE_MAX:
            self.dropped += 1
            return
        self._waiting.append(record)
        if len(self._waiting) >= BATCH_NUM:
            self._flush()
        elif self._flusher is None:
            self._flusher = self._sender.loop.call_later(FLUSH_INTERVAL_S, self._flush)

    def _flush(self) -> None:
        if self._flusher is not None:
            self._flusher.cancel()
            self._flusher = None
        while self._waiting:
            text, keys = "", dict[str, None]()
            while self._waiting and len(text) + len(self._waiting[0].text) < BODY_SIZE_MAX:
                record = self._waiting.popleft()
                text += record.text
                keys.update(dict.fromkeys(record.keys))
            if not text:  # this record is larger than a message may be
                self._waiting.popleft()
                self.dropped += 1
                continue
            self._send(text, " ".join(keys))

    def _send(self, text: str, keys: str) -> None:
        message_id = self._core.unique_ids.next(self._core.clock.now_ms())
        body = text.encode()
        properties = properties_text(message_id, {"keys": keys})
        out = SendRequest(self.topic, self.topic, body, message_id, properties, len(body), keys=keys)
        try:
            sent = self._sender.post(out)
        except AerobeeError as error:
            self._lost(error)
        else:
            sent.add_done_callback(self._sent)

    def _sent(self, sent: asyncio.Future[SendReceipt]) -> None:
        error = None if sent.cancelled() else sent.exception()
        if error is not None:
            self._lost(error)

    def _lost(self, error: BaseException) -> None:
        self.dropped += 1
        _log.warning("a trace could not be sent", topic=self.topic, reason=str(error))

    async def close(self) -> None:
        """Send the records that were gathered, then close."""
        self._flush()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._sender.flush()
        except TimeoutError:
            _log.warning("traces were given up at close", topic=self.topic, messages=self._sender.in_flight)
        self._sender.close()
