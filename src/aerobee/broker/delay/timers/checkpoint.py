"""The progress of timed messages as Apache's slave asks for it, so that it can go on where this master stopped.

RocketMQ: TimerCheckpoint, AdminBrokerProcessor.getTimerCheckPoint, getTimerMetrics.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from aerobee.broker.delay.timers.driver import TimerService
from aerobee.errors import RemoteProtocolError
from aerobee.model.dialect import dumps
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response

_CHECKPOINT: Final = struct.Struct(">7q")


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    """How far timed messages were delivered. `config/timercheck` of Apache's store begins with the same bytes."""

    # Messages that are due before this time were delivered.
    read_ms: int = 0
    # So many records of the timer topic were taken in.
    taken: int = 0

    def encode(self) -> bytes:
        return _CHECKPOINT.pack(self.read_ms, 0, self.taken, self.taken, 0, 0, 0)

    @classmethod
    def decode(cls, data: bytes) -> TimerCheckpoint:
        """Read the answer of a master. Raise RemoteProtocolError for bytes that are none."""
        if len(data) < 32:
            raise RemoteProtocolError(f"a timer checkpoint has 56 bytes, not {len(data)}")
        read_ms, _, taken, master_taken = struct.unpack_from(">4q", data)
        return cls(read_ms, min(taken, master_taken) if master_taken else taken)


class TimerProgressHandlers:
    """Requests of Apache's slaves about timed messages."""

    def __init__(self, timers: TimerService) -> None:
        self._timers = timers

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_TIMER_CHECK_POINT: self.checkpoint,
            RequestCode.GET_TIMER_METRICS: self.metrics,
        }

    def checkpoint(self, channel: Channel, command: Command) -> Command:
        """Show the start of the slot up to which everything is done: Apache reads whole slots again, never parts."""
        progress = self._timers.progress
        if progress is None:
            return response(command, ResponseCode.SYSTEM_ERROR, remark="The checkpoint is null")
        precision_ms = max(1, progress.rules.precision_ms)
        read_ms = max(0, progress.resume_key - progress.resume_key % precision_ms)
        return response(command, body=TimerCheckpoint(read_ms, progress.queue_offset).encode())

    def metrics(self, channel: Channel, command: Command) -> Command:
        """Show no counts by topic: they serve Apache's own metrics only."""
        version = {"counter": 0, "stateVersion": 0, "timestamp": 0}
        return response(command, body=dumps({"dataVersion": version, "timingCount": {}}))
