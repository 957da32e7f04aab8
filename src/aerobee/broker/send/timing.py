"""Answers of sends that count how long sends took, for metrics. A broker without metrics uses `SendAnswers` itself.

One look at the clock serves all sends of a write. They count as SEND_MESSAGE_V2, whichever of the three codes they
had: what a draft was asked with is not kept.
"""

from __future__ import annotations

from typing import Final

from aerobee.broker.log import SendSettings
from aerobee.broker.rpctimes import RpcTimes, Sampled
from aerobee.broker.send.handler import PreparedSend, SendAnswers
from aerobee.hot.log.record import Draft
from aerobee.net.channel import Channel
from aerobee.protocol.codes import RequestCode

_SEND: Final[int] = RequestCode.SEND_MESSAGE_V2


class TimedSendAnswers(SendAnswers):
    """Counts each answer when it has been written."""

    def __init__(self, settings: SendSettings, times: RpcTimes) -> None:
        super().__init__(settings)
        self._times = times
        self._alone = Sampled(times, _SEND)

    def stored_all(
        self, channels: list[Channel | None], opaques: list[int], codecs: list[int], drafts: list[Draft]
    ) -> None:
        super().stored_all(channels, opaques, codecs, drafts)
        # They were gathered in one turn: the first one was read first.
        channel = channels[0]
        if channel is not None:
            self._times.add(_SEND, 0, channel.last_read_s, len(drafts))

    def stored(self, channel: Channel, opaque: int, codec: int, draft: Draft, code: int, queue_id: int = -1) -> None:
        super().stored(channel, opaque, codec, draft, code, queue_id)
        if code == 0:
            self._alone.seen(channel.last_read_s)
        else:
            self._times.add(_SEND, code, channel.last_read_s)

    def stored_timed(self, channel: Channel, opaque: int, codec: int, prepared: PreparedSend, code: int) -> None:
        super().stored_timed(channel, opaque, codec, prepared, code)
        self._times.add(_SEND, code, channel.last_read_s)

    def refused(self, channel: Channel, opaque: int, codec: int, code: int, remark: str) -> None:
        super().refused(channel, opaque, codec, code, remark)
        self._times.add(_SEND, code, channel.last_read_s)


def send_answers(settings: SendSettings, times: RpcTimes | None) -> SendAnswers:
    """Return what writes the answers of sends, and counts their times where that is wanted."""
    return SendAnswers(settings) if times is None else TimedSendAnswers(settings, times)
