"""Every test here needs Maven and Java. What takes seconds to start is started once: Apache's name server, JVMs."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aerobee.testing import apache
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.javasession import CLIENTS, JavaSession, Jvms
from aerobee.testing.place import KINDS, Place, started_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session")
def apache_namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apache.ApacheNameServer]:
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    with apache.ApacheNameServer(tmp_path_factory.mktemp("namesrv")) as server:
        yield server


@pytest.fixture(scope="session", params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Apache's servers, then ours, for tests of our clients that must hold at both."""
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    with started_place(request.param, tmp_path_factory.mktemp(request.param)) as started:
        yield started


@pytest.fixture(scope="session")
def apache_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Apache's alone, for what only its broker can show."""
    reason = apache.unavailable()
    if reason:
        pytest.skip(reason)
    with started_place("apache", tmp_path_factory.mktemp("apache")) as started:
        yield started


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """One session, here for what Spark does at Apache's broker."""
    from pyspark_rocketmq import session

    missing = session.why_no_spark()
    if missing:
        pytest.skip(missing)
    yield session.session("aerobee-interop", "local[2]")
    session.close()


@pytest.fixture(scope="session")
def jvms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jvms]:
    with Jvms(tmp_path_factory.mktemp("jvms")) as started:
        yield started


@pytest.fixture(scope="module", params=CLIENTS, ids=lambda client: f"{client[0]}-{client[1]}")
def java(request: pytest.FixtureRequest, cluster: LocalCluster, jvms: Jvms) -> JavaSession:
    """Each official client, at the `cluster` of the module that asks."""
    return jvms.at(cluster.namesrv, *request.param)
