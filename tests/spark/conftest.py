"""What the Spark tests share: one session per pytest process, one cluster, and helpers to fill its topics.

`spark` is the session; `cluster` a name server and two broker groups on free ports, for the whole session: give each
test topics of its own (`cluster.topic("orders", queues=2)` makes the name unique). `fresh_cluster` is one test's own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.model.message import Message
from aerobee.runtime.blocking import pause
from aerobee.runtime.disk import InlineDisk
from aerobee.store.readonly import durable_end
from aerobee.sync import Producer
from aerobee.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    from pyspark_rocketmq.session import why_no_spark

    missing = why_no_spark()
    for item in items:
        if item.path.is_relative_to(HERE):
            # A session start, a first read and imports, on a busy machine.
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))
            if missing is not None:
                item.add_marker(pytest.mark.skip(reason=missing))


class Cluster(LocalCluster):
    """A LocalCluster that also sends."""

    _numbers = itertools.count(1)

    def __init__(
        self, data: Path, brokers: int = 2, settings: dict[str, str] | None = None, *, replicas: int = 1
    ) -> None:
        super().__init__(brokers, replicas=replicas, data=data, settings=settings)
        self.data = data
        self.brokers = brokers

    def store_path(self, broker: int) -> Path:
        """The directory a store scan is given."""
        return self.data / self.broker_name(broker)

    def register(self) -> None:
        """Let every broker register now, as it would within seconds."""
        for place, node in list(self._nodes.items()):
            self._run_at(place, node.registrar.register_now())

    def topic(self, name: str = "topic", queues: int = 2) -> str:
        """A new topic with a name no other test has, on every broker."""
        made = f"{name}-{next(self._numbers)}"
        self.create_topic(made, queues)
        return made

    def send(self, topic: str, bodies: Iterable[bytes | str | Message], **options: Any) -> int:
        """Send all and wait; how many. `options` are Producer.send's (tags, keys, properties, queue ...)."""
        with Producer(self.namesrv, group="test-sender") as producer:
            futures = [
                producer.send_nowait(body)
                if isinstance(body, Message)
                else producer.send_nowait(topic, body.encode() if isinstance(body, str) else body, **options)
                for body in bodies
            ]
            for future in futures:
                future.result(timeout=60)
        return len(futures)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two broker groups for the whole run."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def fresh_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two broker groups for one test, to be killed and changed."""
    with Cluster(tmp_path / "cluster") as running:
        yield running


@pytest.fixture(scope="module")
def segmented_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two broker groups with segments of a megabyte for the tests of one file: there is something to archive."""
    settings = {"mappedFileSizeCommitLog": str(1 << 20), "maxMessageSize": "100000"}
    with Cluster(tmp_path_factory.mktemp("segmented"), settings=settings) as running:
        yield running


@pytest.fixture
def replicated_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two groups of two replicas each for one test."""
    with Cluster(tmp_path / "cluster", replicas=2) as running:
        yield running


@pytest.fixture
def wait_synced() -> Callable[[Path], None]:
    """Waits until a running broker has synced the whole log of its store: a scan shows no more than that."""
    return _wait_synced


def _wait_synced(store: Path) -> None:
    from pyspark_rocketmq_store.planning import first_store_ms, log_end, segments_of

    disk = InlineDisk()
    for _ in range(1200):
        last = [one for one in segments_of(disk, f"{store}/commitlog") if first_store_ms(disk, one) is not None][-1]
        if (durable_end(disk, str(store)) or 0) >= log_end(disk, last, None, False):
            return
        pause(0.05)
    raise AssertionError(f"{store} was not synced within a minute")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of this process. Its events hold the plans of all queries: no secret may stand in them."""
    from pyspark_rocketmq import session

    events = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
    events["spark.eventLog.dir"] = str(tmp_path_factory.mktemp("events"))
    yield session.session("aerobee-tests", "local[2]", **{"spark.driver.memory": "1g"}, **events)
    session.close()
