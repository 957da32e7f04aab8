"""A handler of pulls that counts how long each took. A broker without metrics uses `PullHandler` itself."""

from __future__ import annotations

from typing import Any, Final

from aerobee.broker.flowcontrol import FlowControl
from aerobee.broker.log import LongPolls
from aerobee.broker.membership import Clients, ConsumerFilters
from aerobee.broker.offsets import ConsumerOffsets
from aerobee.broker.pull.handler import PullHandler, _Pull
from aerobee.broker.pull.rules import PullRules, answer_code
from aerobee.broker.rpctimes import RpcTimes, Sampled
from aerobee.broker.stats import BrokerStats
from aerobee.broker.topics import Catalog
from aerobee.hot.wire.pull import PullFields
from aerobee.net.channel import Channel
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command
from aerobee.runtime.seams import Clock
from aerobee.store.messagestore import MessageStore
from aerobee.store.reads import GetResult

_PULL: Final[int] = RequestCode.PULL_MESSAGE


class TimedPullHandler(PullHandler):
    """Counts each answer when it has been written. Lite pulls count as pulls."""

    def __init__(  # noqa: PLR0913, PLR0917 (as its base)
        self,
        times: RpcTimes,
        rules: PullRules,
        store: MessageStore,
        catalog: Catalog,
        clients: Clients,
        filters: ConsumerFilters,
        offsets: ConsumerOffsets,
        polls: LongPolls[Any],
        stats: BrokerStats,
        flow: FlowControl,
        clock: Clock,
    ) -> None:
        super().__init__(rules, store, catalog, clients, filters, offsets, polls, stats, flow, clock)
        self._times = times
        self._found = Sampled(times, _PULL)

    def _pull(self, channel: Channel, code: int, opaque: int, codec: int, header: PullFields) -> Command | None:
        answer = super()._pull(channel, code, opaque, codec, header)
        if answer is not None:
            self._times.add(code, answer.code, channel.last_read_s)
        return answer

    def _answer_found(self, pull: _Pull, result: GetResult) -> None:
        super()._answer_found(pull, result)
        if pull.may_suspend:
            self._found.seen(pull.began_s)
        else:
            self._times.add(_PULL, 0, pull.began_s, 1, True)

    def _answer_busy(self, pull: _Pull) -> None:
        super()._answer_busy(pull)
        self._times.add(_PULL, ResponseCode.SYSTEM_BUSY, pull.began_s)

    def _answer_empty(
        self, pull: _Pull, status: str, next_offset: int, low: int | None = None, high: int | None = None
    ) -> None:
        super()._answer_empty(pull, status, next_offset, low, high)
        self._times.add(_PULL, answer_code(status, pull.header.queue_offset), pull.began_s, 1, not pull.may_suspend)


def pull_handler(  # noqa: PLR0913, PLR0917 (as the handler)
    times: RpcTimes | None,
    rules: PullRules,
    store: MessageStore,
    catalog: Catalog,
    clients: Clients,
    filters: ConsumerFilters,
    offsets: ConsumerOffsets,
    polls: LongPolls[Any],
    stats: BrokerStats,
    flow: FlowControl,
    clock: Clock,
) -> PullHandler:
    """Return the handler of pulls, one that counts their times where that is wanted."""
    if times is None:
        return PullHandler(rules, store, catalog, clients, filters, offsets, polls, stats, flow, clock)
    return TimedPullHandler(times, rules, store, catalog, clients, filters, offsets, polls, stats, flow, clock)
