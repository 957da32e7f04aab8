"""Reads that are complete or an error: every broker group that has a part of a topic is asked, or the read fails.

Name servers show only brokers that are there. `Cluster.missing` says which others have a part of a topic. This module
waits for them as long as option retryTimeoutMs says. Then it raises, or goes on without them if option onMissingBroker
says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from aerobee.errors import AerobeeError, TransportError
from aerobee.model.queue import MessageQueue
from aerobee.runtime.blocking import pause
from aerobee.runtime.seams import Clock
from pyspark_rocketmq.source.cluster import Cluster
from pyspark_rocketmq.source.missing import MissingBrokerError, MissingPart
from pyspark_rocketmq.source.planning import Bounds
from pyspark_rocketmq.source.settings import SourceSettings

T = TypeVar("T")
_PAUSE_S: Final = 0.2

# Not below "aerobee", which logs nothing by default: these lines are for the log of the Spark application.
_log = logging.getLogger("pyspark_rocketmq")


@dataclass(frozen=True, slots=True)
class Found:
    """The queues that a read covers with their bounds, and the parts that it leaves out (option onMissingBroker)."""

    bounds: Mapping[MessageQueue, Bounds]
    skipped: tuple[MissingPart, ...] = ()


def patiently(clock: Clock, timeout_ms: int, work: Callable[[], T], *, is_known: bool = False) -> T:
    """Return the result of `work`. While a broker is away, try again until the time is over.

    With `is_known` the cluster has answered this query before: it may be the name server that is away.
    """
    until_s = clock.monotonic() + timeout_ms / 1000
    while True:
        try:
            return work()
        except (MissingBrokerError, TransportError) as error:
            # Without the name of a broker, no name server answers: its address may be wrong.
            is_asked = is_known or isinstance(error, MissingBrokerError) or error.broker is not None
            if not is_asked or clock.monotonic() >= until_s:
                raise
        pause(_PAUSE_S)


def all_bounds(
    cluster: Cluster,
    settings: SourceSettings,
    takes: Callable[[MessageQueue], bool] = lambda queue: True,
    known: Iterable[MessageQueue] = (),
    *,
    no_topic_is_error: bool = True,
) -> Found:
    """Return the bounds of every wanted queue, or raise MissingBrokerError. `known` are queues seen earlier."""
    wanted = settings.wanted
    found = cluster.queues(wanted, missing_is_error=no_topic_is_error)
    queues = [queue for queue in found if takes(queue)]
    missing = set(cluster.missing(lambda queue: wanted.takes(queue) and takes(queue), queues, known))
    failures: dict[str, AerobeeError] = {}
    there = [queue for queue in queues if cluster.address_of(queue) is not None]
    bounds = cluster.bounds(there, unreachable=failures.__setitem__)
    for queue in there:
        if queue not in bounds:
            group = cluster.broker_of(queue)
            missing.add(MissingPart(queue.topic, group, f"cannot be reached: {failures[group].message}"))
    if not missing:
        return Found(bounds)
    if not settings.skip_missing:
        raise MissingBrokerError(missing)
    tell_skipped(missing)
    return Found(bounds, tuple(sorted(missing)))


def tell_skipped(missing: Iterable[MissingPart]) -> None:
    """Log the parts that a read leaves out because option onMissingBroker says so."""
    for one in sorted(missing):
        _log.warning("onMissingBroker=skip: %s; its messages are not in the result", one.text())
