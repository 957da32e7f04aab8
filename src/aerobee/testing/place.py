"""The same tests at Apache's servers and at ours: one name server, one broker, and a JVM of Apache's clients and tools.

Both are set alike: delays of a second, timers, traces, SQL92, questions about half messages within seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aerobee.admin.connection import AdminConnection
from aerobee.admin.topics import TopicChange, create_topic
from aerobee.testing.apache import ApacheBroker, ApacheNameServer
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.javasession import PATIENT, JavaSession

KINDS: Final = ("apache", "aerobee")

_SETTINGS: Final = {
    "messageDelayLevel": " ".join(["1s"] * 18),
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "timerWheelEnable": "true",
    "recallMessageEnable": "true",
    "defaultTopicQueueNums": "4",
    # Questions about half messages within seconds; ends of transactions written before the first of them.
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "4000",
    "transactionOpBatchInterval": "200",
}


@dataclass(frozen=True)
class Place:
    """Where clients go. `java` runs Apache's clients and mqadmin there."""

    kind: str
    namesrv: str
    broker: str
    address: str
    java: JavaSession

    def create_topic(self, name: str, queues: int = 4) -> None:
        """Create a topic, which is routed on return. Call this from a thread that runs no event loop."""

        async def create() -> None:
            async with AdminConnection(self.namesrv) as admin:
                await create_topic(admin, name, TopicChange(read_queues=queues, write_queues=queues))

        asyncio.run(create())


@contextmanager
def started_place(kind: str, work: Path) -> Iterator[Place]:
    """Start servers of one of `KINDS`, alone with their name server: no other broker gets their topics."""
    if kind == "aerobee":
        with (
            LocalCluster(settings={**_SETTINGS, **PATIENT}) as cluster,
            JavaSession(work / "java", cluster.namesrv) as java,
        ):
            yield Place(kind, cluster.namesrv, cluster.broker_name(0), cluster.broker_address(0), java)
        return
    with (
        ApacheNameServer(work / "namesrv") as names,
        ApacheBroker(work / "broker", work / "store", names.address, settings=_SETTINGS) as broker,
        JavaSession(work / "java", names.address) as java,
    ):
        yield Place(kind, names.address, "broker-a", broker.address, java)
