"""How long requests took, by request code, answer and kind: counts in fixed classes of milliseconds.

It is compiled and used only where metrics are on. RocketMQ: RemotingMetricsManager (rpc_latency).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aerobee.net.channel import Channel
from aerobee.net.server import Answer, Handler
from aerobee.net.turns import Sliced, Slices
from aerobee.protocol.command import Command
from aerobee.runtime.bases import Clock

# RocketMQ: RemotingMetricsManager.getMetricsView.
BOUNDS_MS: Final = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)

# How many answers one look at the clock serves; see `Sampled`.
SAMPLED_EVERY: Final = 16

# Stands for the code of an answer that is given later, and of one that nobody waits for.
LATER: Final = 100_000
ONEWAY: Final = 100_001


class RpcTime:
    """The times of one kind of answer."""

    def __init__(self, request: int, answer: int, long_polling: bool) -> None:
        self.request = request
        self.answer = answer
        self.long_polling = long_polling
        self.counts: list[int] = [0] * 10
        self.total_ms = 0.0


class RpcTimes:
    """The times of all kinds."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.table: dict[int, RpcTime] = {}
        self.sampled: list[Sampled] = []

    def settle(self) -> None:
        """Count what was seen and not timed, so that the counts are exact."""
        for one in self.sampled:
            one.settle()

    def add(self, request: int, answer: int, began_s: float, times: int = 1, long_polling: bool = False) -> None:
        """Count answers that were given now to requests that were read at `began_s`."""
        key = request << 18 | answer << 1 | (1 if long_polling else 0)
        found = self.table.get(key)
        if found is None:
            found = self.table[key] = RpcTime(request, answer, long_polling)
        spent_ms = (self.clock.monotonic() - began_s) * 1000.0
        # Most answers are given within a millisecond.
        place = 0
        if spent_ms > 1.0:
            place = 1
            if spent_ms > 3.0:
                place = _place(spent_ms)
        found.counts[place] += times
        found.total_ms += spent_ms * times


class Sampled:
    """Successes of one request that are answered one by one and at once: every one is counted, every 16th is timed.

    A look at the clock for each would cost more than the rest of metrics together.
    """

    def __init__(self, times: RpcTimes, request: int) -> None:
        self._times = times
        self._request = request
        self._count = 0
        times.sampled.append(self)

    def seen(self, began_s: float) -> None:
        """Count an answer that was given now to a request that was read at `began_s`."""
        self._count += 1
        if self._count == SAMPLED_EVERY:
            self._count = 0
            self._times.add(self._request, 0, began_s, SAMPLED_EVERY)

    def settle(self) -> None:
        count, self._count = self._count, 0
        if count:
            self._times.add(self._request, 0, self._times.clock.monotonic(), count)


def _place(spent_ms: float) -> int:
    place = 0
    for bound in BOUNDS_MS:
        if spent_ms <= bound:
            return place
        place += 1
    return place


def timed(handlers: Mapping[int, Handler], times: RpcTimes) -> dict[int, Handler]:
    """Return handlers that count how long they take."""
    return {code: _timed(code, handler, times) for code, handler in handlers.items()}


def _timed(code: int, handler: Handler, times: RpcTimes) -> Handler:
    def timing(channel: Channel, command: Command) -> Answer:
        began_s = channel.last_read_s
        answer = handler(channel, command)
        if isinstance(answer, Sliced):
            answer.slices = _timed_slices(answer.slices, code, began_s, times)
        elif command.is_oneway:
            times.add(code, ONEWAY, began_s)
        elif answer is None:
            times.add(code, LATER, began_s)
        else:
            times.add(code, answer.code, began_s)
        return answer

    return timing


def _timed_slices(slices: Slices, code: int, began_s: float, times: RpcTimes) -> Slices:
    answer = yield from slices
    times.add(code, LATER if answer is None else answer.code, began_s)
    return answer
