"""Answers that come after the handler has returned: when something was read, stored or said by another client."""

from __future__ import annotations

from aerobee.net.channel import Channel
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command, response

# Codes of a put that mean: it is in the log. Whether it is safe yet, the code says.
STORED = frozenset(
    (
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    )
)


def answer_later(channel: Channel, answer: Command, to: Command) -> None:
    """Send it, unless its client wants none or is gone."""
    if not to.is_oneway and not channel.closed:
        channel.send(answer)


def refuse_later(channel: Channel, to: Command, code: int, remark: str) -> None:
    """The same for a refusal."""
    answer_later(channel, response(to, code, remark=remark), to)
