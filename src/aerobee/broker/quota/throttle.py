"""The driver of quotas: it stands before the handler of sends where there are quotas, and nowhere else.

Who has sent too much is not read from until the debt is paid, so the network slows the client down. What it had sent
before waits here, for a second at most; then it is refused with FLOW_CONTROL, which Java's producers do not send again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Final

from aerobee.broker.quota.rules import PAUSE_MAX_S, Bucket, Buckets
from aerobee.errors import ProtocolError
from aerobee.hot.wire.frame import Frame
from aerobee.model.numbers import int_or
from aerobee.model.quota import Quota, QuotaKind
from aerobee.net.channel import Channel
from aerobee.net.server import Answer, FastHandler, Handler
from aerobee.protocol.codes import FLAG_ONEWAY, PrivateRequestCode, RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.sending import decode_send
from aerobee.runtime.seams import Clock

SENDS: Final = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
# The head of each message of a batch is its length.
_LENGTH: Final = 4
# A digest before the rows of a sink (docs/formats/private.md).
_KEY_SIZE: Final = 16
# A shorter pause would only make the loop turn.
_PAUSE_MIN_S: Final = 0.001
# A batch of more is refused by its handler.
_MESSAGES_MAX: Final = 10_000


class _Waiting:
    """The frames of one connection that is over its quota, with the time at which each came."""

    __slots__ = ("frames",)

    def __init__(self) -> None:
        self.frames: deque[tuple[float, Frame]] = deque()


class Throttle:
    """Holds sends to their quotas."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets = Buckets(())
        self._waiting: dict[int, _Waiting] = {}
        self.refused = 0

    def guarded_tables(
        self, handlers: Mapping[int, Handler], fast: Mapping[int, FastHandler], quotas: tuple[Quota, ...]
    ) -> tuple[Mapping[int, Handler], Mapping[int, FastHandler]]:
        """Return the tables with quotas before sends and before rows of sinks; the same where there are none."""
        guarded = self.guarded(fast, quotas)
        return self.guarded_rows(handlers, quotas), guarded

    def guarded(self, fast: Mapping[int, FastHandler], quotas: tuple[Quota, ...]) -> Mapping[int, FastHandler]:
        """Return the handlers with quotas before those of sends; the same handlers where there are none."""
        self._buckets = Buckets(quotas)
        if not quotas:
            return fast
        return {code: self._guard(one) if code in SENDS else one for code, one in fast.items()}

    def guarded_rows(self, handlers: Mapping[int, Handler], quotas: tuple[Quota, ...]) -> Mapping[int, Handler]:
        """Return the handlers with quotas before that of a sink's rows, which its tasks send again when told to wait.

        Call `guarded` first.
        """
        handler = handlers.get(PrivateRequestCode.BATCH_ROWS)
        if not quotas or handler is None:
            return handlers
        return {**handlers, PrivateRequestCode.BATCH_ROWS: self._rows_guard(handler)}

    def _rows_guard(self, handler: Handler) -> Handler:
        def guarded(channel: Channel, command: Command) -> Answer:
            now_s, body = self._clock.monotonic(), command.body
            buckets = self._named(channel, command.ext.get("topic", ""), now_s)
            if any(bucket.wait_s(now_s) > 0 for bucket in buckets):
                self.refused += 1
                return response(command, ResponseCode.SYSTEM_BUSY, remark=_remark(channel))
            keys = min(int_or(command.ext.get("keys"), 0, 0), len(body) // _KEY_SIZE)
            messages = messages_of(body, keys * _KEY_SIZE, len(body))
            for bucket in buckets:
                bucket.take(len(body), messages)
            return handler(channel, command)

        return guarded

    def _guard(self, handler: FastHandler) -> FastHandler:
        def guarded(channel: Channel, frame: Frame) -> None:
            waiting = self._waiting.get(channel.id)
            if waiting is not None:
                waiting.frames.append((self._clock.monotonic(), frame))
                return
            now_s = self._clock.monotonic()
            wait_s = self._take(channel, frame, now_s)
            if wait_s <= 0:
                handler(channel, frame)
                return
            waiting = self._waiting[channel.id] = _Waiting()
            waiting.frames.append((now_s, frame))
            # Nothing more is read from the client, and what it sends from now on waits.
            channel.begin_work()
            self._later(channel, handler, wait_s)

        return guarded

    def _later(self, channel: Channel, handler: FastHandler, wait_s: float) -> None:
        delay_s = min(max(wait_s, _PAUSE_MIN_S), PAUSE_MAX_S)
        asyncio.get_running_loop().call_later(delay_s, self._go_on, channel, handler)

    def _go_on(self, channel: Channel, handler: FastHandler) -> None:
        """Handle what waits, as far as the quota goes now."""
        waiting = self._waiting[channel.id]
        while waiting.frames and not channel.closed:
            now_s = self._clock.monotonic()
            came_s, frame = waiting.frames[0]
            wait_s = self._take(channel, frame, now_s)
            if wait_s > 0 and now_s - came_s < PAUSE_MAX_S:
                self._later(channel, handler, min(wait_s, came_s + PAUSE_MAX_S - now_s))
                return
            waiting.frames.popleft()
            if wait_s > 0:
                self._refuse(channel, frame)
                continue
            handler(channel, frame)
        del self._waiting[channel.id]
        channel.end_work()

    def _refuse(self, channel: Channel, frame: Frame) -> None:
        self.refused += 1
        if not frame.flag & FLAG_ONEWAY:
            channel.send(response(frame, ResponseCode.FLOW_CONTROL, remark=_remark(channel)))

    def _take(self, channel: Channel, frame: Frame, now_s: float) -> float:
        """Take a frame from every bucket that it belongs to, or return how long it has to wait."""
        buckets = self._buckets_of(channel, frame, now_s)
        wait_s = max((bucket.wait_s(now_s) for bucket in buckets), default=0.0)
        if wait_s <= 0 and buckets:
            messages, size = messages_in(frame), frame.end - frame.body_pos
            for bucket in buckets:
                bucket.take(size, messages)
        return wait_s

    def _buckets_of(self, channel: Channel, frame: Frame, now_s: float) -> list[Bucket]:
        topic = ""
        if QuotaKind.topic in self._buckets.kinds:
            try:
                topic = decode_send(frame).topic
            except ProtocolError:
                topic = ""  # the handler refuses it
        return self._named(channel, topic, now_s)

    def _named(self, channel: Channel, topic: str, now_s: float) -> list[Bucket]:
        kinds, found = self._buckets.kinds, []
        if QuotaKind.user in kinds and channel.user:
            found.append(self._buckets.of(QuotaKind.user, channel.user, now_s))
        if QuotaKind.address in kinds and not channel.user:
            found.append(self._buckets.of(QuotaKind.address, channel.source, now_s))
        if QuotaKind.topic in kinds and topic:
            found.append(self._buckets.of(QuotaKind.topic, topic, now_s))
        return [one for one in found if one is not None]


def _remark(channel: Channel) -> str:
    who = channel.user or channel.source
    return f"[QUOTA]{who} or the topic sends more than its quota allows: wait, then send again"


def messages_in(frame: Frame) -> int:
    """Return how many messages a send holds; 1 for a body that makes no sense, which its handler refuses."""
    if frame.code != RequestCode.SEND_BATCH_MESSAGE:
        return 1
    return messages_of(frame.buf, frame.body_pos, frame.end)


def messages_of(data: bytes | bytearray | memoryview, at: int, end: int) -> int:
    """Return how many messages lie one after the other between two places; 1 for what makes no sense."""
    count = 0
    while at + _LENGTH <= end and count < _MESSAGES_MAX:
        length = int.from_bytes(data[at : at + _LENGTH], "big")
        if length < _LENGTH:
            break
        count += 1
        at += length
    return max(1, count)
